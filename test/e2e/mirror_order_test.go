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

// TestALateOrderForATopic: while a mirror runs on, one of its topics is failed over, failed
// back, and so on, all in one start of the mirror. Orders for the topic's earlier starts
// change nothing, and its present one is told.
func TestALateOrderForATopic(t *testing.T) {
	source := harness.StartBroker(t)
	standby := startStandby(t)
	source.CreateTopic(t, "orders", 2, nil)
	source.CreateTopic(t, "others", 1, nil)
	mirrorOf(t, standby, mirror.Spec{Bootstrap: []string{source.Addr}})
	source.Produce(t, "orders", 0, "1")
	awaitEnd(t, standby, "orders", 0, 1)
	awaitEnd(t, standby, "others", 0, 0)
	ctx, m, only := harness.Context(t), standby.Mirrors(), []string{"orders"}
	status := func() mirror.Status {
		t.Helper()
		st, err := m.Status(ctx, "m")
		if err != nil {
			t.Fatal(err)
		}
		return st
	}
	failBack := func() {
		t.Helper()
		req := mirror.PreviewRequest{Rollback: true, Topics: only}
		p, err := m.Preview(ctx, "m", req)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.Failback(ctx, "m", mirror.FailbackRequest{PreviewRequest: req, Plan: p.Plan}); err != nil {
			t.Fatal(err)
		}
		harness.Eventually(t, "the topic is a mirror again", func() bool {
			return !slices.ContainsFunc(status().Partitions, func(p mirror.PartitionStatus) bool { return p.State != meta.MirrorMirroring })
		})
	}
	start := status().StartID
	var orders []mirror.FailoverOrder
	for round := range 3 {
		now := status().StartsOf(only)
		want := start
		if round > 0 {
			want = start + "." + string(rune('0'+round))
		}
		if len(now) != 1 || now[0].StartID != want {
			t.Fatalf("round %d: the topic's start is %+v, want %s", round, now, want)
		}
		for _, late := range orders {
			_, err := m.FailoverOf(ctx, "m", late)
			_, abandoned := m.AbandonOf(ctx, "m", only, late.StartID)
			for what, err := range map[string]error{"failover": err, "abandon": abandoned} {
				if !errors.Is(err, mirror.ErrState) || !strings.Contains(err.Error(), "STALE_REQUEST: the order is for start "+late.StartID) || !strings.Contains(err.Error(), "follows start "+want) {
					t.Errorf("round %d: a late %s of start %s: %v", round, what, late.StartID, err)
				}
			}
		}
		if st := status(); slices.ContainsFunc(st.Partitions, func(p mirror.PartitionStatus) bool { return p.State != meta.MirrorMirroring }) {
			t.Fatalf("round %d: late orders changed the mirror: %+v", round, st)
		}
		orders = append(orders, now[0])
		done, err := m.FailoverOf(ctx, "m", now[0])
		again, errAgain := m.FailoverOf(ctx, "m", now[0])
		if err != nil || errAgain != nil || len(done.Partitions) != 2 || *done.Partitions[0].Promotion != *again.Partitions[0].Promotion {
			t.Fatalf("round %d: failover of %+v: %+v, %v; again %+v, %v", round, now[0], done, err, again, errAgain)
		}
		failBack()
	}
	if st := status(); st.StartID != start {
		t.Errorf("the mirror's start %s became %s", start, st.StartID)
	}
	if orders := status().StartsOf([]string{"orders", "others"}); len(orders) != 2 || orders[0].StartID != start+".3" || orders[1].StartID != start {
		t.Errorf("the topics' starts are %+v", orders)
	}
	// An order that names no start, and one for the whole mirror, are for what there is.
	if st, err := m.FailoverOf(ctx, "m", mirror.FailoverOrder{Topics: only}); err != nil || st.Partitions[0].Promotion == nil {
		t.Errorf("an order without a start: %+v, %v", st, err)
	}
	failBack()
	if st, err := m.FailoverOf(ctx, "m", mirror.FailoverOrder{StartID: start}); err != nil || slices.ContainsFunc(st.Partitions, func(p mirror.PartitionStatus) bool { return p.Promotion == nil }) {
		t.Errorf("an order for the mirror: %+v, %v", st, err)
	}
}
