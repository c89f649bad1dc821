package broker

import (
	"fmt"
	"slices"

	"tidemark/internal/assert"
	"tidemark/internal/config"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/internal/log"
	"tidemark/internal/wire"
)

// shown takes what the image says about the partition now: its record (nil: it
// can't be read), the topic's configuration, and whether this node leads it (R10).
// It runs on the shard.
func (p *Partition) shown(rec *meta.PartitionRecord, rev meta.Revision, topic config.Topic, leading bool) {
	if p.deleted || p.offline != nil || p.log == nil {
		return
	}
	p.endFlush()
	changed := p.record == nil || rec == nil || p.record.LeaderEpoch != rec.LeaderEpoch || p.leading != leading
	p.countISR(rec, leading)
	p.record, p.revision, p.leading = rec, rev, leading && rec != nil
	if p.topic != topic {
		p.topic = topic
		p.log.UpdateConfig(logConfig(topic, p.tp))
		p.setChoreFlags()
	}
	if changed {
		p.abandon(errNotLeader(fmt.Sprintf("%s has a new leader epoch", p.tp)))
		p.assigned = -1
	}
	if p.leading {
		p.unfollow()
	}
	if err := p.prepare(); err != nil {
		p.env.logger.Error("partition can't be served", "partition", p.tp.String(), "err", err)
	}
	p.lead()
	p.showThrottled()
	if !p.leading {
		p.follow()
	}
	p.refresh()
	p.proposeJoin()
}

// countISR counts what the next record changes of the ISR of a partition that stays led here.
func (p *Partition) countISR(next *meta.PartitionRecord, leading bool) {
	if p.record == nil || next == nil || !p.leading || !leading {
		return
	}
	lacks := func(of, in *meta.PartitionRecord) bool {
		return slices.ContainsFunc(of.ISR, func(m meta.ISRMember) bool { return !in.InISR(m.ID) })
	}
	if lacks(p.record, next) {
		p.env.metrics.Replication.ISRShrinks.Inc()
	}
	if lacks(next, p.record) {
		p.env.metrics.Replication.ISRExpands.Inc()
	}
}

// prepare does what must be done before the node answers in this leader epoch:
// R19's first cut, R3's entry, R23's markers. A mirror's cuts are made by its
// driver: its partitions are served once the checkpoint says that nothing is owed.
func (p *Partition) prepare() error {
	if !p.leading || p.assigned == int32(p.record.LeaderEpoch) {
		return nil
	}
	if !p.record.IsOwn() {
		return p.prepareMirror()
	}
	if err := p.firstCut(); err != nil {
		return err
	}
	if err := p.refuseTwice(); err != nil {
		return err
	}
	p.entered = int32(p.record.LeaderEpoch)
	if err := p.log.AssignEpoch(p.record.LeaderEpoch); err != nil {
		return p.storageFault(err)
	}
	if err := p.abortOlderTransactions(); err != nil {
		return p.storageFault(err)
	}
	p.tellLoss()
	p.guards.clear()
	p.assigned = int32(p.record.LeaderEpoch)
	if p.env.flushAcks {
		return p.flushNow()
	}
	return nil
}

// refuseTwice refuses to lead in an epoch that this log knows already, from another process
// or as a follower: elections raise the leader epoch (R10), so that the metadata was put
// back and gave it out once more. Records of both would look like one history.
func (p *Partition) refuseTwice() error {
	last, ok := p.log.View().History.Latest()
	if !ok || last.Epoch < p.record.LeaderEpoch || p.entered == int32(p.record.LeaderEpoch) || p.env.rules.KeepsEpoch {
		return nil
	}
	return fmt.Errorf("METADATA_WENT_BACK: this log knows leader epoch %d already, which the metadata gives out again. %s", last.Epoch, wayOfWentBack)
}

// prepareAgain prepares a partition once more that could not be: on a full disk,
// say. It runs on the shard.
func (p *Partition) prepareAgain() error {
	if p.log == nil || p.record == nil {
		return nil
	}
	err := p.prepare()
	p.lead()
	return err
}

// isUnprepared reports whether the partition is led here and what must come
// before the first answer has failed so far. Any goroutine.
func (p *Partition) isUnprepared() bool { return p.serving.Load().err == errOwesCut }

// prepareMirror readies a partition that only a mirror writes (R6: no entry of its own).
func (p *Partition) prepareMirror() error {
	if err := p.log.BecomeFollower(); err != nil {
		return p.storageFault(err)
	}
	p.assigned = int32(p.record.LeaderEpoch)
	return nil
}

// abortOlderTransactions ends what a promotion left open (R23). Transactions
// opened before it are aborted before the first client write, so whenever one is
// still open, no client has written since.
func (p *Partition) abortOlderTransactions() error {
	n := len(p.record.Promotions)
	if n == 0 {
		return nil
	}
	promoted := p.record.Promotions[n-1]
	for _, t := range p.log.OpenTransactions() {
		if t.FirstOffset >= promoted.LogEnd {
			continue
		}
		aborted, err := p.log.AbortOpenTransactions(p.record.LeaderEpoch, p.env.now())
		if err == nil {
			p.env.logger.Info("transactions left open at the promotion were aborted", "partition", p.tp.String(), "count", len(aborted))
		}
		return err
	}
	return nil
}

// tellLoss says what is missing if this leader's log is shorter than the promoted one's (R23).
func (p *Partition) tellLoss() {
	n := len(p.record.Promotions)
	if n == 0 {
		return
	}
	promoted := p.record.Promotions[n-1]
	if end := p.log.View().LogEnd; end < promoted.LogEnd {
		p.env.logger.Error("records that the promotion found are lost", "partition", p.tp.String(),
			"from", end, "to", promoted.LogEnd, "promotedEpoch", promoted.PromotedEpoch)
	}
}

// refresh moves the high watermark (R14), publishes what this node serves, and
// tells whoever waits. It runs on the shard, after every change.
func (p *Partition) refresh() {
	if p.log == nil || p.deleted {
		return
	}
	v := p.log.View()
	if v.Offline != nil {
		p.goOffline(v.Offline)
		return
	}
	if hw := p.highWatermark(v); hw > v.HighWatermark {
		v = p.log.SetHighWatermark(hw)
	}
	republished := p.publish()
	p.asks.Store(p.attention())
	p.abandonLapsed()
	p.settle(v.HighWatermark)
	p.settleDeletes()
	if republished || v.HighWatermark != p.view.HighWatermark || v.LastStable != p.view.LastStable || v.LogStart != p.view.LogStart || v.LogEnd != p.view.LogEnd {
		p.view = v
		p.moved.fire()
	}
}

// abandonLapsed refuses what waits at a leader whose registration may be over: what
// would have acknowledged it came late to the shard (R10).
func (p *Partition) abandonLapsed() {
	if len(p.waiting)+len(p.deletes) > 0 && p.env.ended != nil && p.env.ended(p.serving.Load().registration) {
		p.abandon(errLapsed)
	}
}

// highWatermark is how far the mark may go: a leader's by R14, a follower's stays
// where its leader's answers have put it.
func (p *Partition) highWatermark(v log.View) types.Offset {
	if !p.leads() {
		return v.HighWatermark
	}
	return p.ledMark(v)
}

// publish replaces the serving state if it has changed.
func (p *Partition) publish() bool {
	now := p.computeServing()
	if *p.serving.Load() == now {
		return false
	}
	next := new(serving) // only now: a refresh that changes nothing allocates nothing
	*next = now
	p.checkServing(next)
	p.serving.Store(next)
	if next.err != nil {
		p.abandon(next.err)
	}
	return true
}

// checkServing states what must hold before anybody is answered.
func (p *Partition) checkServing(s *serving) {
	if s.err != nil {
		return
	}
	// Invariant I-120: who serves a partition leads it in its present registration (R10).
	assert.That(p.leading, "I-120: %s is served without being led", p.tp)
	if s.readOnly && !s.fenced {
		return
	}
	// Invariant I-121: a writable partition's history ends with the leader epoch it is served in (R3).
	last, ok := p.log.View().History.Latest()
	assert.That(p.env.rules.Log.EpochAtFirstRecord || ok && last.Epoch == s.epoch, "I-121: %s is served in leader epoch %d, its history ends with %v", p.tp, s.epoch, last)
}

func (p *Partition) computeServing() serving {
	s := serving{log: p.log, epoch: types.NoLeaderEpoch, leader: types.NoBroker, registration: types.NoBrokerEpoch}
	if p.record != nil {
		s.epoch, s.leader = p.record.LeaderEpoch, p.record.Leader
		s.minISR = len(p.record.ISR) >= p.record.MinISRNow()
		s.readOnly = !p.record.Writable
		if p.record.IsMirror() {
			s.mirror = p.record.Mirror.Name
		}
		s.fenced = p.record.Fence != nil
		if p.leading {
			s.registration = p.record.LeaderBrokerEpoch
		}
	}
	s.deletes = p.topic.Delete
	s.epochStart = p.leader.EpochStart()
	s.err = p.refusal()
	s.readErr = s.err
	if s.err != nil && p.mayServeReads() {
		s.readErr = nil
	}
	return s
}

// mayServeReads reports whether this node answers consumers as a follower
// (KIP-392): only once it has accepted an answer of the leader whose epoch the
// record names. Before, the log may end with what that leader lacks (KAFKA-14704).
func (p *Partition) mayServeReads() bool {
	s, following := p.follower.Session()
	return following && p.agreed == s.Generation && p.offline == nil && !p.deleted && !p.held &&
		p.record != nil && s.LeaderEpoch == p.record.LeaderEpoch && !p.owesCut()
}

var (
	errDeleted     = wire.Errorf(wire.ErrUnknownTopicOrPartition, "the topic was deleted")
	errNoRecord    = wire.Errorf(wire.ErrKafkaStorageError, "the partition's metadata can't be read")
	errNotLeading  = errNotLeader("this broker doesn't lead the partition")
	errOwesCut     = errNotLeader("the partition's history is being aligned")
	errHeld        = errNotLeader("the partition's history is being cut")
	errGroupsAhead = errNotLeader("committed offsets of groups are yet to follow a cut of the partition")
	errLapsed      = errNotLeader("this broker's registration has lapsed")
)

// refusal says why clients aren't answered, nil if they are.
func (p *Partition) refusal() error {
	switch {
	case p.deleted:
		return errDeleted
	case p.offline != nil:
		return p.offline
	case p.record == nil:
		return errNoRecord
	case !p.leading:
		return errNotLeading
	case p.assigned != int32(p.record.LeaderEpoch):
		return errOwesCut
	case p.held:
		return errHeld
	case p.record.IsMirror() && p.trail.owed && !p.env.rules.Mirrors.CutsUnawaited:
		return errGroupsAhead
	case !p.record.Writable && p.owesCut():
		return errOwesCut
	default:
		return nil
	}
}
