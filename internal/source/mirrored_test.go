package source

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kfake"

	"tidemark/internal/core/types"
	"tidemark/internal/wire"
)

// mirroredLiar answers the two APIs of KIP-1279 as told, in the order of calls
// of each, and everything else honestly.
func mirroredLiar(t *testing.T, list []byte, describe ...[]byte) *Client {
	t.Helper()
	calls := make(chan []byte, len(describe))
	for _, d := range describe {
		calls <- d
	}
	l := newLiar(t, func(l *liar, key, version int16, correlation []byte) []byte {
		head := append(slices.Clone(correlation), 0)
		switch key {
		case int16(wire.KeyListClusterMirrors):
			return append(head, list...)
		case int16(wire.KeyDescribeClusterMirrors):
			return append(head, <-calls...)
		}
		return l.honest(key, version, correlation)
	})
	c := openTo(t, []string{l.ln.Addr().String()}, nil, Options{})
	if _, err := c.Metadata(t.Context(), []string{}); err != nil {
		t.Fatal(err)
	}
	return c
}

func mirroredQueries(partitions ...int32) []MirroredQuery {
	var list []MirroredQuery
	for _, p := range partitions {
		list = append(list, MirroredQuery{types.TopicPartition{Topic: "t", Partition: p}, types.TopicID{7}})
	}
	return list
}

func listAnswer(mirrors ...wire.ListedClusterMirror) []byte {
	return (&wire.ListClusterMirrorsResponse{Mirrors: mirrors}).AppendTo(nil)
}

func describeAnswer(mirrors ...wire.DescribedClusterMirror) []byte {
	return (&wire.DescribeClusterMirrorsResponse{Mirrors: mirrors}).AppendTo(nil)
}

func describedAs(name, cluster string, parts ...wire.DescribedMirrorPartition) wire.DescribedClusterMirror {
	return wire.DescribedClusterMirror{Name: name, SourceClusterID: cluster, Topics: []wire.DescribedMirrorTopic{{Name: "t", Partitions: parts}}}
}

func mirroredPart(n int32, state string, epoch types.LeaderEpoch, offset types.Offset) wire.DescribedMirrorPartition {
	return wire.DescribedMirrorPartition{Partition: n, State: state, LastMirrorEpoch: epoch, LastMirrorOffset: offset}
}

// Kafka isn't asked: it doesn't announce the two APIs.
func TestMirroredOfKafka(t *testing.T) {
	k := newKfake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "t"))
	c := openTo(t, k.ListenAddrs(), nil, Options{})
	m, err := c.Metadata(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if a, err := c.Mirrored(t.Context(), m.Brokers[0].ID, "A", mirroredQueries(0)); a != nil || err != nil {
		t.Errorf("got %+v, %v", a, err)
	}
}

func TestMirrored(t *testing.T) {
	none := Mirrored{LastEpoch: -1, LastOffset: -1}
	f := func(name string, want []Mirrored, list []byte, describe ...[]byte) {
		t.Helper()
		queries := mirroredQueries(0, 1)
		got, err := mirroredLiar(t, list, describe...).Mirrored(t.Context(), 0, "A", queries)
		wanted := map[types.TopicPartition]Mirrored{}
		for i, q := range queries {
			wanted[q.TopicPartition] = want[i]
		}
		if diff := cmp.Diff(wanted, got); err != nil || diff != "" {
			t.Errorf("%s: %v\n%s", name, err, diff)
		}
	}
	mine := wire.ListedClusterMirror{Name: "m", SourceClusterID: "A", TopicNames: []string{"t", "u"}}
	f("nothing", []Mirrored{none, none}, listAnswer(), describeAnswer())
	f("another cluster's mirror is listed", []Mirrored{none, none}, listAnswer(wire.ListedClusterMirror{Name: "x", SourceClusterID: "C", TopicNames: []string{"t"}}), describeAnswer())
	f("both", []Mirrored{{"m", "STOPPED", 3, 9}, {"m", "MIRRORING", -1, -1}}, listAnswer(mine),
		describeAnswer(describedAs("m", "A", mirroredPart(0, "STOPPED", 3, 9), mirroredPart(1, "MIRRORING", -1, -1))))
	f("the later of two mirrors", []Mirrored{{"n", "STOPPED", 4, 1}, {"m", "STOPPED", 3, 9}}, listAnswer(),
		describeAnswer(describedAs("m", "A", mirroredPart(0, "STOPPED", 3, 9), mirroredPart(1, "STOPPED", 3, 9)), describedAs("n", "A", mirroredPart(0, "STOPPED", 4, 1), mirroredPart(1, "STOPPED", 2, 99))))
	f("one of two that runs", []Mirrored{{"n", "MIRRORING", 3, 9}, {"m", "PAUSED", 5, 9}}, listAnswer(),
		describeAnswer(describedAs("m", "A", mirroredPart(0, "STOPPED", 3, 9), mirroredPart(1, "PAUSED", 3, 9)), describedAs("n", "A", mirroredPart(0, "MIRRORING", -1, -1), mirroredPart(1, "STOPPED", 5, 9))))
	f("listed, and not described", []Mirrored{{"m", "UNKNOWN", -1, -1}, {"m", "UNKNOWN", -1, -1}}, listAnswer(mine), describeAnswer(), describeAnswer())
	f("listed, described by name", []Mirrored{{"m", "LOG_ALIGNMENT", -1, -1}, none}, listAnswer(mine), describeAnswer(), describeAnswer(describedAs("m", "A", mirroredPart(0, "LOG_ALIGNMENT", -1, -1), mirroredPart(7, "MIRRORING", -1, -1))))
}

// TestLyingMirrored: a source is refused by name, with the way out, and believed in nothing.
func TestLyingMirrored(t *testing.T) {
	good := mirroredPart(0, "STOPPED", 3, 9)
	f := func(name, want string, kind error, list []byte, describe ...[]byte) {
		t.Helper()
		got, err := mirroredLiar(t, list, append(describe, describeAnswer())...).Mirrored(t.Context(), 0, "A", mirroredQueries(0))
		if !errors.Is(err, kind) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "mirror.kip1279.enable=false") || got != nil {
			t.Errorf("%s: %+v, %v; want %q", name, got, err, want)
		}
	}
	f("another cluster", `mirror m is of cluster "C"; A was asked for`, ErrProtocol, listAnswer(), describeAnswer(describedAs("m", "C", good)))
	f("no cluster", `of cluster ""`, ErrProtocol, listAnswer(), describeAnswer(describedAs("m", "", good)))
	f("a mirror without a name", "without a name", ErrProtocol, listAnswer(), describeAnswer(describedAs("", "A", good)))
	f("a listed mirror without a name", "without a name", ErrProtocol, listAnswer(wire.ListedClusterMirror{}))
	f("another partition", "t-1, which was not asked for", ErrProtocol, listAnswer(), describeAnswer(describedAs("m", "A", mirroredPart(1, "STOPPED", 3, 9))))
	f("another topic", "u-0, which was not asked for", ErrProtocol, listAnswer(),
		describeAnswer(wire.DescribedClusterMirror{Name: "m", SourceClusterID: "A", Topics: []wire.DescribedMirrorTopic{{Name: "u", Partitions: []wire.DescribedMirrorPartition{good}}}}))
	f("twice", "two answers for t-0", ErrProtocol, listAnswer(), describeAnswer(describedAs("m", "A", good, good)))
	f("no state", "has no state", ErrProtocol, listAnswer(), describeAnswer(describedAs("m", "A", mirroredPart(0, "", 3, 9))))
	f("an epoch below none", "up to epoch -2", ErrProtocol, listAnswer(), describeAnswer(describedAs("m", "A", mirroredPart(0, "STOPPED", -2, 9))))
	f("an offset below none", "offset -9", ErrProtocol, listAnswer(), describeAnswer(describedAs("m", "A", mirroredPart(0, "STOPPED", 3, -9))))
	f("a mirror too many by name", "n was not asked for", ErrProtocol, listAnswer(wire.ListedClusterMirror{Name: "m", SourceClusterID: "A", TopicNames: []string{"t"}}), describeAnswer(), describeAnswer(describedAs("n", "A", good)))
	f("refused as a whole", "CLUSTER_AUTHORIZATION_FAILED", ErrAuth, listAnswer(), (&wire.DescribeClusterMirrorsResponse{ErrorCode: wire.ErrClusterAuthorizationFailed}).AppendTo(nil))
	f("the list is refused", "CLUSTER_AUTHORIZATION_FAILED", ErrAuth, (&wire.ListClusterMirrorsResponse{ErrorCode: wire.ErrClusterAuthorizationFailed}).AppendTo(nil))
	f("one mirror is refused", "INVALID_REQUEST", ErrAnswer, listAnswer(), describeAnswer(wire.DescribedClusterMirror{Name: "m", SourceClusterID: "A", ErrorCode: wire.ErrInvalidRequest}))
	whole := describeAnswer(describedAs("m", "A", good))
	for n := range len(whole) {
		f("cut short", "can't be decoded", ErrProtocol, listAnswer(), whole[:n])
	}
	f("something behind it", "can't be decoded", ErrProtocol, listAnswer(), append(slices.Clone(whole), 0))
	f("a cut list", "can't be decoded", ErrProtocol, listAnswer()[:3])
}
