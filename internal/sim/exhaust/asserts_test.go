package exhaust

import (
	"testing"

	"tidemark/internal/assert/asserttest"
	"tidemark/internal/core/modellog"
)

func TestAStepThatIsNotPossibleAnyMore(t *testing.T) {
	w, err := worldNamed("cluster")
	if err != nil {
		t.Fatal(err)
	}
	s, err := w.first()
	if err != nil {
		t.Fatal(err)
	}
	e := &explorer{x: &searcher{w: w}}
	e.again(s, act(doCrash, 0, 0))
	asserttest.Breaks(t, "I-300", func() { e.again(s, act(doElect, 0, 0)) }) // it leads
}

// A history that begins an epoch above its batch is not the one that the batches imply.
func TestAHistoryThatNoBatchesImply(t *testing.T) {
	n := &node{}
	n.log.Records, n.log.End = []modellog.Record{{Offset: 0, Epoch: 2}}, 1
	if _, err := n.log.History.Assign(2, 1); err != nil {
		t.Fatal(err)
	}
	asserttest.Breaks(t, "I-301", n.recover)
}
