package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"tidemark/internal/broker/mirror"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/test/e2e/harness"
)

// tryWrite writes one value to partition 0 and gives what the cluster says.
func (s *side) tryWrite(t *testing.T, value string) error {
	t.Helper()
	client := s.client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.RecordRetries(1))
	defer client.Close()
	return client.ProduceSync(harness.Context(t), &kgo.Record{Topic: backTopic, Value: []byte(value)}).FirstErr()
}

// A switchover under load loses nothing: every write that was acknowledged is on
// the new primary, the old one takes none any more and mirrors the new one; and back again.
func TestSwitchoverAndBack(t *testing.T) {
	for _, n := range []int{1, 3} {
		t.Run(fmt.Sprintf("%d nodes each", n), func(t *testing.T) {
			a, b := startSide(t, "A", n), startSide(t, "B", n)
			a.createTopic(t, 2)
			a.write(t, 2, "first", 3)
			if err := b.any().Mirrors().Create(harness.Context(t), mirror.Spec{Name: "m", Bootstrap: a.addresses()}); err != nil {
				t.Fatal(err)
			}
			if err := b.any().Mirrors().Start(harness.Context(t), "m"); err != nil {
				t.Fatal(err)
			}
			awaitCopy(t, a, b, 2)
			acked := a.writeUntilRefused(t)
			st, err := b.any().Mirrors().Switchover(harness.Context(t), "m", mirror.SwitchoverRequest{Reverse: true})
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range st.Partitions {
				if p.Promotion == nil {
					t.Errorf("not promoted: %+v", p)
				}
			}
			if text := strings.Join(st.Message, "\n"); !strings.Contains(text, "mirrors this cluster now") || strings.Contains(text, "SOURCE_MOVED") {
				t.Errorf("it says %s", text)
			}
			values, _ := harness.Receive(t, "the writer ends", acked)
			got := b.any().Consume(t, backTopic, 0, 0, 3+len(values))
			for _, v := range values {
				if !slices.Contains(got, v) {
					t.Errorf("%q was acknowledged and is not on the new primary", v)
				}
			}
			if err := a.tryWrite(t, "too late"); err == nil {
				t.Errorf("the old primary takes writes")
			}
			b.write(t, 2, "after", 2)
			for p := range int32(2) {
				harness.Eventually(t, "the old side mirrors the new one", func() bool {
					rec := a.record(p)
					return rec.IsMirror() && rec.Mirror.State == meta.MirrorMirroring && a.logEnd(t, p) == b.logEnd(t, p)
				})
			}
			a.checkVaults(t) // nothing was cut anywhere
			b.checkVaults(t)
			if _, err := a.any().Mirrors().Switchover(harness.Context(t), "m-back", mirror.SwitchoverRequest{}); err != nil {
				t.Fatalf("and back: %v", err)
			}
			a.write(t, 2, "home", 1)
			if err := b.tryWrite(t, "too late"); err == nil || !strings.Contains(err.Error(), "POLICY") {
				t.Errorf("the side that was left says %v", err)
			}
		})
	}
}

// writeUntilRefused writes to partition 0 until the cluster refuses for good, and
// gives what was acknowledged.
func (s *side) writeUntilRefused(t *testing.T) <-chan []string {
	client := s.client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.RecordRetries(2))
	out := make(chan []string, 1)
	first := make(chan struct{})
	go func() {
		var acked []string
		for i := 0; ; i++ {
			v := fmt.Sprintf("load-%d", i)
			ctx, cancel := context.WithTimeout(context.Background(), harness.Patience)
			err := client.ProduceSync(ctx, &kgo.Record{Topic: backTopic, Value: []byte(v)}).FirstErr()
			cancel()
			if err != nil {
				break
			}
			acked = append(acked, v)
			if i == 0 {
				close(first)
			}
		}
		client.Close()
		out <- acked
	}()
	harness.Receive(t, "the first write is acknowledged", first)
	return out
}

// What can't be drained in time goes back by itself: the source is written again
// and the mirror runs on.
func TestSwitchoverGoesBack(t *testing.T) {
	a, b := startSide(t, "A", 1), startSide(t, "B", 1)
	a.createTopic(t, 1)
	a.write(t, 1, "first", 2)
	mirrorOf(t, b.any(), mirror.Spec{Bootstrap: a.addresses(), Settings: map[string]string{"mirror.throttle.bytes.per.second": "1"}})
	harness.Eventually(t, "it mirrors", func() bool { return b.record(0).Mirror != nil && b.record(0).Mirror.State == meta.MirrorMirroring })
	a.write(t, 1, strings.Repeat("x", 1000), 3) // more than the throttle lets through
	before := a.record(0).LeaderEpoch
	_, err := b.any().Mirrors().Switchover(harness.Context(t), "m", mirror.SwitchoverRequest{TimeoutMs: 3000})
	if err == nil || !strings.Contains(err.Error(), "went back") {
		t.Fatalf("a switchover that can't drain: %v", err)
	}
	harness.Eventually(t, "the source is open again", func() bool { rec := a.record(0); return rec.Writable && rec.Fence == nil })
	if rec := a.record(0); rec.LeaderEpoch != before+2 {
		t.Errorf("the source: %+v", rec)
	}
	a.awaitWrites(t)
	if b.record(0).Writable {
		t.Errorf("the mirror was promoted")
	}
}

// A source that is no Tidemark can't be fenced: its ends must stand still.
func TestSwitchoverFromAnotherSource(t *testing.T) {
	src, client := newKfake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, backTopic))
	b := startSide(t, "B", 1)
	produceTo(t, client, backTopic, 0, "1")
	mirrorOf(t, b.any(), mirror.Spec{Bootstrap: src.ListenAddrs()})
	awaitEnd(t, b.any(), backTopic, 0, 1)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				produceTo(t, client, backTopic, 0, "more")
			}
		}
	}()
	_, err := b.any().Mirrors().Switchover(harness.Context(t), "m", mirror.SwitchoverRequest{TimeoutMs: 3000, SettleMs: 2000}) // a stall that the writer shares is shorter
	close(stop)
	harness.Receive(t, "the writer ends", done)
	if err == nil || !strings.Contains(err.Error(), "still move") {
		t.Fatalf("a source that moves: %v", err)
	}
	st, err := b.any().Mirrors().Switchover(harness.Context(t), "m", mirror.SwitchoverRequest{TimeoutMs: types.Millis(harness.Patience / time.Millisecond), SettleMs: 200, Reverse: true})
	if err != nil {
		t.Fatal(err)
	}
	if text := strings.Join(st.Message, "\n"); !strings.Contains(text, "is no Tidemark") {
		t.Errorf("it says %s", text)
	}
	b.awaitWrites(t)
}

// An abandon before anything of the new source was accepted gives everything
// back, also what the first cut has taken. With one in-sync replica of two that
// are needed, LOG_ALIGNMENT waits: the leader has cut, and fetches nothing.
func TestAbandonReadsTheCutBack(t *testing.T) {
	a, b := startSide(t, "A", 3), startSide(t, "B", 1)
	a.createTopic(t, 1)
	a.write(t, 1, "first", 3)
	mirrorOf(t, b.any(), mirror.Spec{Bootstrap: a.addresses()})
	awaitCopy(t, a, b, 1)
	b.pauseMirror(t)
	a.write(t, 1, "own", 2)
	b.failOver(t, 1)
	leader := a.nodes[a.record(0).Leader]
	for _, n := range a.nodes {
		if n != leader {
			n.Stop(t)
		}
	}
	harness.Eventually(t, "the leader is alone in sync", func() bool { return len(a.record(0).ISR) == 1 && a.record(0).Leader == leader.NodeID() })
	before := leader.LogBytes(t, backTopic, 0)
	ctx, m := harness.Context(t), leader.Mirrors()
	if err := m.Create(ctx, mirror.Spec{Name: "m", Bootstrap: b.addresses()}); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Abandon(ctx, "m", nil); !errors.Is(err, mirror.ErrState) {
		t.Errorf("nothing to abandon: %v", err)
	}
	p, err := m.Failback(ctx, "m", mirror.FailbackRequest{DryRun: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Failback(ctx, "m", mirror.FailbackRequest{Plan: p.Plan}); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "the leader has made its first cut and waits", func() bool {
		return a.logEnd(t, 0) == 3 && a.record(0).Mirror.State == meta.MirrorLogAlignment
	})
	if _, err := m.Abandon(ctx, "m", nil); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "it is written again", func() bool { return a.record(0).Writable && a.logEnd(t, 0) == 5 })
	if after := leader.LogBytes(t, backTopic, 0); string(after) != string(before) {
		t.Errorf("the log is not what it was: %d bytes, %d before", len(after), len(before))
	}
	rec := a.record(0)
	if len(rec.Timelines) != 2 || rec.Timelines[1].FirstOffset != 5 || len(rec.Promotions) != 0 || len(rec.OwnTimelines) != 1 {
		t.Errorf("timelines %v, own %v, promotions %v", rec.Timelines, rec.OwnTimelines, rec.Promotions)
	}
	if _, err := m.Abandon(ctx, "m", nil); !errors.Is(err, mirror.ErrState) {
		t.Errorf("abandoned twice: %v", err)
	}
}
