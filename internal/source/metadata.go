package source

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/core/types"
	"tidemark/internal/wire"
)

// Metadata is one answer to a Metadata request.
type Metadata struct {
	ClusterID  string
	Controller types.BrokerID
	Brokers    []Broker
	Topics     []Topic
	// Tidemark says that the broker asked speaks this product's own APIs.
	Tidemark bool
}

// Topic is one topic of the source.
type Topic struct {
	Name string
	// ID is zero for a source without topic ids (Apache Kafka before 2.8).
	ID       types.TopicID
	Internal bool
	// Code is not 0 if the source can't say more, for example CodeUnknownTopicOrPartition.
	Code       Code
	Partitions []Partition
}

// Partition is one partition of a topic at the source.
type Partition struct {
	Partition int32
	// Leader is types.NoBroker while there is none; Code then says why.
	Leader types.BrokerID
	// LeaderEpoch is types.NoLeaderEpoch if the source doesn't say.
	LeaderEpoch types.LeaderEpoch
	Code        Code
	// ISR and Offline are, without a leader only, the in-sync replicas and those known
	// to be down, also where one log directory is (nil before Metadata v5).
	ISR     []types.BrokerID
	Offline []types.BrokerID
}

// Metadata asks for the cluster, its brokers and the named topics; nil names
// all topics, an empty list none. Topics are never created by asking.
func (c *Client) Metadata(ctx context.Context, topics []string) (*Metadata, error) {
	req := kmsg.NewPtrMetadataRequest()
	req.AllowAutoTopicCreation = false
	if topics != nil {
		req.Topics = make([]kmsg.MetadataRequestTopic, 0, len(topics))
		for _, name := range topics {
			t := kmsg.NewMetadataRequestTopic()
			t.Topic = &name
			req.Topics = append(req.Topics, t)
		}
	}
	var m *Metadata
	err := c.anyBroker(ctx, func(cn *conn) error {
		kr, err := cn.ask(ctx, req)
		if err != nil {
			return err
		}
		resp := kr.(*kmsg.MetadataResponse)
		if resp.ErrorCode != 0 {
			return answerError(cn.address, "Metadata", Code(resp.ErrorCode), "")
		}
		if err := c.checkCluster(cn.address, resp); err != nil {
			return err
		}
		if m, err = metadataFrom(cn.address, resp); err != nil {
			return err
		}
		_, m.Tidemark = cn.versions[int16(wire.KeyDescribeLineage)]
		return nil
	})
	if err != nil {
		return nil, err
	}
	c.learn(m)
	return m, nil
}

// learn keeps the brokers' addresses; a broker that metadata no longer names is no longer asked.
func (c *Client) learn(m *Metadata) {
	if len(m.Brokers) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.brokers = make(map[types.BrokerID]Broker, len(m.Brokers))
	for _, b := range m.Brokers {
		c.brokers[b.ID] = b
	}
}

// metadataFrom checks the answer: names and partitions once each, ids and ports in range.
func metadataFrom(broker string, resp *kmsg.MetadataResponse) (*Metadata, error) {
	m := &Metadata{Controller: types.BrokerID(resp.ControllerID)}
	if resp.ClusterID != nil {
		m.ClusterID = *resp.ClusterID
	}
	for _, b := range resp.Brokers {
		if b.Port <= 0 || b.Port > 65535 || b.Host == "" || b.NodeID < 0 {
			return nil, protocolError(broker, "Metadata", "broker %d has address %q port %d", b.NodeID, b.Host, b.Port)
		}
		nb := Broker{ID: types.BrokerID(b.NodeID), Host: b.Host, Port: b.Port}
		if b.Rack != nil {
			nb.Rack = *b.Rack
		}
		m.Brokers = append(m.Brokers, nb)
	}
	seen := make(map[string]bool, len(resp.Topics))
	for i := range resp.Topics {
		t, err := topicFrom(broker, &resp.Topics[i])
		if err != nil {
			return nil, err
		}
		if t.Name == "" {
			continue
		}
		if seen[t.Name] {
			return nil, protocolError(broker, "Metadata", "topic %q twice", t.Name)
		}
		seen[t.Name] = true
		m.Topics = append(m.Topics, t)
	}
	return m, nil
}

func topicFrom(broker string, rt *kmsg.MetadataResponseTopic) (Topic, error) {
	t := Topic{ID: rt.TopicID, Internal: rt.IsInternal, Code: Code(rt.ErrorCode)}
	if rt.Topic != nil {
		t.Name = *rt.Topic
	}
	seen := make([]bool, len(rt.Partitions))
	t.Partitions = make([]Partition, len(rt.Partitions))
	for _, rp := range rt.Partitions {
		n := int(rp.Partition)
		if n < 0 || n >= len(seen) || seen[n] {
			return t, protocolError(broker, "Metadata", "topic %q has %d partitions, one of them numbered %d", t.Name, len(seen), n)
		}
		seen[n] = true
		p := Partition{Partition: rp.Partition, Leader: types.BrokerID(rp.Leader), LeaderEpoch: types.LeaderEpoch(rp.LeaderEpoch), Code: Code(rp.ErrorCode)}
		if p.Leader < 0 {
			p.Leader = types.NoBroker
			p.ISR, p.Offline = brokerIDs(rp.ISR), brokerIDs(rp.OfflineReplicas)
		}
		if p.LeaderEpoch < 0 {
			p.LeaderEpoch = types.NoLeaderEpoch
		}
		t.Partitions[n] = p
	}
	return t, nil
}

func brokerIDs(list []int32) []types.BrokerID {
	var out []types.BrokerID
	for _, id := range list {
		out = append(out, types.BrokerID(id))
	}
	return out
}
