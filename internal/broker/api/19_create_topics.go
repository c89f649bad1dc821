package api

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/core/types"
	"tidemark/internal/wire"
)

// CreateTopics (key 19): make topics, each for itself.
//
// Behaviour
//   - One topic's error never touches the others. A topic that is named twice
//     is INVALID_REQUEST and isn't made.
//   - Given assignments exclude a partition count and a replication factor.
//   - validate_only checks everything and changes nothing.
//
// Versions
//   - 2: throttle time. 4: -1 for the broker's defaults (KIP-464). 5: flexible,
//     count, factor and configs in the answer (KIP-525). 7: topic id.
func (c *Call) createTopics(in *kmsg.CreateTopicsRequest) (kmsg.Response, error) {
	ctx, cancel := c.within(in.TimeoutMillis)
	defer cancel()
	twice := repeated(in.Topics, func(t kmsg.CreateTopicsRequestTopic) string { return t.Topic })
	answered := make(map[string]bool)
	out := kmsg.NewPtrCreateTopicsResponse()
	for i := range in.Topics {
		t := &in.Topics[i]
		to := kmsg.NewCreateTopicsResponseTopic()
		to.Topic, to.NumPartitions, to.ReplicationFactor = t.Topic, -1, -1
		switch {
		case answered[t.Topic]:
			continue
		case twice[t.Topic]:
			answered[t.Topic] = true
			setCreateError(&to, wire.Errorf(wire.ErrInvalidRequest, "Topic %s is named more than once.", t.Topic))
		default:
			c.createTopic(ctx, in, t, &to)
		}
		out.Topics = append(out.Topics, to)
	}
	return out, nil
}

// repeated gives the keys that more than one item has.
func repeated[T any, K comparable](items []T, key func(T) K) map[K]bool {
	seen, twice := make(map[K]bool), make(map[K]bool)
	for _, it := range items {
		k := key(it)
		if seen[k] {
			twice[k] = true
		}
		seen[k] = true
	}
	return twice
}

// within bounds the request's context by the client's timeout.
func (c *Call) within(millis int32) (context.Context, context.CancelFunc) {
	return context.WithTimeout(c.Ctx, time.Duration(max(millis, 1))*time.Millisecond)
}

func setCreateError(to *kmsg.CreateTopicsResponseTopic, err error) {
	to.ErrorCode, to.ErrorMessage = int16(CodeOf(err)), MessageOf(err)
}

func (c *Call) createTopic(ctx context.Context, in *kmsg.CreateTopicsRequest, t *kmsg.CreateTopicsRequestTopic, to *kmsg.CreateTopicsResponseTopic) {
	ask, err := createAsked(in, t)
	if err != nil {
		setCreateError(to, err)
		return
	}
	made, err := c.Topics.Create(ctx, ask)
	if err != nil {
		c.failed(wire.KeyCreateTopics, err)
		setCreateError(to, err)
		return
	}
	to.TopicID, to.NumPartitions, to.ReplicationFactor = made.ID, made.Partitions, made.ReplicationFactor
	to.Configs = make([]kmsg.CreateTopicsResponseTopicConfig, 0, len(made.Configs))
	for _, e := range made.Configs {
		to.Configs = append(to.Configs, kmsg.CreateTopicsResponseTopicConfig{Name: e.Name, Value: e.Value,
			ReadOnly: e.ReadOnly, Source: int8(e.Source), IsSensitive: e.Sensitive})
	}
}

// createAsked reads what the request wants of one topic.
func createAsked(in *kmsg.CreateTopicsRequest, t *kmsg.CreateTopicsRequestTopic) (CreateTopic, error) {
	ask := CreateTopic{Name: t.Topic, Partitions: t.NumPartitions, ReplicationFactor: t.ReplicationFactor,
		ValidateOnly: in.ValidateOnly, Configs: make(map[string]*string, len(t.Configs))}
	switch {
	case !validTopicName(t.Topic):
		return ask, wire.Errorf(wire.ErrInvalidTopic, "Topic name %q is invalid: it must have 1 to 249 characters of a-z, A-Z, 0-9, '.', '_' and '-', and not be '.' or '..'.", t.Topic)
	case len(t.ReplicaAssignment) > 0 && (t.NumPartitions != -1 || t.ReplicationFactor != -1):
		return ask, wire.Errorf(wire.ErrInvalidRequest, "Topic %s: with an assignment, partition count and replication factor must be -1.", t.Topic)
	case len(t.ReplicaAssignment) == 0 && in.Version < 4 && t.NumPartitions == -1:
		return ask, wire.Errorf(wire.ErrInvalidPartitions, "Topic %s: a default partition count needs version 4 of CreateTopics.", t.Topic)
	case len(t.ReplicaAssignment) == 0 && in.Version < 4 && t.ReplicationFactor == -1:
		return ask, wire.Errorf(wire.ErrInvalidReplicationFactor, "Topic %s: a default replication factor needs version 4 of CreateTopics.", t.Topic)
	}
	for _, cfg := range t.Configs {
		if _, twice := ask.Configs[cfg.Name]; twice {
			return ask, wire.Errorf(wire.ErrInvalidConfig, "Topic %s: config %s is given twice.", t.Topic, cfg.Name)
		}
		ask.Configs[cfg.Name] = cfg.Value
	}
	if len(t.ReplicaAssignment) > 0 {
		ask.Assignments = make(map[int32][]types.BrokerID, len(t.ReplicaAssignment))
	}
	for _, a := range t.ReplicaAssignment {
		if _, twice := ask.Assignments[a.Partition]; twice {
			return ask, wire.Errorf(wire.ErrInvalidReplicaAssignment, "Topic %s: partition %d is assigned twice.", t.Topic, a.Partition)
		}
		ask.Assignments[a.Partition] = brokerIDs(a.Replicas)
	}
	return ask, nil
}
