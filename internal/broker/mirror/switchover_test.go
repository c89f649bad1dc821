package mirror

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/internal/source"
)

// paperSource shows one topic t as a test has it.
type paperSource struct {
	Source
	topic source.Topic
}

func (s *paperSource) Metadata(context.Context, []string) (*source.Metadata, error) {
	return &source.Metadata{ClusterID: "src", Topics: []source.Topic{s.topic}}, nil
}

func (s *paperSource) Lineage(context.Context, types.BrokerID, []source.LineageQuery) (map[types.TopicPartition]source.Lineage, error) {
	return nil, nil // no Tidemark
}

// TestASwitchoverForgetsNoPartition: a look at the source that fails half-way leaves the
// list of what is to be opened again whole, partitions that only the source has stop it,
// and one whose end the source doesn't say isn't drained.
func TestASwitchoverForgetsNoPartition(t *testing.T) {
	n := newPaperNode(t, 2)
	n.put(t, meta.KeysOf(paperCluster).Name("t"), meta.NameRecord{ID: paperTopic}.Encode())
	led := source.Partition{Leader: 7, LeaderEpoch: 3}
	src := &paperSource{topic: source.Topic{Name: "t", ID: paperTopic, Partitions: []source.Partition{led, led}}}
	m := &Mirrors{o: Options{Node: n}, log: slog.New(slog.DiscardHandler), ctx: t.Context()}
	s := &sides{m: m, r: &run{m: m, name: "m", ctx: t.Context(), client: src}, name: "m"}
	if err := s.find(t.Context()); err != nil || len(s.list) != 2 {
		t.Fatalf("%+v, %v", s.list, err)
	}
	whole := slices.Clone(s.list)
	f := func(words string, partitions ...source.Partition) error {
		t.Helper()
		src.topic.Partitions = partitions
		err := s.find(t.Context())
		if err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%v, want one that says %q", err, words)
		}
		if !slices.Equal(s.list, whole) {
			t.Errorf("%s: what is known now is %+v", words, s.list)
		}
		return err
	}
	_ = f("t-1", led, source.Partition{Leader: types.NoBroker})
	if err := f("has 3 partitions at the source and 2 here", led, led, led); !errors.Is(err, ErrState) {
		t.Error(err)
	}
	s.name = "another mirror, as if these were promoted"
	if err := f("nothing of the mirror is left", led, led); !errors.Is(err, errNothingLeft) {
		t.Error(err)
	}
	one := types.TopicPartition{Topic: "t", Partition: 0}
	if err := s.complete(map[types.TopicPartition]types.Offset{one: 4}); err == nil || !strings.Contains(err.Error(), "t-1: the source doesn't say") {
		t.Error(err)
	}
}
