package mirror

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"tidemark/internal/broker/coordinator"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/timeline"
	"tidemark/internal/core/types"
	"tidemark/internal/source"
)

// olderPeer is a node whose other broker doesn't know a part that it is asked to do.
type olderPeer struct {
	*paperNode
	asked int
}

func (n *olderPeer) AskPeer(context.Context, types.BrokerID, string, []byte, time.Duration) ([]byte, error) {
	n.asked++
	return nil, errors.New("it runs another version")
}

// lowering is a coordinator that counts what it is asked to lower.
type lowering struct {
	Groups
	cuts    int
	offices []coordinator.Office
}

func (g *lowering) ClampAt(_ context.Context, cuts []coordinator.Cut, offices []coordinator.Office) ([]coordinator.Lowered, error) {
	g.cuts += len(cuts)
	g.offices = offices
	return nil, nil
}

// putOffsetsTopic has a topic of the groups' offsets, with a leader for each partition; -1 for none.
func (n *paperNode) putOffsetsTopic(t *testing.T, leaders ...types.BrokerID) {
	t.Helper()
	keys, id := meta.KeysOf(paperCluster), types.TopicID{8}
	n.put(t, keys.Topic(id), meta.TopicRecord{ID: id, Name: coordinator.OffsetsTopic, Internal: true, Partitions: int32(len(leaders))}.Encode())
	n.put(t, keys.Name(coordinator.OffsetsTopic), meta.NameRecord{ID: id}.Encode())
	for p, leader := range leaders {
		epoch, _ := n.image.BrokerEpoch(leader)
		if leader == types.NoBroker {
			epoch = types.NoBrokerEpoch
		}
		n.put(t, keys.Partition(id, int32(p)), meta.PartitionRecord{
			Replicas: []types.BrokerID{1, 2}, ISR: []meta.ISRMember{{ID: 1, BrokerEpoch: 1}}, Leader: leader, LeaderEpoch: types.LeaderEpoch(4 + p), LeaderBrokerEpoch: epoch, MinISR: 1, Writable: true,
			Timelines: timeline.List{timeline.Root(paperCluster, id)},
		}.Encode())
	}
}

// TestCutsAskWhoCoordinates: a cut is followed once every partition of the groups'
// topic has a leader, and each has done its part in the epoch that it was elected in (I-250).
func TestCutsAskWhoCoordinates(t *testing.T) {
	f := func(name string, wantErr bool, wantAsked, wantHere int, leaders ...types.BrokerID) {
		t.Helper()
		n := &olderPeer{paperNode: newPaperNode(t, 1)}
		keys := meta.KeysOf(paperCluster)
		n.put(t, keys.Broker(2), meta.BrokerRecord{ID: 2, DirectoryID: "e", Incarnation: "j"}.Encode())
		n.put(t, keys.Features(), meta.FeaturesRecord{Levels: map[string]int16{meta.FeatureMetadata: meta.LevelCuts}}.Encode())
		n.putOffsetsTopic(t, leaders...)
		groups := &lowering{}
		m := &Mirrors{o: Options{Node: n, Groups: groups}, log: slog.New(slog.DiscardHandler), ctx: t.Context()}
		err := m.lowerEverywhere(t.Context(), "m", []coordinator.Cut{{Offset: 3}})
		if (err != nil) != wantErr || n.asked != wantAsked || groups.cuts != wantHere {
			t.Errorf("%s: %v; %d peers were asked, %d cuts made here", name, err, n.asked, groups.cuts)
		}
		if wantHere > 0 && (len(groups.offices) == 0 || groups.offices[0] != coordinator.Office{Broker: leaders[0], Epoch: 4}) {
			t.Errorf("%s: asked of %+v", name, groups.offices)
		}
	}
	f("all here: nobody else is asked", false, 0, 1, 1, 1)
	f("a peer that doesn't do its part", true, 1, 1, 1, 2)
	f("nobody leads one of them", true, 0, 1, 1, types.NoBroker)
	f("nobody leads any", true, 0, 0, types.NoBroker)
}

// TestCutsDuringARollingUpgrade: below the level that all brokers must know the part
// for, a leader's cut lowers the offsets coordinated here and waits for nobody; from it
// on a broker that doesn't do its part is an error.
func TestCutsDuringARollingUpgrade(t *testing.T) {
	n := &olderPeer{paperNode: newPaperNode(t, 1)}
	keys := meta.KeysOf(paperCluster)
	n.put(t, keys.Broker(2), meta.BrokerRecord{ID: 2, DirectoryID: "e", Incarnation: "j"}.Encode())
	groups := &lowering{}
	m := &Mirrors{o: Options{Node: n, Groups: groups}, log: slog.New(slog.DiscardHandler), ctx: t.Context()}
	cuts := []coordinator.Cut{{TopicPartition: types.TopicPartition{Topic: "t"}, Offset: 3}}
	if err := m.lowerEverywhere(t.Context(), "m", cuts); err != nil || n.asked != 0 || groups.cuts != 1 {
		t.Errorf("during the upgrade: %v; %d peers were asked, %d cuts made here", err, n.asked, groups.cuts)
	}
	n.put(t, keys.Features(), meta.FeaturesRecord{Levels: map[string]int16{meta.FeatureMetadata: meta.LevelCuts}}.Encode())
	n.putOffsetsTopic(t, 1, 2)
	if err := m.lowerEverywhere(t.Context(), "m", cuts); err == nil || n.asked != 1 || groups.cuts != 2 {
		t.Errorf("after it: %v; %d peers were asked, %d cuts made here", err, n.asked, groups.cuts)
	}
}

// TestUnchangedOffsetsAreOfferedAnew: a group that stands still at the source is written
// again now and then, so that neither a cut nor the retention here leaves it behind.
func TestUnchangedOffsetsAreOfferedAnew(t *testing.T) {
	at := time.Unix(1_700_000_000, 0)
	offsets := func(o types.Offset) map[types.TopicPartition]source.CommittedOffset {
		return map[types.TopicPartition]source.CommittedOffset{{Topic: "t"}: {Offset: o}}
	}
	f := func(name string, after time.Duration, now types.Offset, bend func(*syncedGroup), want bool) {
		t.Helper()
		s := &syncedGroup{source: offsets(5), written: true, offered: at}
		bend(s)
		if got := s.isCurrent(offsets(now), at.Add(after)); got != want {
			t.Errorf("%s: current: %v", name, got)
		}
	}
	same := func(*syncedGroup) {}
	f("a moment later", time.Second, 5, same, true)
	f("the source has moved", time.Second, 6, same, false)
	f("some of it waits for data", time.Second, 5, func(s *syncedGroup) { s.pending = map[types.TopicPartition]bool{{Topic: "t"}: true} }, false)
	f("it was not written", time.Second, 5, func(s *syncedGroup) { s.written = false }, false)
	f("a minute later", groupOfferedAnew, 5, same, false)
}
