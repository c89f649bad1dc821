package api

import (
	"context"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/internal/wire"
)

// fakeCluster answers by partition number and notes what it was asked.
type fakeCluster struct {
	answer  map[int32]error
	asked   []meta.PartitionID
	changes []Reassignment
	unclean bool
}

func (f *fakeCluster) ElectLeaders(_ context.Context, partitions []meta.PartitionID, unclean bool) []error {
	f.asked, f.unclean = partitions, unclean
	errs := make([]error, len(partitions))
	for i, p := range partitions {
		errs[i] = f.answer[p.Number]
	}
	return errs
}

func (f *fakeCluster) Reassign(_ context.Context, changes []Reassignment) []error {
	f.changes = changes
	errs := make([]error, len(changes))
	for i, c := range changes {
		errs[i] = f.answer[c.Partition.Number]
	}
	return errs
}

// withCluster gives the world a cluster that answers so.
func (w *world) withCluster(answer map[int32]error) *fakeCluster {
	f := &fakeCluster{answer: answer}
	w.server.Cluster = f
	return f
}

func TestElectLeaders(t *testing.T) {
	for v := int16(0); v <= 2; v++ {
		w := newWorld(t)
		w.topic("t", topicOptions{partitions: 3})
		f := w.withCluster(map[int32]error{1: wire.ErrElectionNotNeeded, 2: wire.ErrPreferredLeaderNotAvailable})
		in := kmsg.NewPtrElectLeadersRequest()
		in.TimeoutMillis = 1000
		in.Topics = []kmsg.ElectLeadersRequestTopic{{Topic: "t", Partitions: []int32{2, 0, 7, 1}}, {Topic: "x", Partitions: []int32{0}}}
		var codes []wire.ErrCode
		for _, topic := range ask[*kmsg.ElectLeadersResponse](w, in, v).Topics {
			for _, p := range topic.Partitions {
				codes = append(codes, wire.ErrCode(p.ErrorCode))
			}
		}
		want := []wire.ErrCode{wire.ErrPreferredLeaderNotAvailable, wire.None, wire.ErrUnknownTopicOrPartition, wire.ErrElectionNotNeeded, wire.ErrUnknownTopicOrPartition}
		if !slices.Equal(codes, want) || len(f.asked) != 3 || f.unclean {
			t.Errorf("version %d: %v, want %v; asked %v", v, codes, want, f.asked)
		}
		in.Topics = nil
		all := ask[*kmsg.ElectLeadersResponse](w, in, v).Topics
		if len(all) != 1 || len(all[0].Partitions) != 2 {
			t.Errorf("version %d: %+v: what needed no election should be left out", v, all)
		}
		in.ElectionType = 7
		if out := ask[*kmsg.ElectLeadersResponse](w, in, v); v >= 1 && wire.ErrCode(out.ErrorCode) != wire.ErrInvalidRequest {
			t.Errorf("version %d: election type 7: %d", v, out.ErrorCode)
		}
	}
}

func TestReassignments(t *testing.T) {
	w := newWorld(t)
	id := w.topic("t", topicOptions{partitions: 2})
	f := w.withCluster(map[int32]error{1: wire.ErrNoReassignmentInProgress})
	in := kmsg.NewPtrAlterPartitionAssignmentsRequest()
	in.Topics = []kmsg.AlterPartitionAssignmentsRequestTopic{{Topic: "t", Partitions: []kmsg.AlterPartitionAssignmentsRequestTopicPartition{
		{Partition: 0, Replicas: []int32{2, 1}}, {Partition: 1}, {Partition: 9, Replicas: []int32{1}},
	}}}
	answer := func(v int16) []wire.ErrCode {
		var codes []wire.ErrCode
		for _, p := range ask[*kmsg.AlterPartitionAssignmentsResponse](w, in, v).Topics[0].Partitions {
			codes = append(codes, wire.ErrCode(p.ErrorCode))
		}
		return codes
	}
	if got, want := answer(0), []wire.ErrCode{wire.None, wire.ErrNoReassignmentInProgress, wire.ErrUnknownTopicOrPartition}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if len(f.changes) != 2 || !slices.Equal(f.changes[0].Replicas, []types.BrokerID{2, 1}) || f.changes[1].Replicas != nil {
		t.Errorf("asked for %+v", f.changes)
	}
	// Version 1 may forbid another number of replicas.
	in.AllowReplicationFactorChange = false
	in.Topics[0].Partitions[0].Replicas = []int32{2}
	if got := answer(1)[0]; got != wire.ErrInvalidReplicationFactor {
		t.Errorf("another number of replicas: %s", got)
	}

	rec, _ := w.image.Partition(id, 0)
	moving := rec.Clone()
	moving.Replicas, moving.Adding, moving.Removing = []types.BrokerID{2, 1}, []types.BrokerID{2}, []types.BrokerID{1}
	w.apply(map[string][]byte{w.image.Keys().Partition(id, 0): moving.Encode()})
	list := kmsg.NewPtrListPartitionReassignmentsRequest()
	for _, topics := range [][]kmsg.ListPartitionReassignmentsRequestTopic{nil, {{Topic: "t", Partitions: []int32{1, 0, 5}}, {Topic: "x", Partitions: []int32{0}}}} {
		list.Topics = topics
		out := ask[*kmsg.ListPartitionReassignmentsResponse](w, list, 0).Topics
		if len(out) != 1 || len(out[0].Partitions) != 1 {
			t.Fatalf("%+v", out)
		}
		if p := out[0].Partitions[0]; p.Partition != 0 || !slices.Equal(p.Replicas, []int32{2, 1}) || !slices.Equal(p.AddingReplicas, []int32{2}) || !slices.Equal(p.RemovingReplicas, []int32{1}) {
			t.Errorf("%+v", p)
		}
	}
}
