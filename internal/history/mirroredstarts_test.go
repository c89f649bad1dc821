package history

import (
	"slices"
	"testing"

	"tidemark/internal/core/types"
)

// TestTimelinesThatBeginLower is a run in which B is promoted with five records of A's, two of which no
// other replica of B has; an election takes them away, and B's timeline begins at 3. A fails back in two cuts.
func TestTimelinesThatBeginLower(t *testing.T) {
	told := Lineage{{"r", 0, 0}, {"b", 100, 5}}
	f := func(name string, bend func(s *story, fork *Fork, group *GroupView), want ...Rule) {
		t.Helper()
		s := &story{}
		for i, v := range []string{"a0", "a1", "a2", "a3", "a4", "a5"} {
			s.writes = append(s.writes, Write{Cluster: "A", Timeline: "r", Partition: p0, Value: v, Outcome: Acked, Offset: types.Offset(i), At: int64(i)})
		}
		for i, v := range []string{"b0", "b1"} {
			s.writes = append(s.writes, Write{Cluster: "B", Timeline: "b", Partition: p0, Value: v, Outcome: Acked, Offset: types.Offset(3 + i), At: int64(i)})
		}
		old, unshown, own, fresh := lay(1, 0, "a0", "a1", "a2"), lay(1, 3, "a3", "a4"), lay(1, 5, "a5"), lay(101, 3, "b0", "b1")
		s.views = []View{
			view("B", rootOnly, false, old),
			view("A", rootOnly, false, together(old, unshown, own)),
			view("B", told, true, together(old, fresh)),
			view("A", told, true, together(old, fresh)),
		}
		s.cuts = []Cut{{Cluster: "A", Partition: p0, Batches: together(unshown, own), Split: 5}}
		for _, node := range []string{"1", "2"} {
			s.kept = append(s.kept, Kept{Cluster: "A", Node: node, Partition: p0, Entry: "5-6", From: 5, To: 6, Before: rootOnly, After: told, Batches: own},
				Kept{Cluster: "A", Node: node, Partition: p0, Entry: "3-5", From: 3, To: 5, Before: told, Batches: unshown})
		}
		fork := &Fork{Partition: p0, Timeline: "b", Cluster: "B", Told: 5}
		group := &GroupView{Cluster: "B", Group: "g", Partition: p0, Lineage: told, Offset: 3, End: 5}
		bend(s, fork, group)
		m := NewMirrored(map[string]int{"A": 2, "B": 2})
		for _, w := range s.writes {
			m.Acked(m.Writing(w), w.Offset, w.At, w.AckedAt)
		}
		m.Committing(GroupCommit{Cluster: "A", Group: "g", Partition: p0, Lineage: rootOnly, Offset: 5})
		var found []Finding
		for i, v := range s.views {
			if i == 2 && fork != nil {
				found = append(found, m.Promoted(*fork, told)...)
			}
			found = append(found, m.Observe(v)...)
		}
		found = append(found, m.ObserveGroup(*group)...)
		for _, c := range s.cuts {
			m.MustCut(c)
		}
		for _, k := range s.kept {
			m.Keep(k)
		}
		found = append(found, m.Check()...)
		for _, w := range want {
			if !slices.ContainsFunc(found, func(f Finding) bool { return f.Rule == w }) {
				t.Errorf("%s: no %q among %v", name, w, found)
			}
		}
		if len(want) == 0 && len(found) > 0 {
			t.Errorf("%s: %v", name, found)
		}
	}
	f("as it goes well", func(*story, *Fork, *GroupView) {})
	f("a switchover had all", func(_ *story, fork *Fork, _ *GroupView) { fork.Clean = true }, LostBehindFork)
	f("no promotion began it", func(_ *story, fork *Fork, _ *GroupView) { fork.Timeline = "c" }, LostBehindFork)
	f("the mirror's readers had been shown them", func(s *story, _ *Fork, _ *GroupView) {
		s.views[0] = view("B", rootOnly, false, lay(1, 0, "a0", "a1", "a2", "a3"))
	}, LostBehindFork)
	f("its cluster had acknowledged them", func(s *story, _ *Fork, _ *GroupView) { s.writes[4].Cluster = "B" }, LostBehindFork)
	f("it begins lower once more", func(s *story, _ *Fork, _ *GroupView) {
		s.views = append(s.views, view("B", told, true, together(lay(1, 0, "a0", "a1"), lay(101, 2, "b0"))))
	}, LostBehindFork)
	f("the cuts are one", func(s *story, _ *Fork, _ *GroupView) {
		whole := Kept{Cluster: "A", Partition: p0, Entry: "3-6", From: 3, To: 6, Before: rootOnly, After: told, Batches: s.cuts[0].Batches}
		s.kept = []Kept{whole, whole}
		s.kept[0].Node, s.kept[1].Node = "1", "2"
	}, CutDiffers)
	f("a vault lacks what was lost elsewhere", func(s *story, _ *Fork, _ *GroupView) { s.kept = s.kept[:3] }, Unkept)
	f("a group would skip what came in their place", func(_ *story, _ *Fork, group *GroupView) { group.Offset = 5 }, GroupForeign)
}
