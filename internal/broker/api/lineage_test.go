package api

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/core/meta"
	"tidemark/internal/core/timeline"
	"tidemark/internal/core/types"
	"tidemark/internal/wire"
)

// change writes a topic's first partition record anew.
func (w *world) change(topic string, f func(rec *meta.PartitionRecord)) {
	w.t.Helper()
	id := topicIDOf(topic)
	old, _ := w.server.Image().Partition(id, 0)
	rec := old.Clone()
	f(&rec)
	w.apply(map[string][]byte{meta.KeysOf(testCluster).Partition(id, 0): rec.Encode()})
}

func lineageOf(parts int, topics ...string) *wire.LineageRequest {
	in := &wire.LineageRequest{}
	for _, name := range topics {
		t := wire.LineageRequestTopic{ID: topicIDOf(name)}
		for n := range parts {
			t.Partitions = append(t.Partitions, int32(n))
		}
		in.Topics = append(in.Topics, t)
	}
	return in
}

func TestDescribeLineage(t *testing.T) {
	w := newWorld(t)
	f := func(name, topic string, want wire.LineagePartition) {
		t.Helper()
		out := ask[*wire.LineageResponse](w, lineageOf(1, topic), 0)
		if len(out.Topics) != 1 || out.Topics[0].ID != topicIDOf(topic) || len(out.Topics[0].Partitions) != 1 {
			t.Fatalf("%s: answer %+v", name, out)
		}
		if diff := cmp.Diff(want, out.Topics[0].Partitions[0], cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	failed := func(code wire.ErrCode) wire.LineagePartition {
		return wire.LineagePartition{ErrorCode: code, LeaderEpoch: -1, LastEpoch: -1}
	}
	root := wire.Timeline{ID: "t"}

	w.topic("written", topicOptions{epoch: 4})
	f("no record yet", "written", wire.LineagePartition{LeaderEpoch: 4, Timelines: []wire.Timeline{root}, Writable: true, LastEpoch: -1})
	w.part("written", 0).fill(2, 1)
	w.change("written", func(rec *meta.PartitionRecord) {
		rec.Timelines = timeline.List{{ID: "t"}, {ID: "p", FirstEpoch: 4, FirstOffset: 77}}
	})
	f("promoted", "written", wire.LineagePartition{LeaderEpoch: 4, Timelines: []wire.Timeline{root, {ID: "p", FirstEpoch: 4, FirstOffset: 77}}, Writable: true, LastEpoch: 4})

	w.topic("copied", topicOptions{epoch: 9, mirror: "m"})
	w.apply(map[string][]byte{meta.KeysOf(testCluster).Mirror("m"): meta.MirrorRecord{Name: "m", Bootstrap: []string{"b:1"}, Want: meta.WantRunning, StartID: "s", SourceClusterID: "B"}.Encode()})
	w.change("copied", func(rec *meta.PartitionRecord) { rec.Timelines = nil })
	f("not adopted yet", "copied", wire.LineagePartition{LeaderEpoch: 9, IsMirror: true, LastEpoch: -1, Path: []string{"B"}})
	w.change("copied", func(rec *meta.PartitionRecord) {
		rec.Timelines = timeline.List{{ID: "t"}}
		rec.Mirror.SourceClusterID, rec.Mirror.SourcePath = "B", []string{"C", strings.Repeat("x", 256), "A"}
	})
	f("a mirror behind mirrors", "copied", wire.LineagePartition{LeaderEpoch: 9, Timelines: []wire.Timeline{root}, IsMirror: true, LastEpoch: -1, Path: []string{"B", "C", "A"}})
	w.change("copied", func(rec *meta.PartitionRecord) { rec.Mirror.State = meta.MirrorStopped })
	f("fenced, no mirror", "copied", wire.LineagePartition{LeaderEpoch: 9, Timelines: []wire.Timeline{root}, LastEpoch: -1})

	f("unknown topic", "nobody", failed(wire.ErrUnknownTopicID))
	w.topic("elsewhere", topicOptions{leader: 2, noLog: true})
	f("another leads", "elsewhere", failed(wire.ErrNotLeaderOrFollower))
	w.topic("raised", topicOptions{epoch: 4})
	w.change("raised", func(rec *meta.PartitionRecord) { rec.LeaderEpoch = 5 })
	f("the partition has not followed the image", "raised", failed(wire.ErrUnknownLeaderEpoch))
	out := ask[*wire.LineageResponse](w, &wire.LineageRequest{Topics: []wire.LineageRequestTopic{{ID: topicIDOf("written"), Partitions: []int32{-1, 1}}}}, 0)
	for _, p := range out.Topics[0].Partitions {
		if p.ErrorCode != wire.ErrUnknownTopicOrPartition {
			t.Errorf("partition %d: %v", p.Partition, p.ErrorCode)
		}
	}
}

// An answer stops growing, and says for which partitions; the first is there however large.
func TestDescribeLineageAnswerIsBounded(t *testing.T) {
	w := newWorld(t)
	var list timeline.List
	for i := range types.LeaderEpoch(wire.LineageTimelinesMax) {
		list = append(list, timeline.Entry{ID: fmt.Sprintf("%050d", i), FirstEpoch: i, FirstOffset: 1})
	}
	w.topic("t", topicOptions{epoch: 1 << 20, partitions: 5})
	w.change("t", func(rec *meta.PartitionRecord) { rec.Timelines = list })
	in := &wire.LineageRequest{Topics: []wire.LineageRequestTopic{{ID: topicIDOf("t"), Partitions: []int32{0, 0, 0, 1}}}}
	var codes []wire.ErrCode
	for _, p := range ask[*wire.LineageResponse](w, in, 0).Topics[0].Partitions {
		codes = append(codes, p.ErrorCode)
	}
	if diff := cmp.Diff([]wire.ErrCode{0, 0, wire.ErrMessageTooLarge, wire.ErrMessageTooLarge}, codes); diff != "" {
		t.Error(diff)
	}
}

// Our own APIs are shown to our own clients alone.
func TestApiVersionsOfOwnClients(t *testing.T) {
	w := newWorld(t)
	f := func(version int16, name string, want bool) {
		t.Helper()
		in := kmsg.NewPtrApiVersionsRequest()
		in.ClientSoftwareName, in.ClientSoftwareVersion = name, "1"
		listed, others := false, 0
		for _, k := range ask[*kmsg.ApiVersionsResponse](w, in, version).ApiKeys {
			if k.ApiKey >= 32000 {
				listed = listed || k.ApiKey == 32000 && k.MinVersion == 0 && k.MaxVersion == 0
				if k.ApiKey != 32000 && k.ApiKey != 32001 && k.ApiKey != 32002 && k.ApiKey != 32010 {
					others++
				}
			}
		}
		if listed != want || others > 0 {
			t.Errorf("%q at version %d: listed %v, want %v", name, version, listed, want)
		}
	}
	f(3, "tidemark", true)
	f(5, "tidemark", true)
	f(3, "kgo", false)
	f(3, "Tidemark", false)
	f(2, "tidemark", false) // the name is not on the wire
}
