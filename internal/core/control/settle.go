package control

import (
	"iter"
	"math"
	"slices"

	"tidemark/internal/assert"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/internal/probe"
)

var (
	probeFromELR      = probe.New("control: the leader comes from the eligible replicas (KIP-966)")
	probeLeaving      = probe.New("control: one that is leaving leads, for want of others")
	probeMovedAway    = probe.New("control: the leader is leaving, another takes over")
	probeELR          = probe.New("control: an ISR below its minimum leaves eligible replicas")
	probeKeptByMark   = probe.New("control: a clean stop keeps a place among the eligible")
	probeUnclean      = probe.New("control: an unclean election among several logs")
	probeWaitsLogs    = probe.New("control: an unclean election waits for reports")
	probeRestored     = probe.New("control: the best log leads after a restore")
	probeRestoreWaits = probe.New("control: after a restore replicas are waited for")
	probeStaleJoin    = probe.New("control: a join in a registration that has ended")
	probeReassigned   = probe.New("control: a reassignment ends, and its leader goes")
)

// Policy is what the controller knows beside the image.
type Policy struct {
	// Unclean says of which topics a replica may lead although it may lack records; nil: of none.
	Unclean func(*meta.Topic) bool
	// Impatient says that an unclean election waits no longer for replicas that
	// have not reported; nil: it waits for all live ones.
	Impatient func(meta.PartitionID) bool
}

// Change is what the controller makes of one partition.
type Change struct {
	Partition meta.PartitionID
	// Kind says why the leader may lead; empty if the leader stays.
	Kind ElectionKind
	// Old and Record are the partition's record before and after.
	Old    *meta.PartitionRecord
	Record meta.PartitionRecord
	Plan   meta.Plan
}

// Settle brings one partition's record in line with the brokers that are
// registered: a leader where there is none or where it is leaving (R10, R11),
// an ISR without those who are gone or leaving (R15), and the end of a
// reassignment all of whose new replicas are in sync. ok is false if nothing is to be done, or
// nothing can be: a partition that nobody may lead keeps its record.
func Settle(image *meta.Image, t *meta.Topic, p *meta.Partition, policy Policy, me Me) (Change, bool) {
	if p.Record == nil || p.Record.LeaderEpoch == math.MaxInt32 || isSettled(image, p.Record) {
		return Change{}, false
	}
	if p.Record.Restored {
		return recoverRestored(image, p, policy, me)
	}
	c := Change{Partition: p.ID, Old: p.Record, Record: p.Record.Clone()}
	if candidate, kind, ok := c.choose(image, t, p, policy); ok {
		c.elect(image, c.Old, candidate, kind)
	}
	if !NeedsLeader(image, &c.Record) {
		c.shrink(image)
		c.completeReassignment(image)
	}
	if equalRecords(p.Record, &c.Record) {
		return Change{}, false
	}
	// Invariant I-192: the controller never writes an ISR without the leader.
	assert.That(c.Record.InISR(c.Record.Leader), "I-192: leader %d of %v is not in the ISR %v", c.Record.Leader, p.ID, c.Record.ISR)
	verb := "settle the ISR of"
	if c.Kind != "" {
		verb = "elect the leader of"
	}
	c.Plan = writePartition(image, p, c.Record, me, verb)
	c.compareElected(image, me)
	return c, true
}

// compareElected has the plan hold only while a leader that it elects is registered as it was (R8).
func (c *Change) compareElected(image *meta.Image, me Me) {
	if c.Kind != "" && c.Record.Leader != me.ID {
		c.Plan.If = append(c.Plan.If, Me{ID: c.Record.Leader, Epoch: c.Record.LeaderBrokerEpoch}.compare(image))
	}
	c.Plan = checked(c.Plan)
}

// isSettled tells quickly, without an allocation, that nothing is to be done.
func isSettled(image *meta.Image, r *meta.PartitionRecord) bool {
	if len(r.ELR)+len(r.Adding)+len(r.Removing) > 0 || NeedsLeader(image, r) {
		return false
	}
	for _, m := range r.ISR {
		if !live(image, m) {
			return false
		}
	}
	return true
}

// choose finds who is to lead instead of the present leader, if anybody.
func (c *Change) choose(image *meta.Image, t *meta.Topic, p *meta.Partition, policy Policy) (meta.ISRMember, ElectionKind, bool) {
	r := p.Record
	if !NeedsLeader(image, r) {
		if !leaves(image, r) {
			return meta.ISRMember{}, "", false
		}
		m, ok := firstOf(r, r.ISR, func(m meta.ISRMember) bool { return m.ID != r.Leader && live(image, m) })
		if ok {
			probeMovedAway.Reached()
		}
		return m, ElectedInSync, ok
	}
	for _, list := range electorate(r) {
		if m, ok := firstOf(r, list.members, func(m meta.ISRMember) bool { return stays(image, m) }); ok {
			if list.kind == ElectedEligible {
				probeFromELR.Reached()
			}
			return m, list.kind, true
		}
	}
	for _, list := range electorate(r) {
		if m, ok := firstOf(r, list.members, func(m meta.ISRMember) bool { return intact(image, m) }); ok {
			probeLeaving.Reached()
			return m, list.kind, true // it is leaving, but better than nobody
		}
	}
	return lastResort(image, t, p, policy)
}

// voters are members that may lead, and why.
type voters struct {
	members []meta.ISRMember
	kind    ElectionKind
}

// electorate are those who may be elected cleanly, the first to be asked first (R11).
func electorate(r *meta.PartitionRecord) [2]voters {
	return [2]voters{{r.ISR, ElectedInSync}, {r.ELR, ElectedEligible}}
}

// stays reports whether a member has what it had, and its broker isn't about to go.
func stays(image *meta.Image, m meta.ISRMember) bool {
	b, ok := image.Broker(m.ID)
	return ok && !b.Record.Draining && intact(image, m)
}

// leaves reports whether the leader is about to end its registration.
func leaves(image *meta.Image, r *meta.PartitionRecord) bool {
	b, ok := image.Broker(r.Leader)
	return ok && b.Record.Draining
}

// firstOf gives the member that comes first in the order of preference among
// those that fit. Replicas that a reassignment takes away come last.
func firstOf(r *meta.PartitionRecord, members []meta.ISRMember, fits func(meta.ISRMember) bool) (meta.ISRMember, bool) {
	for _, id := range r.Replicas {
		i := slices.IndexFunc(members, func(m meta.ISRMember) bool { return m.ID == id })
		if i >= 0 && fits(members[i]) {
			return members[i], true
		}
	}
	return meta.ISRMember{}, false
}

// elect makes a member the leader in its broker's present registration; from is the
// record that the election begins with.
func (c *Change) elect(image *meta.Image, from *meta.PartitionRecord, m meta.ISRMember, kind ElectionKind) {
	epoch, registered := image.BrokerEpoch(m.ID)
	// Invariant I-190: whoever is elected is registered, and leads in that registration.
	assert.That(registered, "I-190: broker %d is elected for %v and isn't registered", m.ID, c.Partition)
	clean := slices.Contains(c.Old.ISR, m) || slices.Contains(c.Old.ELR, m)
	// Invariant I-191: a clean election's leader was in sync or eligible, and lost nothing since (R11).
	assert.That(kind == ElectedSole || kind == ElectedUnclean || clean && intact(image, m),
		"I-191: broker %d is elected for %v as %s", m.ID, c.Partition, kind)
	c.Record = elected(image, from, meta.ISRMember{ID: m.ID, BrokerEpoch: epoch}, kind)
	c.Kind = kind
}

// shrink takes those out of the ISR whose registration has ended or is about to,
// the leader aside, and keeps the ELR to those who can still be intact.
func (c *Change) shrink(image *meta.Image) {
	r := &c.Record
	isr := make([]meta.ISRMember, 0, len(r.ISR))
	out := r.ELR
	for _, m := range r.ISR {
		if m.ID == r.Leader || live(image, m) {
			isr = append(isr, m)
		} else {
			out = append(slices.Clone(out), m)
		}
	}
	r.ISR = isr
	r.ELR = eligible(image, r, out)
}

// equalRecords compares what Settle may change.
func equalRecords(a, b *meta.PartitionRecord) bool {
	return a.LeaderEpoch == b.LeaderEpoch && a.Leader == b.Leader && slices.Equal(a.ISR, b.ISR) && slices.Equal(a.ELR, b.ELR) &&
		slices.Equal(a.Replicas, b.Replicas) && slices.Equal(a.Adding, b.Adding) && slices.Equal(a.Removing, b.Removing)
}

// SettleAll settles the given partitions: the changes, and their plans merged
// within limits, each of which may be carried out or not on its own.
func SettleAll(image *meta.Image, partitions iter.Seq[*meta.Partition], policy Policy, me Me, limits Limits) ([]Change, []meta.Plan) {
	// Invariant I-194: only the controller settles.
	assert.That(me.Controller != 0, "I-194: broker %d settles partitions and isn't the controller", me.ID)
	var changes []Change
	var plans []meta.Plan
	for p := range partitions {
		t, ok := image.Topic(p.ID.Topic)
		if !ok {
			continue
		}
		if c, ok := Settle(image, t, p, policy, me); ok {
			changes = append(changes, c)
			plans = append(plans, c.Plan)
		}
	}
	return changes, Split(plans, limits)
}

// Drained reports whether a broker that is leaving leads nothing that another could lead.
func Drained(image *meta.Image, id types.BrokerID) bool {
	for p := range image.Partitions() {
		if p.Record == nil || p.Record.Leader != id || NeedsLeader(image, p.Record) {
			continue
		}
		if slices.ContainsFunc(p.Record.ISR, func(m meta.ISRMember) bool { return m.ID != id && live(image, m) }) {
			return false
		}
	}
	return true
}
