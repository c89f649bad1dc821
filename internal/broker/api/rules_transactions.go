package api

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/core/acl"
	"tidemark/internal/wire"
)

// transactionRules are those of the APIs about transactions and producer ids.
func transactionRules() []rule {
	return []rule{
		{wire.KeyInitProducerId, asWhole(mayInitProducerID, func(_ *kmsg.InitProducerIDRequest, out *kmsg.InitProducerIDResponse, code wire.ErrCode) {
			out.ErrorCode, out.ProducerID, out.ProducerEpoch = int16(code), -1, -1
		})},
		{wire.KeyAddPartitionsToTxn, guardAddPartitions},
		{wire.KeyAddOffsetsToTxn, asWhole(func(c *Call, in *kmsg.AddOffsetsToTxnRequest) wire.ErrCode {
			if !c.may(acl.Write, acl.TransactionalID, in.TransactionalID) {
				return wire.ErrTransactionalIDAuthorizationFailed
			}
			return codeUnless(c.may(acl.Read, acl.Group, in.Group), acl.Group)
		}, func(_ *kmsg.AddOffsetsToTxnRequest, out *kmsg.AddOffsetsToTxnResponse, code wire.ErrCode) {
			out.ErrorCode = int16(code)
		})},
		{wire.KeyEndTxn, asWhole(func(c *Call, in *kmsg.EndTxnRequest) wire.ErrCode {
			return codeUnless(c.may(acl.Write, acl.TransactionalID, in.TransactionalID), acl.TransactionalID)
		}, func(_ *kmsg.EndTxnRequest, out *kmsg.EndTxnResponse, code wire.ErrCode) { out.ErrorCode = int16(code) })},
		{wire.KeyWriteTxnMarkers, asWhole(func(c *Call, _ *kmsg.WriteTxnMarkersRequest) wire.ErrCode { return c.mayActForCluster() }, refuseTxnMarkers)},
		{wire.KeyTxnOffsetCommit, guardTxnOffsetCommit},
		{wire.KeyDescribeTransactions, eachOf(func(in *kmsg.DescribeTransactionsRequest) *[]string { return &in.TransactionalIDs },
			func(c *Call, _ *kmsg.DescribeTransactionsRequest, id *string) wire.ErrCode {
				return codeUnless(c.may(acl.Describe, acl.TransactionalID, *id), acl.TransactionalID)
			},
			func(_ *kmsg.DescribeTransactionsRequest, out *kmsg.DescribeTransactionsResponse, id *string, code wire.ErrCode) {
				to := kmsg.NewDescribeTransactionsResponseTransactionState()
				to.TransactionalID, to.ErrorCode = *id, int16(code)
				out.TransactionStates = append(out.TransactionStates, to)
			})},
		{wire.KeyListTransactions, func(c *Call, _ kmsg.Request) verdict {
			return verdict{amend: func(m kmsg.Response) {
				out, c := m.(*kmsg.ListTransactionsResponse), c.quietly()
				out.TransactionStates = slices.DeleteFunc(out.TransactionStates, func(t kmsg.ListTransactionsResponseTransactionState) bool {
					return !c.may(acl.Describe, acl.TransactionalID, t.TransactionalID)
				})
			}}
		}},
	}
}

// mayInitProducerID asks for WRITE of the transactional id; without one, for
// IDEMPOTENT_WRITE, or WRITE of any topic at all (KIP-679).
func mayInitProducerID(c *Call, in *kmsg.InitProducerIDRequest) wire.ErrCode {
	if in.TransactionalID != nil {
		return codeUnless(c.may(acl.Write, acl.TransactionalID, *in.TransactionalID), acl.TransactionalID)
	}
	return codeUnless(c.mayOnAny(acl.Write, acl.Topic) || c.mayCluster(acl.IdempotentWrite), acl.Cluster)
}

// guardAddPartitions asks for WRITE of the transactional id and of each topic: all
// partitions are added or none. Versions from 4 on are brokers'.
func guardAddPartitions(c *Call, m kmsg.Request) verdict {
	in := m.(*kmsg.AddPartitionsToTxnRequest)
	out := in.ResponseKind().(*kmsg.AddPartitionsToTxnResponse)
	if in.Version >= 4 {
		if code := codeUnless(c.mayCluster(acl.ClusterAction), acl.Cluster); code != wire.None {
			out.ErrorCode = int16(code)
			return verdict{answer: out}
		}
		return verdict{}
	}
	mayID := c.may(acl.Write, acl.TransactionalID, in.TransactionalID)
	_, refused := sift(in.Topics, func(t *kmsg.AddPartitionsToTxnRequestTopic) wire.ErrCode {
		return codeUnless(mayID && c.mayTopic(acl.Write, t.Topic), acl.Topic)
	})
	if mayID && len(refused) == 0 {
		return verdict{}
	}
	for _, t := range in.Topics {
		code := wire.ErrOperationNotAttempted
		switch {
		case !mayID:
			code = wire.ErrTransactionalIDAuthorizationFailed
		case !c.quietly().mayTopic(acl.Write, t.Topic): // told above
			code = wire.ErrTopicAuthorizationFailed
		}
		to := kmsg.NewAddPartitionsToTxnResponseTopic()
		to.Topic = t.Topic
		for _, n := range t.Partitions {
			to.Partitions = append(to.Partitions, kmsg.AddPartitionsToTxnResponseTopicPartition{Partition: n, ErrorCode: int16(code)})
		}
		out.Topics = append(out.Topics, to)
	}
	return verdict{answer: out}
}

func refuseTxnMarkers(in *kmsg.WriteTxnMarkersRequest, out *kmsg.WriteTxnMarkersResponse, code wire.ErrCode) {
	for _, marker := range in.Markers {
		to := kmsg.NewWriteTxnMarkersResponseMarker()
		to.ProducerID = marker.ProducerID
		for _, t := range marker.Topics {
			topic := kmsg.NewWriteTxnMarkersResponseMarkerTopic()
			topic.Topic = t.Topic
			for _, n := range t.Partitions {
				topic.Partitions = append(topic.Partitions, kmsg.WriteTxnMarkersResponseMarkerTopicPartition{Partition: n, ErrorCode: int16(code)})
			}
			to.Topics = append(to.Topics, topic)
		}
		out.Markers = append(out.Markers, to)
	}
}

// guardTxnOffsetCommit asks for WRITE of the transactional id, and READ of the group and of each topic.
func guardTxnOffsetCommit(c *Call, m kmsg.Request) verdict {
	in := m.(*kmsg.TxnOffsetCommitRequest)
	code := codeUnless(c.may(acl.Write, acl.TransactionalID, in.TransactionalID), acl.TransactionalID)
	if code == wire.None {
		code = codeUnless(c.may(acl.Read, acl.Group, in.Group), acl.Group)
	}
	refuse := func(_ *kmsg.TxnOffsetCommitRequest, out *kmsg.TxnOffsetCommitResponse, t *kmsg.TxnOffsetCommitRequestTopic, code wire.ErrCode) {
		to := kmsg.NewTxnOffsetCommitResponseTopic()
		to.Topic, to.TopicID = t.Topic, t.TopicID
		for _, p := range t.Partitions {
			to.Partitions = append(to.Partitions, kmsg.TxnOffsetCommitResponseTopicPartition{Partition: p.Partition, ErrorCode: int16(code)})
		}
		out.Topics = append(out.Topics, to)
	}
	if code != wire.None {
		out := in.ResponseKind().(*kmsg.TxnOffsetCommitResponse)
		for i := range in.Topics {
			refuse(in, out, &in.Topics[i], code)
		}
		return verdict{answer: out}
	}
	return eachOf(func(in *kmsg.TxnOffsetCommitRequest) *[]kmsg.TxnOffsetCommitRequestTopic { return &in.Topics },
		func(c *Call, in *kmsg.TxnOffsetCommitRequest, t *kmsg.TxnOffsetCommitRequestTopic) wire.ErrCode {
			return codeUnless(c.mayRef(acl.Read, topicRef{name: t.Topic, id: t.TopicID, useID: in.Version >= 6}), acl.Topic)
		}, refuse)(c, m)
}
