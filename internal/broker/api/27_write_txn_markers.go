package api

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/core/types"
	"tidemark/internal/wire"
)

// WriteTxnMarkers (key 27): a transaction coordinator, or an operator who ends a
// transaction that nobody ends (kafka-transactions.sh abort), has markers written
// into partitions that this broker leads. Each is answered once it is replicated.
//
// Versions 1 and 2, both flexible. 2 adds the version of the transaction: from 2 on
// the marker's epoch is above that of its batches, and ends none of its own (KIP-890).
func (c *Call) writeTxnMarkers(in *kmsg.WriteTxnMarkersRequest) (kmsg.Response, error) {
	out := kmsg.NewPtrWriteTxnMarkersResponse()
	type job struct {
		marker int
		tp     types.TopicPartition
	}
	var jobs []job
	for i, m := range in.Markers {
		for _, t := range m.Topics {
			for _, n := range t.Partitions {
				jobs = append(jobs, job{i, types.TopicPartition{Topic: t.Topic, Partition: n}})
			}
		}
	}
	codes := make([]wire.ErrCode, len(jobs))
	each(c.Ctx, len(jobs), appendAllMax, func(i int) {
		m := &in.Markers[jobs[i].marker]
		codes[i] = c.Markers.Write(c.Ctx, TxnMarker{ProducerID: types.ProducerID(m.ProducerID), Epoch: m.ProducerEpoch, Commit: m.Committed, CoordinatorEpoch: m.CoordinatorEpoch, Bumped: m.TransactionVersion >= 2}, jobs[i].tp)
	})
	next := 0
	for _, m := range in.Markers {
		to := kmsg.NewWriteTxnMarkersResponseMarker()
		to.ProducerID = m.ProducerID
		for _, t := range m.Topics {
			topic := kmsg.NewWriteTxnMarkersResponseMarkerTopic()
			topic.Topic = t.Topic
			for _, n := range t.Partitions {
				topic.Partitions = append(topic.Partitions, kmsg.WriteTxnMarkersResponseMarkerTopicPartition{Partition: n, ErrorCode: int16(codes[next])})
				next++
			}
			to.Topics = append(to.Topics, topic)
		}
		out.Markers = append(out.Markers, to)
	}
	return out, nil
}
