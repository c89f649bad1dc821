package control

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"math"

	"tidemark/internal/assert"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/timeline"
	"tidemark/internal/core/types"
)

// RestoredStep is how far the election of a partition from a backup goes above
// every leader epoch that is known: elections since the backup, which a replica
// that hasn't reported may have seen, stay below it (as R23 does).
const RestoredStep = 1 << 16

// ElectedRestored: the record came from a backup, all replicas have told what
// they hold, and this one holds the most (R19).
const ElectedRestored ElectionKind = "restored"

// recoverRestored elects the leader of a partition whose record came from a
// backup. The record's ISR is gone: the best log of all replicas leads, the
// timeline list becomes the longest that any of them has applied, and a fresh entry tells
// whatever comes after from what others may hold in the same epochs (R19). It
// waits for all replicas; with an operator's consent (UncleanOnce) for those that live.
func recoverRestored(image *meta.Image, p *meta.Partition, policy Policy, me Me) (Change, bool) {
	r := p.Record
	alive := registeredOf(image, r.Replicas)
	found, complete := restoredLogs(image, p, alive)
	complete = complete && len(alive) == len(r.Replicas)
	if !complete {
		if !r.UncleanOnce || len(found) == 0 {
			probeRestoreWaits.Reached()
			return Change{}, false
		}
		if len(found) < len(alive) && (policy.Impatient == nil || !policy.Impatient(p.ID)) {
			return Change{}, false
		}
	}
	list, best, ok := bestRestored(r, found)
	if !ok {
		return Change{}, false
	}
	probeRestored.Reached()
	c := Change{Partition: p.ID, Old: r, Record: r.Clone(), Kind: ElectedRestored}
	if !complete {
		c.Kind = ElectedUnclean
	}
	next := &c.Record
	highest := r.LeaderEpoch
	for _, l := range found {
		highest = max(highest, l.log.Restored.EpochMax)
	}
	if last, ok := list.Last(); ok {
		highest = max(highest, last.FirstEpoch)
	}
	if int64(highest)+RestoredStep > math.MaxInt32 {
		return Change{}, false
	}
	next.LeaderEpoch = highest + RestoredStep
	next.Leader, next.LeaderBrokerEpoch = best.member.ID, best.member.BrokerEpoch
	next.ISR, next.ELR = []meta.ISRMember{best.member}, nil
	next.UncleanOnce, next.Restored = false, false
	next.Timelines = list
	if r.Writable {
		// A mirror promotes nothing: it adopts its source's list at its next session (R18).
		extended, err := list.Extend(timeline.Entry{ID: restoredTimeline(image, p), FirstEpoch: next.LeaderEpoch, FirstOffset: best.end})
		if err != nil {
			return Change{}, false
		}
		next.Timelines = extended
	}
	checkAbove(p.ID, next.LeaderEpoch, found)
	c.Plan = writePartition(image, p, c.Record, me, "elect, after the restore, the leader of")
	c.compareElected(image, me)
	return c, true
}

// checkAbove states that a partition from a backup is led in a new epoch.
func checkAbove(id meta.PartitionID, epoch types.LeaderEpoch, found []restoredLog) {
	for _, l := range found {
		// Invariant I-220: a partition from a backup is led above every epoch that its replicas know (R19).
		assert.That(epoch > l.log.Restored.EpochMax, "I-220: %v from a backup is led in epoch %d, and broker %d knows %d",
			id, epoch, l.member.ID, l.log.Restored.EpochMax)
	}
}

// restoredLog is one replica's report on a partition from a backup.
type restoredLog struct {
	member meta.ISRMember
	log    meta.LogReport
	// end is the log end as far as the list that is chosen lets it stand.
	end types.Offset
}

// restoredLogs gives the reports of the live replicas; complete says that all of them told.
func restoredLogs(image *meta.Image, p *meta.Partition, alive []meta.ISRMember) (found []restoredLog, complete bool) {
	for _, m := range alive {
		log, ok := reportOf(image, p, m)
		if ok && !log.Offline && log.Restored != nil {
			found = append(found, restoredLog{member: m, log: log, end: log.LogEnd})
		}
	}
	return found, len(found) == len(alive)
}

// bestRestored chooses the list and the log: the list that names the latest
// history; of the replicas that have applied it the one with the highest last
// epoch, then the longest log; of the others, only if there is none, as far as the list lets their logs stand.
func bestRestored(r *meta.PartitionRecord, found []restoredLog) (timeline.List, restoredLog, bool) {
	list := r.Timelines
	for _, l := range found {
		if later(l.log.Restored.Timelines, list) {
			list = l.log.Restored.Timelines
		}
	}
	var best restoredLog
	ok := false
	for _, l := range found {
		if known := timeline.Compare(l.log.Restored.Timelines, list); known.Relation != timeline.Equal {
			if known.Shared == 0 && l.log.LogEnd > 0 {
				continue // its records are of a history that the list doesn't name (TIMELINE_UNKNOWN)
			}
			if known.Shared < len(list) {
				l.end = min(l.end, list[known.Shared].FirstOffset)
			}
		}
		if !ok || better(l, best, list) {
			best, ok = l, true
		}
	}
	return list.Clone(), best, ok
}

// later reports whether a names a later history than b.
func later(a, b timeline.List) bool {
	x, ok := a.Last()
	if !ok {
		return false
	}
	y, ok := b.Last()
	return !ok || x.FirstEpoch > y.FirstEpoch
}

func better(a, b restoredLog, list timeline.List) bool {
	applied := func(l restoredLog) bool { return l.log.LogEnd > 0 && l.log.Restored.Timelines.Equal(list) }
	switch {
	case applied(a) != applied(b):
		return applied(a)
	case a.log.LastEpoch != b.log.LastEpoch:
		return a.log.LastEpoch > b.log.LastEpoch
	}
	return a.end > b.end
}

// restoredTimeline names the history that begins after a restore: fresh for each
// restore, because the restore's id is, and for each partition.
func restoredTimeline(image *meta.Image, p *meta.Partition) string {
	restore := ""
	if c, ok := image.Cluster(); ok {
		restore = c.Record.RestoreID()
	}
	h := sha256.New()
	fmt.Fprintf(h, "tidemark timeline after a restore\n%s\n%s\n%d\n%d\n", restore, p.ID.Topic, p.ID.Number, p.ModRevision)
	return "restored-" + base64.RawURLEncoding.EncodeToString(h.Sum(nil)[:12])
}

// Awaiting lists the replicas that the election of a partition from a backup waits
// for: those that aren't registered, and those that have not told what they hold.
func Awaiting(image *meta.Image, p *meta.Partition) []types.BrokerID {
	if p.Record == nil || !p.Record.Restored {
		return nil
	}
	var missing []types.BrokerID
	for _, id := range p.Record.Replicas {
		epoch, ok := image.BrokerEpoch(id)
		if ok {
			log, reported := reportOf(image, p, meta.ISRMember{ID: id, BrokerEpoch: epoch})
			ok = reported && !log.Offline && log.Restored != nil
		}
		if !ok {
			missing = append(missing, id)
		}
	}
	return missing
}
