package e2e

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"tidemark/test/e2e/harness"
)

// fill writes n records to each partition of a topic; the values are unique.
func fill(t *testing.T, b *harness.Broker, topic string, partitions, n int) {
	t.Helper()
	c := b.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	var records []*kgo.Record
	for p := range partitions {
		for i := range n {
			records = append(records, &kgo.Record{Topic: topic, Partition: int32(p), Value: fmt.Appendf(nil, "%d-%d", p, i)})
		}
	}
	if err := c.ProduceSync(harness.Context(t), records...).FirstErr(); err != nil {
		t.Fatalf("fill %s: %v", topic, err)
	}
}

// tally counts records by value: every one must be read, and how often is known.
type tally struct {
	mu   sync.Mutex
	seen map[string]int
}

func (y *tally) add(v string) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.seen == nil {
		y.seen = map[string]int{}
	}
	y.seen[v]++
}

func (y *tally) count() int {
	y.mu.Lock()
	defer y.mu.Unlock()
	return len(y.seen)
}

func (y *tally) twice() (all []string) {
	y.mu.Lock()
	defer y.mu.Unlock()
	for v, n := range y.seen {
		if n > 1 {
			all = append(all, v+" "+strconv.Itoa(n)+" times")
		}
	}
	return all
}

// memberHeartbeat is short: members learn of a rebalance by their heartbeats.
const memberHeartbeat = 100 * time.Millisecond

// groupMember consumes until it is stopped, commits what it has read before it
// gives partitions away, and leaves the group.
type groupMember struct {
	t      *testing.T
	client *kgo.Client
	stop   context.CancelFunc
	done   chan struct{}
}

func startMember(t *testing.T, b *harness.Broker, group, topic string, y *tally, opts ...kgo.Opt) *groupMember {
	t.Helper()
	commit := func(ctx context.Context, c *kgo.Client, _ map[string][]int32) {
		if err := c.CommitMarkedOffsets(ctx); err != nil {
			t.Errorf("commit before a rebalance: %v", err)
		}
	}
	c := b.Client(t, append([]kgo.Opt{
		kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.AutoCommitMarks(), kgo.BlockRebalanceOnPoll(),
		kgo.HeartbeatInterval(memberHeartbeat),
		kgo.OnPartitionsRevoked(commit), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	}, opts...)...)
	ctx, cancel := context.WithCancel(context.Background())
	m := &groupMember{t: t, client: c, stop: cancel, done: make(chan struct{})}
	go func() {
		defer close(m.done)
		for {
			fetches := c.PollRecords(ctx, 50)
			if ctx.Err() != nil {
				c.AllowRebalance()
				return
			}
			fetches.EachRecord(func(r *kgo.Record) {
				y.add(string(r.Value))
				c.MarkCommitRecords(r)
			})
			c.AllowRebalance()
		}
	}()
	t.Cleanup(func() { m.leave() })
	return m
}

func (m *groupMember) leave() {
	m.stop()
	harness.Receive(m.t, "a member stops", m.done)
	m.client.CloseAllowingRebalance()
}

func stableMembers(t *testing.T, admin *kadm.Client, group string, n int) func() bool {
	return func() bool {
		d, err := admin.DescribeGroups(harness.Context(t), group)
		if err != nil {
			return false
		}
		return d[group].State == "Stable" && len(d[group].Members) == n
	}
}

// Members come and go under load; every record is read once.
func TestGroupRebalances(t *testing.T) {
	f := func(t *testing.T, balancer kgo.GroupBalancer) {
		b := harness.StartBroker(t)
		b.CreateTopic(t, "work", 6, nil)
		admin := b.Admin(t)
		var y tally
		opt := kgo.Balancers(balancer)
		first := startMember(t, b, "workers", "work", &y, opt)
		fill(t, b, "work", 6, 200)
		second := startMember(t, b, "workers", "work", &y, opt)
		harness.Eventually(t, "two members are stable", stableMembers(t, admin, "workers", 2))
		third := startMember(t, b, "workers", "work", &y, opt)
		harness.Eventually(t, "three members are stable", stableMembers(t, admin, "workers", 3))
		harness.Eventually(t, "the first records are read", func() bool { return y.count() == 6*200 })
		first.leave()
		harness.Eventually(t, "two members are left", stableMembers(t, admin, "workers", 2))
		c := b.Client(t)
		for i := range 300 {
			c.Produce(context.Background(), &kgo.Record{Topic: "work", Value: fmt.Appendf(nil, "late-%d", i)}, nil)
		}
		if err := c.Flush(harness.Context(t)); err != nil {
			t.Fatal(err)
		}
		second.leave()
		harness.Eventually(t, "one member is left", stableMembers(t, admin, "workers", 1))
		harness.Eventually(t, "all records are read", func() bool { return y.count() == 6*200+300 })
		third.leave()
		if twice := y.twice(); len(twice) > 0 {
			t.Errorf("%d records were read more than once: %.10v", len(twice), twice)
		}
		harness.Eventually(t, "the group is empty", func() bool {
			d, err := admin.DescribeGroups(harness.Context(t), "workers")
			return err == nil && d["workers"].State == "Empty"
		})
	}
	t.Run("range", func(t *testing.T) { f(t, kgo.RangeBalancer()) })
	t.Run("round robin", func(t *testing.T) { f(t, kgo.RoundRobinBalancer()) })
	t.Run("cooperative sticky", func(t *testing.T) { f(t, kgo.CooperativeStickyBalancer()) })
}

// A group goes on where it was after the node's restart: nothing is lost,
// nothing is read again.
func TestGroupOffsetsSurviveRestart(t *testing.T) {
	b := harness.StartBroker(t)
	b.CreateTopic(t, "work", 3, nil)
	fill(t, b, "work", 3, 100)
	var y tally
	m := startMember(t, b, "workers", "work", &y)
	harness.Eventually(t, "all records are read", func() bool { return y.count() == 300 })
	m.leave()
	b = b.Restart(t)
	committed, err := b.Admin(t).FetchOffsets(harness.Context(t), "workers")
	if err != nil {
		t.Fatal(err)
	}
	for p := range int32(3) {
		if o, ok := committed.Lookup("work", p); !ok || o.At != 100 || o.LeaderEpoch < 0 {
			t.Errorf("partition %d stands at %+v, want 100 and a leader epoch", p, o)
		}
	}
	fill2 := b.Client(t)
	if err := fill2.ProduceSync(harness.Context(t), &kgo.Record{Topic: "work", Value: []byte("more")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	startMember(t, b, "workers", "work", &y)
	harness.Eventually(t, "the new record is read", func() bool { return y.count() == 301 })
	if twice := y.twice(); len(twice) > 0 {
		t.Errorf("read again after the restart: %v", twice)
	}
}

// A live member outlasts the node's restart with its id: its session began anew with the load.
func TestGroupMembersOutlastRestart(t *testing.T) {
	b := harness.StartBroker(t, harness.WithSetting("listeners", "PLAINTEXT://"+freeAddr(t)))
	b.CreateTopic(t, "work", 2, nil)
	fill(t, b, "work", 2, 10)
	var y tally
	m := startMember(t, b, "workers", "work", &y)
	defer func() { m.leave() }() // before the nodes end
	harness.Eventually(t, "all records are read", func() bool { return y.count() == 20 })
	harness.Eventually(t, "one member is stable", stableMembers(t, b.Admin(t), "workers", 1))
	before, _ := memberIDs(t, b, "workers")
	b = b.Restart(t)
	fill(t, b, "work", 2, 20)
	harness.Eventually(t, "the new records are read", func() bool { return y.count() == 40 })
	if after, _ := memberIDs(t, b, "workers"); len(after) != 1 || after[0] != before[0] {
		t.Errorf("members before the restart %v, after it %v", before, after)
	}
}

func memberIDs(t *testing.T, b *harness.Broker, group string) (ids []string, instances []string) {
	t.Helper()
	d, err := b.Admin(t).DescribeGroups(harness.Context(t), group)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range d[group].Members {
		ids = append(ids, m.MemberID)
		if m.InstanceID != nil {
			instances = append(instances, *m.InstanceID)
		}
	}
	return ids, instances
}

// A static member that stops and starts again takes its old place: the other
// member notices nothing (KIP-345).
func TestGroupStaticMember(t *testing.T) {
	b := harness.StartBroker(t)
	b.CreateTopic(t, "work", 4, nil)
	var y tally
	var mu sync.Mutex
	revoked, assigned := 0, 0
	startMember(t, b, "workers", "work", &y, kgo.InstanceID("one"),
		kgo.OnPartitionsRevoked(func(context.Context, *kgo.Client, map[string][]int32) { mu.Lock(); revoked++; mu.Unlock() }),
		kgo.OnPartitionsAssigned(func(context.Context, *kgo.Client, map[string][]int32) { mu.Lock(); assigned++; mu.Unlock() }))
	harness.Eventually(t, "the first member is stable", stableMembers(t, b.Admin(t), "workers", 1))
	two := startMember(t, b, "workers", "work", &y, kgo.InstanceID("two"))
	harness.Eventually(t, "two members are stable", stableMembers(t, b.Admin(t), "workers", 2))
	fill(t, b, "work", 4, 10)
	harness.Eventually(t, "all records are read", func() bool { return y.count() == 40 })
	before, _ := memberIDs(t, b, "workers")
	mu.Lock()
	r, a := revoked, assigned
	mu.Unlock()
	two.leave() // a static member doesn't say goodbye
	startMember(t, b, "workers", "work", &y, kgo.InstanceID("two"))
	fill(t, b, "work", 4, 20)
	harness.Eventually(t, "the new records are read", func() bool { return y.count() == 80 })
	after, instances := memberIDs(t, b, "workers")
	if len(instances) != 2 || len(before) != 2 || fmt.Sprint(before) == fmt.Sprint(after) {
		t.Errorf("members before %v, after %v (%v): want two, one of them with a new id", before, after, instances)
	}
	mu.Lock()
	defer mu.Unlock()
	if revoked != r || assigned != a {
		t.Errorf("the other member went through a rebalance: revoked %d times, assigned %d times", revoked-r, assigned-a)
	}
}

// rangeBalancer is the one way to assign that all clients have.
func rangeBalancer() kgo.Opt { return kgo.Balancers(kgo.RangeBalancer()) }
