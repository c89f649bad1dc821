package control

import (
	"slices"

	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
)

// lastResort finds a leader where neither ISR nor ELR has one: the only replica
// that there is, or, where that is allowed, the best of the live ones (R11).
func lastResort(image *meta.Image, t *meta.Topic, p *meta.Partition, policy Policy) (meta.ISRMember, ElectionKind, bool) {
	alive := registeredOf(image, p.Record.Replicas)
	switch {
	case len(alive) == 0:
		return meta.ISRMember{}, "", false
	case len(p.Record.Replicas) == 1:
		return alive[0], ElectedSole, true
	case !uncleanAllowed(t, p.Record, policy):
		return meta.ISRMember{}, "", false
	case len(alive) == 1:
		return alive[0], ElectedUnclean, true
	}
	probeUnclean.Reached()
	m, ok := best(image, p, alive, policy.Impatient != nil && policy.Impatient(p.ID))
	return m, ElectedUnclean, ok
}

func uncleanAllowed(t *meta.Topic, r *meta.PartitionRecord, policy Policy) bool {
	return r.UncleanOnce || policy.Unclean != nil && policy.Unclean(t)
}

// registeredOf lists those of the brokers that are registered, in their present registrations.
func registeredOf(image *meta.Image, ids []types.BrokerID) []meta.ISRMember {
	var members []meta.ISRMember
	for _, id := range ids {
		if epoch, ok := image.BrokerEpoch(id); ok {
			members = append(members, meta.ISRMember{ID: id, BrokerEpoch: epoch})
		}
	}
	return members
}

// best compares what the live replicas report: the highest last epoch, then the
// longest log, then the order of preference. Unless partial, all must have reported.
func best(image *meta.Image, p *meta.Partition, alive []meta.ISRMember, partial bool) (meta.ISRMember, bool) {
	var found meta.ISRMember
	var top meta.LogReport
	ok := false
	for _, m := range alive {
		log, reported := reportOf(image, p, m)
		if !reported && !partial {
			probeWaitsLogs.Reached()
			return meta.ISRMember{}, false
		}
		if !reported || log.Offline {
			continue
		}
		if !ok || log.LastEpoch > top.LastEpoch || log.LastEpoch == top.LastEpoch && log.LogEnd > top.LogEnd {
			found, top, ok = m, log, true
		}
	}
	return found, ok
}

// reportOf finds what a replica in its present registration said of the partition in its present record.
func reportOf(image *meta.Image, p *meta.Partition, m meta.ISRMember) (meta.LogReport, bool) {
	r, ok := image.Report(m.ID)
	if !ok || r.Record.BrokerEpoch != m.BrokerEpoch {
		return meta.LogReport{}, false
	}
	i := slices.IndexFunc(r.Record.Logs, func(l meta.LogReport) bool {
		return l.Topic == p.ID.Topic && l.Partition == p.ID.Number && l.Revision == p.ModRevision
	})
	if i < 0 {
		return meta.LogReport{}, false
	}
	return r.Record.Logs[i], true
}

// ReportsOf lists what the live replicas of a partition reported, for people.
func ReportsOf(image *meta.Image, id meta.PartitionID) map[types.BrokerID]meta.LogReport {
	p, ok := image.PartitionEntry(id.Topic, id.Number)
	if !ok || p.Record == nil {
		return nil
	}
	out := make(map[types.BrokerID]meta.LogReport)
	for _, m := range registeredOf(image, p.Record.Replicas) {
		if log, ok := reportOf(image, p, m); ok {
			out[m.ID] = log
		}
	}
	return out
}

// WantsReport reports whether an unclean election of the partition waits for the
// reports of its replicas, of whom id is one.
func WantsReport(image *meta.Image, t *meta.Topic, p *meta.Partition, id types.BrokerID, policy Policy) bool {
	r := p.Record
	if r == nil || !slices.Contains(r.Replicas, id) || !NeedsLeader(image, r) {
		return false
	}
	if r.Restored {
		return true
	}
	if !uncleanAllowed(t, r, policy) {
		return false
	}
	for _, m := range slices.Concat(r.ISR, r.ELR) {
		if intact(image, m) {
			return false
		}
	}
	return len(registeredOf(image, r.Replicas)) > 1
}

// Report writes what a broker says of its logs in place of what it said before. lease is its registration's.
func Report(image *meta.Image, logs []meta.LogReport, me Me, lease meta.LeaseID) (meta.Plan, error) {
	if err := me.registered(image); err != nil {
		return meta.Plan{}, err
	}
	key := image.Keys().Report(me.ID)
	var revision meta.Revision
	if old, ok := image.Report(me.ID); ok {
		revision = old.ModRevision
	}
	record := meta.ReportRecord{Broker: me.ID, BrokerEpoch: me.Epoch, Logs: logs}
	return checked(meta.Plan{
		Why:  "report logs for unclean elections",
		If:   []meta.Compare{me.compare(image), meta.ModRevisionIs(key, revision)},
		Then: []meta.Op{meta.PutLeased(key, record.Encode(), lease)},
	}), nil
}
