package source

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"

	"tidemark/internal/core/types"
)

func newKfake(t *testing.T, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	k, err := kfake.NewCluster(append([]kfake.Opt{kfake.ClusterID("source-cluster")}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	return k
}

func openTo(t *testing.T, addresses []string, props map[string]string, o Options) *Client {
	t.Helper()
	cfg, err := NewConfig(addresses, props)
	if err != nil {
		t.Fatal(err)
	}
	c := Open(cfg, o)
	t.Cleanup(c.Close)
	return c
}

func produce(t *testing.T, k *kfake.Cluster, topic string, partition int32, values ...string) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(k.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	for _, v := range values {
		r := &kgo.Record{Topic: topic, Partition: partition, Value: []byte(v)}
		if err := cl.ProduceSync(t.Context(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
}

var limits = FetchLimits{MaxWait: 50 * time.Millisecond, MinBytes: 1, MaxBytes: 1 << 20}

func TestMetadataAndOffsets(t *testing.T) {
	k := newKfake(t, kfake.NumBrokers(3), kfake.SeedTopics(4, "orders"))
	produce(t, k, "orders", 2, "a", "b", "c")
	c := openTo(t, k.ListenAddrs()[:1], nil, Options{})
	ctx := t.Context()
	m, err := c.Metadata(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	if m.ClusterID != "source-cluster" || len(m.Brokers) != 3 || len(m.Topics) != 1 || len(m.Topics[0].Partitions) != 4 || m.Topics[0].ID.IsZero() {
		t.Fatalf("got %+v", m)
	}
	p := m.Topics[0].Partitions[2]
	tp := types.TopicPartition{Topic: "orders", Partition: 2}
	for ts, want := range map[types.Millis]types.Offset{Earliest: 0, Latest: 3} {
		a, err := c.ListOffsets(ctx, p.Leader, []OffsetQuery{{tp, p.LeaderEpoch, ts}})
		if err != nil || a[tp].Code != 0 || a[tp].Offset != want {
			t.Errorf("offset at %d: got %+v, %v, want %d", ts, a[tp], err, want)
		}
	}
	ends, err := c.EpochEnds(ctx, p.Leader, []EpochQuery{{tp, p.LeaderEpoch, p.LeaderEpoch}})
	if err != nil || ends[tp] != (EpochAnswer{0, p.LeaderEpoch, 3}) {
		t.Errorf("epoch end: got %+v, %v", ends[tp], err)
	}
	a, err := c.ListOffsets(ctx, p.Leader, []OffsetQuery{{tp, p.LeaderEpoch + 7, Latest}})
	if err != nil || a[tp].Code != CodeUnknownLeaderEpoch {
		t.Errorf("fenced query: got %+v, %v", a[tp], err)
	}
	m, err = c.Metadata(ctx, []string{"none"})
	if err != nil || len(m.Topics) != 1 || m.Topics[0].Code != CodeUnknownTopicOrPartition {
		t.Errorf("unknown topic: got %+v, %v", m, err)
	}
	if m, err = c.Metadata(ctx, []string{}); err != nil || len(m.Topics) != 0 {
		t.Errorf("no topics: got %+v, %v", m, err)
	}
}

func TestConfigsAndGroups(t *testing.T) {
	k := newKfake(t, kfake.NumBrokers(2))
	if err := k.CreateTopic("c", 1, map[string]string{"cleanup.policy": "compact"}); err != nil {
		t.Fatal(err)
	}
	c := openTo(t, k.ListenAddrs(), nil, Options{})
	ctx := t.Context()
	cfgs, err := c.TopicConfigs(ctx, []string{"c", "none"})
	if err != nil || cfgs["c"].Set["cleanup.policy"] != "compact" || len(cfgs["c"].Set) != 1 || cfgs["none"].Code == 0 {
		t.Errorf("configs: got %+v, %v", cfgs, err)
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(k.ListenAddrs()...))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	var names []string
	for i := range 5 {
		g := fmt.Sprintf("g%d", i)
		names = append(names, g)
		var offsets kadm.Offsets
		offsets.Add(kadm.Offset{Topic: "c", Partition: 0, At: int64(10 + i), LeaderEpoch: 0, Metadata: "m"})
		if err := kadm.NewClient(cl).CommitAllOffsets(ctx, g, offsets); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Metadata(ctx, []string{}); err != nil {
		t.Fatal(err)
	}
	groups, err := c.Groups(ctx)
	if err != nil || len(groups) != 5 || groups[0].ID != "g0" {
		t.Fatalf("groups: got %+v, %v", groups, err)
	}
	offsets := c.GroupOffsets(ctx, names)
	for i, g := range names {
		o := offsets[g]
		if o.Err != nil || o.Offsets[types.TopicPartition{Topic: "c"}] != (CommittedOffset{types.Offset(10 + i), 0, "m"}) {
			t.Errorf("%s: got %+v", g, o)
		}
	}
	c.forgetCoordinator("g3")
	k.RehashCoordinators()
	if o := c.GroupOffsets(ctx, []string{"g3"})["g3"]; o.Err != nil || len(o.Offsets) != 1 {
		t.Errorf("after the coordinators moved: got %+v", o)
	}
}

func TestFetchSession(t *testing.T) {
	for _, version := range []int16{18, 13, 12, 11, 10} {
		t.Run(fmt.Sprintf("v%d", version), func(t *testing.T) {
			v := kversion.Stable()
			v.SetMaxKeyVersion(1, version)
			k := newKfake(t, kfake.NumBrokers(1), kfake.SeedTopics(2, "a", "b"), kfake.MaxVersions(v))
			produce(t, k, "a", 0, "one", "two")
			c := openTo(t, k.ListenAddrs(), nil, Options{})
			ctx := t.Context()
			s, topics := sessionOf(t, c)
			a := mustFetch(t, s)
			if a.Version != version || len(a.Partitions) != 4 || a.RecordBytes == 0 {
				t.Fatalf("full answer: got %+v", a)
			}
			for _, p := range a.Partitions {
				if has := p.Topic == "a" && p.Partition == 0; p.Code != 0 || p.Err != nil || (len(p.Records) > 0) != has {
					t.Errorf("%s: got %+v", p.TopicPartition, p)
				}
			}
			a.Release()
			if held := c.Budget().Held(); held != 0 {
				t.Errorf("budget holds %d bytes after the release", held)
			}
			next := topics["a"]
			next.Offset, next.LastEpoch = 2, next.CurrentEpoch
			s.Set(next)
			a = mustFetch(t, s)
			if a.RecordBytes != 0 {
				t.Errorf("an answer at the end has %d bytes", a.RecordBytes)
			}
			a.Release()
			s.Remove(types.TopicPartition{Topic: "b", Partition: 1})
			produce(t, k, "b", 0, "x")
			produce(t, k, "b", 1, "y")
			a = mustFetch(t, s)
			for _, p := range a.Partitions {
				if p.TopicPartition == (types.TopicPartition{Topic: "b", Partition: 1}) {
					t.Errorf("an answer for a partition that left")
				}
			}
			if a.RecordBytes == 0 {
				t.Errorf("no records of b-0")
			}
			a.Release()
			s.epoch += 5 // a session that the broker doesn't know in this epoch is opened anew
			a = mustFetch(t, s)
			if len(a.Partitions) != 3 {
				t.Errorf("after a lost session: %d partitions, want 3", len(a.Partitions))
			}
			a.Release()
			if s.Len() != 3 || s.Broker() != 0 {
				t.Errorf("session has %d partitions at broker %d", s.Len(), s.Broker())
			}
			_ = ctx
		})
	}
}

// sessionOf makes a session with every partition of a one-broker source.
func sessionOf(t *testing.T, c *Client) (*Session, map[string]FetchPartition) {
	t.Helper()
	m, err := c.Metadata(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	s := c.NewSession(m.Brokers[0].ID, SessionOptions{})
	first := map[string]FetchPartition{}
	for _, topic := range m.Topics {
		for _, p := range topic.Partitions {
			fp := FetchPartition{
				TopicPartition: types.TopicPartition{Topic: topic.Name, Partition: p.Partition}, TopicID: topic.ID,
				CurrentEpoch: p.LeaderEpoch, LastEpoch: types.NoLeaderEpoch, MaxBytes: 1 << 20,
			}
			s.Set(fp)
			if p.Partition == 0 {
				first[topic.Name] = fp
			}
		}
	}
	return s, first
}

func mustFetch(t *testing.T, s *Session) *FetchAnswer {
	t.Helper()
	a, err := s.Fetch(t.Context(), limits)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestFetchErrorsOfPartitions(t *testing.T) {
	k := newKfake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "a"))
	produce(t, k, "a", 0, "one")
	c := openTo(t, k.ListenAddrs(), nil, Options{})
	s, topics := sessionOf(t, c)
	good := topics["a"]
	for _, tc := range []struct {
		name   string
		change func(p *FetchPartition)
		want   Code
	}{
		{"beyond the end", func(p *FetchPartition) { p.Offset = 99 }, CodeOffsetOutOfRange},
		{"newer epoch", func(p *FetchPartition) { p.CurrentEpoch += 3 }, CodeUnknownLeaderEpoch},
		{"other topic id", func(p *FetchPartition) { p.TopicID[3] ^= 1 }, CodeUnknownTopicID},
		{"good again", func(*FetchPartition) {}, CodeNone},
	} {
		p := good
		tc.change(&p)
		s.Set(p)
		a := mustFetch(t, s)
		if len(a.Partitions) != 1 || a.Partitions[0].Code != tc.want {
			t.Errorf("%s: got %+v, want %v", tc.name, a.Partitions, tc.want)
		}
		a.Release()
	}
}

func TestRetainedAnswerOutlivesTheFirstRelease(t *testing.T) {
	k := newKfake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "a"))
	produce(t, k, "a", 0, "one")
	c := openTo(t, k.ListenAddrs(), nil, Options{})
	s, _ := sessionOf(t, c)
	a := mustFetch(t, s)
	a.Retain()
	a.Release()
	if c.Budget().Held() == 0 {
		t.Error("the budget is free while the answer is held")
	}
	a.Release()
	if c.Budget().Held() != 0 {
		t.Error("the budget is held after the last release")
	}
}

func TestOtherClusterAtTheAddress(t *testing.T) {
	k := newKfake(t)
	c := openTo(t, k.ListenAddrs(), nil, Options{ClusterID: "another"})
	if _, err := c.Metadata(t.Context(), nil); !errors.Is(err, ErrOtherCluster) || IsRetriable(err) {
		t.Errorf("got %v", err)
	}
	c.Pin("source-cluster")
	if _, err := c.Metadata(t.Context(), nil); err != nil {
		t.Error(err)
	}
	c.Pin("third")
	if _, err := c.Metadata(t.Context(), nil); !errors.Is(err, ErrOtherCluster) {
		t.Errorf("after pinning another: got %v", err)
	}
}

func TestSourceTooOld(t *testing.T) {
	k := newKfake(t, kfake.MaxVersions(kversion.V2_0_0()))
	c := openTo(t, k.ListenAddrs(), nil, Options{})
	_, err := c.Metadata(t.Context(), nil)
	if !errors.Is(err, ErrTooOld) || IsRetriable(err) {
		t.Fatalf("got %v", err)
	}
	// kfake knows OffsetForLeaderEpoch from version 3 (Kafka 2.3) on.
	k23 := newKfake(t, kfake.MaxVersions(kversion.V2_3_0()))
	if _, err := openTo(t, k23.ListenAddrs(), nil, Options{}).Metadata(t.Context(), nil); err != nil {
		t.Errorf("Kafka 2.3 is refused: %v", err)
	}
}

func TestUnreachable(t *testing.T) {
	k := newKfake(t, kfake.NumBrokers(1))
	address := k.ListenAddrs()
	k.Close()
	c := openTo(t, append(address, "127.0.0.1:1"), nil, Options{})
	_, err := c.Metadata(t.Context(), nil)
	if !errors.Is(err, ErrUnreachable) || !IsRetriable(err) {
		t.Errorf("got %v", err)
	}
	c.Close()
	if _, err := c.Metadata(t.Context(), nil); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: got %v", err)
	}
}

func TestCancelledCallLeavesTheConnection(t *testing.T) {
	k := newKfake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "a"))
	c := openTo(t, k.ListenAddrs(), nil, Options{})
	s, _ := sessionOf(t, c)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := s.Fetch(ctx, FetchLimits{MaxWait: 300 * time.Millisecond, MinBytes: 1, MaxBytes: 1 << 20})
		done <- err
	}()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	a := mustFetch(t, s)
	a.Release()
}
