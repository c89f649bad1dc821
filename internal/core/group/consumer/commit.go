package consumer

import "tidemark/internal/core/errcode"

// CheckCommit decides whether a member may commit offsets of partitions, in the epoch
// that it names. A member that has gone on to a later epoch may still commit what it had
// in the earlier one (KIP-1251), as long as it has it.
func (g *Group) CheckCommit(memberID string, epoch int32, partitions []Partition) *Refusal {
	m := g.members[memberID]
	switch {
	case g.cfg.Rules.CommitUnfenced:
		return nil
	case m == nil:
		return g.noMember(memberID)
	case epoch == m.Epoch:
		return nil
	case epoch > m.Epoch:
		return refuse(errcode.StaleMemberEpoch, "Received member epoch %d is newer than current member epoch %d.", epoch, m.Epoch)
	}
	for _, p := range partitions {
		given, ok := m.Assigned[p]
		if !ok {
			given, ok = m.Revoking[p]
		}
		switch {
		case !ok:
			return refuse(errcode.StaleMemberEpoch, "Partition %s-%d is not assigned or pending revocation for member.", p.Topic, p.Number)
		case epoch < given:
			return refuse(errcode.StaleMemberEpoch, "Received member epoch %d is older than assignment epoch %d for partition %s-%d.", epoch, given, p.Topic, p.Number)
		}
	}
	return nil
}

// CheckFetch decides whether a member may be told committed offsets: one that isn't in
// its epoch may not, as others' commits may be on their way.
func (g *Group) CheckFetch(memberID string, epoch int32) *Refusal {
	m := g.members[memberID]
	switch {
	case m == nil:
		return g.noMember(memberID)
	case epoch != m.Epoch:
		return refuse(errcode.StaleMemberEpoch, "The received member epoch %d does not match the expected member epoch %d.", epoch, m.Epoch)
	}
	return nil
}
