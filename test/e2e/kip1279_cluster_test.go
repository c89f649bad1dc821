package e2e

import (
	"fmt"
	"maps"
	"testing"

	"tidemark/internal/broker/mirror"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/internal/metastore"
	"tidemark/test/e2e/harness"
)

// leader is who leads the topic's only partition, and who else could: a live
// member of the ISR.
func (s *kipSide) leader(t *testing.T) (leader, other types.BrokerID) {
	t.Helper()
	other = types.NoBroker
	harness.Eventually(t, "a live node leads, and another is in sync", func() bool {
		rec := s.record(0)
		leader = rec.Leader
		if leader == types.NoBroker || s.nodes[leader].Ready() != nil {
			return false
		}
		for _, m := range rec.ISR {
			if m.ID != leader && s.nodes[m.ID].Ready() == nil {
				other = m.ID
			}
		}
		return other != types.NoBroker
	})
	return leader, other
}

// elect moves the topic's only partition to another leader, as the controller would.
func (s *kipSide) elect(t *testing.T) {
	t.Helper()
	_, other := s.leader(t)
	s.cluster.Elect(t, backTopic, other, nil)
	harness.Eventually(t, fmt.Sprintf("node %d of %s leads", other, s.name), func() bool { return s.record(0).Leader == other })
}

// keep keeps back the transactions of a side by which its mirror of the topic comes into
// a state, until let is called; awaitKept waits for one.
func (s *kipSide) keep(t *testing.T, state string) (awaitKept, let func()) {
	t.Helper()
	topic, _ := s.any().Image().TopicByName(backTopic)
	key := s.any().Image().Keys().Partition(topic.ID, 0)
	var kept []func() int
	var lets []func()
	for id, n := range s.nodes {
		if n.Ready() != nil {
			continue
		}
		k, l := s.cluster.Stores[id].Keep(func(txn metastore.Txn) bool {
			for _, op := range txn.Then {
				if op.Key != key {
					continue
				}
				rec, err := meta.DecodePartition(op.Key, op.Value)
				return err == nil && rec.Mirror != nil && rec.Mirror.State == state
			}
			return false
		})
		kept, lets = append(kept, k), append(lets, l)
	}
	awaitKept = func() {
		harness.Eventually(t, "the side is about to be "+state, func() bool {
			n := 0
			for _, k := range kept {
				n += k()
			}
			return n > 0
		})
	}
	return awaitKept, func() {
		for _, l := range lets {
			l()
		}
	}
}

// failBackThroughElections is failBack of a cluster whose leader, and its source's, are
// others as soon as the partition is closed (STARTING), and once more while it aligns.
func (s *kipSide) failBackThroughElections(t *testing.T, source *kipSide, lost int) {
	t.Helper()
	ctx, m := harness.Context(t), s.any().Mirrors()
	preview, err := m.Preview(ctx, "m", mirror.PreviewRequest{})
	if err != nil || int(preview.Records) != lost {
		t.Fatalf("preview of %s: %+v, %v; want %d records", s.name, preview, err, lost)
	}
	awaitKept, let := s.keep(t, meta.MirrorLogAlignment)
	failed := make(chan error, 1)
	go func() {
		_, err := m.Failback(ctx, "m", mirror.FailbackRequest{Plan: preview.Plan})
		failed <- err
	}()
	awaitKept()
	harness.Eventually(t, "the partition is closed, as any node sees it", func() bool {
		rec := s.record(0)
		return !rec.Writable && rec.Mirror != nil && rec.Mirror.State == meta.MirrorStarting
	})
	source.elect(t)
	s.elect(t)

	_, letMirror := s.keep(t, meta.MirrorMirroring) // so that it aligns for as long as the test wants
	let()
	err, _ = harness.Receive(t, "the failback ends", failed) // the first leader's adoption came too late: its successor goes on with the plan
	t.Logf("the failback that lost its leader: %v", err)
	harness.Eventually(t, "the partition aligns", func() bool {
		rec := s.record(0)
		if rec.Writable { // the successor's look met the source's election: it went back, and nothing was cut
			if p, err := m.Preview(ctx, "m", mirror.PreviewRequest{}); err == nil && int(p.Records) == lost {
				_, err = m.Failback(ctx, "m", mirror.FailbackRequest{Plan: p.Plan})
				t.Logf("the failback once more: %v", err)
			}
		}
		return !rec.Writable && rec.Mirror != nil && rec.Mirror.State == meta.MirrorLogAlignment
	})
	source.elect(t)
	s.elect(t)
	letMirror()
}

// TestFailbackByKIP1279OfClusters changes sides twice between clusters of three nodes that
// know of each other what KIP-1279 tells and nothing else, with elections on both sides
// in the middle. One replica of the old primary sleeps through each change: it
// holds records that are given up meanwhile, and comes back into a log that has others
// there, of the same leader epoch: no comparison of epochs tells them apart (R19 does).
func TestFailbackByKIP1279OfClusters(t *testing.T) {
	a, b := kipPair(t, 3, 1)
	primary, standby := a, b
	for round := range 2 {
		clear(primary.written)
		standby.pauseMirror(t)
		before := primary.record(0).LeaderEpoch
		// acks=all: the sleeper has them too, in leader epochs that the standby gives as well.
		for n := 0; n == 0 || primary.record(0).LeaderEpoch <= standby.record(0).LeaderEpoch; n++ {
			primary.elect(t)
			primary.write(t, 1, fmt.Sprintf("lag%d-%d", round, n), 1)
		}
		_, sleeper := primary.leader(t)
		primary.nodes[sleeper].Stop(t)
		slept := maps.Clone(primary.written)
		primary.write(t, 1, fmt.Sprintf("split%d", round), 4)
		primary.slept[sleeper] = map[string]bool{}
		for v := range primary.written {
			if !slept[v] {
				primary.slept[sleeper][v] = true
			}
		}
		maps.Copy(primary.cut, primary.written)

		standby.failOver(t, 1)
		if made := standby.record(0).Promotions[len(standby.record(0).Promotions)-1]; made.PromotedEpoch <= before || made.PromotedEpoch > primary.record(0).LeaderEpoch {
			t.Fatalf("round %d: promoted at epoch %d, the old primary gave %d to %d: nothing to see", round, made.PromotedEpoch, before+1, primary.record(0).LeaderEpoch)
		}
		standby.write(t, 1, fmt.Sprintf("new%d", round), 3)
		primary.failBackThroughElections(t, standby, len(primary.written))
		awaitEqual(t, standby.side, primary.side, 1)
		standby.write(t, 1, fmt.Sprintf("later%d", round), 2)

		primary.cluster.Restart(t, sleeper)
		primary.advertise(t, sleeper)
		awaitEqual(t, standby.side, primary.side, 1)
		if rec := primary.record(0); len(rec.ISR) != 3 {
			t.Errorf("round %d: ISR %v after the sleeper's return", round, rec.ISRIDs())
		}
		primary.checkVaults(t)
		standby.checkVaults(t)
		primary, standby = standby, primary
	}
}
