package mirror

import (
	"testing"

	"tidemark/internal/core/replica"
	"tidemark/internal/core/timeline"
	"tidemark/internal/core/types"
)

// TestDryRunCutsWhereTheLogDoes: a cut within a batch takes the whole batch, but the log
// doesn't end below its log start for it: nothing is left then, and no gap is seen to a
// source that begins at the same offset (R1, R28).
func TestDryRunCutsWhereTheLogDoes(t *testing.T) {
	list := timeline.List{{ID: "root"}}
	batches := func(o types.Offset) types.Offset { return o - o%4 } // of four records
	f := func(name string, start, end, want types.Offset) {
		t.Helper()
		rec, own, pol := onA(list)
		own.LogStart = start
		own.History.TruncateFromStart(start)
		agrees := func(r replica.Request) (replica.Reply, error) {
			if r.Offset > end {
				return replica.Reply{Kind: replica.AnswerDiverging, Diverging: replica.EpochEnd{Epoch: 2, End: end}, LogStart: start}, nil
			}
			return replica.Reply{Kind: replica.AnswerData, LogStart: start}, nil
		}
		s := Source{ClusterID: "B", TopicID: testTopic, LeaderEpoch: 70, LogStart: start, LogEnd: 30, Timelines: list}
		plan, err := DryRun(&rec, pol, s, own, batches, agrees)
		if err != nil {
			t.Fatal(err)
		}
		if len(plan.Cuts) != 1 || plan.CutAt != want || plan.Cuts[0].From != want || plan.Cuts[0].To != 25 || plan.Gap {
			t.Errorf("%s: cut at %d, gap %v, %+v; expected a cut at %d", name, plan.CutAt, plan.Gap, plan.Cuts, want)
		}
	}
	f("above the batch that holds the log start", 6, 10, 8)
	f("within it", 6, 7, 6)
	f("at the log start", 6, 6, 6)
}
