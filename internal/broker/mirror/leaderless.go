package mirror

import (
	"fmt"
	"slices"

	"tidemark/internal/core/control"
	"tidemark/internal/core/meta"
	core "tidemark/internal/core/mirror"
	"tidemark/internal/core/types"
	"tidemark/internal/source"
)

// noLeader begins the reason of a partition that nobody leads here: it copies nothing.
const noLeader = "NO_LEADER"

// describeLeaderless says that nobody leads a partition here, and what helps. One
// that no broker can lead without an unclean election counts as failed: the record's
// state is of the time when somebody led, and nobody can write it now.
func describeLeaderless(image *meta.Image, e *meta.Partition, me control.Me, p *PartitionStatus) {
	rec := e.Record
	if !control.NeedsLeader(image, rec) {
		return
	}
	if rec.Restored {
		p.Reason = noLeader + ": the metadata was restored, and its replicas' logs are about to be compared"
		return
	}
	for _, id := range rec.Replicas {
		if _, registered := image.BrokerEpoch(id); !registered {
			continue
		}
		_, can, err := control.Elect(image, e.ID.Topic, e.ID.Number, id, false, me)
		switch {
		case err != nil:
			p.Reason = fmt.Sprintf("%s: %v", noLeader, err)
			return
		case can:
			p.Reason = fmt.Sprintf("%s: broker %d can lead it here and is about to be elected", noLeader, id)
			return
		}
	}
	if !rec.Writable {
		p.State = meta.MirrorFailed
	}
	p.Reason = fmt.Sprintf("%s: no broker of its replicas %v that is here is surely intact (in sync %v, eligible %v): start one of those brokers again, or let another replica lead that may lack records: kafka-leader-election --election-type unclean --topic %s --partition %d",
		noLeader, rec.Replicas, rec.ISRIDs(), rec.ELRIDs(), p.Topic, p.Partition)
}

// leaderless says of a partition that nobody leads at the source whether an election is
// about to help, and if not, what does. Kafka elects by itself as long as an in-sync
// replica is up; its metadata doesn't show the eligible ones (KIP-966), which it elects
// before anybody looks.
func leaderless(tp types.TopicPartition, md *source.Metadata, p *source.Partition) core.SourceFailed {
	if p.Code == source.CodeListenerNotFound { // it has one: no election helps
		return core.SourceFailed{Reason: core.SourceUnreachable, Detail: fmt.Sprintf(
			"the leader of %s of the source (cluster %s) can't be reached through the listener that the mirror uses (%s): give that broker the listener, or the mirror bootstrap addresses of one that all brokers have", tp, orNone(md.ClusterID), p.Code)}
	}
	where := fmt.Sprintf("%s of the source (cluster %s) has no leader", tp, orNone(md.ClusterID))
	for _, b := range md.Brokers {
		if slices.Contains(p.ISR, b.ID) && !slices.Contains(p.Offline, b.ID) {
			return core.SourceFailed{Reason: core.SourceLeaderMoved, Detail: fmt.Sprintf("%s at the moment (%s): broker %d there is in sync and about to be elected", where, p.Code, b.ID)}
		}
	}
	at := "SOURCE"
	if len(md.Brokers) > 0 {
		at = md.Brokers[0].Address()
	}
	return core.SourceFailed{Reason: core.SourceNoLeader, Detail: fmt.Sprintf(
		"%s, and none of its in-sync replicas %v is up (down: %v): start one of those brokers again, or let another replica lead there that may lack records: kafka-leader-election --bootstrap-server %s --election-type unclean --topic %s --partition %d",
		where, p.ISR, p.Offline, at, tp.Topic, tp.Partition)}
}
