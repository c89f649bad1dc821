package api

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/batch"
	"tidemark/internal/core/acl"
	"tidemark/internal/wire"
)

// topicRules are those of the APIs about topics: what is denied is
// TOPIC_AUTHORIZATION_FAILED for each topic by itself, also of topics that don't
// exist, so that nobody learns of a topic by asking.
func topicRules() []rule {
	return []rule{
		{wire.KeyProduce, guardProduce},
		{wire.KeyListOffsets, eachOf(func(in *kmsg.ListOffsetsRequest) *[]kmsg.ListOffsetsRequestTopic { return &in.Topics },
			func(c *Call, _ *kmsg.ListOffsetsRequest, t *kmsg.ListOffsetsRequestTopic) wire.ErrCode {
				return codeUnless(c.mayTopic(acl.Describe, t.Topic), acl.Topic)
			}, refuseListOffsets)},
		{wire.KeyOffsetForLeaderEpoch, eachOf(func(in *kmsg.OffsetForLeaderEpochRequest) *[]kmsg.OffsetForLeaderEpochRequestTopic { return &in.Topics },
			func(c *Call, _ *kmsg.OffsetForLeaderEpochRequest, t *kmsg.OffsetForLeaderEpochRequestTopic) wire.ErrCode {
				return codeUnless(c.quietly().mayCluster(acl.ClusterAction) || c.mayTopic(acl.Describe, t.Topic), acl.Topic)
			}, refuseEpochEnds)},
		{wire.KeyCreateTopics, guardCreateTopics},
		{wire.KeyDeleteTopics, guardDeleteTopics},
		{wire.KeyDeleteRecords, eachOf(func(in *kmsg.DeleteRecordsRequest) *[]kmsg.DeleteRecordsRequestTopic { return &in.Topics },
			func(c *Call, _ *kmsg.DeleteRecordsRequest, t *kmsg.DeleteRecordsRequestTopic) wire.ErrCode {
				return codeUnless(c.mayTopic(acl.Delete, t.Topic), acl.Topic)
			}, refuseDeleteRecords)},
		{wire.KeyCreatePartitions, eachOf(func(in *kmsg.CreatePartitionsRequest) *[]kmsg.CreatePartitionsRequestTopic { return &in.Topics },
			func(c *Call, _ *kmsg.CreatePartitionsRequest, t *kmsg.CreatePartitionsRequestTopic) wire.ErrCode {
				return codeUnless(c.mayTopic(acl.Alter, t.Topic), acl.Topic)
			},
			func(_ *kmsg.CreatePartitionsRequest, out *kmsg.CreatePartitionsResponse, t *kmsg.CreatePartitionsRequestTopic, code wire.ErrCode) {
				to := kmsg.NewCreatePartitionsResponseTopic()
				to.Topic, to.ErrorCode = t.Topic, int16(code)
				out.Topics = append(out.Topics, to)
			})},
		{wire.KeyDescribeProducers, eachOf(func(in *kmsg.DescribeProducersRequest) *[]kmsg.DescribeProducersRequestTopic { return &in.Topics },
			func(c *Call, _ *kmsg.DescribeProducersRequest, t *kmsg.DescribeProducersRequestTopic) wire.ErrCode {
				return codeUnless(c.mayTopic(acl.Read, t.Topic), acl.Topic)
			}, refuseDescribeProducers)},
		{wire.KeyDescribeLineage, eachOf(func(in *wire.LineageRequest) *[]wire.LineageRequestTopic { return &in.Topics },
			func(c *Call, _ *wire.LineageRequest, t *wire.LineageRequestTopic) wire.ErrCode {
				return codeUnless(c.mayRef(acl.Describe, topicRef{id: t.ID, useID: true}), acl.Topic)
			}, refuseLineage)},
	}
}

// guardProduce asks for WRITE of each topic, and of the transactional id where a
// batch is part of a transaction.
func guardProduce(c *Call, m kmsg.Request) verdict {
	in := m.(*kmsg.ProduceRequest)
	may := func(t *kmsg.ProduceRequestTopic) wire.ErrCode {
		ref := topicRef{name: t.Topic, id: t.TopicID, useID: in.Version >= 13}
		return codeUnless(c.mayRef(acl.Write, ref), acl.Topic)
	}
	if isTransactional(in) && (in.TransactionID == nil || !c.may(acl.Write, acl.TransactionalID, *in.TransactionID)) {
		may = func(*kmsg.ProduceRequestTopic) wire.ErrCode { return wire.ErrTransactionalIDAuthorizationFailed }
	}
	v := eachOf(func(in *kmsg.ProduceRequest) *[]kmsg.ProduceRequestTopic { return &in.Topics },
		func(_ *Call, _ *kmsg.ProduceRequest, t *kmsg.ProduceRequestTopic) wire.ErrCode { return may(t) }, refuseProduce)(c, m)
	if in.Acks == 0 && (v.answer != nil || v.amend != nil) {
		// What may be written is written; the client learns of the rest as of every failure without acks.
		if v.amend != nil {
			c.appendAll(in, produceJobs(in))
		}
		return verdict{err: fmt.Errorf("%w: Produce with acks=0: %w", ErrClose, wire.ErrTopicAuthorizationFailed)}
	}
	return v
}

// isTransactional reports whether a request says that it is part of a transaction, or a batch in it does.
func isTransactional(in *kmsg.ProduceRequest) bool {
	if in.TransactionID != nil {
		return true
	}
	for i := range in.Topics {
		for _, p := range in.Topics[i].Partitions {
			if h, err := batch.ParseHeader(p.Records); err == nil && h.IsTransactional() {
				return true
			}
		}
	}
	return false
}

func refuseProduce(_ *kmsg.ProduceRequest, out *kmsg.ProduceResponse, t *kmsg.ProduceRequestTopic, code wire.ErrCode) {
	to := kmsg.NewProduceResponseTopic()
	to.Topic, to.TopicID = t.Topic, t.TopicID
	for _, p := range t.Partitions {
		part := kmsg.NewProduceResponseTopicPartition()
		part.Partition, part.ErrorCode = p.Partition, int16(code)
		part.BaseOffset, part.LogAppendTime, part.LogStartOffset = -1, -1, -1
		to.Partitions = append(to.Partitions, part)
	}
	out.Topics = append(out.Topics, to)
}

func refuseListOffsets(_ *kmsg.ListOffsetsRequest, out *kmsg.ListOffsetsResponse, t *kmsg.ListOffsetsRequestTopic, code wire.ErrCode) {
	to := kmsg.NewListOffsetsResponseTopic()
	to.Topic = t.Topic
	for _, p := range t.Partitions {
		part := kmsg.NewListOffsetsResponseTopicPartition()
		part.Partition, part.ErrorCode = p.Partition, int16(code)
		part.Offset, part.Timestamp, part.LeaderEpoch = -1, -1, -1
		to.Partitions = append(to.Partitions, part)
	}
	out.Topics = append(out.Topics, to)
}

func refuseEpochEnds(_ *kmsg.OffsetForLeaderEpochRequest, out *kmsg.OffsetForLeaderEpochResponse, t *kmsg.OffsetForLeaderEpochRequestTopic, code wire.ErrCode) {
	to := kmsg.NewOffsetForLeaderEpochResponseTopic()
	to.Topic = t.Topic
	for _, p := range t.Partitions {
		part := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
		part.Partition, part.ErrorCode, part.LeaderEpoch, part.EndOffset = p.Partition, int16(code), -1, -1
		to.Partitions = append(to.Partitions, part)
	}
	out.Topics = append(out.Topics, to)
}

func refuseDeleteRecords(_ *kmsg.DeleteRecordsRequest, out *kmsg.DeleteRecordsResponse, t *kmsg.DeleteRecordsRequestTopic, code wire.ErrCode) {
	to := kmsg.NewDeleteRecordsResponseTopic()
	to.Topic = t.Topic
	for _, p := range t.Partitions {
		part := kmsg.NewDeleteRecordsResponseTopicPartition()
		part.Partition, part.ErrorCode, part.LowWatermark = p.Partition, int16(code), -1
		to.Partitions = append(to.Partitions, part)
	}
	out.Topics = append(out.Topics, to)
}

func refuseDescribeProducers(_ *kmsg.DescribeProducersRequest, out *kmsg.DescribeProducersResponse, t *kmsg.DescribeProducersRequestTopic, code wire.ErrCode) {
	to := kmsg.NewDescribeProducersResponseTopic()
	to.Topic = t.Topic
	for _, p := range t.Partitions {
		part := kmsg.NewDescribeProducersResponseTopicPartition()
		part.Partition, part.ErrorCode = p, int16(code)
		to.Partitions = append(to.Partitions, part)
	}
	out.Topics = append(out.Topics, to)
}

func refuseLineage(_ *wire.LineageRequest, out *wire.LineageResponse, t *wire.LineageRequestTopic, code wire.ErrCode) {
	to := wire.LineageResponseTopic{ID: t.ID}
	for _, n := range t.Partitions {
		to.Partitions = append(to.Partitions, wire.LineagePartition{Partition: n, LeaderEpoch: -1, LastEpoch: -1, ErrorCode: code})
	}
	out.Topics = append(out.Topics, to)
}

// guardCreateTopics asks for CREATE, of the cluster or of the topic. The configs of
// what was made are shown to who may describe configs alone.
func guardCreateTopics(c *Call, m kmsg.Request) verdict {
	v := eachOf(func(in *kmsg.CreateTopicsRequest) *[]kmsg.CreateTopicsRequestTopic { return &in.Topics },
		func(c *Call, _ *kmsg.CreateTopicsRequest, t *kmsg.CreateTopicsRequestTopic) wire.ErrCode {
			return codeUnless(c.quietly().mayCluster(acl.Create) || c.mayTopic(acl.Create, t.Topic), acl.Topic)
		},
		func(_ *kmsg.CreateTopicsRequest, out *kmsg.CreateTopicsResponse, t *kmsg.CreateTopicsRequestTopic, code wire.ErrCode) {
			to := kmsg.NewCreateTopicsResponseTopic()
			to.Topic, to.NumPartitions, to.ReplicationFactor = t.Topic, -1, -1
			setCreateError(&to, wire.Errorf(code, "You may not create topic %s.", t.Topic))
			out.Topics = append(out.Topics, to)
		})(c, m)
	if v.answer != nil {
		return v
	}
	refuse := v.amend
	v.amend = func(out kmsg.Response) {
		topics := out.(*kmsg.CreateTopicsResponse).Topics
		for i := range topics {
			if t := &topics[i]; t.ErrorCode == 0 && !c.quietly().mayTopic(acl.DescribeConfigs, t.Topic) {
				t.Configs, t.NumPartitions, t.ReplicationFactor = nil, -1, -1
				t.ConfigErrorCode = int16(wire.ErrTopicAuthorizationFailed)
			}
		}
		if refuse != nil {
			refuse(out)
		}
	}
	return v
}

// guardDeleteTopics asks for DELETE. Who names a topic by its id learns its name
// only with DESCRIBE.
func guardDeleteTopics(c *Call, m kmsg.Request) verdict {
	in := m.(*kmsg.DeleteTopicsRequest)
	if in.Version < 6 {
		return eachOf(func(in *kmsg.DeleteTopicsRequest) *[]string { return &in.TopicNames },
			func(c *Call, _ *kmsg.DeleteTopicsRequest, name *string) wire.ErrCode {
				return codeUnless(c.mayTopic(acl.Delete, *name), acl.Topic)
			},
			func(_ *kmsg.DeleteTopicsRequest, out *kmsg.DeleteTopicsResponse, name *string, code wire.ErrCode) {
				to := kmsg.NewDeleteTopicsResponseTopic()
				to.Topic, to.ErrorCode = name, int16(code)
				out.Topics = append(out.Topics, to)
			})(c, m)
	}
	return eachOf(func(in *kmsg.DeleteTopicsRequest) *[]kmsg.DeleteTopicsRequestTopic { return &in.Topics },
		func(c *Call, _ *kmsg.DeleteTopicsRequest, t *kmsg.DeleteTopicsRequestTopic) wire.ErrCode {
			return codeUnless(c.mayRef(acl.Delete, deleteRef(*t)), acl.Topic)
		},
		func(_ *kmsg.DeleteTopicsRequest, out *kmsg.DeleteTopicsResponse, t *kmsg.DeleteTopicsRequestTopic, code wire.ErrCode) {
			to := kmsg.NewDeleteTopicsResponseTopic()
			to.Topic, to.TopicID, to.ErrorCode = t.Topic, t.TopicID, int16(code)
			if rec, err := deleteRef(*t).find(c.Image); err == nil && to.Topic == nil && c.quietly().mayTopic(acl.Describe, rec.Name) {
				to.Topic = &rec.Name
			}
			out.Topics = append(out.Topics, to)
		})(c, m)
}
