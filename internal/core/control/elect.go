package control

import (
	"fmt"
	"math"
	"slices"

	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
)

// ElectionKind says why a broker may lead (R11).
type ElectionKind string

const (
	// ElectedInSync: the broker is in the ISR and nothing of it was lost since.
	ElectedInSync ElectionKind = "in-sync"
	// ElectedEligible: the broker is an eligible leader replica (KIP-966).
	ElectedEligible ElectionKind = "eligible"
	// ElectedSole: the broker stopped uncleanly, but it holds the only replica:
	// nobody else can know more, and waiting brings nothing back. What the
	// disk lost with a power failure is lost.
	ElectedSole ElectionKind = "sole-replica"
	// ElectedUnclean: the broker may lack committed records, and was allowed to lead all the same.
	ElectedUnclean ElectionKind = "unclean"
)

// Election is the outcome of an election of one partition.
type Election struct {
	Partition meta.PartitionID
	Kind      ElectionKind
	// Record is what the partition's record becomes.
	Record meta.PartitionRecord
	Plan   meta.Plan
}

// Elect elects candidate, a registered broker, for one partition. ok is false
// if it may not lead, leads already in its present registration (R10), or the record
// came from a backup, which the controller settles alone. With
// unclean, any registered replica may: the caller has found the best one (R11).
func Elect(image *meta.Image, id types.TopicID, partition int32, candidate types.BrokerID, unclean bool, me Me) (Election, bool, error) {
	if err := me.registered(image); err != nil {
		return Election{}, false, err
	}
	p, ok := image.PartitionEntry(id, partition)
	if !ok {
		return Election{}, false, fmt.Errorf("partition %d of topic id %s: %w", partition, id, ErrUnknownPartition)
	}
	if p.Record == nil {
		return Election{}, false, fmt.Errorf("partition %d of topic id %s: %w: %w", partition, id, ErrUnreadable, p.Fault)
	}
	if p.Record.LeaderEpoch == math.MaxInt32 {
		return Election{}, false, fmt.Errorf("partition %d of topic id %s: %w", partition, id, ErrLeaderEpochExhausted)
	}
	epoch, live := image.BrokerEpoch(candidate)
	if !live || p.Record.Restored || p.Record.Leader == candidate && p.Record.LeaderBrokerEpoch == epoch {
		return Election{}, false, nil
	}
	kind, ok := electable(image, p.Record, candidate, unclean)
	if !ok {
		return Election{}, false, nil
	}
	next := elected(image, p.Record, meta.ISRMember{ID: candidate, BrokerEpoch: epoch}, kind)
	plan := writePartition(image, p, next, me, "elect the leader of")
	if candidate != me.ID {
		plan.If = append(plan.If, Me{ID: candidate, Epoch: epoch}.compare(image))
	}
	return Election{Partition: p.ID, Kind: kind, Record: next, Plan: checked(plan)}, true, nil
}

// live reports whether the broker of an entry is registered as it was then and isn't leaving.
func live(image *meta.Image, m meta.ISRMember) bool {
	b, ok := image.Broker(m.ID)
	return ok && types.BrokerEpoch(b.CreateRevision) == m.BrokerEpoch && !b.Record.Draining
}

// renewed is an entry in its broker's present registration, if that follows the
// entry's by a clean shutdown: what the broker held then, it still holds. ok is
// false for an entry that can never be intact again: its broker came back without the mark.
func renewed(image *meta.Image, m meta.ISRMember) (meta.ISRMember, bool) {
	b, registered := image.Broker(m.ID)
	if !registered {
		return m, true // it may come back with the mark
	}
	return meta.ISRMember{ID: m.ID, BrokerEpoch: types.BrokerEpoch(b.CreateRevision)}, intact(image, m)
}

// intact reports whether the broker of an ISR or ELR entry still has what it
// had then: it is registered as it was, or came back after a clean shutdown of that registration.
func intact(image *meta.Image, m meta.ISRMember) bool {
	b, ok := image.Broker(m.ID)
	if !ok {
		return false
	}
	return types.BrokerEpoch(b.CreateRevision) == m.BrokerEpoch || b.Record.CleanShutdownEpoch == m.BrokerEpoch
}

func electable(image *meta.Image, r *meta.PartitionRecord, candidate types.BrokerID, unclean bool) (ElectionKind, bool) {
	in := func(members []meta.ISRMember) bool {
		return slices.ContainsFunc(members, func(m meta.ISRMember) bool { return m.ID == candidate && intact(image, m) })
	}
	switch {
	case !slices.Contains(r.Replicas, candidate):
		return "", false
	case in(r.ISR):
		return ElectedInSync, true
	case in(r.ELR):
		return ElectedEligible, true
	case len(r.Replicas) == 1:
		return ElectedSole, true
	}
	return ElectedUnclean, unclean
}

// elected is the record after an election: the leader in its present
// registration, the epoch one higher (R10), and those of the ISR who are live.
// Members that fall out below min ISR become eligible (R15).
func elected(image *meta.Image, old *meta.PartitionRecord, leader meta.ISRMember, kind ElectionKind) meta.PartitionRecord {
	next := old.Clone()
	next.Leader, next.LeaderBrokerEpoch = leader.ID, leader.BrokerEpoch
	next.LeaderEpoch++
	next.UncleanOnce = false
	if kind == ElectedSole || kind == ElectedUnclean {
		next.ISR, next.ELR = []meta.ISRMember{leader}, nil
		return next
	}
	next.ISR = []meta.ISRMember{leader}
	var out []meta.ISRMember
	for _, m := range old.ISR {
		if m.ID == leader.ID {
			continue
		}
		if live(image, m) {
			next.ISR = append(next.ISR, m)
		} else {
			out = append(out, m)
		}
	}
	for _, m := range old.ELR {
		if m.ID != leader.ID {
			out = append(out, m)
		}
	}
	next.ELR = eligible(image, &next, out)
	return next
}

// eligible is the ELR of a record whose ISR is decided: none with enough in-sync
// replicas, else those of the candidates that can still be intact (R15).
func eligible(image *meta.Image, r *meta.PartitionRecord, candidates []meta.ISRMember) []meta.ISRMember {
	if len(r.ISR) >= r.MinISRNow() {
		return nil
	}
	var elr []meta.ISRMember
	for _, m := range candidates {
		if now, ok := renewed(image, m); ok {
			if now.BrokerEpoch != m.BrokerEpoch {
				probeKeptByMark.Reached()
			}
			m = now
			elr = append(elr, m)
		}
	}
	if len(elr) > 0 {
		probeELR.Reached()
	}
	return elr
}

// NeedsLeader reports whether nobody leads the partition: there is no leader,
// or it is no longer registered as it was when it was elected (R10).
func NeedsLeader(image *meta.Image, r *meta.PartitionRecord) bool {
	if r.Leader == types.NoBroker {
		return true
	}
	epoch, ok := image.BrokerEpoch(r.Leader)
	return !ok || epoch != r.LeaderBrokerEpoch
}

// ElectAll elects a broker for every partition that needs a leader and that it
// may lead, as after its registration (R10): the elections, and their plans
// merged within limits, each of which may be carried out or not on its own.
// unclean says of which topics the broker may lead although it may lack records; nil means none.
func ElectAll(image *meta.Image, candidate types.BrokerID, unclean func(*meta.Topic) bool, me Me, limits Limits) ([]Election, []meta.Plan) {
	var elections []Election
	var plans []meta.Plan
	for t := range image.Topics() {
		for p := range image.PartitionsOf(t.ID) {
			if p.Record == nil || !NeedsLeader(image, p.Record) {
				continue
			}
			allowed := unclean != nil && unclean(t)
			e, ok, err := Elect(image, t.ID, p.ID.Number, candidate, allowed, me)
			if err == nil && ok {
				elections = append(elections, e)
				plans = append(plans, e.Plan)
			}
		}
	}
	return elections, Split(plans, limits)
}
