package mirror

import (
	"fmt"

	"tidemark/internal/core/control"
	"tidemark/internal/core/meta"
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
