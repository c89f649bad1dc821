package mirror

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/internal/source"
)

// scriptedSource answers verbs in turn; the last answer of each stays.
type scriptedSource struct {
	paperSource
	answers map[string][]any
	asked   []string
}

func (s *scriptedSource) Verb(_ context.Context, _ types.BrokerID, verb string, _ []byte, _ time.Duration) ([]byte, error) {
	s.asked = append(s.asked, verb)
	list := s.answers[verb]
	if len(list) > 1 {
		s.answers[verb] = list[1:]
	}
	if err, refused := list[0].(error); refused {
		return nil, err
	}
	return json.Marshal(list[0])
}

// scriptedNode is a paper node of a cluster with a name.
type scriptedNode struct{ *paperNode }

func (scriptedNode) ClusterID() string { return paperCluster }

func newScript(t *testing.T) (*scriptedSource, *sides) {
	t.Helper()
	n := newPaperNode(t, 1)
	n.put(t, meta.KeysOf(paperCluster).Name("t"), meta.NameRecord{ID: paperTopic}.Encode())
	src := &scriptedSource{answers: map[string][]any{}}
	src.topic = source.Topic{Name: "t", ID: paperTopic, Partitions: []source.Partition{{Leader: 7, LeaderEpoch: 3}}}
	m := &Mirrors{o: Options{Node: scriptedNode{n}}, log: slog.New(slog.DiscardHandler), ctx: t.Context()}
	s := &sides{m: m, r: &run{m: m, name: "m", ctx: t.Context(), client: src}, name: "m", start: "s", timeout: time.Minute}
	if err := s.find(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.tidemark = true
	return src, s
}

// A switchover waits until its source's coordinators have nothing left and none of the
// closed logs has a transaction open; what it waits for it names.
func TestASwitchoverWaitsForTransactions(t *testing.T) {
	src, s := newScript(t)
	silent := types.TopicPartition{Topic: "__transaction_state", Partition: 4}
	src.answers[askSettle] = []any{
		settled{Silent: []types.TopicPartition{silent}, Aborted: []string{"b"}}, errors.New("gone for a moment"),
		settled{Aborted: []string{"a", "b"}, Left: []string{"c (PrepareCommit)"}}, settled{},
	}
	if err := s.endTransactions(t.Context()); err != nil || len(src.asked) != 4 {
		t.Fatalf("%v after %v", err, src.asked)
	}
	if words := s.abortedWords(); len(words) != 1 || !strings.Contains(words[0], "2 transactions that were open") || !strings.Contains(words[0], "whole: a, b.") {
		t.Errorf("it says %q", words)
	}
	end := fenced{TopicPartition: types.TopicPartition{Topic: "t"}, LogEnd: 5, Transactions: true}
	open := end
	open.Open = []openTxn{{Producer: 12, First: 3}}
	src.answers[askFence] = []any{[]fenced{open}, []fenced{end}}
	c, err := s.close(t.Context())
	if err != nil || c.open != "t-0 has a transaction of producer 12 open, from offset 3 on" || !c.transactions {
		t.Errorf("closed %+v, %v", c, err)
	}
	if c, err = s.close(t.Context()); err != nil || c.open != "" || c.ends[end.TopicPartition] != 5 {
		t.Errorf("closed %+v, %v", c, err)
	}

	f := func(words string, fences, settles any) {
		t.Helper()
		src, s := newScript(t)
		s.timeout = 500 * time.Millisecond
		src.answers[askFence], src.answers[askSettle] = []any{fences}, []any{settles}
		if _, err := s.fenceAndDrain(t.Context()); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%v, want %q", err, words)
		}
		if slices.Contains(src.asked, askReopen) {
			t.Error("the fence was taken back before its time")
		}
	}
	f("no coordinator speaks for the transactions of __transaction_state-4", []fenced{end}, settled{Silent: []types.TopicPartition{silent}})
	f("1 transactions aren't complete at the source: c (PrepareCommit)", []fenced{end}, settled{Left: []string{"c (PrepareCommit)"}})
	f("can't be asked: no such verb", []fenced{end}, errors.New("no such verb"))
	f("at the source t-0 has a transaction of producer 12 open, from offset 3 on; one that no coordinator knows is ended there by kafka-transactions abort", []fenced{open}, settled{})
}
