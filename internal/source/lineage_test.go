package source

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kfake"

	"tidemark/internal/core/types"
	"tidemark/internal/wire"
)

var lineageID = types.TopicID{7}

func lineageQueries(n int32) []LineageQuery {
	var list []LineageQuery
	for p := range n {
		list = append(list, LineageQuery{types.TopicPartition{Topic: "t", Partition: p}, lineageID})
	}
	return list
}

// lineageLiar answers DescribeLineage as told and everything else honestly.
func lineageLiar(t *testing.T, answer func(call int) []byte) (*Client, *atomic.Int32) {
	t.Helper()
	calls := new(atomic.Int32)
	l := newLiar(t, func(l *liar, key, version int16, correlation []byte) []byte {
		if key != int16(wire.KeyDescribeLineage) {
			return l.honest(key, version, correlation)
		}
		return append(append([]byte(nil), correlation...), append([]byte{0}, answer(int(calls.Add(1)))...)...)
	})
	c := openTo(t, []string{l.ln.Addr().String()}, nil, Options{})
	if _, err := c.Metadata(t.Context(), []string{}); err != nil {
		t.Fatal(err)
	}
	return c, calls
}

func lineageAnswer(parts ...wire.LineagePartition) []byte {
	return (&wire.LineageResponse{Topics: []wire.LineageResponseTopic{{ID: lineageID, Partitions: parts}}}).AppendTo(nil)
}

// Kafka isn't asked: it offers no API of ours.
func TestLineageOfKafka(t *testing.T) {
	k := newKfake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "t"))
	c := openTo(t, k.ListenAddrs(), nil, Options{})
	m, err := c.Metadata(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if a, err := c.Lineage(t.Context(), m.Brokers[0].ID, lineageQueries(1)); a != nil || err != nil {
		t.Errorf("got %+v, %v", a, err)
	}
}

// What has no room in one answer is asked for again; other errors stay with their partition.
func TestLineage(t *testing.T) {
	good := wire.LineagePartition{LeaderEpoch: 4, Timelines: []wire.Timeline{{ID: "r"}}, IsMirror: true, LastEpoch: 3, Path: []string{"B"}}
	at := func(n int32, code wire.ErrCode) wire.LineagePartition {
		p := good
		if code != 0 {
			p = wire.LineagePartition{ErrorCode: code, LeaderEpoch: -1, LastEpoch: -1}
		}
		p.Partition = n
		return p
	}
	c, calls := lineageLiar(t, func(call int) []byte {
		if call == 1 {
			return lineageAnswer(at(0, 0), at(1, wire.ErrNotLeaderOrFollower), at(2, wire.ErrMessageTooLarge))
		}
		return lineageAnswer(at(2, 0))
	})
	got, err := c.Lineage(t.Context(), 0, lineageQueries(3))
	if err != nil || calls.Load() != 2 {
		t.Fatalf("after %d calls: %v", calls.Load(), err)
	}
	want := Lineage{LeaderEpoch: 4, Timelines: good.Timelines, IsMirror: true, LastEpoch: 3, Path: good.Path}
	tp := func(n int32) types.TopicPartition { return types.TopicPartition{Topic: "t", Partition: n} }
	if diff := cmp.Diff(map[types.TopicPartition]Lineage{tp(0): want, tp(1): {Code: CodeNotLeaderOrFollower, LeaderEpoch: -1, LastEpoch: -1}, tp(2): want}, got); diff != "" {
		t.Error(diff)
	}
}

func TestLyingLineage(t *testing.T) {
	f := func(name, want string, kind error, answer []byte) {
		t.Helper()
		c, _ := lineageLiar(t, func(int) []byte { return answer })
		got, err := c.Lineage(t.Context(), 0, lineageQueries(2))
		if !errors.Is(err, kind) || !strings.Contains(err.Error(), want) || got != nil {
			t.Errorf("%s: %+v, %v; want %q", name, got, err, want)
		}
	}
	p := func(n int32) wire.LineagePartition { return wire.LineagePartition{Partition: n} }
	full := func(n int32) wire.LineagePartition {
		return wire.LineagePartition{Partition: n, ErrorCode: wire.ErrMessageTooLarge}
	}
	f("a partition is missing", "no answer for t-1", ErrProtocol, lineageAnswer(p(0)))
	f("a partition came twice", "came twice", ErrProtocol, lineageAnswer(p(0), p(0)))
	f("a partition too many", "not asked for", ErrProtocol, lineageAnswer(p(0), p(1), p(2)))
	f("no leader epoch", "leader epoch -1", ErrProtocol, lineageAnswer(wire.LineagePartition{LeaderEpoch: -1}, p(1)))
	f("never any room", "no room", ErrProtocol, lineageAnswer(full(0), full(1)))
	f("refused as a whole", "CLUSTER_AUTHORIZATION_FAILED", ErrAuth, (&wire.LineageResponse{ErrorCode: wire.ErrClusterAuthorizationFailed}).AppendTo(nil))
	f("cut short", "can't be decoded", ErrProtocol, lineageAnswer(p(0), p(1))[:20])
	f("something behind it", "can't be decoded", ErrProtocol, append(lineageAnswer(p(0), p(1)), 0))
}
