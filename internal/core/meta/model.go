package meta

import (
	"cmp"

	"tidemark/internal/core/types"
)

// With gives the image in which a partition and the registrations are what is
// said and everything else is as it was, without keys and values being read: for
// models of the core that keep no store. The entries must not be changed afterwards.
func (i *Image) With(p *Partition, brokers ...*Broker) *Image {
	next := *i
	partitions := i.partitions.edit()
	partitions.set(p.ID, p)
	next.partitions = partitions.done()
	registered := newTree[types.BrokerID, *Broker](cmp.Compare[types.BrokerID]).edit()
	for _, b := range brokers {
		registered.set(b.ID, b)
	}
	next.brokers = registered.done()
	next.revision = max(next.revision, p.ModRevision)
	return &next
}
