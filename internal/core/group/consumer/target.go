package consumer

import (
	"cmp"
	"slices"

	"tidemark/internal/core/types"
)

// The server-side assignors, by the names that members ask for them by.
const (
	Uniform = "uniform"
	Range   = "range"
)

// subject is a member as an assignor sees it.
type subject struct {
	id, instance string
	topics       []Topic     // that it subscribes to and that exist, by name
	had          []Partition // its target until now, sorted
}

// assign gives each of the subjects, by its place, what it is to have, sorted.
type assign func(subjects []subject) [][]Partition

func assignorNamed(name string) assign {
	if name == Range {
		return assignRange
	}
	return assignUniform
}

// assignor is what most members ask for; the first that is configured where nobody asks, or as many for each.
func (g *Group) assignor() string {
	votes := map[string]int{}
	for _, m := range g.members {
		if m.Assignor != "" {
			votes[m.Assignor]++
		}
	}
	best := g.cfg.Assignors[0]
	for _, name := range g.cfg.Assignors {
		if votes[name] > votes[best] {
			best = name
		}
	}
	return best
}

// retarget computes what each member is to have in the group's epoch.
func (g *Group) retarget(topics Topics) {
	subjects := make([]subject, 0, len(g.members))
	for _, m := range g.inOrder() {
		s := subject{id: m.ID, instance: m.InstanceID, had: g.targets[m.ID]}
		for _, name := range g.topicsOf(m) {
			if t, ok := topics.ByName(name); ok {
				s.topics = append(s.topics, t)
			}
		}
		subjects = append(subjects, s)
	}
	for i, target := range assignorNamed(g.assignor())(subjects) {
		id := subjects[i].id
		if had, ok := g.targets[id]; !ok || !slices.Equal(had, target) {
			g.write(TargetRecord{Member: id, Partitions: target})
		}
	}
	g.write(TargetEpochRecord{Epoch: g.epoch})
	g.checkTargets()
}

// assignRange gives each topic's partitions in runs, in the order of the members (KIP-848):
// static ones first, by their instances, so that a restart changes nothing.
func assignRange(subjects []subject) [][]Partition {
	order := make([]int, len(subjects))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		x, y := subjects[a], subjects[b]
		switch {
		case x.instance != "" && y.instance == "":
			return -1
		case x.instance == "" && y.instance != "":
			return 1
		}
		return cmp.Or(cmp.Compare(x.instance, y.instance), cmp.Compare(x.id, y.id))
	})
	readers := map[types.TopicID][]int{}
	sizes := map[types.TopicID]int32{}
	for _, i := range order {
		for _, t := range subjects[i].topics {
			readers[t.ID] = append(readers[t.ID], i)
			sizes[t.ID] = t.Partitions
		}
	}
	targets := make([][]Partition, len(subjects))
	for id, who := range readers {
		next, each, more := int32(0), sizes[id]/int32(len(who)), sizes[id]%int32(len(who))
		for place, i := range who {
			n := each
			if int32(place) < more {
				n++
			}
			for range n {
				targets[i] = append(targets[i], Partition{id, next})
				next++
			}
		}
	}
	for i := range targets {
		slices.SortFunc(targets[i], Partition.Compare)
	}
	return targets
}
