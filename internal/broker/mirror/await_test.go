package mirror

import (
	"testing"
	"time"

	"tidemark/internal/core/meta"
	core "tidemark/internal/core/mirror"
)

// TestAPartComesBeforeItsMirror: a broker that is asked for its part of a verb may see
// the mirror a moment later than who asks.
func TestAPartComesBeforeItsMirror(t *testing.T) {
	n := newPaperNode(t, 1)
	m := &Mirrors{o: Options{Node: n}, ctx: t.Context()}
	time.AfterFunc(20*time.Millisecond, func() {
		n.put(t, meta.KeysOf(paperCluster).Mirror("m"), meta.MirrorRecord{Name: "m", Want: meta.WantCreated, Bootstrap: []string{"h:1"}}.Encode())
	})
	image, e := m.awaitMirror(t.Context(), "m")
	if e == nil || e.Record.Name != "m" {
		t.Fatalf("%+v of revision %d", e, image.Revision())
	}
}

// TestAGapComesBeforeItsRecord: the status tells of a gap as soon as the copier stands there; the
// operator's word for it may come before the record says so.
func TestAGapComesBeforeItsRecord(t *testing.T) {
	n := newPaperNode(t, 1)
	r := &run{name: "m", copiers: map[meta.PartitionID]*copier{}}
	m := &Mirrors{o: Options{Node: n}, ctx: t.Context(), runs: map[string]*run{"m": r}}
	id := meta.PartitionID{Topic: paperTopic}
	c := &copier{id: id}
	r.copiers[id] = c
	state := func(want string) bool { rec, _ := n.Image().Partition(paperTopic, 0); return rec.Mirror.State == want }
	if m.awaitGaps(t.Context(), part{Mirror: "m"}); state(meta.MirrorFailed) {
		t.Fatal("nothing stands at a gap")
	}
	c.status.Store(&shown{Status: core.Status{Reason: core.SourceGap}})
	failed := n.to(t, 0, meta.MirrorFailed)
	time.AfterFunc(20*time.Millisecond, func() { n.write(t, failed) })
	if m.awaitGaps(t.Context(), part{Mirror: "m"}); !state(meta.MirrorFailed) {
		t.Error("the gap's record was not waited for")
	}
}
