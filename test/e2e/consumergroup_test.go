package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/broker/mirror"
	"tidemark/test/e2e/harness"
)

// quickConsumer lets members of the new protocol (KIP-848) hear of changes soon. Their sessions
// are as long as by default: none ends because a machine is slow.
func quickConsumer() []harness.Option {
	return []harness.Option{harness.WithSetting("group.consumer.heartbeat.interval.ms", "100")}
}

// newProtocol makes a member one of the new protocol.
func newProtocol() []kgo.Opt {
	return []kgo.Opt{kgo.ServerSideBalancer(), kgo.Balancers(kgo.CooperativeStickyBalancer())}
}

// describeConsumer asks for a group of the new protocol.
func describeConsumer(t *testing.T, c *kgo.Client, group string) kmsg.ConsumerGroupDescribeResponseGroup {
	t.Helper()
	req := kmsg.NewPtrConsumerGroupDescribeRequest()
	req.Groups = []string{group}
	resp, err := req.RequestWith(harness.Context(t), c)
	if err != nil {
		return kmsg.ConsumerGroupDescribeResponseGroup{ErrorCode: -1}
	}
	return resp.Groups[0]
}

// shares gives how many partitions each member has, sorted, if the group is stable.
func shares(g kmsg.ConsumerGroupDescribeResponseGroup) []int {
	var all []int
	if g.ErrorCode != 0 || g.State != "Stable" {
		return nil
	}
	for _, m := range g.Members {
		n := 0
		for _, tp := range m.Assignment.TopicPartitions {
			n += len(tp.Partitions)
		}
		all = append(all, n)
	}
	slices.Sort(all)
	return all
}

// Members of the new protocol come and go; every record is read, and the group's offsets
// are those that the members committed.
func TestConsumerProtocolGroup(t *testing.T) {
	b := harness.StartBroker(t, quickConsumer()...)
	b.CreateTopic(t, "t", 6, nil)
	fill(t, b, "t", 6, 50)
	observer := b.Client(t)
	y := &tally{}
	first := startMember(t, b, "g", "t", y, newProtocol()...)
	harness.Eventually(t, "the first member has all", func() bool {
		return slices.Equal(shares(describeConsumer(t, observer, "g")), []int{6})
	})
	second := startMember(t, b, "g", "t", y, newProtocol()...)
	third := startMember(t, b, "g", "t", y, newProtocol()...)
	harness.Eventually(t, "three members share", func() bool {
		return slices.Equal(shares(describeConsumer(t, observer, "g")), []int{2, 2, 2})
	})
	harness.Eventually(t, "all is read", func() bool { return y.count() == 300 })
	second.leave()
	third.leave()
	harness.Eventually(t, "the first has all again", func() bool {
		return slices.Equal(shares(describeConsumer(t, observer, "g")), []int{6})
	})
	admin := kadm.NewClient(observer)
	b.CreateTopic(t, "u", 1, nil)
	if _, err := admin.CreatePartitions(harness.Context(t), 2, "t"); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "new partitions are given out", func() bool {
		return slices.Equal(shares(describeConsumer(t, observer, "g")), []int{8})
	})
	first.leave()
	harness.Eventually(t, "the group is empty", func() bool { return describeConsumer(t, observer, "g").State == "Empty" })
	offsets, err := admin.FetchOffsets(harness.Context(t), "g")
	if err != nil {
		t.Fatal(err)
	}
	for p := range int32(6) {
		if o, ok := offsets.Lookup("t", p); !ok || o.At != 50 {
			t.Errorf("partition %d was committed at %v (%v)", p, o.At, ok)
		}
	}
	listed, err := admin.ListGroups(harness.Context(t))
	if err != nil || listed["g"].GroupType != "consumer" {
		t.Errorf("listed as %+v: %v", listed["g"], err)
	}
	deleted, err := admin.DeleteGroup(harness.Context(t), "g")
	if err != nil || deleted.Err != nil {
		t.Errorf("deletion: %v, %v", err, deleted.Err)
	}
	if g := describeConsumer(t, observer, "g"); g.ErrorCode != 69 {
		t.Errorf("a deleted group: %+v", g)
	}
}

// A group's members and offsets outlive its coordinator; a member that was away under its
// instance id finds its partitions again.
func TestConsumerProtocolRestart(t *testing.T) {
	b := harness.StartBroker(t, append(quickConsumer(), harness.WithDir(t.TempDir()))...)
	b.CreateTopic(t, "t", 4, nil)
	fill(t, b, "t", 4, 25)
	y := &tally{}
	static := startMember(t, b, "g", "t", y, append(newProtocol(), kgo.InstanceID("i"))...)
	// This one's node comes back elsewhere: it has nowhere to commit to, and needn't.
	left := kgo.OnPartitionsRevoked(func(context.Context, *kgo.Client, map[string][]int32) {})
	startMember(t, b, "g", "t", y, append(newProtocol(), left)...)
	observer := b.Client(t)
	harness.Eventually(t, "two members share and have read all", func() bool {
		return slices.Equal(shares(describeConsumer(t, observer, "g")), []int{2, 2}) && y.count() == 100
	})
	static.leave() // a static member is away for a while
	before := describeConsumer(t, observer, "g")
	b = b.Restart(t)
	observer = b.Client(t)
	var after kmsg.ConsumerGroupDescribeResponseGroup
	harness.Eventually(t, "the group is there again", func() bool {
		after = describeConsumer(t, observer, "g")
		return after.ErrorCode == 0
	})
	was, _ := json.Marshal(before)
	is, _ := json.Marshal(after)
	if string(was) != string(is) {
		t.Errorf("before the restart\n%s\nafter it\n%s", was, is)
	}
	partitionsOf := func(g kmsg.ConsumerGroupDescribeResponseGroup) (all []int32) {
		for _, m := range g.Members {
			if m.InstanceID != nil && len(m.Assignment.TopicPartitions) > 0 {
				all = m.Assignment.TopicPartitions[0].Partitions
			}
		}
		return all
	}
	startMember(t, b, "g", "t", &tally{}, append(newProtocol(), kgo.InstanceID("i"))...)
	harness.Eventually(t, "the static member has its partitions again", func() bool {
		g := describeConsumer(t, observer, "g")
		return len(partitionsOf(before)) == 2 && slices.Equal(partitionsOf(g), partitionsOf(before)) && g.Epoch == before.Epoch
	})
}

// A group goes on when another node comes to coordinate it: no member joins anew, and what
// is written after it is read. (A node that is gone is no test with this client: in its
// loop of heartbeats it dials the coordinator that it knows until its session is over.)
func TestConsumerProtocolFailover(t *testing.T) {
	c := harness.StartCluster(t, 3, append(quickConsumer(), harness.WithSetting("offsets.topic.num.partitions", "1"))...)
	b := c.Any()
	if _, err := b.Admin(t).CreateTopic(harness.Context(t), 6, 3, nil, "t"); err != nil {
		t.Fatal(err)
	}
	c.AwaitISR(t, "t", 1, 2, 3)
	fill(t, b, "t", 6, 20)
	y := &tally{}
	for range 3 {
		startMember(t, b, "g", "t", y, newProtocol()...)
	}
	observer := c.Client(t)
	harness.Eventually(t, "three members share", func() bool {
		return slices.Equal(shares(describeConsumer(t, observer, "g")), []int{2, 2, 2}) && y.count() == 120
	})
	c.AwaitISR(t, "__consumer_offsets", 1, 2, 3)
	before := describeConsumer(t, observer, "g")
	next := c.Record("__consumer_offsets", 0).Leader%3 + 1
	c.Elect(t, "__consumer_offsets", next, nil)
	c.Nodes[next].AwaitServed(t, "__consumer_offsets")
	harness.Eventually(t, "another node coordinates the group", func() bool {
		return slices.Equal(shares(describeConsumer(t, observer, "g")), []int{2, 2, 2})
	})
	after := describeConsumer(t, observer, "g")
	if after.Epoch != before.Epoch {
		t.Errorf("the group is in epoch %d, was in %d", after.Epoch, before.Epoch)
	}
	for i, m := range after.Members {
		if m.MemberID != before.Members[i].MemberID {
			t.Errorf("member %s was %s", m.MemberID, before.Members[i].MemberID)
		}
	}
	for p := range 6 {
		if err := observer.ProduceSync(harness.Context(t), &kgo.Record{Topic: "t", Partition: int32(p), Value: fmt.Appendf(nil, "after-%d", p)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	harness.Eventually(t, "what is written after it is read", func() bool { return y.count() == 126 })
}

// A member of the new protocol that a failover brings to the standby goes on where its
// group has committed at the source.
func TestConsumerProtocolMirrorFailover(t *testing.T) {
	source := harness.StartBroker(t, quickConsumer()...)
	standby := startStandby(t, quickConsumer()...)
	source.CreateTopic(t, "t", 4, nil)
	mirrorOf(t, standby, mirror.Spec{Bootstrap: []string{source.Addr}})
	fill(t, source, "t", 4, 25)
	var failedOver atomic.Bool // the one address that consumers know is the standby's then
	dial := func(ctx context.Context, network, host string) (net.Conn, error) {
		if failedOver.Load() && host == source.Addr {
			host = standby.Addr
		}
		return new(net.Dialer).DialContext(ctx, network, host)
	}
	y := &tally{}
	for range 2 {
		startMember(t, source, "g", "t", y, append(newProtocol(), kgo.Dialer(dial), kgo.AutoCommitInterval(100*time.Millisecond))...)
	}
	adm := standby.Admin(t)
	harness.Eventually(t, "all is read, and the standby knows", func() bool {
		for p := range int32(4) {
			if committed(t, adm, "g", "t", p) != 25 {
				return false
			}
		}
		return y.count() == 100
	})
	source.Stop(t)
	failedOver.Store(true)
	failover(t, standby)
	// What a member reads before it hears that it is none here, it reads again: at least once.
	observer := standby.Client(t)
	harness.Eventually(t, "the members share at the standby", func() bool {
		return slices.Equal(shares(describeConsumer(t, observer, "g")), []int{2, 2})
	})
	for p := range int32(4) {
		standby.Produce(t, "t", p, fmt.Sprintf("after-%d", p))
	}
	harness.Eventually(t, "they go on", func() bool { return y.count() == 104 })
	if twice := y.twice(); len(twice) > 0 {
		t.Errorf("read twice: %v", twice)
	}
}
