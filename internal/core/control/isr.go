package control

import (
	"errors"
	"fmt"
	"slices"

	"tidemark/internal/assert"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
)

// ErrRecordChanged refuses a change that was decided on an older record: the
// decision is made anew from the present one.
var ErrRecordChanged = errors.New("the partition's record has changed") // INVALID_UPDATE_VERSION

// ErrLeaving refuses to let a broker join that is about to end its registration. Unlike
// the other refusals it says nothing of a change that was sent before: that compares the
// registration, which is still there.
var ErrLeaving = errors.New("the broker is shutting down") // INELIGIBLE_REPLICA

// ChangeISR writes the ISR that a partition's leader proposes (R15). from is the
// mod revision of the record that the leader counted with; the plan compares it
// and the leader's registration (R7), and for each member that joins the
// registration in which it proved itself (KIP-903). Whoever leaves below min ISR
// becomes eligible; an ISR that is large enough clears the ELR (KIP-966).
func ChangeISR(image *meta.Image, id types.TopicID, partition int32, from meta.Revision, isr []meta.ISRMember, me Me) (meta.Plan, error) {
	p, ok := image.PartitionEntry(id, partition)
	if !ok || p.Record == nil || p.ModRevision != from {
		return meta.Plan{}, fmt.Errorf("partition %d of topic id %s: %w", partition, id, ErrRecordChanged)
	}
	next := p.Record.Clone()
	next.ISR = slices.Clone(isr)
	var joins []meta.Compare
	for _, m := range isr {
		if p.Record.InISR(m.ID) {
			continue
		}
		if why := mayJoin(image, p.Record, m); why != nil {
			probeStaleJoin.Reached()
			return meta.Plan{}, fmt.Errorf("broker %d, epoch %d, can't join the ISR: %w", m.ID, m.BrokerEpoch, why)
		}
		joins = append(joins, Me{ID: m.ID, Epoch: m.BrokerEpoch}.compare(image))
	}
	// Invariant I-211: a leader never proposes an ISR without itself.
	assert.That(next.InISR(me.ID), "I-211: broker %d proposes the ISR %v", me.ID, isr)
	var out []meta.ISRMember
	for _, m := range slices.Concat(p.Record.ISR, p.Record.ELR) {
		if !next.InISR(m.ID) {
			out = append(out, m)
		}
	}
	next.ELR = eligible(image, &next, out)
	plan, err := UpdatePartition(image, id, partition, next, me)
	if err != nil {
		return meta.Plan{}, err
	}
	plan.Why = fmt.Sprintf("%s: ISR %v", plan.Why, next.ISRIDs())
	plan.If = append(plan.If, joins...)
	return checked(plan), nil
}

// mayJoin refuses who is no replica, was registered anew or is leaving.
func mayJoin(image *meta.Image, r *meta.PartitionRecord, m meta.ISRMember) error {
	epoch, registered := image.BrokerEpoch(m.ID)
	switch {
	case !slices.Contains(r.Replicas, m.ID) || !registered || epoch != m.BrokerEpoch:
		return ErrNotRegistered
	case !live(image, m):
		return ErrLeaving
	}
	return nil
}
