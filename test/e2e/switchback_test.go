package e2e

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"tidemark/internal/broker/mirror"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/test/e2e/harness"
)

// switchback is a mirror of three nodes whose switchover at node 1 has closed its source, and
// can't drain it: the mirror's throttle lets nothing through.
type switchback struct {
	a, b    *side
	cluster *harness.Cluster
	done    chan error // what the switchover comes to
}

const (
	throttleSetting = "mirror.throttle.bytes.per.second"
	unthrottled     = "1000000000"
)

func startSwitchback(t *testing.T) *switchback {
	t.Helper()
	s := &switchback{a: startSide(t, "A", 1), done: make(chan error, 1)}
	s.b, s.cluster = startSideWith(t, "B", 3)
	s.a.createTopic(t, 1)
	s.a.write(t, 1, "first", 2)
	mirrorOf(t, s.b.any(), mirror.Spec{Bootstrap: s.a.addresses(), Settings: map[string]string{throttleSetting: "1"}})
	harness.Eventually(t, "it mirrors", func() bool { return s.b.record(0).Mirror != nil && s.b.record(0).Mirror.State == meta.MirrorMirroring })
	s.a.write(t, 1, strings.Repeat("x", 1000), 3)
	go func() {
		_, err := s.b.nodes[1].Mirrors().Switchover(harness.Context(t), "m", mirror.SwitchoverRequest{TimeoutMs: types.Millis(harness.Patience.Milliseconds())})
		s.done <- err
	}()
	harness.Eventually(t, "the source is closed", func() bool { return s.a.record(0).Fence != nil })
	return s
}

// awaitWrites waits until the leader takes writes: it sees the record a moment after the store has it.
func (s *side) awaitWrites(t *testing.T) {
	t.Helper()
	harness.Eventually(t, "writes are taken by "+s.name, func() bool { return s.tryWrite(t, "may we") == nil })
}

// attempt is the mirror's newest switchover, as a node that wasn't stopped or cut off knows it.
func (s *switchback) attempt(t *testing.T, node types.BrokerID) meta.Switchover {
	t.Helper()
	e, ok := s.b.nodes[node].Image().Mirror("m")
	if !ok || e.Record.Switch == nil {
		t.Fatal("the mirror has no switchover")
	}
	return *e.Record.Switch
}

// A switchover's node that dies between the fence and the order leaves no source closed:
// the other nodes give it up, the source opens by itself and tells, producers go on, the
// mirror runs on. And the node that was only frozen comes back with its old order: refused.
func TestASourceOpensAfterItsSwitchoversNode(t *testing.T) {
	s := startSwitchback(t)
	harness.Eventually(t, "the source takes no writes behind its fence", func() bool { return s.a.tryWrite(t, "behind the fence") != nil })
	before := s.a.record(0)
	s.cluster.Lapse(t, 1)
	harness.Eventually(t, "the source is open again", func() bool { return s.a.record(0).Writable })
	rec := s.a.record(0)
	if rec.Fence != nil || rec.LeaderEpoch != before.LeaderEpoch+1 || rec.Returned == nil || rec.Returned.Attempt != before.Fence.Attempt {
		t.Errorf("the source is %+v after %+v", rec, before)
	}
	s.a.awaitWrites(t)
	s.a.write(t, 1, "goes on", 2)
	harness.Eventually(t, "it is told", func() bool {
		for _, id := range []types.BrokerID{2, 3} {
			if slices.ContainsFunc(s.b.nodes[id].Mirrors().Events(), func(e mirror.Event) bool {
				return e.Kind == mirror.SwitchoverReturned && strings.Contains(e.Message, "broker 1 was at work at") && strings.Contains(e.Message, "1 partitions of the source are opened")
			}) {
				return true
			}
		}
		return false
	})
	harness.Eventually(t, "it is over", func() bool { return s.attempt(t, 2).State == meta.SwitchOver })
	for id := range s.b.nodes {
		s.cluster.Stores[id].Cut(false)
	}
	if _, err := s.b.nodes[2].Mirrors().Alter(harness.Context(t), "m", mirror.Alteration{Settings: map[string]string{throttleSetting: unthrottled}}); err != nil {
		t.Fatal(err)
	}
	if err, _ := harness.Receive(t, "the switchover ends", s.done); err == nil || !errors.Is(err, mirror.ErrState) && !strings.Contains(err.Error(), "went back") {
		t.Errorf("the switchover of the frozen node: %v", err)
	}
	harness.Eventually(t, "the mirror has everything", func() bool {
		rec := s.b.record(0)
		return rec.IsMirror() && s.b.logEnd(t, 0) == s.a.logEnd(t, 0)
	})
	if rec := s.a.record(0); !rec.Writable || rec.LeaderEpoch != before.LeaderEpoch+1 {
		t.Errorf("the source is %+v", rec)
	}
}

// A node that starts again takes back what its own process left, also where it is the only one.
func TestASourceOpensAfterALoneNodesRestart(t *testing.T) {
	a, b := startSide(t, "A", 1), startSide(t, "B", 1)
	a.createTopic(t, 1)
	a.write(t, 1, "first", 1)
	mirrorOf(t, b.any(), mirror.Spec{Bootstrap: a.addresses(), Settings: map[string]string{throttleSetting: "1"}})
	harness.Eventually(t, "it mirrors", func() bool { return b.record(0).Mirror != nil && b.record(0).Mirror.State == meta.MirrorMirroring })
	a.write(t, 1, strings.Repeat("x", 1000), 3)
	done, m := make(chan struct{}), b.any().Mirrors()
	ctx, hangUp := context.WithCancel(harness.Context(t))
	go func() {
		defer close(done)
		_, _ = m.Switchover(ctx, "m", mirror.SwitchoverRequest{TimeoutMs: types.Millis(harness.Patience.Milliseconds())})
	}()
	harness.Eventually(t, "the source is closed", func() bool { return a.record(0).Fence != nil })
	b.any().Stop(t)
	hangUp()
	harness.Receive(t, "the switchover of the stopped node ends", done)
	if a.record(0).Fence == nil {
		t.Fatal("a node that was stopped has opened its source: nothing is left to test")
	}
	b.restart(t)
	harness.Eventually(t, "the source is open again", func() bool { return a.record(0).Writable })
	a.awaitWrites(t)
	a.write(t, 1, "goes on", 1)
	if b.record(0).Writable {
		t.Error("the mirror was promoted")
	}
}

// Once the order to promote was committed the source stays closed, whatever becomes of the
// node that gave it, and whether it heard the answer or not.
func TestASourceStaysClosedAfterTheOrder(t *testing.T) {
	s := startSwitchback(t)
	if _, err := s.b.nodes[2].Mirrors().Alter(harness.Context(t), "m", mirror.Alteration{Settings: map[string]string{throttleSetting: unthrottled}}); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "the order is committed", func() bool { return s.attempt(t, 2).State == meta.SwitchOrdered })
	s.cluster.Lapse(t, 1)
	harness.Eventually(t, "the mirror is promoted without the node", func() bool {
		rec := s.cluster.Nodes[2].RecordOf(backTopic, 0)
		return rec != nil && rec.Writable && rec.Leader != 1 && rec.Leader != types.NoBroker
	})
	s.cluster.Stores[1].Cut(false)
	harness.Receive(t, "the switchover ends", s.done) // it may have been told or not
	harness.Eventually(t, "all nodes know that it is promoted", func() bool {
		for _, n := range s.cluster.Nodes {
			if rec := n.RecordOf(backTopic, 0); rec == nil || !rec.Writable || rec.Leader == types.NoBroker || n.Ready() != nil {
				return false
			}
		}
		return true
	})
	s.b.awaitWrites(t)
	s.b.write(t, 1, "here", 2)
	if err := s.a.tryWrite(t, "two writers"); err == nil {
		t.Error("the source takes writes beside the promoted mirror")
	}
	if rec := s.a.record(0); rec.Writable || rec.Fence == nil {
		t.Errorf("the source is %+v", rec)
	}
	if a := s.attempt(t, 2); a.State != meta.SwitchOrdered {
		t.Errorf("the switchover is %+v", a)
	}
}
