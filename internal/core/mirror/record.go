package mirror

import (
	"fmt"
	"slices"

	"tidemark/internal/assert"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/timeline"
	"tidemark/internal/core/types"
)

// Adoption is what Adopt decides.
type Adoption struct {
	Refused Refusal // Reason empty if it may be
	// Relation of our list to the source's; "empty" if nothing is held here.
	Relation string
}

// Adopt makes the record of R18's transaction: the source's list, and a leader
// epoch above both clusters'. It refuses a list whose last start exceeds the
// source's leader epoch, and one that would take records this cluster made (R24).
func Adopt(rec *meta.PartitionRecord, pol Policy, s Source, own *Own, now types.Millis) (meta.PartitionRecord, Adoption) {
	if r := s.Mirrored.beyond(rec, pol, &s, own.LogEnd); r.Reason != "" {
		return *rec, Adoption{Refused: r}
	}
	list := listFor(rec, pol, s, own)
	if err := list.Validate(); err != nil {
		return *rec, refused(CorruptSource, "%v", err)
	}
	if last, _ := list.Last(); s.LeaderEpoch >= 0 && last.FirstEpoch > s.LeaderEpoch {
		return *rec, refused(CorruptSource, "the source's list ends at epoch %d, above its leader epoch %d", last.FirstEpoch, s.LeaderEpoch)
	}
	c := timeline.Compare(rec.Timelines, list)
	if !pol.Rules.NoConsent && (pol.Consented == "" || pol.Consented != rec.Mirror.StartID) {
		if r := consent(rec, pol, list, c, own); r.Reason != "" {
			return *rec, Adoption{Refused: r, Relation: c.Relation.String()}
		}
	}
	out := rec.Clone()
	out.Timelines = list.Clone()
	out.LeaderEpoch = max(rec.LeaderEpoch, s.LeaderEpoch) + 1
	out.Writable = false
	m := out.Mirror
	if m.State != meta.MirrorMirroring { // a running mirror that follows its source's new list waits for nobody
		m.State = meta.MirrorLogAlignment
	}
	m.Reason = ""
	m.SourceClusterID, m.SourceTopicID, m.SourcePath = s.ClusterID, s.TopicID, slices.Clone(s.Path)
	m.SourceEpochMax = max(m.SourceEpochMax, s.LeaderEpoch)
	m.SourceStart, m.SourceEnd, m.SourceSeenAt = s.LogStart, s.LogEnd, now
	m.Copied = false
	if from, ok := timeline.GivenUpFrom(rec.Timelines, list); ok && len(rec.Timelines) > 0 {
		if m.GivenUpFrom != nil { // of an adoption that no accepted fetch has followed
			from = min(from, *m.GivenUpFrom)
		}
		m.GivenUpFrom = &from
	}
	checkPath(out.Mirror, pol)
	checkChange(rec, &out)
	relation := c.Relation.String()
	if own.IsEmpty() {
		relation = "empty"
	}
	return out, Adoption{Relation: relation}
}

// consent refuses what needs an operator's plan (R24): a list that lacks an entry
// this cluster made, and one that shares nothing with a log that holds records.
func consent(rec *meta.PartitionRecord, pol Policy, list timeline.List, c timeline.Comparison, own *Own) Refusal {
	for _, e := range rec.Timelines[c.Shared:] {
		if !isOwnEntry(rec, e) {
			continue
		}
		if c.Relation == timeline.Ahead {
			return Refusal{AheadOfSource, fmt.Sprintf("this cluster was promoted at epoch %d, which the source doesn't know", e.FirstEpoch)}
		}
		return Refusal{PlanRequired, fmt.Sprintf("this cluster was promoted at epoch %d, the source went on without it", e.FirstEpoch)}
	}
	if c.Relation == timeline.NoCommon && !own.IsEmpty() && len(list) > 0 && !pol.Rules.NoRootConsent {
		return Refusal{UnrelatedLogs, "the source's log shares no beginning with ours"}
	}
	return Refusal{}
}

func refused(r Reason, format string, args ...any) Adoption {
	return Adoption{Refused: Refusal{Reason: r, Detail: fmt.Sprintf(format, args...)}}
}

// realign makes the record of R20's transaction, also if it only changes the epoch.
func realign(rec *meta.PartitionRecord, pol Policy) meta.PartitionRecord {
	out := rec.Clone()
	out.LeaderEpoch++
	out.ISR = []meta.ISRMember{{ID: pol.Me, BrokerEpoch: pol.BrokerEpoch}}
	out.ELR = nil
	checkChange(rec, &out)
	return out
}

// raise makes the record of R21's transaction: so far above the batch that it is rare.
func raise(rec *meta.PartitionRecord, pol Policy, batch types.LeaderEpoch) meta.PartitionRecord {
	out := rec.Clone()
	out.LeaderEpoch = RaisedEpoch(rec.LeaderEpoch, batch, pol.EpochHeadroom)
	out.Mirror.SourceEpochMax = max(out.Mirror.SourceEpochMax, batch)
	checkChange(rec, &out)
	return out
}

// RaisedEpoch is the leader epoch before a batch of the given epoch may be
// appended (R21): the present one if that is high enough, else the batch's with
// headroom, as far as 31 bits hold it.
func RaisedEpoch(local, batch types.LeaderEpoch, headroom int32) types.LeaderEpoch {
	if batch <= local {
		return local
	}
	const most = types.LeaderEpoch(1<<31 - 1)
	if batch > most-types.LeaderEpoch(headroom) {
		return batch
	}
	return batch + types.LeaderEpoch(headroom)
}

func mirroring(rec *meta.PartitionRecord, f Facts) meta.PartitionRecord {
	out := withFacts(rec, f)
	out.Mirror.State, out.Mirror.Reason = meta.MirrorMirroring, ""
	return out
}

func failed(rec *meta.PartitionRecord, text string, f Facts) meta.PartitionRecord {
	out := withFacts(rec, f)
	out.Mirror.State, out.Mirror.Reason = meta.MirrorFailed, text
	return out
}

// goBack undoes the fence of a start that was refused at the second look (R25):
// nothing was cut.
func goBack(rec *meta.PartitionRecord, r Refusal) meta.PartitionRecord {
	out := rec.Clone()
	out.Writable = true
	out.LeaderEpoch++
	out.Mirror.State, out.Mirror.Reason = meta.MirrorStopped, trouble{reason: r.Reason, detail: r.Detail}.text()
	forgetStart(out.Mirror)
	checkChange(rec, &out)
	return out
}

// withPath takes over what the source says of where it copies from. List and
// source stay, so the leader epoch does (R22).
func withPath(rec *meta.PartitionRecord, pol Policy, path []string) meta.PartitionRecord {
	out := rec.Clone()
	out.Mirror.SourcePath = slices.Clone(path)
	checkPath(out.Mirror, pol)
	return out
}

// checkPath asserts that nothing is adopted in a loop.
//
// Invariant I-230 (R25): no adopted record names this cluster among those that it copies from.
func checkPath(m *meta.MirrorState, pol Policy) {
	assert.That(pol.ClusterID == "" || m.SourceClusterID != pol.ClusterID && !slices.Contains(m.SourcePath, pol.ClusterID),
		"I-230: cluster %s would copy from itself: %s, which mirrors %v", pol.ClusterID, m.SourceClusterID, m.SourcePath)
}

// withFacts takes the source's facts into the record, if it has adopted its list.
func withFacts(rec *meta.PartitionRecord, f Facts) meta.PartitionRecord {
	out := rec.Clone()
	if !isAdopted(rec) {
		return out
	}
	m := out.Mirror
	m.SourceEpochMax = max(m.SourceEpochMax, f.LeaderEpoch)
	m.SourceStart, m.SourceEnd, m.SourceSeenAt, m.Copied = f.Start, f.End, f.SeenAt, f.Copied
	if f.Copied {
		forgetStart(m)
	}
	return out
}

// checkChange asserts what every change of a record owes.
//
// Invariant I-92 (R22): a change of list, writable or source raises the leader
// epoch; it never falls.
func checkChange(before, after *meta.PartitionRecord) {
	assert.That(after.LeaderEpoch >= before.LeaderEpoch, "I-92: leader epoch falls from %d to %d", before.LeaderEpoch, after.LeaderEpoch)
	same := before.Writable == after.Writable && before.Timelines.Equal(after.Timelines) &&
		(before.Mirror == nil || after.Mirror == nil || before.Mirror.StartID == after.Mirror.StartID)
	assert.That(same || after.LeaderEpoch > before.LeaderEpoch, "I-92: list, writable or source changes at leader epoch %d", after.LeaderEpoch)
	last, ok := after.Timelines.Last()
	assert.That(!ok || last.FirstEpoch <= after.LeaderEpoch, "I-93: list ends at epoch %d above the leader epoch %d", last.FirstEpoch, after.LeaderEpoch)
}
