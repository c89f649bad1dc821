package control

import (
	"fmt"
	"math"
	"slices"

	"tidemark/internal/assert"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
)

// Reassign gives a partition other replicas (KIP-455): the new ones are added
// at once, the old ones go when all of the new are in sync. A nil target takes a
// reassignment under way back. ok is false if the partition has these replicas already.
func Reassign(image *meta.Image, p *meta.Partition, target []types.BrokerID, me Me) (plan meta.Plan, ok bool, err error) {
	if err := me.registered(image); err != nil {
		return plan, false, err
	}
	if p.Record == nil {
		return plan, false, fmt.Errorf("partition %d of topic id %s: %w: %w", p.ID.Number, p.ID.Topic, ErrUnreadable, p.Fault)
	}
	r := p.Record
	if target == nil {
		if len(r.Adding)+len(r.Removing) == 0 {
			return plan, false, fmt.Errorf("partition %d: %w", p.ID.Number, ErrNoReassignment)
		}
		target = without(r.Replicas, r.Adding)
	}
	if err := checkTarget(image, r, target); err != nil {
		return plan, false, err
	}
	next := r.Clone()
	before := without(r.Replicas, r.Adding)
	next.Removing = without(before, target)
	next.Adding = without(target, before)
	next.Replicas = slices.Concat(target, next.Removing)
	if slices.Equal(next.Replicas, r.Replicas) && slices.Equal(next.Adding, r.Adding) && slices.Equal(next.Removing, r.Removing) {
		return plan, false, nil
	}
	c := Change{Partition: p.ID, Old: r, Record: next}
	if err := c.dropReplicas(image, next.Replicas); err != nil {
		return plan, false, err
	}
	if !NeedsLeader(image, &c.Record) {
		c.completeReassignment(image)
	}
	c.Plan = writePartition(image, p, c.Record, me, "reassign")
	c.compareElected(image, me)
	return c.Plan, true, nil
}

func checkTarget(image *meta.Image, r *meta.PartitionRecord, target []types.BrokerID) error {
	if len(target) == 0 {
		return fmt.Errorf("%w: no replicas", ErrInvalidAssignment)
	}
	for i, id := range target {
		if id < 0 || slices.Contains(target[:i], id) {
			return fmt.Errorf("%w: broker %d is named twice or impossibly", ErrInvalidAssignment, id)
		}
		if _, ok := image.Broker(id); !ok && !slices.Contains(r.Replicas, id) {
			return fmt.Errorf("%w: broker %d isn't registered", ErrInvalidAssignment, id)
		}
	}
	return nil
}

func without(ids, gone []types.BrokerID) []types.BrokerID {
	return slices.DeleteFunc(slices.Clone(ids), func(id types.BrokerID) bool { return slices.Contains(gone, id) })
}

// dropReplicas brings ISR, ELR and leader in line with the replicas that stay:
// in a new leader epoch, so that nobody fetches on from before, if any is dropped.
func (c *Change) dropReplicas(image *meta.Image, stay []types.BrokerID) error {
	r := &c.Record
	if len(without(c.Old.Replicas, stay)) == 0 {
		return nil
	}
	if r.LeaderEpoch == math.MaxInt32 {
		return ErrLeaderEpochExhausted
	}
	gone := func(m meta.ISRMember) bool { return !slices.Contains(stay, m.ID) }
	r.ISR = slices.DeleteFunc(r.ISR, gone)
	r.ELR = slices.DeleteFunc(r.ELR, gone)
	if r.LeaderEpoch == c.Old.LeaderEpoch {
		r.LeaderEpoch++
	}
	if slices.Contains(stay, r.Leader) {
		return nil
	}
	m, ok := firstOf(r, r.ISR, func(m meta.ISRMember) bool { return live(image, m) })
	if !ok {
		return fmt.Errorf("%w: of the replicas that stay, %v, none is in sync", ErrInvalidAssignment, stay)
	}
	probeReassigned.Reached()
	r.Leader, r.LeaderBrokerEpoch = m.ID, m.BrokerEpoch
	c.Kind = ElectedInSync
	return nil
}

// completeReassignment ends a reassignment once all new replicas are in sync and
// those that stay are enough.
func (c *Change) completeReassignment(image *meta.Image) {
	r := &c.Record
	if len(r.Adding)+len(r.Removing) == 0 {
		return
	}
	target := r.Target()
	inSync := 0
	for _, m := range r.ISR {
		if slices.Contains(target, m.ID) && (m.ID == r.Leader || live(image, m)) {
			inSync++
		}
	}
	if inSync == 0 || inSync < min(r.MinISR, len(target)) || len(without(r.Adding, r.ISRIDs())) > 0 {
		return
	}
	done := Change{Partition: c.Partition, Old: c.Old, Record: r.Clone(), Kind: c.Kind}
	done.Record.Replicas, done.Record.Adding, done.Record.Removing = target, nil, nil
	// Of those that stay one is in sync and may lead: nothing but the end of the leader epochs keeps the others.
	if err := done.dropReplicas(image, target); err != nil {
		return
	}
	done.Record.ELR = eligible(image, &done.Record, done.Record.ELR)
	// Invariant I-193: a reassignment ends with every new replica in sync.
	// Those of one that this one takes the place of are no concern any more.
	assert.That(len(without(r.Adding, done.Record.ISRIDs())) == 0, "I-193: %v ends its reassignment without %v", c.Partition, without(r.Adding, done.Record.ISRIDs()))
	*c = done
}

// ElectPreferred has the first replica lead if it is in sync: ErrElectionNotNeeded
// if it leads, ErrPreferredUnavailable if it may not.
func ElectPreferred(image *meta.Image, p *meta.Partition, me Me) (Change, error) {
	if err := me.registered(image); err != nil {
		return Change{}, err
	}
	r := p.Record
	if r == nil {
		return Change{}, fmt.Errorf("partition %d of topic id %s: %w: %w", p.ID.Number, p.ID.Topic, ErrUnreadable, p.Fault)
	}
	if r.LeaderEpoch == math.MaxInt32 {
		return Change{}, ErrLeaderEpochExhausted
	}
	preferred := r.Replicas[0]
	if r.Leader == preferred && !NeedsLeader(image, r) {
		return Change{}, ErrElectionNotNeeded
	}
	i := slices.IndexFunc(r.ISR, func(m meta.ISRMember) bool { return m.ID == preferred && live(image, m) })
	if i < 0 {
		return Change{}, fmt.Errorf("broker %d: %w", preferred, ErrPreferredUnavailable)
	}
	c := Change{Partition: p.ID, Old: r, Record: r.Clone()}
	c.elect(image, c.Old, r.ISR[i], ElectedInSync)
	c.Plan = writePartition(image, p, c.Record, me, "elect the preferred leader of")
	c.compareElected(image, me)
	return c, nil
}

// AllowUnclean writes an operator's consent to one unclean election of a
// partition that has no leader; the controller then elects (R11).
func AllowUnclean(image *meta.Image, p *meta.Partition, me Me) (meta.Plan, error) {
	if err := me.registered(image); err != nil {
		return meta.Plan{}, err
	}
	if p.Record == nil {
		return meta.Plan{}, fmt.Errorf("partition %d of topic id %s: %w: %w", p.ID.Number, p.ID.Topic, ErrUnreadable, p.Fault)
	}
	if !NeedsLeader(image, p.Record) {
		return meta.Plan{}, ErrElectionNotNeeded
	}
	if len(registeredOf(image, p.Record.Replicas)) == 0 {
		return meta.Plan{}, ErrEligibleUnavailable
	}
	next := p.Record.Clone()
	next.UncleanOnce = true
	return writePartition(image, p, next, me, "allow an unclean election of"), nil
}
