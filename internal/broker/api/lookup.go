package api

import (
	"slices"

	"tidemark/internal/core/control"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/internal/wire"
)

// topicRef is a topic as a request names it: by name, or by id where useID is set.
type topicRef struct {
	name  string
	id    types.TopicID
	useID bool
}

// find gives the topic's record. An unknown name is UNKNOWN_TOPIC_OR_PARTITION,
// an unknown id UNKNOWN_TOPIC_ID.
func (r topicRef) find(image *meta.Image) (*meta.TopicRecord, error) {
	if r.useID {
		if t, ok := image.Topic(r.id); ok {
			return t.Record, nil
		}
		if v, ok := viewRecord(image, r); ok {
			return v, nil
		}
		return nil, wire.ErrUnknownTopicID
	}
	if t, ok := image.TopicByName(r.name); ok {
		return t.Record, nil
	}
	if v, ok := viewRecord(image, r); ok {
		return v, nil
	}
	return nil, wire.ErrUnknownTopicOrPartition
}

// partition finds a partition that this broker leads.
func (c *Call) partition(image *meta.Image, ref topicRef, index int32) (Partition, error) {
	return c.partitionBy(c.Partitions.Get, image, ref, index)
}

// partitionBy finds a partition with one of Partitions' methods.
func (c *Call) partitionBy(get func(types.TopicID, int32) (Partition, error), image *meta.Image, ref topicRef, index int32) (Partition, error) {
	t, err := ref.find(image)
	if err != nil {
		return nil, err
	}
	if index < 0 || index >= t.Partitions {
		return nil, wire.ErrUnknownTopicOrPartition
	}
	return get(t.ID, index)
}

// mirrorOf names the mirror that the topic belongs to, if clients may not write to it.
func mirrorOf(image *meta.Image, id types.TopicID) (string, bool) {
	for p := range image.PartitionsOf(id) {
		if p.Record == nil || p.Record.Writable {
			continue
		}
		if p.Record.IsMirror() {
			return p.Record.Mirror.Name, true
		}
		return "", true
	}
	return "", false
}

// leaderHint is a leader as a partition knew it that refused a request.
type leaderHint struct {
	id    types.BrokerID
	epoch types.LeaderEpoch
}

// noHint: no partition was asked.
var noHint = leaderHint{types.NoBroker, types.NoLeaderEpoch}

func hintOf(p Partition) leaderHint {
	id, epoch := p.Leader()
	return leaderHint{id, epoch}
}

// hints collects the leaders that an answer names (KIP-951).
type hints struct {
	call  *Call
	image *meta.Image
	nodes []wire.Node
}

// leader gives the partition's leader and epoch for an answer that says code;
// NoBroker if code calls for no hint, or there is no leader whose address is known.
// A partition is told of a new leader before anybody sees the image: said, what it
// knew, wins if its epoch is higher. Nobody who doesn't lead names itself.
func (h *hints) leader(id types.TopicID, index int32, code wire.ErrCode, said leaderHint) (types.BrokerID, types.LeaderEpoch) {
	if code != wire.ErrNotLeaderOrFollower && code != wire.ErrFencedLeaderEpoch {
		return types.NoBroker, types.NoLeaderEpoch
	}
	if rec, _ := h.image.Partition(id, index); rec != nil && rec.LeaderEpoch >= said.epoch {
		if control.NeedsLeader(h.image, rec) {
			return types.NoBroker, types.NoLeaderEpoch
		}
		said = leaderHint{rec.Leader, rec.LeaderEpoch}
	}
	node, ok := h.call.node(h.image, said.id)
	if !ok || code == wire.ErrNotLeaderOrFollower && said.id == h.call.NodeID {
		return types.NoBroker, types.NoLeaderEpoch
	}
	if !slices.ContainsFunc(h.nodes, func(n wire.Node) bool { return n.ID == node.ID }) {
		h.nodes = append(h.nodes, node)
	}
	return said.id, said.epoch
}

// node gives a live broker's address on the listener that the request came in by.
func (c *Call) node(image *meta.Image, id types.BrokerID) (wire.Node, bool) {
	b, ok := image.Broker(id)
	if !ok {
		return wire.Node{}, false
	}
	for _, e := range b.Record.Endpoints {
		if e.Listener == c.Req.Listener {
			return wire.Node{ID: id, Host: e.Host, Port: e.Port, Rack: b.Record.Rack}, true
		}
	}
	return wire.Node{}, false
}

// nodes lists the live brokers that have an address on the request's listener.
func (c *Call) nodes(image *meta.Image) []wire.Node {
	var all []wire.Node
	for b := range image.Brokers() {
		if n, ok := c.node(image, b.ID); ok {
			all = append(all, n)
		}
	}
	return all
}

// controllerID is what clients are told: admin requests may go to any broker,
// so it is the controller if it lives, else this broker.
func (c *Call) controllerID() types.BrokerID {
	if ctl, ok := c.Image.Controller(); ok {
		if _, live := c.node(c.Image, ctl.Record.Broker); live {
			return ctl.Record.Broker
		}
	}
	return c.NodeID
}

func nullable(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func ids(brokers []types.BrokerID) []int32 {
	list := make([]int32, len(brokers))
	for i, b := range brokers {
		list[i] = int32(b)
	}
	return list
}

func brokerIDs(list []int32) []types.BrokerID {
	brokers := make([]types.BrokerID, len(list))
	for i, b := range list {
		brokers[i] = types.BrokerID(b)
	}
	return brokers
}

// Without access control every operation is open to everyone: the bits by
// Kafka's AclOperation codes.
const (
	// opsNotAsked says that the client didn't ask (Integer.MIN_VALUE).
	opsNotAsked int32 = -1 << 31
	// opsTopic: READ 3, WRITE 4, CREATE 5, DELETE 6, ALTER 7, DESCRIBE 8,
	// DESCRIBE_CONFIGS 10, ALTER_CONFIGS 11.
	opsTopic int32 = 1<<3 | 1<<4 | 1<<5 | 1<<6 | 1<<7 | 1<<8 | 1<<10 | 1<<11
	// opsCluster: CREATE 5, ALTER 7, DESCRIBE 8, CLUSTER_ACTION 9,
	// DESCRIBE_CONFIGS 10, ALTER_CONFIGS 11, IDEMPOTENT_WRITE 12.
	opsCluster int32 = 1<<5 | 1<<7 | 1<<8 | 1<<9 | 1<<10 | 1<<11 | 1<<12
)

// IsInternalTopic reports whether a topic of this name belongs to the broker.
// Other names that begin with two underscores are their users' own (Kafka
// parity): Debezium and others write to such topics.
func IsInternalTopic(name string) bool {
	return name == "__consumer_offsets" || name == "__transaction_state" || name == "__share_group_state"
}
