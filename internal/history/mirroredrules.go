package history

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"tidemark/internal/core/types"
)

// spot is one offset of one timeline: wherever it is found, there is one record for it.
type spot struct {
	tp       types.TopicPartition
	timeline string
	at       types.Offset
}

// shown is a batch that readers were given.
type shown struct {
	Batch
	by map[string]types.Millis // the clusters that showed it, and when each did first
}

// showed reports whether a cluster's readers were given the batch.
func (s *shown) showed(cluster string) bool {
	_, ok := s.by[cluster]
	return ok
}

// side is one cluster's partition.
type side struct {
	cluster string
	tp      types.TopicPartition
}

// Mirrored judges a run in which clusters mirrored each other, were failed over
// and back, and were written on both sides: a history for each timeline.
//
// Writes, views and cuts are told as they happen, vaults at the end. It believes
// lineages as the clusters tell them, and nothing else: which timeline a record is on
// is known from who wrote it when. Of every record that was acknowledged, or
// that a reader was given, it demands that it is in the log for as long as
// the lineage keeps it, and in vaults of its cluster if not.
//
// Topics of such a run are neither compacted nor cut by age: offsets have no holes.
type Mirrored struct {
	// copies says for each cluster on how many nodes everything is that it acknowledged or showed.
	copies map[string]int
	writes []Write
	byName map[string]int // index of the write with this value
	shown  map[spot]*shown
	last   map[side]*View
	cuts   []Cut
	kept   []Kept
	groups mirroredGroups
	txns   mirroredTxns
	starts mirroredStarts
	found  []Finding
}

// NewMirrored makes a judge. copies names all clusters.
func NewMirrored(copies map[string]int) *Mirrored {
	return &Mirrored{copies: copies, byName: map[string]int{}, shown: map[spot]*shown{}, last: map[side]*View{}, groups: newMirroredGroups(), txns: newMirroredTxns(), starts: mirroredStarts{}}
}

// Writing notes a write before it is sent, and gives the number for Acked.
func (m *Mirrored) Writing(w Write) int {
	w.Outcome, w.Offset = Unknown, types.NoOffset
	m.writes = append(m.writes, w)
	m.byName[w.Value] = len(m.writes) - 1
	return len(m.writes) - 1
}

// Acked notes that a write was acknowledged with acks=all.
func (m *Mirrored) Acked(write int, offset types.Offset, at int64, clock types.Millis) {
	w := &m.writes[write]
	w.Outcome, w.Offset, w.At, w.AckedAt = Acked, offset, at, clock
}

// OwedEnd is the offset above everything that a cluster acknowledged on a
// partition before a moment, or showed, and that a lineage keeps: once the cluster is
// in order, it shows everything below.
func (m *Mirrored) OwedEnd(cluster string, tp types.TopicPartition, l Lineage, before int64) types.Offset {
	end := types.Offset(0)
	l = m.Effective(tp, l)
	for i := range m.writes {
		w := &m.writes[i]
		if w.Outcome == Acked && w.Cluster == cluster && w.Partition == tp && w.At < before && w.Offset >= end && l.keeps(w.Timeline, w.Offset) {
			end = w.Offset + 1
		}
	}
	for at, s := range m.shown {
		if at.tp == tp && s.showed(cluster) && s.Last >= end && l.keeps(at.timeline, at.at) {
			end = s.Last + 1
		}
	}
	return end
}

// MustCut notes what a cluster is about to cut.
func (m *Mirrored) MustCut(c Cut) { m.cuts = append(m.cuts, c) }

// Keep notes an entry of a vault.
func (m *Mirrored) Keep(k Kept) { m.kept = append(m.kept, k) }

func (m *Mirrored) report(rule Rule, tp types.TopicPartition, at types.Offset, format string, args ...any) {
	m.found = append(m.found, Finding{Rule: rule, Partition: tp, Offset: at, Text: fmt.Sprintf(format, args...)})
}

// Observe judges a view, and gives what is wrong with it. What was acknowledged
// while it was read binds it to nothing.
func (m *Mirrored) Observe(v View) []Finding {
	before := len(m.found)
	m.learnStarts(&v)
	v.Lineage = m.Effective(v.Partition, v.Lineage)
	at := map[string]types.Offset{} // of each value
	have := map[spot]bool{}         // where its batches begin
	next, epoch := v.From, types.NoLeaderEpoch
	for _, b := range v.Batches {
		if b.Last >= v.From && b.Base > next {
			m.report(Hole, v.Partition, next, "%s shows nothing from %d to %d", v.Cluster, next, b.Base-1)
		}
		if b.Epoch < epoch {
			m.report(EpochFalls, v.Partition, b.Base, "%s shows epoch %d after %d", v.Cluster, b.Epoch, epoch)
		}
		next, epoch = b.Last+1, b.Epoch
		m.batch(&v, b, at, have)
	}
	if next < v.End {
		m.report(Hole, v.Partition, next, "%s shows nothing from %d to its end %d", v.Cluster, next, v.End)
	}
	m.lost(&v, at)
	m.gone(&v, have)
	keep := v
	m.last[side{v.Cluster, v.Partition}] = &keep
	return m.found[before:]
}

// batch judges one batch of a view.
func (m *Mirrored) batch(v *View, b Batch, at map[string]types.Offset, have map[spot]bool) {
	i := v.Lineage.of(b.Epoch)
	if i < 0 {
		m.report(LineageForgets, v.Partition, b.Base, "%s shows epoch %d and names no timeline for it", v.Cluster, b.Epoch)
		return
	}
	t := v.Lineage[i]
	if !v.Lineage.keeps(t.ID, b.Base) {
		m.report(Beyond, v.Partition, b.Base, "%s shows offsets %d to %d of timeline %s, epoch %d, where a later one of its lineage has begun", v.Cluster, b.Base, b.Last, t.ID, b.Epoch)
	}
	m.recordsOf(v.Cluster, v.Partition, t.ID, b)
	for _, r := range b.Records {
		if other, twice := at[r.Value]; twice && other != r.Offset {
			m.report(Duplicate, v.Partition, r.Offset, "%s shows %q at %d too", v.Cluster, brief(r.Value), other)
		}
		at[r.Value] = r.Offset
	}
	where := spot{v.Partition, t.ID, b.Base}
	have[where] = true
	s := m.shown[where]
	if s == nil {
		s = &shown{Batch: b, by: map[string]types.Millis{}}
		m.shown[where] = s
	} else if s.Hash != b.Hash {
		m.report(ForkedBytes, v.Partition, b.Base, "on timeline %s %s shows epoch %d, %q; %v showed epoch %d, %q", t.ID, v.Cluster, b.Epoch, values(b),
			slices.Sorted(maps.Keys(s.by)), s.Epoch, values(s.Batch))
	}
	if !s.showed(v.Cluster) {
		s.by[v.Cluster] = v.At
	}
}

func values(b Batch) []string {
	var out []string
	for _, r := range b.Records {
		out = append(out, brief(r.Value))
	}
	return out
}

// recordsOf demands that a batch's records were written to the partition, on the
// timeline, and lie where their acknowledgement said.
func (m *Mirrored) recordsOf(where string, tp types.TopicPartition, timeline string, b Batch) {
	for _, r := range b.Records {
		i, known := m.byName[r.Value]
		switch {
		case !known || m.writes[i].Partition != tp:
			m.report(Phantom, tp, r.Offset, "%s has %q, which nobody wrote there", where, brief(r.Value))
		case timeline != "" && m.writes[i].Timeline != timeline:
			m.report(Spliced, tp, r.Offset, "%s has %q under timeline %s (epoch %d); it was written on %s, timeline %s", where, brief(r.Value), timeline, b.Epoch, m.writes[i].Cluster, m.writes[i].Timeline)
		}
	}
}

// lost: what was acknowledged before a view, and is of its lineage, is in it; on
// another cluster than its own, if that has got so far.
func (m *Mirrored) lost(v *View, at map[string]types.Offset) {
	for i := range m.writes {
		w := &m.writes[i]
		if w.Outcome != Acked || w.Partition != v.Partition || w.At >= v.Began || w.Offset < v.From || !v.Lineage.keeps(w.Timeline, w.Offset) {
			continue
		}
		got, found := at[w.Value]
		switch {
		case found && got != w.Offset:
			m.report(Moved, v.Partition, w.Offset, "%s shows %q at %d", v.Cluster, brief(w.Value), got)
		case !found && (w.Cluster == v.Cluster || w.Offset < v.End):
			m.report(LostBehindFork, v.Partition, w.Offset, "%q was acknowledged by %s on timeline %s; %s, which has that timeline, shows offsets %d to %d without it",
				brief(w.Value), w.Cluster, w.Timeline, v.Cluster, v.From, v.End-1)
		}
	}
}

// gone: what any reader was given, acknowledged or not, is in every later view of a log that keeps it.
func (m *Mirrored) gone(v *View, have map[spot]bool) {
	for at, s := range m.shown {
		if at.tp == v.Partition && at.at >= v.From && !have[at] && (s.showed(v.Cluster) || at.at < v.End) && v.Lineage.keeps(at.timeline, at.at) {
			m.report(LostBehindFork, v.Partition, at.at, "%v showed offsets %d to %d of timeline %s, epoch %d, %q; %s, which has that timeline, shows offsets %d to %d without them",
				slices.Sorted(maps.Keys(s.by)), s.Base, s.Last, at.timeline, s.Epoch, values(s.Batch), v.Cluster, v.From, v.End-1)
		}
	}
}

// Check judges what is known at the end, once all vaults were told, and gives what Observe has not.
func (m *Mirrored) Check() []Finding {
	before := len(m.found)
	m.settleStarts()
	m.converged()
	where := map[string]map[[32]byte]map[string]bool{} // cluster, batch: the nodes whose vaults have it
	names := map[string]map[string]map[string]bool{}   // cluster, value: the same
	for i := range m.kept {
		k := &m.kept[i]
		m.entry(k)
		if where[k.Cluster] == nil {
			where[k.Cluster], names[k.Cluster] = map[[32]byte]map[string]bool{}, map[string]map[string]bool{}
		}
		for _, b := range k.Batches {
			note(where[k.Cluster], b.Hash, k.Node)
			for _, r := range b.Records {
				note(names[k.Cluster], r.Value, k.Node)
			}
		}
	}
	m.unkeptBatches(where)
	m.unkeptWrites(names)
	m.exactCuts()
	m.checkGroups()
	m.checkTxns()
	return m.found[before:]
}

func note[K comparable](m map[K]map[string]bool, key K, node string) {
	if m[key] == nil {
		m[key] = map[string]bool{}
	}
	m[key][node] = true
}

// converged: in the end all clusters name the same lineage and end at the same offset.
func (m *Mirrored) converged() {
	parts := map[types.TopicPartition]bool{}
	for s := range m.last {
		parts[s.tp] = true
	}
	for _, tp := range slices.SortedFunc(maps.Keys(parts), comparePartitions) {
		var first *View
		for _, cluster := range slices.Sorted(maps.Keys(m.copies)) {
			v := m.last[side{cluster, tp}]
			if v == nil || !v.Final {
				m.report(ViewUnread, tp, types.NoOffset, "%s", cluster)
				continue
			}
			if first == nil {
				first = v
			}
			if !slices.Equal(v.Lineage, first.Lineage) {
				m.report(NotConverged, tp, v.End, "%s has timelines %v, %s has %v", cluster, v.Lineage, first.Cluster, first.Lineage)
			}
			if v.End != first.End {
				m.report(NotConverged, tp, v.End, "%s ends at %d, %s at %d", cluster, v.End, first.Cluster, first.End)
			}
		}
	}
}

func comparePartitions(a, b types.TopicPartition) int {
	return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
}

// isKept reports whether a cluster's log still has, in the end, what lay at an offset of a timeline.
func (m *Mirrored) isKept(cluster string, tp types.TopicPartition, timeline string, at types.Offset) bool {
	v := m.last[side{cluster, tp}]
	return v != nil && v.Lineage.keeps(timeline, at)
}

// unkeptBatches: what a cluster showed and has no more is in enough of its vaults.
func (m *Mirrored) unkeptBatches(where map[string]map[[32]byte]map[string]bool) {
	for _, at := range slices.SortedFunc(maps.Keys(m.shown), func(a, b spot) int {
		return cmp.Or(comparePartitions(a.tp, b.tp), cmp.Compare(a.at, b.at), cmp.Compare(a.timeline, b.timeline))
	}) {
		s := m.shown[at]
		for _, cluster := range slices.Sorted(maps.Keys(s.by)) {
			if n := len(where[cluster][s.Hash]); n < m.copies[cluster] && !m.isKept(cluster, at.tp, at.timeline, at.at) {
				m.report(Unkept, at.tp, at.at, "%s showed offsets %d to %d of timeline %s, epoch %d, %q, and has them no more; %d vaults of it hold them, not %d",
					cluster, s.Base, s.Last, at.timeline, s.Epoch, values(s.Batch), n, m.copies[cluster])
			}
		}
	}
}

// unkeptWrites: what a cluster acknowledged and has no more is in enough of its vaults.
func (m *Mirrored) unkeptWrites(names map[string]map[string]map[string]bool) {
	for i := range m.writes {
		w := &m.writes[i]
		if w.Outcome != Acked || m.isKept(w.Cluster, w.Partition, w.Timeline, w.Offset) {
			continue
		}
		if n := len(names[w.Cluster][w.Value]); n < m.copies[w.Cluster] {
			m.report(Unkept, w.Partition, w.Offset, "%q was acknowledged by %s on timeline %s, which its log has no more; %d vaults of it hold it, not %d",
				brief(w.Value), w.Cluster, w.Timeline, n, m.copies[w.Cluster])
		}
	}
}

// entry judges one entry of a vault by itself, and by what readers were shown.
func (m *Mirrored) entry(k *Kept) {
	what := fmt.Sprintf("entry %s of %s, %s,", k.Entry, k.Cluster, k.Node)
	next := k.From
	for _, b := range k.Batches {
		if b.Base < next || b.Last >= k.To {
			m.report(VaultDisorder, k.Partition, b.Base, "%s of %d to %d has offsets %d to %d where %d or more is due", what, k.From, k.To-1, b.Base, b.Last, next)
		}
		next = b.Last + 1
		i := k.Before.of(b.Epoch)
		if i < 0 {
			m.recordsOf(what, k.Partition, "", b)
			continue
		}
		timeline := k.Before[i].ID
		m.recordsOf(what, k.Partition, timeline, b)
		s := m.shown[spot{k.Partition, timeline, b.Base}]
		if s == nil || s.Hash != b.Hash {
			continue // it was never committed
		}
		after := k.After
		if after == nil {
			if first, ever := m.committedAt(k.Cluster, s); !ever || first > k.At {
				continue // a replica had copied it beyond what its own cluster had committed by then
			}
			after = k.Before
		}
		if after.keeps(timeline, b.Base) {
			m.report(NeedlessCut, k.Partition, b.Base, "%s has offsets %d to %d of timeline %s, epoch %d, which %v showed and lineage %v keeps", what, b.Base, b.Last, timeline, b.Epoch,
				slices.Sorted(maps.Keys(s.by)), after)
		}
	}
}

// committedAt is from when on a batch is known to have been committed by a cluster: its
// readers were given it, or a client was told so.
func (m *Mirrored) committedAt(cluster string, s *shown) (first types.Millis, ever bool) {
	first, ever = s.by[cluster]
	for _, r := range s.Records {
		i, known := m.byName[r.Value]
		if !known {
			continue
		}
		if w := &m.writes[i]; w.Outcome == Acked && w.Cluster == cluster && w.Offset == r.Offset && (!ever || w.AckedAt < first) {
			first, ever = w.AckedAt, true
		}
	}
	return first, ever
}

// exactCuts: of what a cluster had to cut, one node's vault has an entry of exactly these
// batches, in order; where a cut was made in two, one of each part.
func (m *Mirrored) exactCuts() {
	for _, c := range m.cuts {
		at := 0
		if c.Split != types.NoOffset {
			at = slices.IndexFunc(c.Batches, func(b Batch) bool { return b.Base >= c.Split })
		}
		for _, part := range [][]Batch{c.Batches[:max(at, 0)], c.Batches[max(at, 0):]} {
			if len(part) > 0 && !m.isKeptAsOne(&c, part) {
				first, last := part[0], part[len(part)-1]
				m.report(CutDiffers, c.Partition, first.Base, "%s had to cut offsets %d to %d, epochs %d to %d, in %d batches; no entry of its vaults is that", c.Cluster, first.Base, last.Last,
					first.Epoch, last.Epoch, len(part))
			}
		}
	}
}

// isKeptAsOne reports whether a vault of the cluster has an entry of exactly these batches.
func (m *Mirrored) isKeptAsOne(c *Cut, batches []Batch) bool {
	return slices.ContainsFunc(m.kept, func(k Kept) bool {
		return k.Cluster == c.Cluster && k.Partition == c.Partition &&
			slices.EqualFunc(k.Batches, batches, func(a, b Batch) bool { return a.Hash == b.Hash })
	})
}
