package history

import (
	"tidemark/internal/core/types"
)

// A promotion keeps all of its leader's log, what only that leader has too (R23). Until
// another replica has copied it, an election can take it away again: the timeline then
// begins below what its promotion said. Nobody was promised those records there: they
// were above the high watermark. What shows it is the timeline's own first batch.

// mirroredStarts are such beginnings, by partition and timeline.
type mirroredStarts map[types.TopicPartition]map[string]types.Offset

// learnStarts notes timelines of a view that begin below what their promotion said,
// and judges whether they may.
func (m *Mirrored) learnStarts(v *View) {
	for _, b := range v.Batches {
		i := v.Lineage.of(b.Epoch)
		if i < 0 {
			continue
		}
		t := m.Effective(v.Partition, v.Lineage)[i]
		if b.Base >= t.FirstOffset {
			continue
		}
		if m.starts[v.Partition] == nil {
			m.starts[v.Partition] = map[string]types.Offset{}
		}
		_, again := m.starts[v.Partition][t.ID]
		m.starts[v.Partition][t.ID] = b.Base
		f, known := m.txns.forks[v.Partition][t.ID]
		switch {
		case again || !known:
			m.report(LostBehindFork, v.Partition, b.Base, "%s shows epoch %d of timeline %s from %d on, which began at %d", v.Cluster, b.Epoch, t.ID, b.Base, t.FirstOffset)
		case f.Clean:
			m.report(LostBehindFork, v.Partition, b.Base, "%s shows epoch %d of timeline %s from %d on; the switchover that began it had all up to %d", v.Cluster, b.Epoch, t.ID, b.Base, t.FirstOffset)
		default:
			m.mayBegin(v, f.Cluster, v.Lineage[:i], b.Base, t)
		}
	}
}

// mayBegin demands that a cluster had neither shown nor acknowledged, on the
// timelines before one that it began, anything of what that one lacks of them.
func (m *Mirrored) mayBegin(v *View, cluster string, before Lineage, at types.Offset, t Timeline) {
	for where, s := range m.shown {
		if where.tp == v.Partition && s.showed(cluster) && s.Last >= at && where.at < t.FirstOffset && before.keeps(where.timeline, where.at) {
			m.report(LostBehindFork, v.Partition, where.at, "%s showed offsets %d to %d of timeline %s before its promotion at %d; the timeline %s that it began has its own from %d on",
				cluster, s.Base, s.Last, where.timeline, t.FirstOffset, t.ID, at)
		}
	}
	for i := range m.writes {
		w := &m.writes[i]
		if w.Outcome == Acked && w.Cluster == cluster && w.Partition == v.Partition && w.Offset >= at && w.Offset < t.FirstOffset && before.keeps(w.Timeline, w.Offset) {
			m.report(LostBehindFork, v.Partition, w.Offset, "%q was acknowledged by %s on timeline %s; the timeline %s that it began has its own from %d on", brief(w.Value), cluster, w.Timeline, t.ID, at)
		}
	}
}

// Effective is a lineage with the beginnings that logs have shown.
func (m *Mirrored) Effective(tp types.TopicPartition, l Lineage) Lineage {
	low := m.starts[tp]
	if len(low) == 0 {
		return l
	}
	out := append(Lineage{}, l...)
	for i := range out {
		if at, ok := low[out[i].ID]; ok {
			out[i].FirstOffset = min(at, out[i].FirstOffset)
		}
	}
	return out
}

// isLowered reports whether a timeline began below what its promotion said.
func (m *Mirrored) isLowered(tp types.TopicPartition, timeline string) bool {
	_, ok := m.starts[tp][timeline]
	return ok
}

// settleStarts brings all that was noted of lineages in line with what is known in the end.
func (m *Mirrored) settleStarts() {
	for s, v := range m.last {
		v.Lineage = m.Effective(s.tp, v.Lineage)
	}
	for i := range m.kept {
		k := &m.kept[i]
		k.Before = m.Effective(k.Partition, k.Before)
		if k.After != nil {
			k.After = m.Effective(k.Partition, k.After)
		}
	}
	for i := range m.txns.views {
		m.txns.views[i].Lineage = m.Effective(m.txns.views[i].Partition, m.txns.views[i].Lineage)
	}
}
