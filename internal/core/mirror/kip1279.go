package mirror

import (
	"fmt"

	"tidemark/internal/assert"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/timeline"
	"tidemark/internal/core/types"
)

// Mirrored is what a source that speaks KIP-1279 says that it copied of the
// partition from this cluster, in the proposal's words.
//
// Such a source tells no timelines. What it says makes it one entry of a list
// (R16, ADR 0016): up to the last mirrored epoch it shares our timelines, above that it is
// on its own. Comparison, bound, first cut on every replica and consent are then those of any
// other list (R17 to R19, R24): nothing is cut that the vault doesn't keep.
type Mirrored struct {
	// Mirror is the mirror's name there, State the partition's in it; both empty if
	// no mirror of this cluster has it.
	Mirror, State string
	// LastEpoch and LastOffset are LME and LMO, -1 if there is none.
	LastEpoch  types.LeaderEpoch
	LastOffset types.Offset
}

// The proposal's state names that decide something; the others copy or are about to.
const (
	mirroredStopping = "STOPPING"
	mirroredStopped  = "STOPPED"
)

// refusal judges what the source says against what it can be. A source that still
// copies from us would be a loop (R25); one that is stopping is waited for.
func (m *Mirrored) refusal(rec *meta.PartitionRecord, pol Policy, s *Source) Refusal {
	if m == nil {
		return Refusal{}
	}
	switch {
	case m.State == mirroredStopping:
		return Refusal{SourceNotReady, fmt.Sprintf("the source's mirror %s of this cluster is STOPPING: it has to be STOPPED first", m.Mirror)}
	case m.State != "" && m.State != mirroredStopped:
		return Refusal{MirrorLoop, fmt.Sprintf("the source copies from this cluster: its mirror %s has the partition in state %s; stop the topic there (kafka-cluster-mirrors.sh --stop --mirror %s, `mirror failover` on a Tidemark), or leave it out here", m.Mirror, m.State, m.Mirror)}
	case m.LastEpoch < 0:
		return Refusal{}
	case s.LeaderEpoch < 0:
		return Refusal{SourceNotReady, "the source says no leader epoch for the partition"}
	case m.LastEpoch >= s.LeaderEpoch:
		return m.cannotBe(fmt.Sprintf("its leader epoch is %d, and a promotion raises it above the last mirrored one", s.LeaderEpoch))
	case len(rec.Timelines) > 0 && m.LastEpoch > rec.LeaderEpoch:
		return m.cannotBe(fmt.Sprintf("this cluster's leader epoch is only %d (was its metadata restored from a backup?)", rec.LeaderEpoch))
	}
	if taken, ok := m.adopted(rec, pol, s); ok && (m.LastEpoch >= taken.FirstEpoch || m.LastEpoch == taken.FirstEpoch-1 && taken != m.entry(pol, s, taken.FirstOffset)) {
		return m.cannotBe(fmt.Sprintf("epoch %d, offset %d was what this mirror started from: fail over here and back again, with a preview", taken.FirstEpoch-1, taken.FirstOffset))
	}
	return Refusal{}
}

func (m *Mirrored) cannotBe(why string) Refusal {
	return Refusal{SourceInconsistent, fmt.Sprintf("the source says that its mirror %s last copied epoch %d, offset %d of this cluster, which can't be: %s. Nothing is cut by it; mirror.kip1279.enable=false (mirror alter) mirrors without what it says", m.Mirror, m.LastEpoch, m.LastOffset, why)}
}

// beyond refuses a last mirrored offset that no log reaches, as a start is to adopt
// it. One that our log doesn't reach any more is possible, and so is one above the source's
// end: an unclean election took records there after they were mirrored. Both at once is a lie, or not to be told from one.
func (m *Mirrored) beyond(rec *meta.PartitionRecord, pol Policy, s *Source, end types.Offset) Refusal {
	if m == nil || m.LastEpoch < 0 || m.LastOffset <= max(end, s.LogEnd) || s.Timelines != nil {
		return Refusal{}
	}
	if _, stands := m.adopted(rec, pol, s); stands {
		return Refusal{}
	}
	return m.cannotBe(fmt.Sprintf("the log ends at %d there and at %d here", s.LogEnd, end))
}

func (m *Mirrored) entry(pol Policy, s *Source, at types.Offset) timeline.Entry {
	return timeline.TakenOver(s.ClusterID, sourceTopic(*s, pol), timeline.LastMirrored{Epoch: m.LastEpoch, End: m.LastOffset}, at)
}

// adopted gives the entry that the record has adopted, in this start, from this source.
func (m *Mirrored) adopted(rec *meta.PartitionRecord, pol Policy, s *Source) (timeline.Entry, bool) {
	last, ok := rec.Timelines.Last()
	return last, ok && isAdopted(rec) && last.IsTakenOver(s.ClusterID, sourceTopic(*s, pol))
}

// listFor is the source's list for a machine: once its start has adopted one it
// stands. A source that forgets what it mirrored (its mirror was deleted there) has
// changed nothing in its log.
func listFor(rec *meta.PartitionRecord, pol Policy, s Source, own *Own) timeline.List {
	if _, ok := s.Mirrored.adopted(rec, pol, &s); s.Timelines == nil && (ok || s.Mirrored != nil && isAdopted(rec)) {
		return rec.Timelines
	}
	return listAtStart(rec, pol, s, own)
}

// listAtStart is the source's list as a start is to adopt it: what it says
// itself, what follows from its KIP-1279 answer, or its derived root (R16). A source
// that knows of nothing that it mirrored from here has no root in common with us:
// only a plan takes what is held here then, into the vault (R24).
func listAtStart(rec *meta.PartitionRecord, pol Policy, s Source, own *Own) timeline.List {
	m := s.Mirrored
	base := listOf(s, pol)
	if s.Timelines != nil || m == nil || m.LastEpoch < 0 {
		return base
	}
	shared := rec.Timelines
	if len(shared) == 0 {
		shared = base // nothing is held here that could be ours
	}
	if pol.Rules.NoTakenOver {
		return shared
	}
	list := shared.SharedUpTo(m.LastEpoch, m.entry(pol, &s, firstAbove(own, m.LastEpoch)))
	checkTakenOver(list, m.LastEpoch)
	return list
}

// checkTakenOver states what a list is that follows from a KIP-1279 answer.
//
// Invariant I-350 (R16): such a list has our entries up to the last mirrored epoch and one
// more that begins above it.
func checkTakenOver(list timeline.List, lastMirrored types.LeaderEpoch) {
	last, _ := list.Last()
	assert.That(last.FirstEpoch == lastMirrored+1 && (len(list) == 1 || list[len(list)-2].FirstEpoch <= lastMirrored), "I-350: %v follows from the last mirrored epoch %d", list, lastMirrored)
}

// firstAbove is where records above an epoch begin here, the log end if there are none.
func firstAbove(own *Own, epoch types.LeaderEpoch) types.Offset {
	if e, ok := own.History.Next(epoch); ok {
		return e.Start
	}
	return own.LogEnd
}

// sourceTopic is the topic id that a source's derived entries stand for.
func sourceTopic(s Source, p Policy) types.TopicID {
	if s.TopicID.IsZero() {
		return p.TopicID
	}
	return s.TopicID
}
