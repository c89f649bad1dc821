package control

import (
	"cmp"
	"fmt"
	"slices"

	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
)

// Evacuation is a reassignment that takes one broker out of a partition.
type Evacuation struct {
	Partition meta.PartitionID
	Target    []types.BrokerID
}

// Evacuate plans how every partition that a broker holds gets another broker in
// its place: one in a rack that the partition isn't in yet where that can be, the
// one with the fewest replicas first. Partitions that leave it already are only
// counted. It fails with ErrInvalidReplication if a partition needs more brokers than
// there are, and with ErrUnknownNode for an id that the cluster has never heard of.
func Evacuate(image *meta.Image, id types.BrokerID) (moves []Evacuation, left int, err error) {
	load := make(map[types.BrokerID]int)
	for p := range image.Partitions() {
		if p.Record != nil {
			for _, r := range p.Record.Replicas {
				load[r]++
			}
		}
	}
	sites := slices.DeleteFunc(placeable(image), func(s site) bool { return s.id == id })
	for p := range image.Partitions() {
		if p.Record == nil || !slices.Contains(p.Record.Replicas, id) {
			continue
		}
		left++
		target := p.Record.Target()
		at := slices.Index(target, id)
		if at < 0 {
			continue
		}
		next, ok := replacement(sites, target, load)
		if !ok {
			return nil, left, fmt.Errorf("%w: partition %d of topic id %s has %d replicas, and no other broker is there to take broker %d's",
				ErrInvalidReplication, p.ID.Number, p.ID.Topic, len(target), id)
		}
		load[next]++
		target[at] = next
		moves = append(moves, Evacuation{Partition: p.ID, Target: target})
	}
	if left == 0 && !isKnown(image, id) {
		return nil, 0, fmt.Errorf("node %d: %w; tidemark cluster status lists the nodes", id, ErrUnknownNode)
	}
	return moves, left, nil
}

// replacement chooses a broker that holds no replica of the target.
func replacement(sites []site, target []types.BrokerID, load map[types.BrokerID]int) (types.BrokerID, bool) {
	racks := make(map[string]int)
	var free []site
	for _, s := range sites {
		if slices.Contains(target, s.id) {
			racks[s.rack]++
		} else {
			free = append(free, s)
		}
	}
	if len(free) == 0 {
		return types.NoBroker, false
	}
	best := slices.MinFunc(free, func(a, b site) int {
		return cmp.Or(cmp.Compare(racks[a.rack], racks[b.rack]), cmp.Compare(load[a.id], load[b.id]), cmp.Compare(a.id, b.id))
	})
	return best.id, true
}
