package control

import (
	"slices"

	"tidemark/internal/assert"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
)

// Unusable is a replica of this broker that it can't use.
type Unusable struct {
	Partition meta.PartitionID
	// Lost: its records will not come back in this registration, as those of a disk
	// that failed. Else they are there, and may be read again.
	Lost bool
}

// StandAside takes this broker's replicas that it can't use out of the way: another
// replica leads, and acks=all waits for them no longer than for those of a broker that is
// gone (KIP-858 has the same of a log dir that fails). The plans are merged within
// limits, each of which may be carried out or not on its own. Where no other replica
// may lead, and where nobody leads, the record stays: the broker may still be the first to come back.
func StandAside(image *meta.Image, list []Unusable, me Me, limits Limits) ([]Change, []meta.Plan) {
	if me.registered(image) != nil {
		return nil, nil
	}
	var changes []Change
	var plans []meta.Plan
	for _, u := range list {
		p, ok := image.PartitionEntry(u.Partition.Topic, u.Partition.Number)
		if !ok || p.Record == nil || p.Record.Restored {
			continue
		}
		if c, ok := standAside(image, p, u.Lost, me); ok {
			changes = append(changes, c)
			plans = append(plans, c.Plan)
		}
	}
	return changes, Split(plans, limits)
}

func standAside(image *meta.Image, p *meta.Partition, lost bool, me Me) (Change, bool) {
	c := Change{Partition: p.ID, Old: p.Record}
	if NeedsLeader(image, p.Record) {
		return c, false
	}
	rest := withdrawn(p.Record, me.ID, lost)
	if p.Record.Leader == me.ID {
		m, kind, ok := c.successor(image, me.ID)
		if !ok {
			return c, false
		}
		c.elect(image, &rest, m, kind)
	} else {
		c.Record = rest
		c.Record.ELR = eligible(image, &c.Record, rest.ELR)
	}
	if equalRecords(p.Record, &c.Record) {
		return c, false
	}
	c.checkAside(image, me.ID)
	verb := "withdraw from the ISR of"
	if c.Kind != "" {
		verb = "hand over"
	}
	c.Plan = writePartition(image, p, c.Record, me, verb)
	c.compareElected(image, me)
	return c, true
}

// withdrawn is a record without a replica in the ISR. It is among those that may be
// eligible (R15), unless its records are lost.
func withdrawn(old *meta.PartitionRecord, id types.BrokerID, lost bool) meta.PartitionRecord {
	r := old.Clone()
	isHis := func(m meta.ISRMember) bool { return m.ID == id }
	if i := slices.IndexFunc(r.ISR, isHis); i >= 0 {
		r.ELR = append(r.ELR, r.ISR[i])
		r.ISR = slices.DeleteFunc(r.ISR, isHis)
	}
	if lost {
		r.ELR = slices.DeleteFunc(r.ELR, isHis)
	}
	return r
}

// checkAside states what is left by a replica that stands aside.
func (c *Change) checkAside(image *meta.Image, id types.BrokerID) {
	r := &c.Record
	// Invariant I-272: who stands aside leaves a live leader in the ISR, and is neither that nor in sync.
	assert.That(r.Leader != id && !r.InISR(id) && r.InISR(r.Leader) && !NeedsLeader(image, r), "I-272: broker %d leaves %v to leader %d, ISR %v", id, c.Partition, r.Leader, r.ISR)
}

// successor finds who may lead instead of a registered leader: in sync or eligible, and not leaving.
func (c *Change) successor(image *meta.Image, leader types.BrokerID) (meta.ISRMember, ElectionKind, bool) {
	for _, list := range electorate(c.Old) {
		m, ok := firstOf(c.Old, list.members, func(m meta.ISRMember) bool { return m.ID != leader && stays(image, m) })
		if ok {
			return m, list.kind, true
		}
	}
	return meta.ISRMember{}, "", false
}
