//go:build kafka

package kafka_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/test/kafka/cluster"
	"tidemark/test/relay"
)

// javaMember is Java's consumer in the new protocol (KIP-848), as a process that reads until it is ended.
type javaMember struct {
	cmd  *exec.Cmd
	done chan error

	mu     sync.Mutex // guards the following
	values []string
	errOut bytes.Buffer
}

func startJavaMember(ctx context.Context, t *testing.T, bootstrap, group, topic string, properties ...string) *javaMember {
	t.Helper()
	args := []string{"--bootstrap-server", bootstrap, "--group", group, "--topic", topic, "--from-beginning"}
	for _, p := range append([]string{"group.protocol=consumer", "auto.commit.interval.ms=200", "reconnect.backoff.max.ms=200", "client.id=java-member"}, properties...) {
		args = append(args, "--command-property", p)
	}
	m := &javaMember{cmd: cluster.Java(ctx, t, "org.apache.kafka.tools.consumer.ConsoleConsumer", args...), done: make(chan error, 1)}
	out, err := m.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	m.cmd.Stderr = &lockedWriter{mu: &m.mu, to: &m.errOut}
	if err := m.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if v := lines.Text(); strings.HasPrefix(v, "v") {
				m.mu.Lock()
				m.values = append(m.values, v)
				m.mu.Unlock()
			}
		}
		m.done <- m.cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = m.cmd.Process.Kill()
		if t.Failed() {
			m.mu.Lock()
			defer m.mu.Unlock()
			t.Logf("a Java member has read %d and says\n%.4000s", len(m.values), m.errOut.String())
		}
	})
	return m
}

type lockedWriter struct {
	mu *sync.Mutex
	to *bytes.Buffer
}

func (w *lockedWriter) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.to.Write(b)
}

func (m *javaMember) read() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.values)
}

// end lets the consumer leave its group.
func (m *javaMember) end(t *testing.T) {
	t.Helper()
	_ = m.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-m.done:
	case <-time.After(leastPatience):
		t.Error("a Java member doesn't end")
	}
}

// runs fails if the consumer has ended.
func (m *javaMember) runs() error {
	select {
	case err := <-m.done:
		m.done <- err
		return fmt.Errorf("a Java member has ended: %w", errors.Join(err, errEnded))
	default:
		return nil
	}
}

var errEnded = errors.New("nobody ended it")

// awaitRead waits until the members together have read each of the values at least once, and gives what was read twice.
func awaitRead(t *testing.T, what string, members []*javaMember, want int) (twice []string) {
	t.Helper()
	eventually(t, 2*time.Minute, what, func() error {
		seen := map[string]int{}
		for _, m := range members {
			if err := m.runs(); err != nil {
				t.Fatal(err)
			}
			for _, v := range m.read() {
				seen[v]++
			}
		}
		twice = twice[:0]
		for v, n := range seen {
			if n > 1 {
				twice = append(twice, v)
			}
		}
		if len(seen) != want {
			return fmt.Errorf("%d of %d are read", len(seen), want)
		}
		return nil
	})
	return twice
}

// produceValues writes v<from> to v<to-1> into the partitions of a topic in turn.
func produceValues(ctx context.Context, t *testing.T, cl *kgo.Client, topic string, partitions, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		cl.Produce(ctx, &kgo.Record{Topic: topic, Partition: int32(i % partitions), Value: fmt.Appendf(nil, "v%d", i)}, nil)
	}
	if err := cl.Flush(ctx); err != nil {
		t.Fatal(err)
	}
}

// groupMembers gives how many partitions each member of a stable group of the new protocol has.
func groupMembers(ctx context.Context, cl *kgo.Client, group string) ([]int, error) {
	req := kmsg.NewPtrConsumerGroupDescribeRequest()
	req.Groups = []string{group}
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return nil, err
	}
	g := resp.Groups[0]
	if g.ErrorCode != 0 || g.State != "Stable" {
		return nil, fmt.Errorf("%s %s", codeName(g.ErrorCode), g.State)
	}
	var all []int
	for _, m := range g.Members {
		all = append(all, partitionCount(m.Assignment))
	}
	slices.Sort(all)
	return all, nil
}

func awaitMembers(ctx context.Context, t *testing.T, cl *kgo.Client, group string, want ...int) {
	t.Helper()
	eventually(t, 2*time.Minute, fmt.Sprintf("the members have %v partitions", want), func() error {
		all, err := groupMembers(ctx, cl, group)
		if err == nil && !slices.Equal(all, want) {
			err = fmt.Errorf("they have %v", all)
		}
		return err
	})
}

func partitioned() kgo.Opt { return kgo.RecordPartitioner(kgo.ManualPartitioner()) }

// TestNewProtocolGoesOnAfterTheFailover: Java's consumers of the new protocol know one address. Their Kafka dies, its
// standby is promoted, the address points at it: no consumer is restarted, and each record is read once. One of them
// sees the outage, and one sees only that its connections end, all at once, and that the next ones lead elsewhere.
func TestNewProtocolGoesOnAfterTheFailover(t *testing.T) {
	const partitions, before, all = 4, 200, 300
	ctx := testContext(t, 5*time.Minute)
	front := relay.Start(t)
	kafka := cluster.Start(t, cluster.Options{Advertised: []int{front.Port()}})
	front.Point(fmt.Sprintf("127.0.0.1:%d", kafka.Node(1).Port))
	behind := fmt.Sprintf("127.0.0.1:%d", kafka.Node(1).Internal)
	source := client(t, behind, partitioned())
	createTopic(ctx, t, source, "orders", partitions, 1)
	standby := startStandby(t, behind, "--advertise", front.Addr(), "--set", "group.consumer.heartbeat.interval.ms=500")
	var members []*javaMember
	for range 2 {
		members = append(members, startJavaMember(ctx, t, front.Addr(), "readers", "orders"))
	}
	awaitMembers(ctx, t, source, "readers", 2, 2)
	produceValues(ctx, t, source, "orders", partitions, 0, before)
	awaitRead(t, "all is read at the source", members, before)
	standby.waitCaughtUp(time.Minute, ends(ctx, t, source, "orders"))
	// Asked by hand: the standby tells clients the one address, which is still the source's.
	direct := &contender{name: "Tidemark", addr: map[int32]string{1: standby.kafka}, conns: map[int32]net.Conn{}}
	fetch := kmsg.NewPtrOffsetFetchRequest()
	fetch.Groups = []kmsg.OffsetFetchRequestGroup{{Group: "readers", MemberEpoch: -1}}
	fetch.SetVersion(8)
	eventually(t, time.Minute, "the standby has the group's offsets", func() error {
		resp, err := direct.ask(1, fetch)
		if err != nil {
			return err
		}
		known := 0
		for _, topic := range resp.(*kmsg.OffsetFetchResponse).Groups[0].Topics {
			for _, p := range topic.Partitions {
				if p.Offset == before/partitions {
					known++
				}
			}
		}
		if known != partitions {
			return fmt.Errorf("%+v", resp)
		}
		return nil
	})

	if err := members[1].cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	kafka.KillAll()
	standby.failover()
	front.Point(standby.kafka)
	if err := members[1].cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	promoted := client(t, standby.kafka, partitioned())
	// What a member reads before it hears that it is none here, it reads again: at least once.
	awaitMembers(ctx, t, promoted, "readers", 2, 2)
	produceValues(ctx, t, promoted, "orders", partitions, before, all)
	if twice := awaitRead(t, "all is read at the standby", members, all); len(twice) > 0 {
		t.Errorf("read twice: %v", twice)
	}
	for _, m := range members {
		m.end(t)
	}
	eventually(t, time.Minute, "the group is empty", func() error {
		listed, err := kadm.NewClient(promoted).ListGroups(ctx)
		if err != nil || listed["readers"].State != "Empty" || listed["readers"].GroupType != "consumer" {
			return fmt.Errorf("%+v: %w", listed["readers"], err)
		}
		return nil
	})
}

// TestNewProtocolOutlivesItsCoordinator: of three nodes the one that coordinates a group of Java's consumers is killed.
// The group goes on at another, with the members that it had.
func TestNewProtocolOutlivesItsCoordinator(t *testing.T) {
	const partitions, before, all = 6, 120, 240
	ctx := testContext(t, 5*time.Minute)
	nodes := growNodes(t)
	var addrs []string
	for _, n := range nodes {
		addrs = append(addrs, n.kafka)
	}
	cl := client(t, strings.Join(addrs, ","), partitioned())
	createTopic(ctx, t, cl, "lives", partitions, 3, "min.insync.replicas", "1")
	var members []*javaMember
	for range 2 {
		members = append(members, startJavaMember(ctx, t, strings.Join(addrs, ","), "readers", "lives"))
	}
	awaitMembers(ctx, t, cl, "readers", 3, 3)
	produceValues(ctx, t, cl, "lives", partitions, 0, before)
	awaitRead(t, "all is read", members, before)
	eventually(t, time.Minute, "the offsets topic has three replicas in sync", func() error {
		if _, isr := replicasOf(ctx, t, cl, "__consumer_offsets"); len(isr) != 3 {
			return fmt.Errorf("in sync %v", isr)
		}
		return nil
	})
	found := kadm.NewClient(cl).FindGroupCoordinators(ctx, "readers")["readers"]
	if found.Err != nil {
		t.Fatal(found.Err)
	}
	nodes[found.NodeID].kill()
	produceValues(ctx, t, cl, "lives", partitions, before, all)
	awaitRead(t, "what comes later is read", members, all)
	awaitMembers(ctx, t, cl, "readers", 3, 3)
}

// TestNewProtocolTools: Kafka's own tools show, reset and delete a group of the new protocol, and read its records.
func TestNewProtocolTools(t *testing.T) {
	const class = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
	ctx := testContext(t, 4*time.Minute)
	n := startNode(t, "serve", "--set", "offsets.topic.num.partitions=1", "--set", "group.consumer.session.timeout.ms=20000", "--set", "group.consumer.heartbeat.interval.ms=1000")
	cl := client(t, n.kafka, partitioned())
	createTopic(ctx, t, cl, "shown", 4, 1)
	produceValues(ctx, t, cl, "shown", 4, 0, 40)
	m := startJavaMember(ctx, t, n.kafka, "readers", "shown", "group.instance.id=inst", "group.remote.assignor=range")
	awaitRead(t, "all is read", []*javaMember{m}, 40)
	run := func(args ...string) string {
		t.Helper()
		return tool(ctx, t, class, append([]string{"--bootstrap-server", n.kafka}, args...)...)
	}
	eventually(t, time.Minute, "the offsets are committed", func() error {
		offsets, err := kadm.NewClient(cl).FetchOffsets(ctx, "readers")
		if o, _ := offsets.Lookup("shown", 3); err != nil || o.At != 10 {
			return fmt.Errorf("at %d: %w", o.At, err)
		}
		return nil
	})
	mustSay(t, "--list --type", run("--list", "--type", "consumer"), `(?m)^readers\b`)
	mustSay(t, "--list --state", run("--list", "--state"), `(?m)^readers\s+Stable`)
	mustSay(t, "--describe", run("--describe", "--group", "readers"), `readers\s+shown\s+3\s+.*10\s+10\s+0\s.*java-member`)
	mustSay(t, "--describe --members", run("--describe", "--group", "readers", "--members", "--verbose"), `inst.*java-member.*shown:0,1,2,3`)
	mustSay(t, "--describe --state", run("--describe", "--group", "readers", "--state", "--verbose"), `range\s+Stable\s+2\s+2\s+1`)
	out, err := cluster.RunJava(ctx, t, class, "--bootstrap-server", n.kafka, "--delete", "--group", "readers")
	if err == nil && !strings.Contains(out, "GroupNotEmptyException") {
		t.Errorf("a group with a member is deleted: %s", out)
	}
	m.end(t)
	logs, err := filepath.Glob(filepath.Join(n.dir, "*", "__consumer_offsets-0", "*.log"))
	if more, _ := filepath.Glob(filepath.Join(n.dir, "__consumer_offsets-0", "*.log")); len(logs) == 0 {
		logs = more
	}
	if err != nil || len(logs) == 0 {
		t.Fatalf("no log of the offsets topic: %v", err)
	}
	dump := tool(ctx, t, "org.apache.kafka.tools.DumpLogSegments", "--offsets-decoder", "--files", strings.Join(logs, ","))
	mustSay(t, "the dump", dump, `"type":"3","data":\{"groupId":"readers"`, `"epoch":2`, `"instanceId":"inst"`, `"subscribedTopicNames":\["shown"\]`,
		`"assignmentEpoch":2`, `"memberEpoch":2,"previousMemberEpoch":0,"state":1`, `"assignmentEpochs":\[2,2,2,2\]`)
	// A static member that ends is away for its session: an operator takes the group apart once that is over.
	eventually(t, 2*time.Minute, "the group is empty", func() error {
		if d, err := kadm.NewClient(cl).ListGroups(ctx); err != nil || d["readers"].State != "Empty" {
			return fmt.Errorf("%+v: %w", d["readers"], err)
		}
		return nil
	})
	mustSay(t, "--reset-offsets", run("--group", "readers", "--reset-offsets", "--to-earliest", "--topic", "shown", "--execute"), `readers\s+shown\s+0\s+0`)
	mustSay(t, "--delete", run("--delete", "--group", "readers"), `successful`)
}
