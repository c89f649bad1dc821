//go:build chaos && linux

package chaosmirror_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"tidemark/internal/broker/mirror"
	"tidemark/internal/console"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/internal/history"
	"tidemark/test/chaos/harm"
)

// keepTrying repeats what an operator wants until it is done, and fails the test
// if that can't be had in verbLimit. Each refusal is counted under what.
func (w *world) keepTrying(what string, f func() error) {
	w.t.Helper()
	began := time.Now()
	for try := 1; ; try++ {
		err := f()
		if err == nil {
			w.saw(what+": done", 1)
			if took := time.Since(began); try > 1 || took > 5*time.Second {
				w.log("  %s: done after %d tries in %.1fs", what, try, took.Seconds())
			}
			return
		}
		w.saw(what+": refused or not answered", 1)
		if try == 1 || try%10 == 0 {
			w.log("  %s: %v", what, err)
		}
		if w.t.Failed() {
			w.t.FailNow()
		}
		if time.Since(began) > verbLimit {
			w.t.Fatalf("not within %v: %s: %v", verbLimit, what, err)
		}
		w.tend()
		harm.Pause(w.t.Context(), 200*time.Millisecond)
	}
}

// order asks a cluster to change sides, or to take that back. Nothing that takes what
// a replica had not synced happens meanwhile: a promotion keeps what its leader alone has.
func (w *world) order(c *cluster, f func(context.Context, *console.Client) error) (err error) {
	w.n.Beside(func() { err = c.ask(w.t.Context(), verbTimeout, f) })
	return err
}

// failOver promotes a cluster's mirror until every partition is writable, at a
// consistent cut if that can be had soon and is wanted.
func (w *world) failOver(s *cluster, mirrorName string, consistent bool) {
	began := time.Now()
	w.keepTrying("failover of "+s.name, func() error {
		if consistent && time.Since(began) > min(consistentFor, w.chosen.runFor/3) {
			consistent = false
			w.saw("consistent failovers that were given up", 1)
		}
		var st mirror.Status
		err := w.order(s, func(ctx context.Context, cl *console.Client) (err error) {
			st, err = cl.FailoverOf(ctx, mirrorName, console.FailoverRequest{Consistent: consistent})
			return err
		})
		if err != nil {
			return err
		}
		for _, p := range st.Partitions {
			if p.Promotion == nil {
				return fmt.Errorf("%s-%d is %s: %s", p.Topic, p.Partition, p.State, p.Reason)
			}
		}
		if len(st.Partitions) < len(partitions()) {
			return fmt.Errorf("it tells of %d partitions", len(st.Partitions))
		}
		r, err := s.look(w.t.Context())
		if err != nil {
			return err
		}
		for tp, rec := range r.partitions {
			if !rec.Writable {
				return fmt.Errorf("%s of %s is %s, and the failover said it was done", tp, s.name, mirrorText(rec))
			}
		}
		w.promoted(s, r, st, consistent, false)
		return nil
	})
	if consistent {
		w.saw("failovers at a consistent cut", 1)
	}
}

// switchOver changes sides without loss, and reports whether it could: if not,
// the operator fails over.
func (w *world) switchOver(p, s *cluster) (clean bool) {
	var st mirror.Status
	err := w.order(s, func(ctx context.Context, cl *console.Client) (err error) {
		st, err = cl.Switchover(ctx, mirrorName, mirror.SwitchoverRequest{TimeoutMs: 15_000})
		return err
	})
	if err == nil {
		r, lookErr := s.look(w.t.Context())
		if lookErr == nil {
			w.promoted(s, r, st, false, true)
		}
		for tp, rec := range r.partitions {
			if !rec.Writable {
				err = fmt.Errorf("%s is %s", tp, mirrorText(rec))
			}
		}
		err = errors.Join(err, lookErr)
	}
	if err == nil {
		w.saw("switchover: done", 1)
		return true
	}
	w.log("  switchover to %s: %v", s.name, err)
	w.saw("switchover: went back, or was not answered", 1)
	switch w.r.IntN(3) {
	case 0:
		w.reopen(p)
	case 1:
		w.opensByItself(p, s)
	}
	w.failOver(s, mirrorName, false)
	return false
}

// reopen lets clients write again to what a switchover has closed, if it has and did
// not go back by itself.
func (w *world) reopen(p *cluster) {
	w.keepTrying("reopening of "+p.name, func() error {
		err := p.ask(w.t.Context(), verbTimeout, func(ctx context.Context, cl *console.Client) error {
			_, err := cl.Reopen(ctx, console.TopicsRequest{})
			return err
		})
		if err == nil {
			return nil
		}
		r, lookErr := p.look(w.t.Context())
		for _, rec := range r.partitions {
			if rec.Fence != nil {
				return err
			}
		}
		return lookErr
	})
}

// opensByItself waits until nothing is closed any more by a switchover that ended before its
// order, whatever has become of the node that was at work (ADR 32); it was ordered where the mirror is written.
func (w *world) opensByItself(p, s *cluster) {
	w.keepTrying("return of "+p.name, func() error {
		mirrored, err := s.look(w.t.Context())
		if err != nil {
			return err
		}
		for _, rec := range mirrored.partitions {
			if rec.Writable {
				return nil
			}
		}
		r, err := p.look(w.t.Context())
		for tp, rec := range r.partitions {
			if rec.Fence != nil {
				return fmt.Errorf("%s is still closed for attempt %d", tp, rec.Fence.Attempt.Number)
			}
		}
		return err
	})
}

func (w *world) verb(c *cluster, verb string) {
	w.keepTrying(verb+" on "+c.name, func() error {
		return c.ask(w.t.Context(), verbTimeout, func(ctx context.Context, cl *console.Client) error {
			_, err := cl.Verb(ctx, mirrorName, verb)
			return err
		})
	})
}

// isMirror reports whether a partition follows its source's list.
func isMirror(rec *meta.PartitionRecord) bool {
	return rec.IsMirror() && rec.Mirror.State != meta.MirrorStarting
}

// failBack makes a cluster that was written a mirror of another one, and gives
// what each partition had to cut for that: computed from both lineages and the
// log as it was read, not from what the product says.
func (w *world) failBack(p, s *cluster, clean bool) map[types.TopicPartition]history.Cut {
	cuts := map[types.TopicPartition]history.Cut{}
	falls := map[types.TopicPartition][]fall{}
	w.keepTrying("failback of "+p.name, func() error {
		r, err := p.look(w.t.Context())
		if err != nil {
			return err
		}
		var pending []types.TopicPartition
		for tp, rec := range r.partitions {
			if !isMirror(rec) {
				pending = append(pending, tp)
			}
		}
		if len(pending) == 0 {
			return nil
		}
		plan := ""
		w.n.Alone(func() {
			w.whole("before a failback", p, s)
			eventually(w.t, healLimit, "a preview on "+p.name+" that fits what was read", func() (err error) {
				plan, err = w.preview(p, s, pending, cuts, falls, clean)
				return err
			})
		})
		if plan == "" {
			return errors.New("partitions began to mirror meanwhile")
		}
		err = w.order(p, func(ctx context.Context, cl *console.Client) error {
			_, err := cl.Failback(ctx, mirrorName, mirror.FailbackRequest{Plan: plan})
			return err
		})
		if err == nil {
			err = errors.New("to be looked at once more")
			if r, lookErr := p.look(w.t.Context()); lookErr == nil && !slices.ContainsFunc(pending, func(tp types.TopicPartition) bool { return !isMirror(r.partitions[tp]) }) {
				return nil
			}
		}
		return err
	})
	for _, tp := range partitions() {
		w.falls = append(w.falls, falls[tp]...)
	}
	return cuts
}

// preview reads what the pending partitions hold, computes what a failback must
// cut, and compares the product's preview with it. The plan is empty if a partition
// has begun to mirror meanwhile.
func (w *world) preview(p, s *cluster, pending []types.TopicPartition, cuts map[types.TopicPartition]history.Cut, falls map[types.TopicPartition][]fall, clean bool) (plan string, err error) {
	ctx, cancel := context.WithTimeout(w.t.Context(), healLimit)
	defer cancel()
	theirs, err := s.look(ctx)
	if err != nil {
		return "", err
	}
	views := map[types.TopicPartition]history.View{}
	must, forks := map[types.TopicPartition]history.Cut{}, map[types.TopicPartition]types.Offset{}
	for _, tp := range pending {
		ours, err := p.lineageOf(ctx, tp)
		if err != nil {
			return "", err
		}
		told, shared := ours.ForkAt(lineage(theirs.partitions[tp]))
		if shared {
			return "", nil
		}
		fork, err := w.fork(ctx, s, tp, ours)
		if err != nil {
			return "", err
		}
		v, err := w.book.settled(ctx, p, tp, min(fork, w.window(p, tp)))
		if err != nil {
			return "", err
		}
		if !slices.Equal(v.Lineage, ours) {
			return "", fmt.Errorf("the timelines of %s changed", tp)
		}
		cut := history.Cut{Cluster: p.name, Partition: tp, Split: types.NoOffset}
		if fork < told {
			cut.Split = told
		}
		for _, b := range v.Batches {
			if b.Base >= fork {
				cut.Batches = append(cut.Batches, b)
			}
		}
		views[tp], must[tp], forks[tp] = v, cut, fork
	}
	above, err := w.falling(ctx, p, forks)
	if err != nil {
		return "", err
	}
	var told mirror.Preview
	if err := p.ask(ctx, verbTimeout, func(ctx context.Context, cl *console.Client) (err error) {
		told, err = cl.Preview(ctx, mirrorName, mirror.PreviewRequest{})
		return err
	}); err != nil {
		return "", err
	}
	if err := w.compare(p, told, views, must); err != nil {
		return "", err
	}
	for tp, v := range views {
		w.report(w.book.observe(v))
		cuts[tp] = must[tp]
		falls[tp] = slices.DeleteFunc(slices.Clone(above), func(f fall) bool { return f.Partition != tp })
		if clean && len(must[tp].Batches) > 0 {
			w.t.Errorf("the switchover lost offsets %d to %d of %s, which %s had taken", must[tp].Batches[0].Base, v.End-1, tp, p.name)
		}
	}
	return told.Plan, nil
}

// fork gives where a cluster's log parts from the one that it is to follow: by their
// lineages, and by what the other log shows. Its newest timeline may begin below what
// its promotion said (history.Mirrored.Effective): its first batch tells.
func (w *world) fork(ctx context.Context, of *cluster, tp types.TopicPartition, ours history.Lineage) (types.Offset, error) {
	v, err := w.book.settled(ctx, of, tp, w.window(of, tp))
	if err != nil {
		return 0, err
	}
	if n := len(v.Lineage); n > 0 && v.End < v.Lineage[n-1].FirstOffset && (len(v.Batches) == 0 || v.Batches[len(v.Batches)-1].Epoch < v.Lineage[n-1].FirstEpoch) {
		return 0, fmt.Errorf("%s of %s is shown up to %d, and was promoted at %d: where it goes on isn't known yet", tp, of.name, v.End, v.Lineage[n-1].FirstOffset)
	}
	w.report(w.book.observe(v))
	theirs := w.book.effective(tp, v.Lineage)
	if told := v.Lineage[len(v.Lineage)-1].FirstOffset; theirs[len(theirs)-1].FirstOffset < told {
		w.log("  %s of %s was promoted at %d and goes on at %d", tp, of.name, told, theirs[len(theirs)-1].FirstOffset)
		w.saw("promotions whose log lost its end before it was copied", 1)
	}
	at, shared := w.book.effective(tp, ours).ForkAt(theirs)
	if shared {
		return 0, fmt.Errorf("the timelines of %s changed", tp)
	}
	return at, nil
}

// compare demands that a preview says what was computed. An error says that the
// log has moved, as it may while records without an outcome arrive.
func (w *world) compare(p *cluster, told mirror.Preview, views map[types.TopicPartition]history.View, must map[types.TopicPartition]history.Cut) error {
	if len(told.Partitions) != len(views) {
		return fmt.Errorf("the preview tells of %d partitions, %d are no mirrors", len(told.Partitions), len(views))
	}
	for _, pp := range told.Partitions {
		tp := types.TopicPartition{Topic: pp.Topic, Partition: pp.Partition}
		v, ok := views[tp]
		switch {
		case !ok:
			return fmt.Errorf("the preview tells of %s, which was no mirror a moment ago", tp)
		case pp.Refused != "":
			return fmt.Errorf("%s: %s", tp, pp.Refused)
		case pp.LogEnd != v.End:
			return fmt.Errorf("%s ends at %d, and at %d for readers", tp, pp.LogEnd, v.End)
		}
		cutAt, data, markers := v.End, int64(0), int64(0)
		for _, b := range must[tp].Batches {
			cutAt, data = min(cutAt, b.Base), data+int64(len(b.Records))
			if b.Marker != nil {
				markers++
			}
		}
		if pp.CutAt != cutAt || pp.Records != data+markers || pp.Markers != markers {
			w.t.Errorf("the preview of %s on %s cuts %d records, %d of them markers, from %d on (%s, %+v); it must be %d and %d from %d on: its timelines are %v, end %d", tp, p.name, pp.Records, pp.Markers,
				pp.CutAt, pp.Relation, pp.Cuts, data+markers, markers, cutAt, v.Lineage, v.End)
		}
	}
	return nil
}

// abandon takes a failback back as far as that is possible still, and reports
// whether a partition is written again. Those are expected to cut nothing.
func (w *world) abandon(p *cluster, cuts map[types.TopicPartition]history.Cut) bool {
	err := w.order(p, func(ctx context.Context, cl *console.Client) error {
		_, err := cl.OnTopics(ctx, mirrorName, "abandon", console.TopicsRequest{})
		return err
	})
	w.log("abandon on %s: %v", p.name, err)
	again := false
	w.keepTrying("look after an abandon on "+p.name, func() error {
		r, err := p.look(w.t.Context())
		for tp, rec := range r.partitions {
			if rec.Writable {
				delete(cuts, tp)
				again = true
				w.saw("partitions whose failback was abandoned", 1)
			}
		}
		return err
	})
	if !again {
		w.saw("abandons that came too late", 1)
	}
	return again
}
