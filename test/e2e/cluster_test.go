package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"tidemark/internal/broker"
	"tidemark/internal/console"
	"tidemark/internal/core/meta"
	"tidemark/internal/metastore/embed"
	"tidemark/internal/metastore/mem"
	"tidemark/internal/metastore/member"
	"tidemark/internal/metastore/storetest"
	"tidemark/test/e2e/harness"
)

// clusterNode shows a node to the HTTP API, as `tidemark serve` does.
type clusterNode struct{ *broker.Broker }

func (n clusterNode) Healthy() error                 { return n.Health() }
func (n clusterNode) Mirrors() console.Mirrors       { return n.Broker.Mirrors() }
func (n clusterNode) Vault() console.Vault           { return n.Broker.Vault() }
func (n clusterNode) Membership() console.Membership { return n.Broker }

// serveAPI gives a node its HTTP API.
func serveAPI(t *testing.T, b *harness.Broker) *console.Server {
	t.Helper()
	return serveAPIWith(t, b, console.Access{})
}

func serveAPIWith(t *testing.T, b *harness.Broker, access console.Access) *console.Server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s, err := console.Serve(l, clusterNode{b.Broker}, access, harness.Logger(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	return s
}

// A node joins by an API that speaks TLS and asks for a token; without the token it is told what is missing.
func TestJoinWithAToken(t *testing.T) {
	authority := storetest.NewAuthority(t)
	cert, file := authority.Certificate("127.0.0.1"), filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("0123456789abcdef\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	one := harness.StartBroker(t)
	api := serveAPIWith(t, one, console.Access{Token: "0123456789abcdef", CertFile: cert})
	join := []harness.Option{harness.WithSetting("node.id", "2"), harness.WithSetting("metadata.join", api.Addr()),
		harness.WithSetting("http.ssl.keystore.location", cert), harness.WithSetting("http.ssl.truststore.location", authority.File)}
	if _, err := harness.TryBroker(t, join...); err == nil || !strings.Contains(err.Error(), "http.token.file") {
		t.Errorf("a node that shows no token: %v", err)
	}
	two := harness.StartBroker(t, append(join, harness.WithSetting("http.token.file", file))...)
	if two.ClusterID() != one.ClusterID() {
		t.Errorf("cluster %s joined %s", two.ClusterID(), one.ClusterID())
	}
}

// TestJoin grows a cluster 1 → 3 over the HTTP API, with the metadata in the
// nodes themselves, and checks what a node that can't join is told.
func TestJoin(t *testing.T) {
	one := harness.StartBroker(t)
	api := serveAPI(t, one)
	one.CreateTopic(t, "before", 1, nil)
	one.Produce(t, "before", 0, "x")
	two := harness.StartBroker(t, harness.WithSetting("node.id", "2"), harness.WithSetting("metadata.join", api.Addr()))
	if two.ClusterID() != one.ClusterID() {
		t.Fatalf("cluster %s joined %s", two.ClusterID(), one.ClusterID())
	}
	one.Produce(t, "before", 0, "y") // the first member has restarted: its broker goes on
	three := harness.StartBroker(t, harness.WithSetting("node.id", "3"), harness.WithSetting("metadata.join", api.Addr()))
	harness.Eventually(t, "three voters", func() bool {
		all, err := one.Members(harness.Context(t))
		voters := 0
		for _, m := range all {
			if !m.Learner && m.Healthy {
				voters++
			}
		}
		return err == nil && voters == 3
	})
	harness.Eventually(t, "everybody knows everybody", func() bool { return known(one) == 3 && known(two) == 3 && known(three) == 3 })
	if _, err := three.Admin(t).CreateTopic(harness.Context(t), 6, 3, nil, "three"); err != nil {
		t.Fatal(err)
	}

	f := func(want string, settings ...harness.Option) {
		t.Helper()
		_, err := harness.TryBroker(t, settings...)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	f("the node id is in use", harness.WithSetting("node.id", "2"), harness.WithSetting("metadata.join", api.Addr()))
	f("no answer", harness.WithSetting("node.id", "4"), harness.WithSetting("metadata.join", freeAddr(t)))
	other := harness.StartBroker(t, harness.WithSetting("node.id", "9"))
	other.Stop(t)
	f("holds a cluster of its own", harness.WithDir(other.Dir), harness.WithSetting("node.id", "9"), harness.WithSetting("metadata.join", api.Addr()))

	// A member leaves and comes back by itself.
	two.Stop(t)
	one.Produce(t, "before", 0, "z")
	again := two.Restart(t)
	harness.Eventually(t, "the member is back", func() bool { return known(again) == 3 && known(one) == 3 })
}

func known(b *harness.Broker) int {
	n := 0
	for range b.Image().Brokers() {
		n++
	}
	return n
}

// startCluster starts n nodes on one store in memory.
func startCluster(t *testing.T, n int, opts ...harness.Option) []*harness.Broker {
	t.Helper()
	store := mem.New()
	t.Cleanup(func() { _ = store.Close() })
	nodes := make([]*harness.Broker, n)
	for i := range n {
		nodes[i] = harness.StartBroker(t, append([]harness.Option{
			harness.WithSetting("node.id", fmt.Sprint(i+1)), harness.WithSetting("broker.rack", fmt.Sprintf("rack-%d", i%3)),
			harness.WithOptions(broker.Options{Store: store}),
		}, opts...)...)
	}
	harness.Eventually(t, "everybody knows everybody", func() bool {
		for _, b := range nodes {
			if known(b) != n {
				return false
			}
		}
		return true
	})
	return nodes
}

// TestElectAndReassignByAdminClients: keys 43, 45 and 46 as an admin client sees them.
func TestElectAndReassignByAdminClients(t *testing.T) {
	nodes := startCluster(t, 4)
	ctx := harness.Context(t)
	adm := nodes[0].Admin(t)
	if _, err := adm.CreateTopic(ctx, 6, 3, nil, "a"); err != nil {
		t.Fatal(err)
	}
	// 1 stops: its leaders move; it comes back and gets them by a preferred election.
	nodes[0].Stop(t)
	adm = nodes[1].Admin(t)
	leaders := func() map[int32]int32 {
		topics, err := adm.ListTopics(ctx, "a")
		if err != nil {
			t.Fatal(err)
		}
		out := make(map[int32]int32)
		for _, p := range topics["a"].Partitions {
			out[p.Partition] = p.Leader
		}
		return out
	}
	harness.Eventually(t, "nobody names 1 as a leader, and all have one", func() bool {
		for _, l := range leaders() {
			if l == 1 || l < 0 {
				return false
			}
		}
		return true
	})
	elected, err := adm.ElectLeaders(ctx, kadm.ElectPreferredReplica, kadm.TopicsSet{"a": {0: {}, 1: {}, 2: {}, 3: {}, 4: {}, 5: {}}})
	if err != nil {
		t.Fatal(err)
	}
	for p, r := range elected["a"] {
		rec := recordOf(t, nodes[1], "a", p)
		want := error(kerr.ElectionNotNeeded)
		if rec.Replicas[0] == 1 {
			want = kerr.PreferredLeaderNotAvailable
		}
		if !errors.Is(r.Err, want) {
			t.Errorf("partition %d of %v: %v, want %v", p, rec.Replicas, r.Err, want)
		}
	}
	var req kadm.AlterPartitionAssignmentsReq
	req.Assign("a", 0, []int32{9})
	answers, err := adm.AlterPartitionAssignments(ctx, req)
	if err != nil || !errors.Is(answers["a"][0].Err, kerr.InvalidReplicaAssignment) {
		t.Errorf("a broker that isn't there: %v, %v", answers["a"][0].Err, err)
	}
	var cancel kadm.AlterPartitionAssignmentsReq
	cancel.CancelAssign("a", 0)
	answers, err = adm.AlterPartitionAssignments(ctx, cancel)
	if err != nil || !errors.Is(answers["a"][0].Err, kerr.NoReassignmentInProgress) {
		t.Errorf("nothing to take back: %v, %v", answers["a"][0].Err, err)
	}
}

func recordOf(t *testing.T, b *harness.Broker, topic string, n int32) *meta.PartitionRecord {
	t.Helper()
	top, ok := b.Image().TopicByName(topic)
	if !ok {
		t.Fatalf("no topic %s", topic)
	}
	r, _ := b.Image().Partition(top.ID, n)
	return r
}

// TestEveryPartitionIsWritableAgain: one of three nodes goes, and all
// partitions take records again.
func TestEveryPartitionIsWritableAgain(t *testing.T) {
	nodes := startCluster(t, 3)
	ctx := harness.Context(t)
	if _, err := nodes[1].Admin(t).CreateTopic(ctx, 12, 3, nil, "a"); err != nil {
		t.Fatal(err)
	}
	cl := nodes[1].Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	write := func() {
		t.Helper()
		from := time.Now()
		for p := range int32(12) {
			if _, err := cl.ProduceSync(ctx, &kgo.Record{Topic: "a", Partition: p, Value: []byte("x")}).First(); err != nil {
				t.Fatalf("partition %d: %v", p, err)
			}
		}
		t.Logf("12 partitions written in %v", time.Since(from).Round(time.Millisecond))
	}
	write()
	nodes[0].Stop(t)
	write()
	for p := range int32(12) { // node 2 hears a moment later of what node 3 has written
		harness.Eventually(t, fmt.Sprintf("partition %d has nothing of node 1", p), func() bool {
			r := recordOf(t, nodes[1], "a", p)
			return !r.InISR(1) && r.Leader != 1
		})
	}
}

// TestExternalEtcd: nodes on an etcd that is none of theirs find one cluster there.
func TestExternalEtcd(t *testing.T) {
	etcd, err := embed.Start(harness.Context(t), embed.Options{Dir: t.TempDir(), Name: "etcd", UnsafeNoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = etcd.Close() })
	open, err := etcd.Admit(harness.Context(t), member.JoinRequest{NodeID: 99}) // opens its ports
	if err != nil {
		t.Fatal(err)
	}
	metadata := harness.WithSetting("metadata", "etcd://"+strings.TrimPrefix(open.Endpoints[0], "http://"))
	one := harness.StartBroker(t, metadata)
	two := harness.StartBroker(t, metadata, harness.WithSetting("node.id", "2"))
	if one.ClusterID() != two.ClusterID() {
		t.Fatalf("clusters %s and %s", one.ClusterID(), two.ClusterID())
	}
	harness.Eventually(t, "both know both", func() bool { return known(one) == 2 && known(two) == 2 })
	if _, err := two.Admin(t).CreateTopic(harness.Context(t), 4, 2, nil, "a"); err != nil {
		t.Fatal(err)
	}
	one.Stop(t)
	for p := range int32(4) {
		harness.Eventually(t, fmt.Sprintf("the other one leads partition %d", p), func() bool { return recordOf(t, two, "a", p).Leader == 2 })
	}
	two.Produce(t, "a", 0, "x")
	_, err = harness.TryBroker(t, metadata, harness.WithDir(one.Dir), harness.WithSetting("node.id", "1"), harness.WithSetting("cluster.id", "other"))
	if err == nil || !strings.Contains(err.Error(), "belongs to cluster") {
		t.Errorf("another cluster's folder: %v", err)
	}
}
