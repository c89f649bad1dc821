package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"tidemark/internal/broker/mirror"
	"tidemark/internal/compare"
	"tidemark/internal/core/meta"
	core "tidemark/internal/core/mirror"
	"tidemark/internal/core/types"
	"tidemark/internal/log"
	"tidemark/test/e2e/harness"
)

// awaitReason waits until a partition says why it doesn't move, and has failed.
func awaitReason(t testing.TB, standby *harness.Broker, topic string, partition int32, reason core.Reason) mirror.PartitionStatus {
	t.Helper()
	var p mirror.PartitionStatus
	harness.Eventually(t, fmt.Sprintf("%s-%d says %s", topic, partition, reason), func() bool {
		p = statusOf(t, standby, topic, partition)
		return p.State == meta.MirrorFailed && strings.HasPrefix(p.Reason, string(reason))
	})
	return p
}

func TestTopicsAndPartitionsAreFound(t *testing.T) {
	source := harness.StartBroker(t)
	standby := startStandby(t)
	mirrorOf(t, standby, mirror.Spec{Bootstrap: []string{source.Addr}, Topics: "app[.].*", Exclude: ".*[.]tmp"})
	source.CreateTopic(t, "app.a", 1, nil)
	source.CreateTopic(t, "app.b.tmp", 1, nil)
	source.CreateTopic(t, "other", 1, nil)
	source.Produce(t, "app.a", 0, "x")
	awaitEnd(t, standby, "app.a", 0, 1)
	if _, err := source.Admin(t).CreatePartitions(harness.Context(t), 2, "app.a"); err != nil {
		t.Fatal(err)
	}
	source.Produce(t, "app.a", 2, "y", "z")
	awaitEnd(t, standby, "app.a", 2, 2)
	if st := status(t, standby); len(st.Partitions) != 3 {
		t.Errorf("partitions: %+v", st.Partitions)
	}
	for _, name := range []string{"app.b.tmp", "other"} {
		if _, ok := standby.Image().TopicByName(name); ok {
			t.Errorf("topic %s was mirrored", name)
		}
	}
	checkEqual(t, source.Client(t), standby.Client(t), compare.Options{}, "app.a")
	adm := source.Admin(t)
	if _, err := adm.AlterTopicConfigs(harness.Context(t), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "retention.ms", Value: kadm.StringPtr("777000")}}, "app.a"); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "the config is copied", func() bool {
		topic, _ := standby.Image().TopicByName("app.a")
		return topic.Record.Configs["retention.ms"] == "777000"
	})
}

func TestRecreatedTopic(t *testing.T) {
	source := harness.StartBroker(t)
	standby := startStandby(t)
	source.CreateTopic(t, "t", 1, nil)
	source.CreateTopic(t, "u", 1, nil)
	mirrorOf(t, standby, mirror.Spec{Bootstrap: []string{source.Addr}})
	source.Produce(t, "t", 0, "old", "old too")
	awaitEnd(t, standby, "t", 0, 2)
	if _, err := source.Admin(t).DeleteTopics(harness.Context(t), "t"); err != nil {
		t.Fatal(err)
	}
	awaitReason(t, standby, "t", 0, core.SourceTopicGone)
	source.CreateTopic(t, "t", 1, nil)
	source.Produce(t, "t", 0, "new")
	p := awaitReason(t, standby, "t", 0, core.TopicIDMismatch)
	if p.End != 2 {
		t.Errorf("partition: %+v", p)
	}
	if got := standby.Consume(t, "t", 0, 0, 2); got[0] != "old" {
		t.Errorf("reads %q", got)
	}
	source.Produce(t, "u", 0, "goes on")
	awaitEnd(t, standby, "u", 0, 1)
}

// proxy forwards to an address that can be changed.
type proxy struct {
	ln net.Listener
	mu sync.Mutex
	to string // guarded by mu
}

func newProxy(t testing.TB, to string) *proxy {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{ln: ln, to: to}
	var work sync.WaitGroup
	work.Go(func() {
		for {
			in, err := ln.Accept()
			if err != nil {
				return
			}
			work.Go(func() { p.forward(in) })
		}
	})
	t.Cleanup(func() { ln.Close(); harness.Join(t, "the proxy's connections end", &work) })
	return p
}

func (p *proxy) setTarget(to string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.to = to
}

func (p *proxy) forward(in net.Conn) {
	defer in.Close()
	p.mu.Lock()
	to := p.to
	p.mu.Unlock()
	out, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer out.Close()
	done := make(chan struct{}, 2)
	pipe := func(a, b net.Conn) {
		buf := make([]byte, 64<<10)
		for {
			n, err := a.Read(buf)
			if n > 0 {
				if _, err := b.Write(buf[:n]); err != nil {
					break
				}
			}
			if err != nil {
				break
			}
		}
		a.Close()
		b.Close()
		done <- struct{}{}
	}
	go pipe(in, out)
	go pipe(out, in)
	<-done
	<-done
}

func TestOtherClusterAtTheAddress(t *testing.T) {
	one, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.ClusterID("one"), kfake.SeedTopics(1, "t"))
	if err != nil {
		t.Fatal(err)
	}
	p := newProxy(t, one.ListenAddrs()[0])
	standby := startStandby(t)
	mirrorOf(t, standby, mirror.Spec{Bootstrap: []string{p.ln.Addr().String()}})
	c := harness.Connect(t, kgo.SeedBrokers(one.ListenAddrs()...))
	if err := c.ProduceSync(harness.Context(t), &kgo.Record{Topic: "t", Value: []byte("x")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	c.Close()
	awaitEnd(t, standby, "t", 0, 1)
	two, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.ClusterID("two"), kfake.SeedTopics(1, "t"))
	if err != nil {
		t.Fatal(err)
	}
	defer two.Close()
	p.setTarget(two.ListenAddrs()[0])
	one.Close()
	part := awaitReason(t, standby, "t", 0, core.OtherCluster)
	if part.End != 1 {
		t.Errorf("partition: %+v", part)
	}
	harness.Eventually(t, "the mirror says which cluster it is", func() bool {
		st := status(t, standby)
		return st.State == "FAILED" && strings.Contains(st.Reason, `cluster "two"`) && strings.Contains(st.Reason, `"one"`)
	})
}

func TestSourceGap(t *testing.T) {
	for _, policy := range []string{"fail", "continue"} {
		t.Run(policy, func(t *testing.T) {
			source := harness.StartBroker(t)
			standby := startStandby(t)
			source.CreateTopic(t, "t", 1, nil)
			mirrorOf(t, standby, mirror.Spec{Bootstrap: []string{source.Addr}, Settings: map[string]string{"gap.policy": policy}})
			source.Produce(t, "t", 0, "0", "1")
			awaitEnd(t, standby, "t", 0, 2)
			if err := standby.Mirrors().Pause(harness.Context(t), "m"); err != nil {
				t.Fatal(err)
			}
			source.Produce(t, "t", 0, "2", "3", "4")
			offsets := kadm.Offsets{}
			offsets.Add(kadm.Offset{Topic: "t", Partition: 0, At: 4})
			if _, err := source.Admin(t).DeleteRecords(harness.Context(t), offsets); err != nil {
				t.Fatal(err)
			}
			if err := standby.Mirrors().Resume(harness.Context(t), "m"); err != nil {
				t.Fatal(err)
			}
			if policy == "fail" {
				p := awaitReason(t, standby, "t", 0, core.SourceGap)
				if p.End != 2 || !strings.Contains(p.Reason, "2-3") {
					t.Errorf("partition: %+v", p)
				}
				return
			}
			awaitEnd(t, standby, "t", 0, 5)
			if got := standby.Consume(t, "t", 0, 4, 1); got[0] != "4" {
				t.Errorf("reads %q", got)
			}
		})
	}
}

func TestSourceLogStartMovesOn(t *testing.T) {
	source := harness.StartBroker(t)
	standby := startStandby(t)
	source.CreateTopic(t, "t", 1, nil)
	mirrorOf(t, standby, mirror.Spec{Bootstrap: []string{source.Addr}})
	source.Produce(t, "t", 0, "0", "1", "2")
	awaitEnd(t, standby, "t", 0, 3)
	offsets := kadm.Offsets{}
	offsets.Add(kadm.Offset{Topic: "t", Partition: 0, At: 2})
	if _, err := source.Admin(t).DeleteRecords(harness.Context(t), offsets); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "the log start follows", func() bool { return statusOf(t, standby, "t", 0).Start == 2 })
	source.Produce(t, "t", 0, "3")
	awaitEnd(t, standby, "t", 0, 4)
	checkEqual(t, source.Client(t), standby.Client(t), compare.Options{}, "t")
}

// copyTree copies a folder.
func copyTree(t testing.TB, from, to string) {
	t.Helper()
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(from, path)
		if d.IsDir() {
			return os.MkdirAll(filepath.Join(to, rel), 0o755)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, rel), data, 0o644)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestSourcePartitionWithoutLeader: the status says that the source's partition has no
// leader and what helps there, and forgets it once somebody leads again.
func TestSourcePartitionWithoutLeader(t *testing.T) {
	c := harness.StartCluster(t, 2, harness.WithSetting("controlled.shutdown.enable", "false"))
	c.CreateTopic(t, "orders", []types.BrokerID{2}, nil)
	c.ProduceAll(t, "orders", kgo.AllISRAcks(), harness.Values("v", 3)...)
	standby := startStandby(t)
	mirrorOf(t, standby, mirror.Spec{Bootstrap: []string{c.Nodes[1].Addr}, Topics: "orders"})
	awaitEnd(t, standby, "orders", 0, 3)
	c.Nodes[2].Stop(t)
	p := awaitReason(t, standby, "orders", 0, core.SourceNoLeader)
	for _, want := range []string{"orders-0 of the source", "in-sync replicas [2]", "--bootstrap-server " + c.Nodes[1].Addr + " --election-type unclean --topic orders --partition 0"} {
		if !strings.Contains(p.Reason, want) {
			t.Errorf("%q lacks %q", p.Reason, want)
		}
	}
	c.Nodes[2] = c.Nodes[2].Restart(t)
	c.ProduceAll(t, "orders", kgo.AllISRAcks(), "again")
	awaitEnd(t, standby, "orders", 0, 4)
	if p := statusOf(t, standby, "orders", 0); p.State != meta.MirrorMirroring || p.Reason != "" {
		t.Errorf("with a leader again: %+v", p)
	}
}

// TestSourceLosesItsTail gives the source's partition back a state from before
// some records, as an unclean election does: the epoch goes on, the records don't.
func TestSourceLosesItsTail(t *testing.T) {
	source := harness.StartBroker(t)
	at := newProxy(t, source.Addr)
	standby := startStandby(t)
	source.CreateTopic(t, "t", 1, nil)
	mirrorOf(t, standby, mirror.Spec{Bootstrap: []string{at.ln.Addr().String()}})
	source.Produce(t, "t", 0, "0", "1")
	awaitEnd(t, standby, "t", 0, 2)
	source.Stop(t)
	before := t.TempDir()
	folder := filepath.Join(source.Dir, "t-0")
	copyTree(t, folder, before)

	source = source.Restart(t)
	at.setTarget(source.Addr)
	source.Produce(t, "t", 0, "2 lost", "3 lost")
	awaitEnd(t, standby, "t", 0, 4)
	commit(t, standby.Admin(t), "reader", "t", 4)
	source.Stop(t)
	if err := os.RemoveAll(folder); err != nil {
		t.Fatal(err)
	}
	copyTree(t, before, folder)

	source = source.Restart(t)
	at.setTarget(source.Addr)
	source.Produce(t, "t", 0, "2 new")
	awaitEnd(t, standby, "t", 0, 3)
	checkEqual(t, source.Client(t), standby.Client(t), compare.Options{}, "t")
	var cut, lowered mirror.Event
	for _, e := range standby.Mirrors().Events() {
		switch e.Kind {
		case "CUT":
			cut = e
		case "GROUP_CUT":
			lowered = e
		}
	}
	if cut.From != 2 || cut.To != 4 || cut.Records != 2 || cut.VaultID == "" || cut.OrderedBy != log.OrderedBySource {
		t.Errorf("cut: %+v", cut)
	}
	if lowered.From != 2 || lowered.To != 4 || committed(t, standby.Admin(t), "reader", "t", 0) != 2 {
		t.Errorf("group cut: %+v", lowered)
	}
	entries, err := standby.Vault().List()
	if err != nil || len(entries) != 1 || entries[0].OrderedBy != log.OrderedBySource {
		t.Errorf("vault: %+v, %v", entries, err)
	}
}

func TestStandbyRestartsUnderLoad(t *testing.T) {
	source := harness.StartBroker(t)
	standby := startStandby(t)
	source.CreateTopic(t, "t", 4, nil)
	mirrorOf(t, standby, mirror.Spec{Bootstrap: []string{source.Addr}})
	c := source.Client(t, kgo.RecordPartitioner(kgo.RoundRobinPartitioner()), kgo.DefaultProduceTopic("t"), kgo.ProducerBatchCompression(kgo.Lz4Compression()))
	for round := range 3 {
		for i := range 400 {
			c.Produce(harness.Context(t), kgo.StringRecord(fmt.Sprintf("%d-%d", round, i)), func(_ *kgo.Record, err error) {
				if err != nil {
					t.Errorf("produce: %v", err)
				}
			})
		}
		harness.Eventually(t, "something is mirrored", func() bool { return statusOf(t, standby, "t", 0).End > 0 })
		standby = standby.Restart(t)
	}
	if err := c.Flush(harness.Context(t)); err != nil {
		t.Fatal(err)
	}
	for p := range int32(4) {
		awaitEnd(t, standby, "t", p, 300)
	}
	checkEqual(t, source.Client(t), standby.Client(t), compare.Options{}, "t")
	checkVerify(t, standby)
}

func TestSourceLeadersMove(t *testing.T) {
	source, err := kfake.NewCluster(kfake.NumBrokers(3), kfake.SeedTopics(6, "t"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(source.Close)
	standby := startStandby(t)
	mirrorOf(t, standby, mirror.Spec{Bootstrap: source.ListenAddrs()})
	c := harness.Connect(t, kgo.SeedBrokers(source.ListenAddrs()...), kgo.RecordPartitioner(kgo.RoundRobinPartitioner()), kgo.DefaultProduceTopic("t"))
	for range 5 {
		for i := range 60 {
			if err := c.ProduceSync(harness.Context(t), kgo.StringRecord(fmt.Sprint(i))).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		source.ShufflePartitionLeaders()
	}
	for p := range int32(6) {
		awaitEnd(t, standby, "t", p, 50)
	}
	checkEqual(t, c, standby.Client(t), compare.Options{}, "t")
}

func TestRefusedSources(t *testing.T) {
	standby := startStandby(t)
	for _, tc := range []struct {
		name string
		spec mirror.Spec
		want string
	}{
		{"no address", mirror.Spec{Name: "x"}, "names no broker"},
		{"bad expression", mirror.Spec{Name: "x", Bootstrap: []string{"h:1"}, Topics: "("}, "RE2"},
		{"unknown property", mirror.Spec{Name: "x", Bootstrap: []string{"h:1"}, ClientConfig: map[string]string{"securty.protocol": "SSL"}}, "security.protocol"},
		{"unknown setting", mirror.Spec{Name: "x", Bootstrap: []string{"h:1"}, Settings: map[string]string{"gap": "fail"}}, "gap.policy"},
		{"bad setting", mirror.Spec{Name: "x", Bootstrap: []string{"h:1"}, Settings: map[string]string{"gap.policy": "maybe"}}, "maybe"},
		{"bad name", mirror.Spec{Name: "a b", Bootstrap: []string{"h:1"}}, "mirror name"},
	} {
		if err := standby.Mirrors().Create(harness.Context(t), tc.spec); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want %q", tc.name, err, tc.want)
		}
	}
	mirrorOf(t, standby, mirror.Spec{Bootstrap: []string{standby.Addr}})
	harness.Eventually(t, "a mirror of itself is refused", func() bool { return strings.Contains(status(t, standby).Reason, "this cluster itself") })
}

// A mirror whose source moved, or wants another password, goes on with the
// addresses and properties that the restarted standby was given; what it
// mirrors stays as it was, and that is said.
func TestMirrorReconnects(t *testing.T) {
	source := harness.StartBroker(t)
	standby := startStandby(t)
	source.CreateTopic(t, "moved", 1, nil)
	produceTo(t, source.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner())), "moved", 0, "a", "b")
	mirrorOf(t, standby, mirror.Spec{Bootstrap: []string{"127.0.0.1:1"}, Topics: "moved"})
	f := func(spec mirror.Spec, want ...string) {
		t.Helper()
		spec.Name = "m"
		words, err := standby.Mirrors().Reconnect(harness.Context(t), spec)
		if err != nil || len(words) != len(want) {
			t.Fatalf("%+v: %q, %v, want %q", spec, words, err, want)
		}
		for i := range want {
			if !strings.Contains(words[i], want[i]) {
				t.Errorf("%+v: %q, want %q", spec, words, want)
			}
		}
	}
	f(mirror.Spec{Bootstrap: []string{"127.0.0.1:1"}, Topics: "moved"})
	f(mirror.Spec{Bootstrap: []string{source.Addr}, Topics: "mo.*", Groups: "g"}, `topics stays "moved"`, `groups stays ""`, "addresses or client properties are changed")
	awaitEnd(t, standby, "moved", 0, 2)
	if _, err := standby.Mirrors().Reconnect(harness.Context(t), mirror.Spec{Name: "m", Bootstrap: []string{"nowhere"}}); !errors.Is(err, mirror.ErrSpec) {
		t.Errorf("a bad address: %v", err)
	}
}
