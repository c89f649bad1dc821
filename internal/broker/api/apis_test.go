package api

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/internal/wire"
)

func TestListOffsets(t *testing.T) {
	w := newWorld(t)
	w.topic("t", topicOptions{epoch: 4})
	p := w.part("t", 0).fill(10, 10)
	p.held, p.stable, p.logStart = true, 6, 2
	p.offsets = map[types.Millis]OffsetAnswer{
		500:          {Offset: 3, Timestamp: 510, LeaderEpoch: 1},
		TimestampMax: {Offset: 5, Timestamp: 900, LeaderEpoch: 2},
	}
	p.advance(8)
	f := func(version int16, ts types.Millis, committed bool, code wire.ErrCode, offset, stamp int64, epoch int32) {
		t.Helper()
		in := kmsg.NewPtrListOffsetsRequest()
		in.ReplicaID = -1
		if committed {
			in.IsolationLevel = 1
		}
		q := kmsg.NewListOffsetsRequestTopicPartition()
		q.Timestamp, q.CurrentLeaderEpoch = int64(ts), -1
		in.Topics = []kmsg.ListOffsetsRequestTopic{{Topic: "t", Partitions: []kmsg.ListOffsetsRequestTopicPartition{q}}}
		a := ask[*kmsg.ListOffsetsResponse](w, in, version).Topics[0].Partitions[0]
		if version < 4 {
			epoch = -1
		}
		if wire.ErrCode(a.ErrorCode) != code || a.Offset != offset || a.Timestamp != stamp || a.LeaderEpoch != epoch {
			t.Errorf("version %d, time %d: %v, offset %d at %d, epoch %d; want %v, %d at %d, %d", version, ts,
				wire.ErrCode(a.ErrorCode), a.Offset, a.Timestamp, a.LeaderEpoch, code, offset, stamp, epoch)
		}
	}
	for v := int16(1); v <= 11; v++ {
		f(v, -1, false, wire.None, 8, -1, 4)
		f(v, -2, false, wire.None, 2, -1, 0)
		f(v, 500, false, wire.None, 3, 510, 1)
		f(v, 100_000, false, wire.None, -1, -1, -1)
		f(v, -7, false, wire.ErrUnsupportedVersion, -1, -1, -1)
	}
	f(2, -1, true, wire.None, 6, -1, 4)
	f(6, -3, false, wire.ErrUnsupportedVersion, -1, -1, -1)
	f(7, -3, false, wire.None, 5, 900, 2)
	f(7, -4, false, wire.ErrUnsupportedVersion, -1, -1, -1)
	f(8, -4, false, wire.None, 2, -1, 0)
	f(8, -5, false, wire.ErrUnsupportedVersion, -1, -1, -1)
	f(9, -5, false, wire.None, -1, -1, -1)
	f(10, -6, false, wire.ErrUnsupportedVersion, -1, -1, -1)
	f(11, -6, false, wire.None, -1, -1, -1)
}

func TestListOffsetsErrors(t *testing.T) {
	w := newWorld(t)
	w.topic("t", topicOptions{epoch: 4, partitions: 2})
	in := kmsg.NewPtrListOffsetsRequest()
	part := func(n, epoch int32) kmsg.ListOffsetsRequestTopicPartition {
		return kmsg.ListOffsetsRequestTopicPartition{Partition: n, CurrentLeaderEpoch: epoch, Timestamp: -1}
	}
	in.Topics = []kmsg.ListOffsetsRequestTopic{
		{Topic: "t", Partitions: []kmsg.ListOffsetsRequestTopicPartition{part(0, 3), part(0, 4), part(1, 5), part(7, -1)}},
		{Topic: "nobody", Partitions: []kmsg.ListOffsetsRequestTopicPartition{part(0, -1)}},
	}
	var codes []wire.ErrCode
	for _, topic := range ask[*kmsg.ListOffsetsResponse](w, in, 7).Topics {
		for _, p := range topic.Partitions {
			codes = append(codes, wire.ErrCode(p.ErrorCode))
		}
	}
	want := []wire.ErrCode{wire.ErrInvalidRequest, wire.ErrInvalidRequest, wire.ErrUnknownLeaderEpoch, wire.ErrUnknownTopicOrPartition, wire.ErrUnknownTopicOrPartition}
	if diff := cmp.Diff(want, codes); diff != "" {
		t.Error(diff)
	}
}

func metadataOf(names ...string) *kmsg.MetadataRequest {
	in := kmsg.NewPtrMetadataRequest()
	in.Topics = []kmsg.MetadataRequestTopic{}
	for _, n := range names {
		in.Topics = append(in.Topics, kmsg.MetadataRequestTopic{Topic: ptr(n)})
	}
	return in
}

func TestMetadata(t *testing.T) {
	for v := int16(0); v <= 13; v++ {
		t.Run(fmt.Sprint(v), func(t *testing.T) {
			w := newWorld(t)
			id := w.topic("b", topicOptions{partitions: 2, epoch: 6})
			w.topic("a", topicOptions{internal: true})
			out := ask[*kmsg.MetadataResponse](w, metadataOf("b", "nobody", "bad name"), v)
			if len(out.Brokers) != 2 || out.Brokers[0].Host != "one.example" || out.Brokers[1].Port != 9092 {
				t.Errorf("brokers %+v", out.Brokers)
			}
			if v >= 2 && (out.ClusterID == nil || *out.ClusterID != testCluster) {
				t.Errorf("cluster id %v", out.ClusterID)
			}
			if v >= 1 && out.ControllerID != 1 {
				t.Errorf("controller %d", out.ControllerID)
			}
			var codes []wire.ErrCode
			for _, topic := range out.Topics {
				codes = append(codes, wire.ErrCode(topic.ErrorCode))
			}
			if diff := cmp.Diff([]wire.ErrCode{wire.None, wire.ErrUnknownTopicOrPartition, wire.ErrInvalidTopic}, codes); diff != "" {
				t.Fatal(diff)
			}
			b := out.Topics[0]
			if *b.Topic != "b" || len(b.Partitions) != 2 || v >= 10 && b.TopicID != [16]byte(id) {
				t.Errorf("topic %+v", b)
			}
			p := b.Partitions[1]
			if p.Leader != 1 || v >= 7 && p.LeaderEpoch != 6 || !cmp.Equal(p.Replicas, []int32{1, 2}) || !cmp.Equal(p.ISR, []int32{1}) {
				t.Errorf("partition %+v", p)
			}
			if b.AuthorizedOperations != opsNotAsked {
				t.Errorf("operations %d, nobody asked", b.AuthorizedOperations)
			}
		})
	}
}

// Null is all, empty is none; in version 0 empty is all (G10).
func TestMetadataOfAllTopics(t *testing.T) {
	w := newWorld(t)
	w.topic("b", topicOptions{})
	w.topic("a", topicOptions{})
	f := func(version int16, topics []kmsg.MetadataRequestTopic, want ...string) {
		t.Helper()
		in := metadataOf()
		in.Topics = topics
		var names []string
		for _, topic := range ask[*kmsg.MetadataResponse](w, in, version).Topics {
			names = append(names, *topic.Topic)
		}
		if !cmp.Equal(names, want) {
			t.Errorf("version %d: topics %v, want %v", version, names, want)
		}
	}
	f(0, []kmsg.MetadataRequestTopic{}, "a", "b")
	f(1, []kmsg.MetadataRequestTopic{})
	f(1, nil, "a", "b")
	f(12, []kmsg.MetadataRequestTopic{})
	f(12, nil, "a", "b")
}

func TestMetadataByID(t *testing.T) {
	w := newWorld(t)
	id := w.topic("t", topicOptions{})
	f := func(version int16, id types.TopicID, code wire.ErrCode) {
		t.Helper()
		in := metadataOf()
		in.Topics = []kmsg.MetadataRequestTopic{{TopicID: id}}
		got := ask[*kmsg.MetadataResponse](w, in, version).Topics[0]
		if wire.ErrCode(got.ErrorCode) != code {
			t.Errorf("version %d: %v, want %v", version, wire.ErrCode(got.ErrorCode), code)
		}
		if code == wire.None && *got.Topic != "t" {
			t.Errorf("version %d: topic %v", version, got.Topic)
		}
	}
	f(12, id, wire.None)
	f(13, types.TopicID{1}, wire.ErrUnknownTopicID)
	f(12, types.TopicID{}, wire.ErrInvalidRequest)
	f(10, id, wire.ErrInvalidRequest)
}

func TestMetadataOfAbsentLeaders(t *testing.T) {
	w := newWorld(t)
	w.topic("leaderless", topicOptions{leader: types.NoBroker, noLog: true})
	w.topic("dead", topicOptions{leader: 2, noLog: true})
	keys := meta.KeysOf(testCluster)
	f := func(version int16, listener, topic string, code wire.ErrCode, offline ...int32) {
		t.Helper()
		in := metadataOf(topic)
		req := request(in, version, "c")
		req.Listener = listener
		out, err := w.send(context.Background(), req, in)
		if err != nil {
			t.Fatal(err)
		}
		p := out.(*kmsg.MetadataResponse).Topics[0].Partitions[0]
		if wire.ErrCode(p.ErrorCode) != code || code != wire.None && p.Leader != -1 {
			t.Errorf("%s by %s, version %d: %v, leader %d; want %v", topic, listener, version, wire.ErrCode(p.ErrorCode), p.Leader, code)
		}
		if version >= 5 && fmt.Sprint(p.OfflineReplicas) != fmt.Sprint(offline) {
			t.Errorf("%s by %s: offline %v, want %v", topic, listener, p.OfflineReplicas, offline)
		}
	}
	f(12, "PLAINTEXT", "leaderless", wire.ErrLeaderNotAvailable)
	f(12, "PLAINTEXT", "dead", wire.None)
	f(12, "INTERNAL", "dead", wire.ErrListenerNotFound) // broker 2 has no such listener
	f(5, "INTERNAL", "dead", wire.ErrLeaderNotAvailable)
	w.apply(map[string][]byte{keys.Broker(2): nil})
	f(12, "PLAINTEXT", "dead", wire.ErrLeaderNotAvailable, 2)
}

func TestMetadataCreatesTopics(t *testing.T) {
	f := func(version int16, allowed, flag bool, made bool) {
		t.Helper()
		w := newWorld(t)
		w.settings.AutoCreateTopics = allowed
		in := metadataOf("new")
		in.AllowAutoTopicCreation = flag
		got := ask[*kmsg.MetadataResponse](w, in, version).Topics[0]
		if (len(w.topics.created) == 1) != made || (got.ErrorCode == 0) != made {
			t.Errorf("version %d, broker %v, client %v: created %v, answer %v", version, allowed, flag, w.topics.created, wire.ErrCode(got.ErrorCode))
		}
		if made && len(got.Partitions) != 2 {
			t.Errorf("%d partitions, want num.partitions", len(got.Partitions))
		}
	}
	f(4, true, true, true)
	f(4, true, false, false)
	f(4, false, true, false)
	f(3, true, false, true) // older clients always ask for it
	f(13, true, true, true)
	w := newWorld(t)
	w.settings.AutoCreateTopics = true
	in := metadataOf("__consumer_offsets")
	in.AllowAutoTopicCreation = true
	ask[*kmsg.MetadataResponse](w, in, 9)
	if made := w.topics.created; len(made) != 1 || made[0].Partitions != -1 || made[0].ReplicationFactor != -1 {
		t.Errorf("created %+v; a coordinator's own topic is made as its coordinator makes it", made)
	}
	in = metadataOf("bad name", "..")
	in.AllowAutoTopicCreation = true
	for _, topic := range ask[*kmsg.MetadataResponse](w, in, 9).Topics {
		if topic.ErrorCode != int16(wire.ErrInvalidTopic) {
			t.Errorf("%s: %v", *topic.Topic, wire.ErrCode(topic.ErrorCode))
		}
	}
}

func TestApiVersions(t *testing.T) {
	w := newWorld(t)
	for v := int16(0); v <= 5; v++ {
		in := kmsg.NewPtrApiVersionsRequest()
		in.ClientSoftwareName, in.ClientSoftwareVersion = "kgo", "v1.2-3"
		out := ask[*kmsg.ApiVersionsResponse](w, in, v)
		if out.ErrorCode != 0 || len(out.ApiKeys) != len(w.server.keys) {
			t.Errorf("version %d: %v with %d keys", v, wire.ErrCode(out.ErrorCode), len(out.ApiKeys))
		}
		for _, k := range out.ApiKeys {
			api, ok := wire.LookupAPI(wire.Key(k.ApiKey))
			low := api.Min
			if k.ApiKey == 0 {
				low = 0 // KAFKA-18659
			}
			if !ok || k.MinVersion != low || k.MaxVersion != api.Max {
				t.Errorf("version %d: %+v, want %+v", v, k, api)
			}
		}
	}
}

// What isn't served isn't advertised, and nothing that is advertised lacks a handler.
func TestAdvertisedAPIs(t *testing.T) {
	w := newWorld(t)
	var keys []int16
	for _, e := range w.server.keys {
		keys = append(keys, int16(e.key))
	}
	want := []int16{0, 1, 2, 3, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 35, 36, 37, 42, 43, 44, 45, 46, 47, 48, 50, 51, 55, 57, 60, 61, 64, 65, 66, 68, 69, 75}
	if diff := cmp.Diff(want, keys); diff != "" {
		t.Error(diff)
	}
	if _, err := w.try(context.Background(), kmsg.NewPtrPushTelemetryRequest(), 0); !errors.Is(err, ErrClose) {
		t.Errorf("PushTelemetry: %v, want the connection closed", err)
	}
}

func TestApiVersionsRefusals(t *testing.T) {
	w := newWorld(t)
	f := func(name string, version int16, change func(in *kmsg.ApiVersionsRequest), code wire.ErrCode) {
		t.Helper()
		in := kmsg.NewPtrApiVersionsRequest()
		in.ClientSoftwareName, in.ClientSoftwareVersion = "kgo", "1"
		change(in)
		out := ask[*kmsg.ApiVersionsResponse](w, in, version)
		if wire.ErrCode(out.ErrorCode) != code || code != wire.None && len(out.ApiKeys) != 0 {
			t.Errorf("%s: %v with %d keys, want %v", name, wire.ErrCode(out.ErrorCode), len(out.ApiKeys), code)
		}
		in.SetVersion(version)
		r, err := w.server.Handle(context.Background(), &wire.Request{Key: wire.KeyApiVersions, Version: version, Body: in.AppendTo(nil)})
		if err != nil || r.EndsConnection() != (code == wire.ErrRebootstrapRequired) {
			t.Errorf("%s: the answer ends the connection: %v, %v", name, r.EndsConnection(), err)
		}
	}
	f("no name", 3, func(in *kmsg.ApiVersionsRequest) { in.ClientSoftwareName = "" }, wire.ErrInvalidRequest)
	f("bad name", 3, func(in *kmsg.ApiVersionsRequest) { in.ClientSoftwareName = "-kgo" }, wire.ErrInvalidRequest)
	f("bad version", 4, func(in *kmsg.ApiVersionsRequest) { in.ClientSoftwareVersion = "1 2" }, wire.ErrInvalidRequest)
	f("one letter", 3, func(in *kmsg.ApiVersionsRequest) { in.ClientSoftwareName = "k" }, wire.None)
	f("this broker", 5, func(in *kmsg.ApiVersionsRequest) { in.ClusterID, in.NodeID = ptr(testCluster), 1 }, wire.None)
	f("another broker", 5, func(in *kmsg.ApiVersionsRequest) { in.ClusterID, in.NodeID = ptr(testCluster), 2 }, wire.ErrRebootstrapRequired)
	f("another cluster", 5, func(in *kmsg.ApiVersionsRequest) { in.ClusterID, in.NodeID = ptr("other"), 1 }, wire.ErrRebootstrapRequired)
	f("cluster alone", 5, func(in *kmsg.ApiVersionsRequest) { in.ClusterID = ptr(testCluster) }, wire.ErrInvalidRequest)
	// After a failover the source's clients come here, whatever the numbers of its brokers.
	w.apply(map[string][]byte{meta.KeysOf(testCluster).Mirror("m"): meta.MirrorRecord{Name: "m", Bootstrap: []string{"b:1"}, Want: meta.WantStopped, StartID: "s", SourceClusterID: "source"}.Encode()})
	f("the mirrored cluster", 5, func(in *kmsg.ApiVersionsRequest) { in.ClusterID, in.NodeID = ptr("source"), 7 }, wire.None)
	f("a third cluster", 5, func(in *kmsg.ApiVersionsRequest) { in.ClusterID, in.NodeID = ptr("other"), 1 }, wire.ErrRebootstrapRequired)
	f("still another broker", 5, func(in *kmsg.ApiVersionsRequest) { in.ClusterID, in.NodeID = ptr(testCluster), 2 }, wire.ErrRebootstrapRequired)
}

// KIP-511: a version from the future is answered in version 0, byte by byte.
func TestApiVersionsOfTheFuture(t *testing.T) {
	w := newWorld(t)
	req := &wire.Request{Key: wire.KeyApiVersions, Version: 99, CorrelationID: 7}
	r, err := w.server.Handle(context.Background(), req)
	if err != nil {
		t.Fatal(err)
	}
	want := "00000010" + "00000007" + "0023" + "00000001" + "001200000005"
	if got := hex.EncodeToString(flat(r)); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if _, err := w.server.Handle(context.Background(), &wire.Request{Key: wire.KeyMetadata, Version: 99}); !errors.Is(err, ErrClose) {
		t.Errorf("Metadata 99: %v, want the connection closed", err)
	}
}

func TestInitProducerID(t *testing.T) {
	f := func(version int16, change func(in *kmsg.InitProducerIDRequest, w *world), code wire.ErrCode, id int64) {
		t.Helper()
		w := newWorld(t)
		in := kmsg.NewPtrInitProducerIDRequest()
		change(in, w)
		out := ask[*kmsg.InitProducerIDResponse](w, in, version)
		if wire.ErrCode(out.ErrorCode) != code || out.ProducerID != id || (out.ProducerEpoch == 0) != (code == wire.None) {
			t.Errorf("version %d: %v, id %d, epoch %d; want %v, %d", version, wire.ErrCode(out.ErrorCode), out.ProducerID, out.ProducerEpoch, code, id)
		}
	}
	nothing := func(*kmsg.InitProducerIDRequest, *world) {}
	for v := int16(0); v <= 5; v++ {
		f(v, nothing, wire.None, 7001)
		f(v, func(in *kmsg.InitProducerIDRequest, _ *world) { in.TransactionalID = ptr("") }, wire.ErrInvalidRequest, -1)
		f(v, func(_ *kmsg.InitProducerIDRequest, w *world) { w.pidErr = context.DeadlineExceeded }, wire.ErrRequestTimedOut, -1)
	}
	f(3, func(in *kmsg.InitProducerIDRequest, _ *world) { in.ProducerID, in.ProducerEpoch = 5, -1 }, wire.ErrInvalidRequest, -1)
	f(3, func(in *kmsg.InitProducerIDRequest, _ *world) { in.ProducerID, in.ProducerEpoch = 5, 2 }, wire.None, 7001)
}

func TestOffsetForLeaderEpoch(t *testing.T) {
	w := newWorld(t)
	w.topic("t", topicOptions{epoch: 4})
	w.part("t", 0).fill(3, 1).advance(3)
	f := func(topic string, part, current, asked int32, code wire.ErrCode, epoch int32, end int64) {
		t.Helper()
		for v := int16(2); v <= 4; v++ {
			in := kmsg.NewPtrOffsetForLeaderEpochRequest()
			in.Topics = []kmsg.OffsetForLeaderEpochRequestTopic{{Topic: topic, Partitions: []kmsg.OffsetForLeaderEpochRequestTopicPartition{
				{Partition: part, CurrentLeaderEpoch: current, LeaderEpoch: asked}}}}
			a := ask[*kmsg.OffsetForLeaderEpochResponse](w, in, v).Topics[0].Partitions[0]
			if wire.ErrCode(a.ErrorCode) != code || a.LeaderEpoch != epoch || a.EndOffset != end {
				t.Errorf("version %d, epoch %d: %v, %d, %d; want %v, %d, %d", v, asked, wire.ErrCode(a.ErrorCode), a.LeaderEpoch, a.EndOffset, code, epoch, end)
			}
		}
	}
	f("t", 0, -1, 4, wire.None, 4, 3)
	f("t", 0, 4, 2, wire.None, 2, 3)
	f("t", 0, -1, 5, wire.None, -1, -1)
	f("t", 0, 3, 2, wire.ErrFencedLeaderEpoch, -1, -1)
	f("t", 0, 5, 2, wire.ErrUnknownLeaderEpoch, -1, -1)
	f("nobody", 0, -1, 2, wire.ErrUnknownTopicOrPartition, -1, -1)
}

func TestDescribeCluster(t *testing.T) {
	w := newWorld(t)
	f := func(version int16, endpoint int8, code wire.ErrCode) {
		t.Helper()
		in := kmsg.NewPtrDescribeClusterRequest()
		in.EndpointType, in.IncludeClusterAuthorizedOperations = endpoint, true
		out := ask[*kmsg.DescribeClusterResponse](w, in, version)
		if wire.ErrCode(out.ErrorCode) != code {
			t.Fatalf("version %d, endpoint type %d: %v, want %v", version, endpoint, wire.ErrCode(out.ErrorCode), code)
		}
		if code == wire.None && (out.ClusterID != testCluster || out.ControllerID != 1 || len(out.Brokers) != 2 || out.ClusterAuthorizedOperations != opsCluster) {
			t.Errorf("version %d: %+v", version, out)
		}
	}
	f(0, 1, wire.None)
	f(1, 1, wire.None)
	f(2, 1, wire.None)
	f(1, 2, wire.ErrMismatchedEndpointType)
	f(2, 9, wire.ErrUnsupportedEndpointType)
}
