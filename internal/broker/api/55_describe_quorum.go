package api

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/wire"
)

// quorumTopic is Kafka's name of the metadata log.
const quorumTopic = "__cluster_metadata"

// DescribeQuorum (key 55): the metadata quorum (KIP-595, KIP-836, KIP-853).
//
// Behaviour
//   - The quorum is etcd: leader epoch is its term, offsets are indexes of its
//     log, the high watermark is what is committed. Voters are its members by
//     their node ids; observers are learners, and brokers that only ask the members.
//   - etcd doesn't say when a follower last fetched: both times are -1. A member
//     that doesn't answer has log end -1.
//   - Another topic or partition than __cluster_metadata-0 is UNKNOWN_TOPIC_OR_PARTITION.
//   - With an etcd of the user's own: UNSUPPORTED_VERSION with a sentence.
//
// Versions
//   - 1: times. 2: directory ids, nodes with their listeners, messages.
func (c *Call) describeQuorum(in *kmsg.DescribeQuorumRequest) (kmsg.Response, error) {
	out := kmsg.NewPtrDescribeQuorumResponse()
	q, err := c.Operator.Quorum(c.Ctx)
	if err != nil {
		out.ErrorCode, out.ErrorMessage = int16(c.failed(wire.KeyDescribeQuorum, err)), MessageOf(err)
		return out, nil
	}
	for _, t := range in.Topics {
		topic := kmsg.NewDescribeQuorumResponseTopic()
		topic.Topic = t.Topic
		for _, p := range t.Partitions {
			part := kmsg.NewDescribeQuorumResponseTopicPartition()
			part.Partition = p.Partition
			if t.Topic != quorumTopic || p.Partition != 0 {
				part.ErrorCode, part.LeaderID = int16(wire.ErrUnknownTopicOrPartition), -1
			} else {
				part.LeaderID, part.LeaderEpoch, part.HighWatermark = int32(q.Leader), q.Epoch, q.HighWatermark
				part.CurrentVoters, part.Observers = replicaStates(q.Voters), replicaStates(q.Observers)
			}
			topic.Partitions = append(topic.Partitions, part)
		}
		out.Topics = append(out.Topics, topic)
	}
	for _, r := range q.Voters {
		node := kmsg.NewDescribeQuorumResponseNode()
		node.NodeID = int32(r.ID)
		if r.Host != "" {
			node.Listeners = []kmsg.DescribeQuorumResponseNodeListener{{Name: "ETCD", Host: r.Host, Port: uint16(r.Port)}}
		}
		out.Nodes = append(out.Nodes, node)
	}
	return out, nil
}

func replicaStates(all []QuorumReplica) []kmsg.DescribeQuorumResponseTopicPartitionReplicaState {
	out := make([]kmsg.DescribeQuorumResponseTopicPartitionReplicaState, len(all))
	for i, r := range all {
		out[i].Default()
		out[i].ReplicaID, out[i].ReplicaDirectoryID, out[i].LogEndOffset = int32(r.ID), r.Directory, r.LogEnd
	}
	return out
}
