package history

import (
	"slices"
	"testing"

	"tidemark/internal/core/types"
)

// groupStory is what a group does in the story of forked: its members on A read and
// commit up to 5, those on B go on from 3, where B was promoted; A takes it back to 3.
type groupStory struct {
	given   []string
	commits []GroupCommit
	views   []GroupView
	falls   []GroupFall
	told    []GroupTold
}

func movedGroup() *groupStory {
	s := &groupStory{given: []string{"a0", "a1", "a2", "a3", "a4", "b0", "b1"}}
	commit := func(cluster string, l Lineage, at types.Offset) {
		s.commits = append(s.commits, GroupCommit{Cluster: cluster, Group: "g", Partition: p0, Lineage: l, Offset: at})
	}
	look := func(cluster string, l Lineage, at, end types.Offset, final bool) {
		s.views = append(s.views, GroupView{Cluster: cluster, Group: "g", Partition: p0, Lineage: l, Offset: at, End: end, Final: final})
	}
	commit("A", rootOnly, 2)
	commit("A", rootOnly, 5)
	commit("B", promoted, 5)
	look("A", rootOnly, 5, 5, false)
	look("B", promoted, 3, 3, false)
	look("A", promoted, 5, 5, true)
	look("B", promoted, 5, 5, true)
	s.falls = []GroupFall{{Cluster: "A", Group: "g", Partition: p0, At: 5, Fork: 3}}
	s.told = []GroupTold{{Cluster: "A", Group: "g", Partition: p0, From: 5, To: 3}}
	return s
}

func (s *groupStory) judge() []Finding {
	m := NewMirrored(map[string]int{"A": 2, "B": 2})
	whole := forked()
	for _, w := range whole.writes {
		i := m.Writing(w)
		if w.Outcome == Acked {
			m.Acked(i, w.Offset, w.At, w.AckedAt)
		}
	}
	var found []Finding
	for _, v := range whole.views {
		found = append(found, m.Observe(v)...)
	}
	for _, k := range whole.kept {
		m.Keep(k)
	}
	for _, v := range s.given {
		m.Given("g", v)
	}
	for _, c := range s.commits {
		m.Committing(c)
	}
	for _, v := range s.views {
		found = append(found, m.ObserveGroup(v)...)
	}
	for _, f := range s.falls {
		m.MustFall(f)
	}
	for _, t := range s.told {
		m.Told(t)
	}
	return append(found, m.Check()...)
}

// TestMirroredFindsWhatIsWrongOfGroups bends the story once for each rule.
func TestMirroredFindsWhatIsWrongOfGroups(t *testing.T) {
	f := bending(t, movedGroup)
	f("as it goes well", func(*groupStory) {})
	f("an offset beyond the log", func(s *groupStory) { s.views[1].End = 2 }, GroupAhead)
	f("a standby takes over with what was committed beyond its log", func(s *groupStory) { s.views[1].Offset, s.views[1].End = 5, 7; s.commits = s.commits[:2] }, GroupForeign)
	f("an offset of the old history stays behind the cut", func(s *groupStory) { s.commits[2].Offset = 4 }, GroupForeign)
	f("an offset that nobody committed", func(s *groupStory) { s.views[1].Offset, s.views[1].End = 6, 9 }, GroupForeign)
	f("another group's offset", func(s *groupStory) { s.commits[0].Group, s.commits[1].Group, s.commits[2].Group = "h", "h", "h" }, GroupForeign)
	f("no event of a cut", func(s *groupStory) { s.told = nil }, GroupUntold)
	f("an event of another group's", func(s *groupStory) { s.told[0].Group = "h" }, GroupUntold)
	f("an event that says less than was taken back", func(s *groupStory) { s.told[0].To = 4 }, GroupUntold)
	f("no event of a node that was killed meanwhile", func(s *groupStory) { s.told = nil; s.falls[0].Excused = true })
	f("the offset isn't copied", func(s *groupStory) { s.views[2].Offset = 3 }, GroupsDiffer)
	f("a cluster is not asked in the end", func(s *groupStory) { s.views[2].Final = false }, GroupUnread)
	f("a record that no member was given", func(s *groupStory) {
		s.given = slices.DeleteFunc(s.given, func(v string) bool { return v == "b0" })
	}, GroupSkip)
	f("a record that was cut need not be given to anybody", func(s *groupStory) {
		s.given = slices.DeleteFunc(s.given, func(v string) bool { return v == "a3" })
	})
	f("a group without members skips nothing", func(s *groupStory) { s.given = nil })
}
