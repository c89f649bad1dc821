package history

import (
	"cmp"
	"maps"
	"slices"

	"tidemark/internal/core/types"
)

// GroupCommit is an offset that somebody asked a cluster to commit for a group,
// whatever the outcome.
type GroupCommit struct {
	Cluster, Group string
	Partition      types.TopicPartition
	Lineage        Lineage // the partition's, when the group's members there began
	Offset         types.Offset
}

// GroupView is what a cluster showed of a group while no cut was due there.
type GroupView struct {
	Cluster, Group string
	Partition      types.TopicPartition
	Lineage        Lineage
	Offset         types.Offset // committed
	End            types.Offset // of the log; read after Offset
	// Final: after all faults, and once syncs had the time to copy it everywhere.
	Final bool
}

// GroupFall is a committed offset that a cluster must take back when it
// follows another lineage: it stood above Fork, where the two part.
type GroupFall struct {
	Cluster, Group string
	Partition      types.TopicPartition
	At, Fork       types.Offset
	// Excused: a process of the cluster ended meanwhile, and may have taken the event along.
	Excused bool
}

// GroupTold is an event GROUP_CUT: a committed offset was taken back.
type GroupTold struct {
	Cluster, Group string
	Partition      types.TopicPartition
	From, To       types.Offset // before and after
}

// The rules of groups whose offsets are mirrored.
const (
	GroupAhead   Rule = "group ahead of its log"                // committed above the log end (GroupNotAhead)
	GroupForeign Rule = "group at an offset of another history" // above all that it committed on this lineage: it would skip records
	GroupUntold  Rule = "group cut and not told"                // taken back without an event
	GroupsDiffer Rule = "groups differ in the end"              // one group's offset of one partition on two clusters
	GroupUnread  Rule = "group not read in the end"             // no final view
)

// groupPlace is one group's offset of one partition.
type groupPlace struct {
	group string
	tp    types.TopicPartition
}

func (a groupPlace) compare(b groupPlace) int {
	return cmp.Or(cmp.Compare(a.group, b.group), comparePartitions(a.tp, b.tp))
}

// mirroredGroups is what is known of groups.
type mirroredGroups struct {
	commits map[groupPlace][]GroupCommit
	given   map[string]map[string]bool             // by group: the values that its members were given
	last    map[groupPlace]map[string]types.Offset // by cluster: the final views
	falls   []GroupFall
	told    map[GroupTold]bool
}

func newMirroredGroups() mirroredGroups {
	return mirroredGroups{commits: map[groupPlace][]GroupCommit{}, given: map[string]map[string]bool{}, last: map[groupPlace]map[string]types.Offset{}, told: map[GroupTold]bool{}}
}

// Committing notes a commit before it is sent.
func (m *Mirrored) Committing(c GroupCommit) {
	at := groupPlace{c.Group, c.Partition}
	// Later commits on the same lineage stand for the lower ones before them.
	if list := m.groups.commits[at]; len(list) > 0 && slices.Equal(list[len(list)-1].Lineage, c.Lineage) {
		list[len(list)-1].Offset = max(list[len(list)-1].Offset, c.Offset)
		return
	}
	m.groups.commits[at] = append(m.groups.commits[at], c)
}

// Given notes a record that a member of a group was given, on any cluster, before
// it is committed. Groups of which nothing is noted may skip what they like.
func (m *Mirrored) Given(group, value string) {
	if m.groups.given[group] == nil {
		m.groups.given[group] = map[string]bool{}
	}
	m.groups.given[group][value] = true
}

// ObserveGroup judges what a cluster showed of a group, and gives what is wrong with it.
func (m *Mirrored) ObserveGroup(v GroupView) []Finding {
	before := len(m.found)
	at := groupPlace{v.Group, v.Partition}
	if v.Offset > v.End {
		m.report(GroupAhead, v.Partition, v.Offset, "group %s is at %d on %s, whose log ends at %d", v.Group, v.Offset, v.Cluster, v.End)
	}
	if most, by := m.reach(at, m.Effective(v.Partition, v.Lineage)); v.Offset > most {
		m.report(GroupForeign, v.Partition, v.Offset, "group %s is at %d on %s, timelines %v; on those it has committed %d at most (%+v)", v.Group, v.Offset, v.Cluster, v.Lineage, most, by)
	}
	if v.Final {
		if m.groups.last[at] == nil {
			m.groups.last[at] = map[string]types.Offset{}
		}
		m.groups.last[at][v.Cluster] = v.Offset
	}
	return m.found[before:]
}

// reach is the highest offset that a group may have on a lineage: of each commit as
// much as its own lineage shares with it. What comes to stand above was not read.
func (m *Mirrored) reach(at groupPlace, l Lineage) (most types.Offset, by GroupCommit) {
	for _, c := range m.groups.commits[at] {
		worth := c.Offset
		if fork, shared := m.Effective(at.tp, c.Lineage).ForkAt(l); !shared {
			worth = min(worth, fork)
		}
		if worth > most {
			most, by = worth, c
		}
	}
	return most, by
}

// MustFall notes an offset that a cluster is about to take back.
func (m *Mirrored) MustFall(f GroupFall) { m.groups.falls = append(m.groups.falls, f) }

// Told notes an event of a cluster.
func (m *Mirrored) Told(t GroupTold) { m.groups.told[t] = true }

// checkGroups judges groups in the end.
func (m *Mirrored) checkGroups() {
	for _, f := range m.groups.falls {
		isTold := false
		for t := range m.groups.told {
			isTold = isTold || t.Cluster == f.Cluster && t.Group == f.Group && t.Partition == f.Partition && t.From == f.At && t.To <= f.Fork
		}
		if !isTold && !f.Excused {
			m.report(GroupUntold, f.Partition, f.At, "group %s was at %d on %s, which was cut at %d or below; no event says so", f.Group, f.At, f.Cluster, f.Fork)
		}
	}
	for _, at := range slices.SortedFunc(maps.Keys(m.groups.last), groupPlace.compare) {
		m.groupInTheEnd(at, m.groups.last[at])
	}
}

// groupInTheEnd: a group that moved with the failovers is at one offset everywhere, and
// its members together were given every record below.
func (m *Mirrored) groupInTheEnd(at groupPlace, last map[string]types.Offset) {
	first := ""
	for _, cluster := range slices.Sorted(maps.Keys(m.copies)) {
		o, read := last[cluster]
		switch {
		case !read:
			m.report(GroupUnread, at.tp, types.NoOffset, "group %s on %s", at.group, cluster)
			continue
		case first == "":
			first = cluster
		case o != last[first]:
			m.report(GroupsDiffer, at.tp, o, "group %s is at %d on %s, at %d on %s", at.group, o, cluster, last[first], first)
		}
		log := m.last[side{cluster, at.tp}]
		given := m.groups.given[at.group]
		if given == nil || log == nil || cluster != first {
			continue
		}
		for _, b := range log.Batches {
			for _, r := range b.Records {
				if r.Offset < o && !given[r.Value] {
					m.report(GroupSkip, at.tp, r.Offset, "group %s has committed %d on %s, and none of its members anywhere was given %q, epoch %d", at.group, o, cluster, brief(r.Value), b.Epoch)
				}
			}
		}
	}
}
