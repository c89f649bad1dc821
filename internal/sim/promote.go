package sim

import (
	"fmt"
	"time"

	"tidemark/internal/batch"
	"tidemark/internal/broker/api"
	"tidemark/internal/broker/mirror"
	"tidemark/internal/core/control"
	"tidemark/internal/core/meta"
	core "tidemark/internal/core/mirror"
	"tidemark/internal/core/timeline"
	"tidemark/internal/core/types"
)

func newMirrored(start string) *meta.MirrorState { return core.NewMirrored(mirrorName, start) }

// mirrorNode is the node as its copiers see it.
type mirrorNode struct {
	mirror.Node
	n *standby
}

// ClusterID implements mirror.Node.
func (m mirrorNode) ClusterID() string { return clusterID }

// NodeID implements mirror.Node.
func (m mirrorNode) NodeID() types.BrokerID { return m.n.id }

// Image implements mirror.Node.
func (m mirrorNode) Image() *meta.Image { return m.n.image }

// Me implements mirror.Node.
func (m mirrorNode) Me() control.Me { return m.n.me() }

// Now implements mirror.Node.
func (m mirrorNode) Now() types.Millis { return m.n.clock.now() }

// promoteAll fails every mirrored partition over (broker/mirror/failover.go).
func (n *standby) promoteAll() {
	for _, c := range n.parts {
		if n.alive() {
			c.promote()
		}
	}
}

// promote stops the copying, computes the promotion on the shard, and commits
// it; what stands in the way has it tried again.
func (c *copyPart) promote() {
	n := c.n
	rec, _ := c.record()
	if rec == nil || rec.Writable || rec.Mirror == nil || !c.isOpen() || c.promoting {
		return
	}
	if c.step == nil {
		c.newStepper()
	}
	c.promoting = true
	s := c.step
	s.Halt()
	req := core.PromoteRequest{StartID: startID, TimelineID: n.w.freshTimeline(), Step: n.cfg.Mirror.PromotionStep, Now: n.clock.now()}
	done, from, err := s.Promote(req)
	if !n.alive() {
		return
	}
	if err != nil {
		c.promoteAgain(err.Error())
		return
	}
	if done.Outcome == core.AlreadyPromoted {
		c.promoting = false
		return
	}
	c.note("is promoted: epoch %d at %d", done.Record.LeaderEpoch, done.Made.LogEnd)
	n.w.check.promotes(c, done)
	n.write(&change{id: c.id, from: from, record: done.Record, done: func(applied bool) {
		if !applied {
			c.promoteAgain("another write came first")
			return
		}
		n.k.probe("failover: promoted")
		c.promoting = false
		c.halt()
	}})
}

// promoteAgain gives the partition a copier anew (run.restart), which makes the
// first cut if that is what is owed, and tries again.
func (c *copyPart) promoteAgain(why string) {
	c.k.probe("failover: tried again")
	c.note("can't be promoted yet: %s", why)
	c.promoting = false
	c.halt()
	if rec, _ := c.record(); rec == nil || rec.Writable {
		return
	}
	c.newStepper()
	c.feed(nil, nil, nil)
	if !c.retryDue && c.n.alive() {
		c.retryDue = true
		c.n.after(c.k.dice("promotion").between(50*time.Millisecond, 500*time.Millisecond), "promote again", func() {
			c.retryDue = false
			c.promote()
		})
	}
}

// lateRetry is an operator's second request for a failover that has happened,
// come late: nothing may change. The mutation repeats the promotion.
func (c *copyPart) lateRetry() {
	n := c.n
	rec, rev := c.record()
	if rec == nil || !rec.Writable || len(rec.Promotions) == 0 {
		return
	}
	n.k.probe("failover: late retry")
	v, _ := c.inline.Partition().View()
	own := core.Own{}
	own.HasCheckpoint, own.Checkpoint = true, timeline.Checkpoint{List: rec.Timelines, LeaderEpoch: rec.LeaderEpoch}
	own.LogStart, own.LogEnd, own.HighWatermark, own.History = v.LogStart, v.LogEnd, v.HighWatermark, *v.History
	try := rec.Clone()
	if n.w.mutation.PromoteAgain {
		try.Writable, try.Promotions = false, nil
	}
	done, err := core.Promote(&try, core.PromoteRequest{StartID: startID, TimelineID: n.w.freshTimeline(), Now: n.clock.now(), Own: &own})
	if n.w.mutation.PromoteAgain && err == nil {
		done.Record.Promotions = append(rec.Clone().Promotions, done.Made)
		n.write(&change{id: c.id, from: rev, record: done.Record, done: func(bool) {}})
		return
	}
	if err != nil || done.Outcome != core.AlreadyPromoted {
		n.k.fail("PromotedOnce", "%s: a retry of the promotion was answered %v, %v", c.tp, done.Outcome, err)
	}
}

// produceHere is a client's write to the standby, acks=all.
func (c *copyPart) produceHere(d dice) string {
	n := c.n
	if !c.isOpen() || n.image == nil {
		return ""
	}
	if n.leaseIsOver() {
		return "refused: the registration has lapsed"
	}
	n.w.written++
	b := batch.NewBuilder(batch.BuilderOptions{LeaderEpoch: types.NoLeaderEpoch})
	for i := range 1 + d.IntN(3) {
		b.Append(n.clock.now(), fmt.Appendf(nil, "k%d", d.IntN(8)), fmt.Appendf(nil, "here-%d-%d", n.w.written, i))
	}
	raw, err := b.Build()
	if err != nil {
		n.k.fail("PANIC", "build: %v", err)
		return ""
	}
	before, _ := c.inline.Partition().View()
	res, err := c.inline.Partition().Append(background, raw, api.AppendRequest{Acks: -1, LeaderEpoch: types.NoLeaderEpoch, RequestVersion: 9, Timeout: time.Second})
	if !n.alive() {
		return "the node crashes"
	}
	n.w.check.wrote(c, before, raw, res, err)
	if err != nil {
		return fmt.Sprintf("%s refused: %v", c.tp, err)
	}
	n.k.probe("client: write taken by the promoted standby")
	return fmt.Sprintf("%s takes a batch at %d", c.tp, res.BaseOffset)
}
