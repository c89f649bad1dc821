package history

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"testing"

	"tidemark/internal/batch"
	"tidemark/internal/core/types"
)

// story is a run of two clusters on one partition: A is written, B mirrors it and is
// promoted three records in, both are written, A fails back. Each test bends it at one place.
type story struct {
	writes []Write
	views  []View
	cuts   []Cut
	kept   []Kept
}

var (
	rootOnly = Lineage{{"r", 0, 0}}
	promoted = Lineage{{"r", 0, 0}, {"b", 100, 3}}
)

// lay puts one batch of one record after the other, from an offset on.
func lay(epoch types.LeaderEpoch, from types.Offset, values ...string) (out []Batch) {
	for i, v := range values {
		at := from + types.Offset(i)
		out = append(out, Batch{Base: at, Last: at, Epoch: epoch, Hash: sha256.Sum256(fmt.Appendf(nil, "%d %d %s", at, epoch, v)), Records: []Record{{at, v}}})
	}
	return out
}

func together(parts ...[]Batch) []Batch { return slices.Concat(parts...) }

func view(cluster string, l Lineage, final bool, batches []Batch) View {
	v := View{Cluster: cluster, Partition: p0, Lineage: l, Batches: batches, Began: 100, Final: final}
	if n := len(batches); n > 0 {
		v.End = batches[n-1].Last + 1
	}
	return v
}

// forked gives the story as it goes well.
func forked() *story {
	s := &story{}
	write := func(cluster, timeline string, from types.Offset, values ...string) {
		for i, v := range values {
			s.writes = append(s.writes, Write{Cluster: cluster, Timeline: timeline, Partition: p0, Value: v, Outcome: Acked, Offset: from + types.Offset(i), At: int64(i)})
		}
	}
	write("A", "r", 0, "a0", "a1", "a2", "a3", "a4")
	write("B", "b", 3, "b0", "b1")
	s.writes = append(s.writes, Write{Cluster: "A", Timeline: "r", Partition: p0, Value: "a?", Outcome: Unknown})
	old, lost, fresh := lay(1, 0, "a0", "a1", "a2"), lay(1, 3, "a3", "a4"), lay(101, 3, "b0", "b1")
	s.views = []View{
		view("B", rootOnly, false, old),
		view("A", rootOnly, false, together(old, lost)),
		view("B", promoted, true, together(old, fresh)),
		view("A", promoted, true, together(old, fresh)),
	}
	s.cuts = []Cut{{Cluster: "A", Partition: p0, Batches: lost}}
	for _, node := range []string{"1", "2"} {
		s.kept = append(s.kept, Kept{Cluster: "A", Node: node, Partition: p0, Entry: "3-5-" + node, From: 3, To: 5, Before: rootOnly, After: promoted, Batches: lost})
	}
	// What was never committed may be cut within a lineage.
	s.kept = append(s.kept, Kept{Cluster: "A", Node: "3", Partition: p0, Entry: "2-3", From: 2, To: 3, Before: rootOnly, Batches: lay(0, 2, "a?")})
	return s
}

// bending gives a check that a story which is bent in one way breaks these rules, and no others.
func bending[S interface{ judge() []Finding }](t *testing.T, tell func() S) func(name string, bend func(s S), want ...Rule) {
	return func(name string, bend func(s S), want ...Rule) {
		t.Helper()
		s := tell()
		bend(s)
		found := s.judge()
		for _, w := range want {
			if !slices.ContainsFunc(found, func(f Finding) bool { return f.Rule == w }) {
				t.Errorf("%s: no %q among %v", name, w, found)
			}
		}
		for _, f := range found {
			if !slices.Contains(want, f.Rule) {
				t.Errorf("%s: %v", name, f)
			}
		}
	}
}

func (s *story) judge() []Finding {
	m := NewMirrored(map[string]int{"A": 2, "B": 2})
	for _, w := range s.writes {
		i := m.Writing(w)
		if w.Outcome == Acked {
			m.Acked(i, w.Offset, w.At, w.AckedAt)
		}
	}
	var found []Finding
	for _, v := range s.views {
		found = append(found, m.Observe(v)...)
	}
	for _, c := range s.cuts {
		m.MustCut(c)
	}
	for _, k := range s.kept {
		m.Keep(k)
	}
	return append(found, m.Check()...)
}

// edit changes a copy of one view's or entry's batches.
func edit(list []Batch, change func([]Batch) []Batch) []Batch { return change(slices.Clone(list)) }

// TestMirroredFindsWhatIsWrong bends the story once for each rule.
func TestMirroredFindsWhatIsWrong(t *testing.T) {
	f := bending(t, forked)
	last := func(s *story, cluster string) *View {
		for i := len(s.views) - 1; ; i-- {
			if s.views[i].Cluster == cluster {
				return &s.views[i]
			}
		}
	}
	without := func(i int) func([]Batch) []Batch {
		return func(b []Batch) []Batch { return slices.Delete(b, i, i+1) }
	}
	f("as it goes well", func(*story) {})
	f("an acknowledged record is lost on its own cluster", func(s *story) {
		v := last(s, "B")
		v.Batches, v.End = v.Batches[:4], 4
	}, LostBehindFork, NotConverged)
	f("a record that readers saw is gone, whoever acknowledged it", func(s *story) {
		s.writes = slices.DeleteFunc(s.writes, func(w Write) bool { return w.Value == "b1" })
		s.writes = append(s.writes, Write{Cluster: "B", Timeline: "b", Partition: p0, Value: "b1", Outcome: Unknown})
		early := *last(s, "B")
		early.Final = false
		s.views = append([]View{early}, s.views...)
		for _, c := range []string{"A", "B"} {
			v := last(s, c)
			v.Batches, v.End = v.Batches[:4], 4
		}
	}, LostBehindFork)
	f("a mirror leaves a record out", func(s *story) {
		v := last(s, "A")
		v.Batches = edit(v.Batches, without(1))
	}, Hole, LostBehindFork)
	f("a view ends early", func(s *story) { last(s, "A").End = 9 }, Hole, NotConverged)
	f("a record that was not acknowledged yet binds nobody", func(s *story) {
		s.writes = append(s.writes, Write{Cluster: "B", Timeline: "b", Partition: p0, Value: "b2", Outcome: Acked, Offset: 5, At: 200})
	})
	f("the vaults lack a record that was cut", func(s *story) {
		for i := range 2 {
			s.kept[i].Batches = edit(s.kept[i].Batches, without(1))
		}
	}, Unkept, CutDiffers)
	f("one vault of two that must have it", func(s *story) { s.kept = slices.Delete(s.kept, 0, 1) }, Unkept)
	f("a record that readers saw, cut and not kept", func(s *story) {
		s.writes = slices.DeleteFunc(s.writes, func(w Write) bool { return w.Value == "a4" })
		s.writes = append(s.writes, Write{Cluster: "A", Timeline: "r", Partition: p0, Value: "a4", Outcome: Unknown})
		s.cuts = nil
		for i := range 2 {
			s.kept[i].Batches = edit(s.kept[i].Batches, without(1))
		}
	}, Unkept)
	f("vaults have other bytes than the log had", func(s *story) {
		for i := range 2 {
			s.kept[i].Batches = edit(s.kept[i].Batches, func(b []Batch) []Batch { b[0].Hash[0] ^= 1; return b })
		}
	}, CutDiffers, Unkept)
	f("a vault's batches lie in another order", func(s *story) {
		for i := range 2 {
			s.kept[i].Batches = edit(s.kept[i].Batches, func(b []Batch) []Batch { slices.Reverse(b); return b })
		}
	}, VaultDisorder, CutDiffers)
	f("a vault has more than was to be cut", func(s *story) {
		for i := range 2 {
			s.kept[i].From, s.kept[i].Batches = 2, together(lay(1, 2, "a2"), s.kept[i].Batches)
		}
	}, NeedlessCut, CutDiffers)
	f("a committed record is cut within its lineage", func(s *story) {
		s.kept = append(s.kept, Kept{Cluster: "B", Node: "5", Partition: p0, Entry: "4-5", From: 4, To: 5, Before: promoted, Batches: lay(101, 4, "b1")})
	}, NeedlessCut)
	again := Kept{Cluster: "B", Node: "5", Partition: p0, Entry: "2-3", At: 5, From: 2, To: 3, Before: rootOnly, Batches: lay(1, 2, "a2")}
	f("a mirror's replica cuts what its cluster shows later", func(s *story) {
		s.views[0].At, s.kept = 6, append(s.kept, again)
	})
	f("a mirror's replica cuts what its cluster has shown", func(s *story) {
		s.views[0].At, s.kept = 4, append(s.kept, again)
	}, NeedlessCut)
	f("a replica cuts what its cluster has acknowledged and shows later", func(s *story) {
		for i := range s.views {
			s.views[i].At = 6
		}
		onA := again
		onA.Cluster = "A"
		s.kept = append(s.kept, onA)
	}, NeedlessCut)
	f("what a mirror's replica had copied beyond its cluster's mark may be cut", func(s *story) {
		s.kept = append(s.kept, Kept{Cluster: "B", Node: "5", Partition: p0, Entry: "4-5", From: 4, To: 5, Before: rootOnly, Batches: lay(1, 4, "a4")})
	})
	f("two clusters have other bytes at one place", func(s *story) {
		v := last(s, "A")
		v.Batches = edit(v.Batches, func(b []Batch) []Batch { b[4].Hash[0] ^= 1; return b })
	}, ForkedBytes)
	f("the old side's records are spliced under the new timeline", func(s *story) {
		v := last(s, "A")
		v.Batches = together(v.Batches[:3], lay(101, 3, "a3", "a4"))
	}, Spliced, ForkedBytes, LostBehindFork)
	f("the old side keeps records above the fork", func(s *story) {
		v := last(s, "A")
		v.Batches = together(lay(1, 0, "a0", "a1", "a2", "a3"), lay(101, 4, "b1"))
	}, Beyond, LostBehindFork)
	f("a record twice in one log", func(s *story) {
		for _, c := range []string{"A", "B"} {
			v := last(s, c)
			v.Batches, v.End = together(v.Batches, lay(101, 5, "b1")), 6
		}
	}, Duplicate, Moved)
	f("a record at another offset than was acknowledged", func(s *story) { s.writes[5].Offset = 4 }, Moved)
	f("a record that nobody wrote", func(s *story) {
		for _, c := range []string{"A", "B"} {
			v := last(s, c)
			v.Batches, v.End = together(v.Batches, lay(101, 5, "who?")), 6
		}
	}, Phantom)
	f("a record that nobody wrote in a vault", func(s *story) {
		s.kept = append(s.kept, Kept{Cluster: "B", Node: "5", Partition: p0, Entry: "7-8", From: 7, To: 8, Before: promoted, Batches: lay(101, 7, "who?")})
	}, Phantom)
	f("epochs fall", func(s *story) {
		v := last(s, "A")
		v.Batches = edit(v.Batches, func(b []Batch) []Batch { b[2].Epoch = 0; return b })
	}, EpochFalls)
	f("no timeline for the first records", func(s *story) { last(s, "A").Lineage = promoted[1:] }, LineageForgets, NotConverged, Unkept)
	f("lineages differ in the end", func(s *story) {
		last(s, "A").Lineage = Lineage{{"r", 0, 0}, {"b", 100, 3}, {"c", 200, 5}}
	}, NotConverged)
	f("a cluster is not read in the end", func(s *story) { last(s, "A").Final = false }, ViewUnread)
}

func TestForkAt(t *testing.T) {
	f := func(a, b Lineage, at types.Offset, shared bool) {
		t.Helper()
		if got, all := a.ForkAt(b); got != at || all != shared {
			t.Errorf("%v and %v fork at %d (all shared: %v), want %d (%v)", a, b, got, all, at, shared)
		}
	}
	own := Lineage{{"r", 0, 0}, {"a", 90, 7}, {"z", 95, 2}}
	f(rootOnly, rootOnly, types.NoOffset, true)
	f(rootOnly, promoted, 3, false)
	f(promoted, rootOnly, 3, false)
	f(own, promoted, 3, false)
	f(Lineage{{"r", 0, 0}, {"a", 90, 1}}, promoted, 1, false)
	f(Lineage{{"q", 0, 0}}, promoted, 0, false)
}

func TestNewBatch(t *testing.T) {
	b := batch.NewBuilder(batch.BuilderOptions{})
	b.Append(1000, nil, []byte("one-xxx"))
	b.Append(1000, nil, []byte("two-xxx"))
	raw, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	batch.Stamp(raw, 10, 7)
	name := func(v []byte) string { s, _, _ := strings.Cut(string(v), "-"); return s }
	got, err := NewBatch(raw, nil, name)
	if err != nil {
		t.Fatal(err)
	}
	if got.Base != 10 || got.Last != 11 || got.Epoch != 7 || got.Hash != sha256.Sum256(raw) || !slices.Equal(got.Records, []Record{{10, "one"}, {11, "two"}}) {
		t.Errorf("%+v", got)
	}
	raw[len(raw)-1] ^= 1
	if _, err := NewBatch(raw, nil, name); err == nil {
		t.Error("a batch with a wrong checksum was taken")
	}
}
