package broker

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"tidemark/internal/assert"
	"tidemark/internal/clock"
	"tidemark/internal/core/control"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/replica"
	"tidemark/internal/core/types"
	"tidemark/internal/log"
	"tidemark/internal/metastore"
)

// Attention that a partition asks of the clock.
const (
	idle     int32 = iota
	watching       // leads others that are all in sync: who falls behind leaves the ISR
	pressing       // something waits for a next try: a join, or the beginning of following
)

// fetchNotes are the fetches of followers that the shard has not counted yet. Of
// several fetches of one follower the last one counts.
type fetchNotes struct {
	mu   sync.Mutex // guards the following
	list []replica.FollowerFetch
	sent bool // an event is on its way to the shard

	spare []replica.FollowerFetch // memory for the next list; the shard's
}

// noteFetch hands a follower's fetch, which was answered and did not diverge, to
// the owner: its offset is a position proved in the leader epoch that answered (R14).
func (p *Partition) noteFetch(f replica.FollowerFetch) {
	n := &p.fetches
	n.mu.Lock()
	i := slices.IndexFunc(n.list, func(o replica.FollowerFetch) bool { return o.Replica == f.Replica })
	if i < 0 {
		n.list = append(n.list, f)
	} else {
		n.list[i] = f
	}
	first := !n.sent
	n.sent = true
	n.mu.Unlock()
	if first {
		_ = p.shard.sendOrRun(p.env.ctx, event{p: p, f: p.countFetches}) // a shard that has stopped leads nothing
	}
}

// countFetches runs on the shard.
func (p *Partition) countFetches() {
	n := &p.fetches
	n.mu.Lock()
	list := n.list
	n.list, n.sent = n.spare[:0], false
	n.mu.Unlock()
	n.spare = list
	if !p.leads() {
		return
	}
	for _, f := range list {
		p.leader.SetBroker(f.Replica, p.env.peer(f.Replica))
		_, change, denied := p.leader.Fetched(f)
		if denied != replica.Granted {
			p.env.logger.Debug("a follower's fetch doesn't count", "partition", p.tp.String(), "follower", f.Replica, "brokerEpoch", f.BrokerEpoch, "leaderEpoch", f.LeaderEpoch)
		}
		p.propose(change)
	}
	p.showReaders()
	p.refresh()
}

// leads reports whether this node counts followers: it leads and has done what
// must be done before (prepare).
func (p *Partition) leads() bool {
	if p.record == nil || !p.leading || p.assigned != int32(p.record.LeaderEpoch) {
		return false
	}
	e, ok := p.leader.LeaderEpoch()
	return ok && e == p.record.LeaderEpoch
}

// lead shows the record to the leader's count, or ends it. It runs after prepare.
func (p *Partition) lead() {
	if !p.leading || p.assigned != int32(p.record.LeaderEpoch) {
		if _, led := p.leader.LeaderEpoch(); led {
			p.leader.Resign(int64(p.revision))
			p.showReaders()
		}
		return
	}
	if p.record.IsOwn() {
		p.trail.settle() // clients write on: where the log was cut says nothing of their groups any more
	}
	v := p.log.View()
	p.leader.Lead(p.env.nodeID, replica.LeaderState{
		Revision: int64(p.revision), LeaderEpoch: p.record.LeaderEpoch, Replicas: p.record.Replicas, ISR: p.record.ISR,
		MinISR: p.record.MinISR, LogStart: v.LogStart, LogEnd: v.LogEnd, HighWatermark: v.HighWatermark, Now: p.env.ticks(), LagMax: p.env.lagMax,
	})
	p.showReaders()
}

// showReaders publishes to whom consumers may be sent (KIP-392).
func (p *Partition) showReaders() {
	if p.env.readFromRack {
		list := p.leader.Readers()
		p.readers.Store(&list)
	}
}

// ledMark is how far the high watermark may go (R14). With log.flush.acks
// nothing counts before it is synced here; a follower's copy need not be, for a
// follower that loses it comes back in another registration, and is in no ISR.
func (p *Partition) ledMark(v log.View) types.Offset {
	p.leader.Started(v.LogStart)
	switch end := p.leader.LogEnd(); {
	case v.LogEnd < end:
		p.leader.Cut(v.LogEnd)
	case v.LogEnd > end:
		p.leader.StillCaughtUp(p.env.ticks())
		p.leader.Appended(v.LogEnd)
	}
	hw := p.leader.HighWatermark()
	// Invariant I-212: the high watermark of a leader is at most its log end (R14).
	assert.That(hw <= v.LogEnd, "I-212: %s: high watermark %d above the log end %d", p.tp, hw, v.LogEnd)
	if p.env.flushAcks && p.record.IsOwn() {
		return min(hw, v.RecoveryPoint)
	}
	return hw
}

// attention says how often the clock must look at the partition.
func (p *Partition) attention() int32 {
	switch {
	case p.deleted || p.offline != nil || p.record == nil:
		return idle
	case p.followFault:
		return pressing
	case !p.leads() || len(p.record.Replicas) < 2:
		return idle
	case len(p.record.ISR) < len(p.record.Replicas):
		return pressing
	}
	return watching
}

// tickISR proposes an ISR without those who are late, or with one who has caught
// up (R15). It runs on the shard, by the clock.
func (p *Partition) tickISR() {
	if p.showAgain != nil {
		p.showAgain()
		return
	}
	if p.followFault {
		p.follow()
	}
	if !p.leads() || p.leader.Pending() != nil {
		return
	}
	if change := p.leader.Shrink(p.env.ticks()); change != nil {
		p.propose(change)
		return
	}
	p.proposeJoin()
}

func (p *Partition) proposeJoin() {
	if !p.leads() || p.leader.Pending() != nil || len(p.record.ISR) == len(p.record.Replicas) {
		return
	}
	for _, id := range p.record.Replicas {
		if !p.record.InISR(id) {
			p.leader.SetBroker(id, p.env.peer(id))
		}
	}
	p.propose(p.leader.Join(p.env.ticks()))
}

// proposePause is the time between two attempts of a change whose outcome is not known.
const proposePause = time.Second

// propose writes a changed ISR, off the shard: by compare-and-set on the record
// that the leader counted with (R7). Until the outcome is known the high
// watermark waits for the members of both (R8, R14).
func (p *Partition) propose(c *replica.ISRChange) {
	if c == nil || p.env.ctx.Err() != nil || p.env.changeISR == nil {
		return
	}
	// Invariant I-213: at most one change of the ISR is under way, and it is the leader's pending one.
	assert.That(p.leader.Pending() == c, "I-213: %s proposes an ISR beside the pending one", p.tp)
	p.env.logger.Info("ISR change proposed", "partition", p.tp.String(), "from", p.record.ISRIDs(), "to", c.ISR)
	from := p.revision
	clock.Go(p.env.ctx, p.env.background, func() {
		for maybe := false; ; maybe = true {
			err := p.env.changeISR(p.env.ctx, p.id, p.tp.Partition, from, c.ISR)
			unknown := err != nil && !isRefusedChange(err, maybe) && !p.env.rules.UnknownIsRefused
			if p.shard.send(p.env.ctx, event{p: p, f: func() { p.proposed(c, err, unknown) }}) != nil || !unknown {
				return
			}
			// A repetition settles it: it happens, or it is refused because a record follows.
			if clock.Sleep(p.env.ctx, proposePause) != nil {
				return
			}
		}
	})
}

// isRefusedChange reports an error that says for certain that nothing was written, nor
// will be. Where an earlier attempt may still happen (maybe), it is one that holds for that
// too: its compares can never hold again. What merely kept this attempt from being made
// says nothing of it (R8).
func isRefusedChange(err error, maybe bool) bool {
	if errors.Is(err, metastore.ErrUnknownOutcome) {
		return false
	}
	for _, forAll := range []error{control.ErrRecordChanged, control.ErrNotLeader, control.ErrNotRegistered} {
		if errors.Is(err, forAll) {
			return true
		}
	}
	for _, forThis := range []error{metastore.ErrRefused, metastore.ErrUnavailable, control.ErrLeaving} {
		if errors.Is(err, forThis) {
			return !maybe
		}
	}
	return false
}

// proposed takes a proposal's outcome on the shard. In force, the image has
// shown the record before; the change is no longer the pending one then.
func (p *Partition) proposed(c *replica.ISRChange, err error, unknown bool) {
	if p.leader.Pending() != c {
		return
	}
	switch {
	case unknown:
		p.env.logger.Warn("an ISR change may have happened or not; waiting for the record", "partition", p.tp.String(), "err", err)
	case err != nil:
		p.env.logger.Debug("ISR change refused", "partition", p.tp.String(), "err", err)
		p.leader.ISRRefused()
		p.refresh()
	}
}

// changeISR carries a partition leader's proposal out, in a transaction of its
// own; isrWriter does it for many together.
func (b *Broker) changeISR(ctx context.Context, id types.TopicID, number int32, from meta.Revision, isr []meta.ISRMember) error {
	// The shard may know a record before the image that holds it is shown to all.
	if err := b.view.await(ctx, from); err != nil {
		return errors.Join(control.ErrRecordChanged, err) // nothing was sent
	}
	plan, err := control.ChangeISR(b.Image(), id, number, from, isr, b.me())
	if err != nil {
		return err
	}
	_, err = b.Commit(ctx, plan)
	return err
}

// peerView is what the metadata says of a follower's broker (R15).
func (b *Broker) peerView(id types.BrokerID) replica.BrokerView {
	e, ok := b.Image().Broker(id)
	if !ok {
		return replica.BrokerView{Barred: true, Epoch: types.NoBrokerEpoch}
	}
	return replica.BrokerView{Barred: e.Record.Draining, Epoch: types.BrokerEpoch(e.CreateRevision)}
}

// isrTickMax and isrTickMin bound how often partitions that ask for it are looked at.
const (
	isrTickMax types.Millis = 500
	isrTickMin types.Millis = 20
	// watchEvery is how many ticks pass between two looks at a full ISR.
	watchEvery = 4
)

// watchISRs looks at the partitions that the clock matters to.
func (b *Broker) watchISRs() {
	b.isrTicks++
	for p := range b.Partitions() {
		if a := p.asks.Load(); a == pressing || a == watching && b.isrTicks%watchEvery == 0 {
			b.tell(p, p.tickISR)
		}
	}
}
