package consumer

import "maps"

// Description is what ConsumerGroupDescribe tells of a group.
type Description struct {
	State              GroupState
	Epoch, TargetEpoch int32
	Assignor           string
	Members            []MemberDescription
}

// MemberDescription is one member: what it says of itself, where it stands, and what it is to have.
type MemberDescription struct {
	ID string
	Profile
	Epoch int32
	// Owned is what the member reads, and what it hasn't let go of; Target is what it is to have.
	Owned, Target []Partition
}

// Describe gives the group, its members in the order of their ids.
func (g *Group) Describe() Description {
	d := Description{State: g.State(), Epoch: g.epoch, TargetEpoch: g.targetEpoch, Assignor: g.assignor()}
	for _, m := range g.inOrder() {
		owned := maps.Clone(m.Assigned)
		if owned == nil {
			owned = Partitions{}
		}
		maps.Copy(owned, m.Revoking)
		d.Members = append(d.Members, MemberDescription{
			ID: m.ID, Profile: m.Profile, Epoch: m.Epoch, Owned: owned.Sorted(), Target: g.targets[m.ID],
		})
	}
	return d
}
