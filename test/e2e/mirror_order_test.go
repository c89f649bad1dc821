package e2e

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"tidemark/internal/broker/mirror"
	"tidemark/internal/core/meta"
	"tidemark/test/e2e/harness"
)

// TestAnOrderSentTwiceIsOneOrder repeats orders to change sides, as a client does that
// has lost the answer: before and after the mirror was started anew.
func TestAnOrderSentTwiceIsOneOrder(t *testing.T) {
	source := harness.StartBroker(t)
	standby := startStandby(t)
	source.CreateTopic(t, "orders", 1, nil)
	mirrorOf(t, standby, mirror.Spec{Bootstrap: []string{source.Addr}})
	source.Produce(t, "orders", 0, "1")
	awaitEnd(t, standby, "orders", 0, 1)
	ctx, m := harness.Context(t), standby.Mirrors()
	status := func() mirror.Status {
		t.Helper()
		st, err := m.Status(ctx, "m")
		if err != nil {
			t.Fatal(err)
		}
		return st
	}
	first := status().StartID
	order := mirror.FailoverOrder{StartID: first}
	done, err := m.FailoverOf(ctx, "m", order)
	if err != nil || first == "" || done.Partitions[0].Promotion == nil {
		t.Fatalf("failover of start %q: %+v, %v", first, done, err)
	}
	again, err := m.FailoverOf(ctx, "m", order)
	if err != nil || *again.Partitions[0].Promotion != *done.Partitions[0].Promotion {
		t.Errorf("the same order again: %+v, %v; the first time %+v", again, err, done)
	}
	repeated, err := m.Switchover(ctx, "m", mirror.SwitchoverRequest{StartID: first})
	if err != nil || *repeated.Partitions[0].Promotion != *done.Partitions[0].Promotion ||
		!slices.ContainsFunc(repeated.Message, func(line string) bool { return strings.Contains(line, "had ended before") }) {
		t.Errorf("a switchover of a start that has ended: %+v, %v", repeated, err)
	}

	req := mirror.PreviewRequest{Rollback: true}
	p, err := m.Preview(ctx, "m", req)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Failback(ctx, "m", mirror.FailbackRequest{PreviewRequest: req, Plan: p.Plan}); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "the topic is a mirror again", func() bool { return status().Partitions[0].State == meta.MirrorMirroring })
	second := status().StartID
	if second == first {
		t.Fatalf("the failback goes on in start %s", first)
	}
	stale := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, mirror.ErrState) || !strings.Contains(err.Error(), first) || !strings.Contains(err.Error(), second) {
			t.Errorf("%s of the earlier start: %v", what, err)
		}
	}
	_, err = m.FailoverOf(ctx, "m", order)
	stale("failover", err)
	_, err = m.FailoverOf(ctx, "m", mirror.FailoverOrder{StartID: first, Topics: []string{"orders"}})
	stale("failover of a topic", err)
	_, err = m.FailoverOf(ctx, "m", mirror.FailoverOrder{StartID: first, Consistent: true})
	stale("consistent failover", err)
	_, err = m.Switchover(ctx, "m", mirror.SwitchoverRequest{StartID: first})
	stale("switchover", err)
	_, err = m.AbandonOf(ctx, "m", nil, first)
	stale("abandon", err)
	if st := status(); st.State != "RUNNING" || st.Partitions[0].Promotion != nil {
		t.Fatalf("orders for the earlier start changed the mirror: %+v", st)
	}
	source.Produce(t, "orders", 0, "2")
	awaitEnd(t, standby, "orders", 0, 2)
	if st, err := m.FailoverOf(ctx, "m", mirror.FailoverOrder{StartID: second}); err != nil || st.Partitions[0].Promotion == nil {
		t.Errorf("failover of the present start: %+v, %v", st, err)
	}
}
