package mirror

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"tidemark/internal/config"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/timeline"
	"tidemark/internal/core/types"
	"tidemark/internal/source"
	"tidemark/internal/wire"
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

// verbSource is a source whose brokers answer a verb each in their way.
type verbSource struct {
	Source
	answers map[types.BrokerID]error
	asked   []types.BrokerID
}

func (s *verbSource) Verb(_ context.Context, broker types.BrokerID, _ string, _ []byte, _ time.Duration) ([]byte, error) {
	s.asked = append(s.asked, broker)
	return nil, s.answers[broker]
}

// TestTheOldSideIsAskedWhoeverAnswers: any broker of the old side makes it a mirror. With the
// first one away the operator was told to do it there by hand.
func TestTheOldSideIsAskedWhoeverAnswers(t *testing.T) {
	away := &source.Error{Kind: source.ErrUnreachable, Sentence: "no route"}
	refused := &source.Error{Kind: source.ErrAnswer, Code: source.Code(wire.ErrPolicyViolation)}
	f := func(answers map[types.BrokerID]error, isDone bool, asked ...types.BrokerID) {
		t.Helper()
		src := &verbSource{answers: answers}
		s := &sides{list: []switched{{leader: 1}, {leader: 1}, {leader: 2}, {leader: 3}}}
		if err := s.askAny(t.Context(), src, askReverse, nil); (err == nil) != isDone || !slices.Equal(src.asked, asked) {
			t.Errorf("asked %v: %v", src.asked, err)
		}
	}
	f(nil, true, 1)
	f(map[types.BrokerID]error{1: away}, true, 1, 2)
	f(map[types.BrokerID]error{1: away, 2: refused}, false, 1, 2)
	f(map[types.BrokerID]error{1: away, 2: away, 3: away}, false, 1, 2, 3)
}

// TestAReversalAskedTwice: a question whose answer was lost is asked again. The fences are
// gone then, and a mirror in their place; nobody else's is taken for it.
func TestAReversalAskedTwice(t *testing.T) {
	n := timedNode{newPaperNode(t, 1)}
	keys := meta.KeysOf(paperCluster)
	n.put(t, keys.Mirror("m"), meta.MirrorRecord{Name: "m", Want: meta.WantRunning, StartID: "s", Bootstrap: []string{"h:1"}}.Encode())
	followed := n.to(t, 0, meta.MirrorMirroring)
	followed.record.Mirror.SourceClusterID, followed.record.Timelines, followed.record.LeaderEpoch = "new", timeline.FreshRoot("x"), 1
	if got := n.write(t, followed); !got[0] {
		t.Fatal("not written")
	}
	m := &Mirrors{o: Options{Node: n, Config: config.Default(), Connect: func(*source.Config, string) Source { return awaySource{} }}, ctx: t.Context()}
	q := &asked{ClusterID: "new", StartID: "x", Topics: []askedTopic{{ID: paperTopic, Name: "t", Partitions: []int32{0}}}, Reverse: &Spec{Name: "m", Bootstrap: []string{"h:1"}}}
	if err := m.takeReverse(t.Context(), q); err == nil || strings.Contains(err.Error(), "is not closed for") || !strings.Contains(err.Error(), "does not lead to cluster new") {
		t.Errorf("of the mirror that was made for it: %v", err)
	}
	q.ClusterID = "another"
	if err := m.takeReverse(t.Context(), q); err == nil || !strings.Contains(err.Error(), "is not closed for") {
		t.Errorf("of another cluster: %v", err)
	}
}
