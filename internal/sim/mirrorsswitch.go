package sim

import (
	"context"
	"fmt"
	"time"

	"tidemark/internal/broker/mirror"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
)

// Switchovers whose node is lost on the way (docs/adr/0032), and what they may leave behind.

// switchoverDies orders a switchover, and a while later its node crashes, or loses its
// registration and goes on where it was: at any step between fence and promotion.
func (w *mirrors) switchoverDies(d dice) string {
	c, name := w.present(d)
	lost, late, crashes, patience := d.IntN(30), d.between(0, 4*time.Second), d.chance(0.6), d.between(500*time.Millisecond, 8*time.Second)
	if c == nil {
		return ""
	}
	after := time.Duration(lost) * 10 * time.Millisecond // the steps are a few round trips from each other
	if lost >= 20 {
		after = late
	}
	what := fmt.Sprintf("switchover %s reverse false", name)
	if !w.verb(d, c, what, func(ctx context.Context, at *mirror.Mirrors) error {
		w.k.after(after, "a switchover's node is lost", func() { w.loses(c, at, crashes) })
		_, err := at.Switchover(ctx, name, mirror.SwitchoverRequest{TimeoutMs: types.Millis(patience.Milliseconds()), SettleMs: 1000})
		return err
	}) {
		return ""
	}
	return fmt.Sprintf("%s%s, its node is lost after %v", c.prefix, what, after.Round(time.Millisecond))
}

// loses ends the process that has these mirrors, or its registration alone.
func (w *mirrors) loses(c *cluster, at *mirror.Mirrors, crashes bool) {
	if w.healed {
		return
	}
	for _, m := range c.machines {
		switch {
		case !m.serves() || m.node.Mirrors() != at:
		case crashes:
			m.crashed()
		case m.node.Lease() != 0:
			delete(c.check.leaseOf, m.id) // it ends before its time: no clock can know
			c.store.ExpireLease(m.node.Lease())
			c.storeChanged()
		}
	}
}

// returned judges a fence that was taken back: no switchover up to its attempt was ordered
// to promote, as the store of the mirror's cluster says.
func (s *siteJudge) returned(id meta.PartitionID, old, now *meta.PartitionRecord) {
	f := now.Returned
	if f == nil || old.Returned != nil && *old.Returned == *f {
		return
	}
	s.a.w.k.probe("switchover: taken back")
	if old.Fence == nil {
		s.a.w.k.probe("switchover: taken back before its fence came")
	}
	if r := s.a.w.switching(f); r != nil && r.Switch.State == meta.SwitchOrdered && !r.Switch.Attempt.After(f.Attempt) {
		s.a.fail("OrderedOrReturned", "site %s partition %d is opened again for attempt %d of mirror %s, and attempt %d was ordered to promote", s.c.id, id.Number, f.Attempt.Number, r.Name, r.Switch.Attempt.Number)
	}
}

// opened judges a partition that was closed for a switchover and takes clients' writes
// again, without having been promoted since: by a take-back of its attempt, or by an operator's
// reopen or abandon, and by nothing else (docs/adr/0034).
func (s *siteJudge) opened(id meta.PartitionID, old, now *meta.PartitionRecord) {
	if old.Fence != nil {
		s.closed[id] = *old.Fence
	}
	f, wasClosed := s.closed[id]
	if !now.Writable || !wasClosed {
		return
	}
	delete(s.closed, id)
	r := now.Returned
	returned := r != nil && r.IsOfStart(f) && !f.Attempt.After(r.Attempt)
	if w := s.a.w; returned || len(now.Promotions) > len(old.Promotions) || w.verbs["reopen"] > 0 || w.verbs["abandon"] > 0 {
		return
	}
	if r := s.a.w.switching(&f); r != nil && r.Switch.State == meta.SwitchOrdered {
		s.a.fail("OrderedOrReturned", "site %s partition %d was closed for attempt %d of mirror %s, which was ordered to promote, and takes writes again: %s", s.c.id, id.Number, f.Attempt.Number, r.Name, describe(now))
	}
}

// orderedSwitch judges a switchover's order to promote: each partition that it promotes is
// closed at the source, for this attempt. An operator there may have opened it.
func (s *siteJudge) orderedSwitch(r *meta.MirrorRecord) {
	w := s.a.w
	if r.Want != meta.WantStopped || s.wants[r.Name] != meta.WantRunning || w.verbs["reopen"] > 0 {
		return
	}
	if sw := r.Switch; sw == nil || sw.State != meta.SwitchOrdered || sw.StartID != r.StartID {
		return // an operator's failover, perhaps in a start after that of the last switchover
	}
	w.k.probe("switchover: ordered")
	w.crossings.isOrdered(r.StartID)
	for _, c := range w.sites {
		for id, there := range c.judged.(*siteJudge).records {
			here := s.records[id]
			if c.id != r.SourceClusterID || here == nil || !here.IsMirror() || here.Mirror.Name != r.Name {
				continue
			}
			if f := there.Fence; f == nil || f.StartID != r.StartID || f.Attempt != r.Switch.Attempt {
				s.a.fail("OrderedOrReturned", "attempt %d of mirror %s is ordered to promote partition %d, and its source %s has it %s", r.Switch.Attempt.Number, r.Name, id.Number, c.id, describe(there))
			}
		}
	}
}

// switching is the mirror in whose present start a fence was set, as its cluster's store
// has it; nil if that start is over, or names no switchover.
func (w *mirrors) switching(f *meta.Fence) *meta.MirrorRecord {
	for _, c := range w.sites {
		if c.id != f.ClusterID {
			continue
		}
		kvs, _, err := c.store.Range(background, meta.KeysOf(c.id).Root())
		if err != nil {
			return nil
		}
		for _, kv := range kvs {
			if key, err := meta.KeysOf(c.id).Parse(kv.Key); err != nil || key.Kind != meta.KeyMirror {
				continue
			}
			if r, err := meta.DecodeMirror(kv.Key, kv.Value); err == nil && r.StartID == f.StartID && r.Switch != nil && r.Switch.StartID == f.StartID {
				return r
			}
		}
	}
	return nil
}

// leftClosed judges a fence that stands long after all faults: its mirror's side takes back
// what wasn't ordered, without an operator.
func (w *mirrors) leftClosed(c *cluster, f *meta.Fence) {
	w.k.probe("operator: opens what a switchover has closed")
	if r := w.switching(f); r != nil && r.Want == meta.WantRunning && !f.Attempt.IsZero() {
		w.check.fail("OrderedOrReturned", "%s stays closed for attempt %d of mirror %s, which runs and has switchover %+v", c.id, f.Attempt.Number, r.Name, *r.Switch)
	}
}
