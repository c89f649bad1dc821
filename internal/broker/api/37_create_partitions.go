package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/core/types"
	"tidemark/internal/wire"
)

// CreatePartitions (key 37): raise the partition count of topics, each for itself.
//
// Behaviour
//   - Count is the new total and must be larger (INVALID_PARTITIONS). Given
//     assignments are one per new partition.
//   - A topic that is named twice is INVALID_REQUEST. A mirrored topic is refused
//     with a sentence: its partition count is its source's.
//
// Versions
//   - 0-1 alike; 2: flexible; 3 alike.
func (c *Call) createPartitions(in *kmsg.CreatePartitionsRequest) (kmsg.Response, error) {
	ctx, cancel := c.within(in.TimeoutMillis)
	defer cancel()
	twice := repeated(in.Topics, func(t kmsg.CreatePartitionsRequestTopic) string { return t.Topic })
	out := kmsg.NewPtrCreatePartitionsResponse()
	for i := range in.Topics {
		t := &in.Topics[i]
		to := kmsg.NewCreatePartitionsResponseTopic()
		to.Topic = t.Topic
		err := error(wire.Errorf(wire.ErrInvalidRequest, "Topic %s is named more than once.", t.Topic))
		if !twice[t.Topic] {
			err = c.addPartitions(ctx, in, t)
		}
		if err != nil {
			to.ErrorCode, to.ErrorMessage = int16(c.failed(wire.KeyCreatePartitions, err)), MessageOf(err)
		}
		out.Topics = append(out.Topics, to)
	}
	return out, nil
}

func (c *Call) addPartitions(ctx context.Context, in *kmsg.CreatePartitionsRequest, t *kmsg.CreatePartitionsRequestTopic) error {
	rec, err := topicRef{name: t.Topic}.find(c.Image)
	if err != nil {
		return err
	}
	if mirror, ok := mirrorOf(c.Image, rec.ID); ok {
		return wire.Errorf(wire.ErrPolicyViolation,
			"Topic %s is a read-only mirror (mirror %q): it gets new partitions when its source does.", t.Topic, mirror)
	}
	ask := AddPartitions{Topic: t.Topic, Count: t.Count, ValidateOnly: in.ValidateOnly}
	if t.Assignment != nil {
		ask.Assignments = make([][]types.BrokerID, len(t.Assignment))
	}
	for i, a := range t.Assignment {
		ask.Assignments[i] = brokerIDs(a.Replicas)
	}
	switch {
	case t.Count <= rec.Partitions:
		return wire.Errorf(wire.ErrInvalidPartitions, "Topic %s has %d partitions, which isn't less than %d.", t.Topic, rec.Partitions, t.Count)
	case ask.Assignments != nil && len(ask.Assignments) != int(t.Count-rec.Partitions):
		return wire.Errorf(wire.ErrInvalidReplicaAssignment, "Topic %s gets %d new partitions, but %d are assigned.",
			t.Topic, t.Count-rec.Partitions, len(ask.Assignments))
	}
	return c.Topics.AddPartitions(ctx, ask)
}
