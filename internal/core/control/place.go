package control

import (
	"fmt"
	"slices"

	"tidemark/internal/core/meta"
	"tidemark/internal/core/timeline"
	"tidemark/internal/core/types"
)

// placement says which brokers hold the partitions from first to first+count-1 of a topic.
type placement struct {
	topic        types.TopicID
	first, count int32
	replication  int
	// assignment, if not nil, decides.
	assignment [][]types.BrokerID
}

// replicas gives the replicas of each partition.
func (p placement) replicas(image *meta.Image) ([][]types.BrokerID, error) {
	if p.assignment != nil {
		return p.assignment, p.checkAssignment(image)
	}
	brokers := placeable(image)
	if p.replication < 1 || p.replication > len(brokers) {
		return nil, fmt.Errorf("%w: %d, with %d brokers registered", ErrInvalidReplication, p.replication, len(brokers))
	}
	// Leaders go round the brokers, beginning anywhere but the same for one
	// topic; the followers' distance grows by one with each round, so that the
	// load of a broker that fails spreads over all others (as Kafka's placement does).
	start := int(p.topic[0])<<8 | int(p.topic[1])
	out := make([][]types.BrokerID, p.count)
	for i := range out {
		n := int(p.first) + i
		out[i] = choose(brokers, (start+n)%len(brokers), start+n/len(brokers), p.replication)
	}
	return out, nil
}

// site is a broker as placement sees it.
type site struct {
	id   types.BrokerID
	rack string
}

// ReplicasFor gives how many replicas a topic of at most so many can have now: no more
// than there are brokers that stay, and at least one.
func ReplicasFor(image *meta.Image, most int) int {
	return max(min(len(placeable(image)), most), 1)
}

// placeable lists the registered brokers so that neighbours are in different
// racks where that can be: the racks take turns. Brokers that are leaving come
// into question only if there is no other.
func placeable(image *meta.Image) []site {
	var staying, all []site
	for b := range image.Brokers() {
		s := site{id: b.ID, rack: b.Record.Rack}
		all = append(all, s)
		if !b.Record.Draining {
			staying = append(staying, s)
		}
	}
	if len(staying) > 0 {
		all = staying
	}
	byRack := make(map[string][]site)
	var order []string
	for _, s := range all {
		if len(byRack[s.rack]) == 0 {
			order = append(order, s.rack)
		}
		byRack[s.rack] = append(byRack[s.rack], s)
	}
	slices.Sort(order)
	out := make([]site, 0, len(all))
	for round := 0; len(out) < len(all); round++ {
		for _, rack := range order {
			if round < len(byRack[rack]) {
				out = append(out, byRack[rack][round])
			}
		}
	}
	return out
}

// choose gives the replicas of one partition: the leader at an index of brokers,
// each further one the first, from a shifted place on, among those whose rack has
// the fewest replicas so far. So no rack gets a second replica while another has none.
func choose(brokers []site, leader, shift, replication int) []types.BrokerID {
	chosen := []types.BrokerID{brokers[leader].id}
	used := map[string]int{brokers[leader].rack: 1}
	for len(chosen) < replication {
		best := -1
		for r := range len(brokers) - 1 {
			at := (leader + 1 + (shift+len(chosen)-1+r)%(len(brokers)-1)) % len(brokers)
			if !slices.Contains(chosen, brokers[at].id) && (best < 0 || used[brokers[at].rack] < used[brokers[best].rack]) {
				best = at
			}
		}
		chosen = append(chosen, brokers[best].id)
		used[brokers[best].rack]++
	}
	return chosen
}

func (p placement) checkAssignment(image *meta.Image) error {
	if len(p.assignment) != int(p.count) {
		return fmt.Errorf("%w: %d partitions are assigned, %d are asked for", ErrInvalidAssignment, len(p.assignment), p.count)
	}
	for i, replicas := range p.assignment {
		n := int(p.first) + i
		if len(replicas) == 0 || len(replicas) != len(p.assignment[0]) {
			return fmt.Errorf("%w: partition %d has %d replicas, the first one %d", ErrInvalidAssignment, n, len(replicas), len(p.assignment[0]))
		}
		for j, id := range replicas {
			if id < 0 || slices.Contains(replicas[:j], id) {
				return fmt.Errorf("%w: partition %d names broker %d twice or impossibly", ErrInvalidAssignment, n, id)
			}
			if _, ok := image.Broker(id); !ok {
				return fmt.Errorf("%w: partition %d is assigned to broker %d, which isn't registered", ErrInvalidAssignment, n, id)
			}
		}
	}
	return nil
}

// birth says how new partitions begin.
type birth struct {
	minISR     int
	timelineID string
	mirrors    []meta.MirrorState
}

func (b birth) check(count int32) error {
	if b.mirrors != nil && len(b.mirrors) != int(count) {
		return fmt.Errorf("%w: %d mirror states for %d partitions", ErrInvalidRequest, len(b.mirrors), count)
	}
	if b.mirrors == nil && b.timelineID == "" {
		return fmt.Errorf("%w: no timeline id", ErrInvalidRequest)
	}
	return nil
}

// record is the first record of the i-th new partition: all replicas in sync,
// the first one leads. A client-made partition has one timeline (R16), a
// mirror's none until it adopts its source's (R18).
func (b birth) record(image *meta.Image, i int, replicas []types.BrokerID) meta.PartitionRecord {
	r := meta.PartitionRecord{Replicas: replicas, MinISR: max(b.minISR, 1), Leader: replicas[0]}
	for _, id := range replicas {
		epoch, _ := image.BrokerEpoch(id)
		r.ISR = append(r.ISR, meta.ISRMember{ID: id, BrokerEpoch: epoch})
	}
	r.LeaderBrokerEpoch = r.ISR[0].BrokerEpoch
	if b.mirrors != nil {
		state := b.mirrors[i]
		r.Mirror = &state
		return r
	}
	r.Writable = true
	r.Timelines = timeline.List{{ID: b.timelineID}}
	return r
}
