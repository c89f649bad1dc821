package api

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/core/control"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/internal/wire"
)

// fakeOperator is a cluster of two voters and a broker that is none.
type fakeOperator struct {
	asked []control.FeatureChange
	dry   bool
	err   error
}

func (f *fakeOperator) Quorum(context.Context) (Quorum, error) {
	return Quorum{
		Leader: 2, Epoch: 7, HighWatermark: 101,
		Voters:    []QuorumReplica{{ID: 1, LogEnd: -1, Host: "one", Port: 5001}, {ID: 2, LogEnd: 102, Directory: [16]byte{9}, Host: "two", Port: 5002}},
		Observers: []QuorumReplica{{ID: 3, LogEnd: -1}},
	}, f.err
}

func (f *fakeOperator) Features() meta.Features {
	return meta.Features{meta.FeatureMetadata: {Min: 1, Max: 2}, "zero.version": {Min: 0, Max: 2}}
}

func (f *fakeOperator) UpdateFeatures(_ context.Context, changes []control.FeatureChange, validateOnly bool) error {
	f.asked, f.dry = changes, validateOnly
	return f.err
}

func (f *fakeOperator) Forget(_ context.Context, id types.BrokerID) error {
	if id == 9 {
		return nil
	}
	return wire.Errorf(wire.ErrBrokerIDNotRegistered, "Broker %d is nobody.", id)
}

func (w *world) withOperator(err error) *fakeOperator {
	f := &fakeOperator{err: err}
	w.server.Operator = f
	return f
}

func TestDescribeQuorum(t *testing.T) {
	for v := int16(0); v <= 2; v++ {
		w := newWorld(t)
		in := kmsg.NewPtrDescribeQuorumRequest()
		in.Topics = []kmsg.DescribeQuorumRequestTopic{
			{Topic: quorumTopic, Partitions: []kmsg.DescribeQuorumRequestTopicPartition{{Partition: 0}, {Partition: 1}}},
			{Topic: "t", Partitions: []kmsg.DescribeQuorumRequestTopicPartition{{Partition: 0}}},
		}
		out := ask[*kmsg.DescribeQuorumResponse](w, in, v)
		p := out.Topics[0].Partitions[0]
		if out.ErrorCode != 0 || p.ErrorCode != 0 || p.LeaderID != 2 || p.LeaderEpoch != 7 || p.HighWatermark != 101 || len(p.CurrentVoters) != 2 || len(p.Observers) != 1 {
			t.Errorf("version %d: %+v", v, out)
		}
		if p.CurrentVoters[0].LogEndOffset != -1 || p.CurrentVoters[1].LogEndOffset != 102 || v >= 1 && p.CurrentVoters[1].LastFetchTimestamp != -1 {
			t.Errorf("version %d: %+v", v, p.CurrentVoters)
		}
		for _, other := range []kmsg.DescribeQuorumResponseTopicPartition{out.Topics[0].Partitions[1], out.Topics[1].Partitions[0]} {
			if wire.ErrCode(other.ErrorCode) != wire.ErrUnknownTopicOrPartition {
				t.Errorf("version %d: %+v", v, other)
			}
		}
		if v == 2 && (len(out.Nodes) != 2 || out.Nodes[1].NodeID != 2 || out.Nodes[1].Listeners[0].Host != "two" || p.CurrentVoters[1].ReplicaDirectoryID != [16]byte{9}) {
			t.Errorf("nodes %+v", out.Nodes)
		}
		w.withOperator(wire.Errorf(wire.ErrUnsupportedVersion, "An etcd of its own."))
		if out = ask[*kmsg.DescribeQuorumResponse](w, in, v); wire.ErrCode(out.ErrorCode) != wire.ErrUnsupportedVersion || v == 2 && (out.ErrorMessage == nil || *out.ErrorMessage != "An etcd of its own.") {
			t.Errorf("version %d: %+v", v, out)
		}
	}
}

func TestUpdateFeatures(t *testing.T) {
	for v := int16(0); v <= 2; v++ {
		w := newWorld(t)
		f := w.withOperator(nil)
		in := kmsg.NewPtrUpdateFeaturesRequest()
		in.FeatureUpdates = []kmsg.UpdateFeaturesRequestFeatureUpdate{{Feature: "a", MaxVersionLevel: 2, UpgradeType: 1}, {Feature: meta.FeatureMetadata, MaxVersionLevel: 0, AllowDowngrade: true, UpgradeType: 3}}
		in.ValidateOnly = true
		out := ask[*kmsg.UpdateFeaturesResponse](w, in, v)
		if out.ErrorCode != 0 || (v < 2) != (len(out.Results) == 2) {
			t.Errorf("version %d: %+v", v, out)
		}
		want := []control.FeatureChange{{Name: "a", Level: 2}, {Name: meta.FeatureMetadata, Level: 0, Down: true, Unsafe: v > 0}}
		if !slices.Equal(f.asked, want) || f.dry != (v > 0) {
			t.Errorf("version %d: asked %+v, dry %v", v, f.asked, f.dry)
		}
		w.withOperator(wire.Errorf(wire.ErrInvalidUpdateVersion, "Broker 2 is too old."))
		out = ask[*kmsg.UpdateFeaturesResponse](w, in, v)
		code, message := out.ErrorCode, out.ErrorMessage
		if v < 2 {
			code, message = out.Results[0].ErrorCode, out.Results[0].ErrorMessage
		}
		if wire.ErrCode(code) != wire.ErrInvalidUpdateVersion || message == nil || !strings.Contains(*message, "too old") {
			t.Errorf("version %d: %+v", v, out)
		}
		if v > 0 {
			in.FeatureUpdates[0].UpgradeType = 9
			if out = ask[*kmsg.UpdateFeaturesResponse](w, in, v); wire.ErrCode(out.ErrorCode) != wire.ErrInvalidUpdateVersion {
				t.Errorf("version %d: an unknown type: %+v", v, out)
			}
		}
	}
}

func TestUnregisterBroker(t *testing.T) {
	w := newWorld(t)
	in := kmsg.NewPtrUnregisterBrokerRequest()
	in.BrokerID = 9
	if out := ask[*kmsg.UnregisterBrokerResponse](w, in, 0); out.ErrorCode != 0 {
		t.Errorf("%+v", out)
	}
	in.BrokerID = 8
	if out := ask[*kmsg.UnregisterBrokerResponse](w, in, 0); wire.ErrCode(out.ErrorCode) != wire.ErrBrokerIDNotRegistered || out.ErrorMessage == nil {
		t.Errorf("%+v", out)
	}
}

// TestFeaturesInApiVersions: ranges from 0 on aren't for clients before version 4.
func TestFeaturesInApiVersions(t *testing.T) {
	w := newWorld(t)
	w.apply(map[string][]byte{meta.KeysOf(testCluster).Features(): meta.FeaturesRecord{Levels: map[string]int16{meta.FeatureMetadata: 2}}.Encode()})
	for v := int16(0); v <= 5; v++ {
		in := kmsg.NewPtrApiVersionsRequest()
		in.ClientSoftwareName, in.ClientSoftwareVersion, in.NodeID = "kgo", "1", -1
		out := ask[*kmsg.ApiVersionsResponse](w, in, v)
		want := map[bool]int{v < 3: 0, v == 3: 1, v > 3: 2}[true]
		if len(out.SupportedFeatures) != want {
			t.Errorf("version %d: %+v", v, out.SupportedFeatures)
		}
		if v >= 3 && (len(out.FinalizedFeatures) != 1 || out.FinalizedFeatures[0].MaxVersionLevel != 2 || out.FinalizedFeaturesEpoch < 1) {
			t.Errorf("version %d: %+v at %d", v, out.FinalizedFeatures, out.FinalizedFeaturesEpoch)
		}
	}
}
