package mirror

import (
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"tidemark/internal/assert/asserttest"
	"tidemark/internal/core/meta"
	core "tidemark/internal/core/mirror"
	"tidemark/internal/core/types"
	"tidemark/internal/source"
	"tidemark/internal/telemetry"
	"tidemark/internal/wire"
)

// newAttempt is a switchover of a running mirror, in a cluster of the given level, that has begun.
func newAttempt(t *testing.T, level int16) (*scriptedSource, *paperNode, *sides) {
	t.Helper()
	n := newPaperNode(t, 1)
	keys := meta.KeysOf(paperCluster)
	n.put(t, keys.Name("t"), meta.NameRecord{ID: paperTopic}.Encode())
	n.put(t, keys.Mirror("m"), meta.MirrorRecord{Name: "m", Want: meta.WantRunning, StartID: "s", Bootstrap: []string{"h:1"}}.Encode())
	n.put(t, keys.Features(), meta.FeaturesRecord{Levels: map[string]int16{meta.FeatureMetadata: level}}.Encode())
	src := &scriptedSource{answers: map[string][]any{}}
	src.topic = source.Topic{Name: "t", ID: paperTopic, Partitions: []source.Partition{{Leader: 7, LeaderEpoch: 3}}}
	m := &Mirrors{o: Options{Node: timedScript{scriptedNode{n}}}, log: slog.New(slog.DiscardHandler), ctx: t.Context(), events: newJournal(1, nil, nil, (*telemetry.Events)(nil))}
	r := &run{m: m, name: "m", ctx: t.Context(), client: src, health: newHealthBook(t.Context())}
	e, _ := n.Image().Mirror("m")
	r.record.Store(e.Record)
	s := &sides{m: m, r: r, name: "m", start: "s", timeout: time.Second, tidemark: true}
	if err := s.begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.list = []switched{{id: meta.PartitionID{Topic: paperTopic}, tp: types.TopicPartition{Topic: "t"}, leader: 7}}
	return src, n, s
}

// timedScript is a scripted node with a clock that stands.
type timedScript struct{ scriptedNode }

func (timedScript) Now() types.Millis { return 1 }

func (s *sides) state(t *testing.T) string {
	t.Helper()
	e, ok := s.m.o.Node.Image().Mirror("m")
	if !ok || e.Record.Switch == nil {
		return ""
	}
	return e.Record.Switch.State
}

// TestAnOrderWhoseAnswerIsLost: the order was committed, and its node doesn't know: it asks
// its source for nothing, and finds out. The operator was told that it went back.
func TestAnOrderWhoseAnswerIsLost(t *testing.T) {
	src, n, s := newAttempt(t, meta.LevelAttempts)
	n.after = func(meta.Plan) error { n.after = nil; return errors.New("the answer is lost") }
	if err := s.order(t.Context()); err == nil {
		t.Fatal("the answer came")
	}
	if words := s.reopen(); !strings.Contains(words, "not taken back") || !strings.Contains(words, "failed over") {
		t.Errorf("it says %q", words)
	}
	if s.state(t) != meta.SwitchOrdered || !s.isOrdered() || len(src.asked) > 0 || s.m.isReturnDue(s.r.presentRecord()) {
		t.Errorf("the switchover is %q, and the source was asked to %v", s.state(t), src.asked)
	}
	s.end()
	if s.m.isReturnDue(s.r.presentRecord()) {
		t.Error("what was ordered is to be taken back")
	}
}

func (r *run) presentRecord() *meta.MirrorRecord {
	e, _ := r.m.o.Node.Image().Mirror(r.name)
	return e.Record
}

// TestASwitchoverThatWasGivenUpOrdersNothing: another node was quicker; and what this one
// gives up by itself it takes back, with the attempt's number.
func TestASwitchoverThatWasGivenUpOrdersNothing(t *testing.T) {
	src, _, s := newAttempt(t, meta.LevelAttempts)
	src.answers[askReopen] = []any{[]fenced{{TopicPartition: s.list[0].tp, Opened: true}}}
	if words := s.reopen(); words != "the source is written as before, and the mirror runs on" {
		t.Errorf("it says %q", words)
	}
	if s.state(t) != meta.SwitchOver || s.isOrdered() || !slices.Equal(src.asked, []string{askReopen}) {
		t.Errorf("the switchover is %q, and the source was asked to %v", s.state(t), src.asked)
	}
	if err := s.order(t.Context()); !errors.Is(err, ErrState) || !strings.Contains(err.Error(), "given this switchover up") {
		t.Errorf("an order of what was given up: %v", err)
	}
	second := &sides{m: s.m, r: s.r, name: "m", start: "s", timeout: s.timeout, tidemark: true}
	if err := second.begin(t.Context()); err != nil || second.attempt.Number != 2 {
		t.Fatalf("attempt %+v, %v", second.attempt, err)
	}
	if words := s.reopen(); !strings.Contains(words, "another switchover of the mirror has begun") || s.state(t) != meta.SwitchWorking {
		t.Errorf("the first one says %q, and the second is %q", words, s.state(t))
	}
}

// TestASourceThatKnowsNoAttempts stays closed until its operator opens it, and that is told.
func TestASourceThatKnowsNoAttempts(t *testing.T) {
	for name, answer := range map[string]any{
		"an older program": &source.Error{Kind: source.ErrAnswer, Code: source.Code(wire.ErrClusterAuthorizationFailed)},
		"an older level":   []fenced{{TopicPartition: types.TopicPartition{Topic: "t"}, Fault: "FENCE_UNNAMED: it names no attempt"}},
	} {
		src, _, s := newAttempt(t, meta.LevelAttempts)
		src.answers[askTakeBack] = []any{answer}
		s.end() // nobody works at it any more
		s.r.finishReturn(t.Context())
		if s.state(t) != meta.SwitchOver || !slices.Equal(src.asked, []string{askTakeBack}) {
			t.Errorf("%s: the switchover is %q, and the source was asked to %v", name, s.state(t), src.asked)
		}
		list := s.m.events.list()
		if len(list) != 1 || list[0].Kind != SourceLeftClosed || !strings.Contains(list[0].Message, "tidemark mirror reopen") {
			t.Errorf("%s: it tells %+v", name, list)
		}
	}
}

// TestBelowTheLevel: a switchover goes as it did, and no record says what older programs can't read.
func TestBelowTheLevel(t *testing.T) {
	_, n, s := newAttempt(t, meta.LevelDrills)
	if !s.attempt.IsZero() || s.state(t) != "" {
		t.Fatalf("attempt %+v", s.attempt)
	}
	s.began.Epoch--
	if err := s.order(t.Context()); !errors.Is(err, ErrState) || !strings.Contains(err.Error(), "registration") {
		t.Errorf("an order in another registration: %v", err)
	}
	s.began.Epoch++
	if err := s.order(t.Context()); err != nil {
		t.Error(err)
	}
	if e, _ := n.Image().Mirror("m"); e.Record.Want != meta.WantStopped || e.Record.Switch != nil {
		t.Errorf("the mirror is %+v", e.Record)
	}
}

// TestGivenUpByAnother breaks I-265.
func TestGivenUpByAnother(t *testing.T) {
	given := func(state string) *meta.MirrorRecord {
		return &meta.MirrorRecord{Name: "m", Switch: &meta.Switchover{Attempt: meta.Attempt{Number: 1}, State: state, Broker: 1, BrokerEpoch: 5}}
	}
	checkGivenUp(given(meta.SwitchReturning), core.Holder{Broker: 1, Epoch: 5})
	asserttest.Breaks(t, "I-265", func() { checkGivenUp(given(meta.SwitchReturning), core.Holder{Broker: 1, Epoch: 6}) })
	for _, state := range []string{meta.SwitchWorking, meta.SwitchOrdered, meta.SwitchOver} {
		asserttest.Breaks(t, "I-265", func() { checkGivenUp(given(state), core.Holder{Broker: 1, Epoch: 5}) })
	}
}

// What a switchover has closed is found where another mirror of the same source has taken the
// partition over meanwhile; what was promoted stays closed.
func TestWhatASwitchoverMayHaveLeftClosed(t *testing.T) {
	f := func(rec *meta.PartitionRecord, want bool) {
		t.Helper()
		if got := mayBeClosed(rec, "mine", "source"); got != want {
			t.Errorf("%v, want %v", got, want)
		}
	}
	of := func(mirror, source string) *meta.PartitionRecord {
		return &meta.PartitionRecord{Mirror: &meta.MirrorState{Name: mirror, SourceClusterID: source}}
	}
	f(of("mine", ""), true)
	f(of("other", "source"), true)
	f(of("other", "elsewhere"), false)
	f(nil, false)
	promoted := of("mine", "source")
	promoted.Writable = true
	f(promoted, false)
	if mayBeClosed(of("other", ""), "mine", "") {
		t.Error("of two mirrors that know no source yet one is taken for the other")
	}
}
