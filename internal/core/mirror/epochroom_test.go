package mirror

import (
	"math"
	"testing"

	"tidemark/internal/core/meta"
	"tidemark/internal/core/replica"
	"tidemark/internal/core/types"
)

// TestNoEpochLeft: a source that shows the highest leader epochs there are is refused, by its
// metadata or by its batches. Adopted, there was none above for an election here: the
// transaction's own check panicked, on a node that was starting many partitions.
func TestNoEpochLeft(t *testing.T) {
	pol := Policy{ClusterID: "b", Me: 1, TopicID: types.TopicID{1}}
	own := Own{Log: replica.Log{}}
	for _, c := range []struct {
		epoch types.LeaderEpoch
		taken bool
	}{{3, true}, {epochMost, true}, {epochMost + 1, false}, {math.MaxInt32, false}} {
		rec := &meta.PartitionRecord{Replicas: []types.BrokerID{1}, ISR: []meta.ISRMember{{ID: 1}}, Leader: 1, LeaderEpoch: 1, MinISR: 1, Mirror: NewMirrored("m", "s")}
		src := Source{ClusterID: "a", TopicID: types.TopicID{1}, LeaderEpoch: c.epoch}
		if r := Identify(rec, pol, src); (r.Reason == "") != c.taken || !c.taken && r.Reason != SourceInconsistent {
			t.Errorf("epoch %d: %v", c.epoch, r)
		}
		if _, a := Repoint(rec, StartRequest{Mirror: "m", StartID: "s", Own: &own}, pol, src, 1); (a.Refused.Reason == "") != c.taken {
			t.Errorf("epoch %d: %+v", c.epoch, a)
		}

		// A source that says no leader epoch, and gives a batch of this one.
		p := New(pol)
		var out Effects
		src.LeaderEpoch = types.NoLeaderEpoch
		adopted, _ := Adopt(rec, pol, src, &own, 1)
		adopted.Mirror.State = meta.MirrorMirroring
		own.HasCheckpoint, own.Checkpoint.List, own.Checkpoint.LeaderEpoch = true, adopted.Timelines, adopted.LeaderEpoch
		p.Step(1, &own, RecordShown{Record: &adopted, Leading: true, AllFetched: true}, &out)
		p.Step(1, &own, SourceShown{Ticket: out.List[len(out.List)-1].(LookUp).Ticket, Source: src}, &out)
		fetch := out.List[len(out.List)-1].(Fetch)
		out.Reset()
		p.Step(1, &own, Fetched{Ticket: fetch.Ticket, Reply: replica.Reply{To: fetch.Request, LogStart: 0, HighWatermark: 1, Batches: []replica.Batch{{Base: 0, Next: 1, Epoch: c.epoch}}}}, &out)
		propose, proposed := out.List[len(out.List)-1].(Propose)
		if !proposed || (propose.Purpose == ForRaise) != c.taken || !c.taken && propose.Purpose != ForFailure {
			t.Errorf("a batch of epoch %d: %+v", c.epoch, out.List)
		}
	}
}
