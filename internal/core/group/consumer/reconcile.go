package consumer

import (
	"maps"
	"slices"
)

// reconcile takes a member as far as it can go to its target, and gives it. A member
// keeps its epoch until it has let go of what is to be another's, and waits for what
// another hasn't let go of.
func (g *Group) reconcile(env Env, m *Member, h Heartbeat) *Member {
	if m.State == Stable && m.Epoch == g.targetEpoch {
		return m
	}
	if m.State == UnrevokedPartitions && h.owns(m.Revoking) && !g.cfg.Rules.ReleaseUnasked {
		return m
	}
	next := g.next(m, h)
	if !next.equal(&m.Position) {
		g.write(PositionRecord{Member: m.ID, Value: &next})
		delete(g.revokes, m.ID)
		if next.State == UnrevokedPartitions {
			g.giveTime(g.members[m.ID], env.Now)
		}
	}
	return g.members[m.ID]
}

// owns reports whether the member may still have one of the partitions: also if it doesn't say what it has.
func (h *Heartbeat) owns(set Partitions) bool {
	if !h.HasOwned {
		return len(set) > 0
	}
	return slices.ContainsFunc(h.Owned, func(p Partition) bool { _, ok := set[p]; return ok })
}

// next is where the member can go now.
func (g *Group) next(m *Member, h Heartbeat) Position {
	assigned, revoking, free := Partitions{}, maps.Clone(m.Assigned), []Partition{}
	waits := false
	for _, p := range g.targets[m.ID] {
		if epoch, ok := m.Assigned[p]; ok {
			assigned[p] = epoch
			delete(revoking, p)
			continue
		}
		// What the member itself is about to let go of can come back to it at once.
		if owner, owned := g.owners[p]; owned && owner != m.ID {
			waits = true
			continue
		}
		free = append(free, p)
	}
	next := m.Position
	next.Assigned, next.Revoking = assigned, Partitions{}
	if len(revoking) > 0 && h.owns(revoking) && !(g.cfg.Rules.ReleaseUnasked && m.State == UnrevokedPartitions) {
		next.State, next.Revoking = UnrevokedPartitions, revoking
		return next.moved(m.Epoch)
	}
	for _, p := range free {
		assigned[p] = g.targetEpoch
	}
	next.State = Stable
	if waits {
		next.State = UnreleasedPartitions
	}
	return next.moved(g.targetEpoch)
}
