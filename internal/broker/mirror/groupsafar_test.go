package mirror

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"tidemark/internal/broker/coordinator"
	"tidemark/internal/core/meta"
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
	cuts int
}

func (g *lowering) ClampAll(_ context.Context, cuts []coordinator.Cut) ([]coordinator.Lowered, error) {
	g.cuts += len(cuts)
	return nil, nil
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
