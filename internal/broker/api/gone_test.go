package api

import (
	"bytes"
	"context"
	"log/slog"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/wire"
)

// TestAClientThatGoesIsNoError: a request that ends because its client has gone,
// or because the node cuts its connections off, is not an error of the node, of
// whatever API it is; and who is still there is told to try again.
func TestAClientThatGoesIsNoError(t *testing.T) {
	w := newWorld(t)
	w.topic("t", topicOptions{})
	w.part("t", 0).fail(context.Canceled)
	w.topics.err, w.pidErr = context.Canceled, context.Canceled
	w.withOperator(context.Canceled)
	w.withCluster(map[int32]error{0: context.Canceled})
	var logged bytes.Buffer
	w.server.Logger = slog.New(slog.NewTextHandler(&logged, nil))

	produce := kmsg.NewPtrProduceRequest()
	produce.Acks, produce.TimeoutMillis = -1, 1000
	produce.Topics = []kmsg.ProduceRequestTopic{{Topic: "t", Partitions: []kmsg.ProduceRequestTopicPartition{{Records: rawBatch(1, 10)}}}}
	fetch := kmsg.NewPtrFetchRequest()
	fetch.ReplicaID, fetch.MaxBytes = -1, 1<<20
	fetch.Topics = []kmsg.FetchRequestTopic{{Topic: "t", Partitions: []kmsg.FetchRequestTopicPartition{{CurrentLeaderEpoch: -1, PartitionMaxBytes: 1 << 20}}}}
	list := kmsg.NewPtrListOffsetsRequest()
	list.ReplicaID = -1
	list.Topics = []kmsg.ListOffsetsRequestTopic{{Topic: "t", Partitions: []kmsg.ListOffsetsRequestTopicPartition{{CurrentLeaderEpoch: -1, Timestamp: -1}}}}
	epochs := kmsg.NewPtrOffsetForLeaderEpochRequest()
	epochs.Topics = []kmsg.OffsetForLeaderEpochRequestTopic{{Topic: "t", Partitions: []kmsg.OffsetForLeaderEpochRequestTopicPartition{{CurrentLeaderEpoch: -1}}}}
	create := kmsg.NewPtrCreateTopicsRequest()
	create.TimeoutMillis = 1000
	create.Topics = []kmsg.CreateTopicsRequestTopic{{Topic: "u", NumPartitions: 1, ReplicationFactor: 1}}
	remove := kmsg.NewPtrDeleteTopicsRequest()
	remove.TimeoutMillis, remove.TopicNames = 1000, []string{"t"}
	more := kmsg.NewPtrCreatePartitionsRequest()
	more.TimeoutMillis = 1000
	more.Topics = []kmsg.CreatePartitionsRequestTopic{{Topic: "t", Count: 2}}
	describe := kmsg.NewPtrDescribeConfigsRequest()
	describe.Resources = []kmsg.DescribeConfigsRequestResource{{ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: "t"}}
	alter := kmsg.NewPtrIncrementalAlterConfigsRequest()
	alter.Resources = []kmsg.IncrementalAlterConfigsRequestResource{{ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: "t"}}
	elect := kmsg.NewPtrElectLeadersRequest()
	elect.TimeoutMillis = 1000
	elect.Topics = []kmsg.ElectLeadersRequestTopic{{Topic: "t", Partitions: []int32{0}}}
	features := kmsg.NewPtrUpdateFeaturesRequest()
	features.TimeoutMillis = 1000
	features.FeatureUpdates = []kmsg.UpdateFeaturesRequestFeatureUpdate{{Feature: "metadata.version", MaxVersionLevel: 2}}
	quorum := kmsg.NewPtrDescribeQuorumRequest()
	quorum.Topics = []kmsg.DescribeQuorumRequestTopic{{Topic: quorumTopic, Partitions: []kmsg.DescribeQuorumRequestTopicPartition{{}}}}

	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for _, x := range []struct {
		in      kmsg.Request
		version int16
	}{
		{produce, 9}, {fetch, 12}, {list, 7}, {epochs, 4}, {kmsg.NewPtrInitProducerIDRequest(), 4}, {create, 7}, {remove, 5},
		{more, 3}, {describe, 4}, {alter, 1}, {elect, 2}, {features, 1}, {quorum, 1},
	} {
		for _, ctx := range []context.Context{gone, t.Context()} {
			if _, err := w.try(ctx, x.in, x.version); err != nil {
				t.Errorf("%T: %v", x.in, err)
			}
			if logged.Len() > 0 {
				t.Errorf("%T: %s", x.in, logged.String())
				logged.Reset()
			}
		}
	}
	out := ask[*kmsg.ProduceResponse](w, produce, 9)
	if code := wire.ErrCode(out.Topics[0].Partitions[0].ErrorCode); code != wire.ErrRequestTimedOut {
		t.Errorf("Produce answers %v: a client would give the batch up", code)
	}
}
