package e2e

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"tidemark/internal/cli"
	"tidemark/internal/console"
	"tidemark/internal/core/types"
	"tidemark/test/e2e/harness"
)

// trio is a cluster of three nodes that keep its metadata themselves.
type trio struct {
	t     *testing.T
	nodes map[int]*harness.Broker
	apis  map[int]*console.Server
}

func newTrio(t *testing.T) *trio {
	c := &trio{t: t, nodes: make(map[int]*harness.Broker), apis: make(map[int]*console.Server)}
	c.start(1, "")
	c.start(2, "")
	c.start(3, "")
	return c
}

// start starts a node on a folder (empty: a new one); all but the first join it.
func (c *trio) start(id int, dir string) *harness.Broker {
	c.t.Helper()
	opts := []harness.Option{harness.WithSetting("node.id", string(rune('0'+id))), harness.WithSetting("min.insync.replicas", "2")}
	if dir != "" {
		opts = append(opts, harness.WithDir(dir))
	}
	if id > 1 {
		opts = append(opts, harness.WithSetting("metadata.join", c.apis[1].Addr()))
	}
	b := harness.StartBroker(c.t, opts...)
	c.nodes[id], c.apis[id] = b, serveAPI(c.t, b)
	return b
}

func (c *trio) awaitVoters(n int) {
	c.t.Helper()
	harness.Eventually(c.t, "all nodes are voters", func() bool {
		all, err := c.nodes[1].Members(harness.Context(c.t))
		voters := 0
		for _, m := range all {
			if !m.Learner && m.Healthy {
				voters++
			}
		}
		return err == nil && voters == n
	})
}

// tidemark runs a command against node 1 and gives what it printed.
func (c *trio) tidemark(args ...string) string {
	c.t.Helper()
	out, code := c.try(args...)
	if code != 0 {
		c.t.Fatalf("tidemark %s: exit %d\n%s", strings.Join(args, " "), code, out)
	}
	return out
}

func (c *trio) try(args ...string) (string, int) {
	c.t.Helper()
	var out bytes.Buffer
	c.t.Setenv("TIDEMARK_API", "http://"+c.apis[1].Addr())
	code := cli.Main(args, cli.Streams{In: strings.NewReader(""), Out: &out, Err: &out})
	return out.String(), code
}

func (c *trio) produce(topic string, values ...string) {
	c.t.Helper()
	cl := c.nodes[1].Client(c.t, kgo.RequiredAcks(kgo.AllISRAcks()))
	var records []*kgo.Record
	for _, v := range values {
		records = append(records, &kgo.Record{Topic: topic, Value: []byte(v)})
	}
	if err := cl.ProduceSync(harness.Context(c.t), records...).FirstErr(); err != nil {
		c.t.Fatal(err)
	}
}

func (c *trio) awaitISR(topic string, n int) {
	c.t.Helper()
	harness.Eventually(c.t, "all replicas are in sync", func() bool {
		r := c.nodes[1].RecordOf(topic, 0)
		return r != nil && len(r.ISR) == n
	})
}

// TestRestoreOfOlderMetadata: after a backup the leader moves twice and records
// are written; then the metadata is lost and the backup put back. Nothing that was acknowledged is
// missing, epochs go on above all that were used, and a topic made since is kept aside.
func TestRestoreOfOlderMetadata(t *testing.T) {
	c := newTrio(t)
	c.awaitVoters(3)
	if _, err := c.nodes[1].Admin(t).CreateTopic(harness.Context(t), 1, 3, nil, "kept"); err != nil {
		t.Fatal(err)
	}
	c.produce("kept", "a", "b")
	file := filepath.Join(t.TempDir(), "metadata.backup")
	if out := c.tidemark("cluster", "backup", file); !strings.Contains(out, "checked") {
		t.Errorf("backup says %q", out)
	}
	if _, code := c.try("cluster", "backup", file); code == 0 {
		t.Error("a backup overwrote another one unasked")
	}
	before := c.nodes[1].RecordOf("kept", 0).LeaderEpoch
	for range 2 { // elections that the backup doesn't know
		led := int(c.nodes[1].RecordOf("kept", 0).Leader)
		if led == 1 {
			led = 2 // whose restart moves nothing; node 1 answers the commands
		}
		dir := c.nodes[led].Dir
		c.nodes[led].Stop(t)
		c.produce("kept", "c")
		c.start(led, dir)
		c.awaitISR("kept", 3)
	}
	c.produce("kept", "d")
	if _, err := c.nodes[1].Admin(t).CreateTopic(harness.Context(t), 1, 3, nil, "since"); err != nil {
		t.Fatal(err)
	}
	c.produce("since", "x")
	used := c.nodes[1].RecordOf("kept", 0).LeaderEpoch
	t.Logf("leader epoch %d at the backup, %d at its restore", before, used)

	dirs := make(map[int]string)
	for _, id := range []int{3, 2, 1} {
		dirs[id] = c.nodes[id].Dir
		c.nodes[id].Stop(t)
	}
	restore := []string{"cluster", "restore", file, "--node-id", "1", "--data-dir", dirs[1]}
	if out, code := c.try(restore...); code == 0 || !strings.Contains(out, "--yes") {
		t.Errorf("unasked: %d, %s", code, out)
	}
	if out, code := c.try("cluster", "restore", file, "--node-id", "1", "--data-dir", dirs[2], "--yes"); code == 0 || !strings.Contains(out, "belongs to node 2") {
		t.Errorf("another node's folder: %d, %s", code, out)
	}
	if out := c.tidemark(append(restore, "--yes")...); !strings.Contains(out, "1 topics, 1 partitions") || !strings.Contains(out, "before-restore-") {
		t.Errorf("restore says %s", out)
	}
	c.start(1, dirs[1])
	if r := c.nodes[1].RecordOf("kept", 0); r == nil || r.Leader != types.NoBroker || !r.Restored {
		t.Errorf("before the others are back: %+v", r)
	}
	if out := c.tidemark("cluster", "status"); !strings.Contains(out, "wait for nodes 2, 3") {
		t.Errorf("status says %s", out)
	}
	for _, id := range []int{2, 3} {
		if err := os.RemoveAll(filepath.Join(dirs[id], "metadata")); err != nil {
			t.Fatal(err)
		}
		c.start(id, dirs[id])
	}
	c.awaitISR("kept", 3)
	after := c.nodes[1].RecordOf("kept", 0)
	if after.LeaderEpoch <= used || len(after.Timelines) != 2 {
		t.Errorf("led in epoch %d after %d, timelines %v", after.LeaderEpoch, used, after.Timelines)
	}
	c.produce("kept", "e")
	got := strings.Join(c.nodes[1].Consume(t, "kept", 0, 0, 6), " ")
	if got != "a b c c d e" {
		t.Errorf("records %s", got)
	}
	for id, b := range c.nodes {
		if strays, err := filepath.Glob(filepath.Join(b.Dir, "since-0.*-stray")); err != nil || len(strays) != 1 {
			t.Errorf("node %d: strays %v, %v", id, strays, err)
		}
	}
}

// TestReplaceALostNode: a machine is gone for good; another one takes its id, and
// copies what it held from the others before it counts for anything.
func TestReplaceALostNode(t *testing.T) {
	c := newTrio(t)
	c.awaitVoters(3)
	if _, err := c.nodes[1].Admin(t).CreateTopic(harness.Context(t), 1, 3, nil, "a"); err != nil {
		t.Fatal(err)
	}
	c.produce("a", "x", "y")
	c.awaitISR("a", 3)
	if out, code := c.try("cluster", "replace", "3", "--yes"); code == 0 || !strings.Contains(out, "it is registered") {
		t.Errorf("a node that lives: %d, %s", code, out)
	}
	old := c.nodes[3].Dir
	c.nodes[3].Stop(t)
	harness.Eventually(t, "the node is gone", func() bool { return known(c.nodes[1]) == 2 })
	c.produce("a", "z")

	_, err := harness.TryBroker(t, harness.WithSetting("node.id", "3"), harness.WithSetting("metadata.join", c.apis[1].Addr()))
	if err == nil || !strings.Contains(err.Error(), "tidemark cluster replace 3") {
		t.Errorf("an empty folder with a known id: %v", err)
	}
	out := c.tidemark("cluster", "replace", "3", "--yes")
	if !strings.Contains(out, "--node-id 3") || !strings.Contains(out, "partitions will be copied") {
		t.Errorf("replace says %s", out)
	}
	if all, err := c.nodes[1].Members(harness.Context(t)); err != nil || len(all) != 2 {
		t.Errorf("members %+v, %v", all, err)
	}
	c.tidemark("cluster", "replace", "3", "--yes") // again: the same
	if out := c.tidemark("cluster", "status"); !strings.Contains(out, "awaits a new machine") {
		t.Errorf("status says %s", out)
	}
	c.start(3, "")
	c.awaitVoters(3)
	c.awaitISR("a", 3)
	c.nodes[3].AwaitEnd(t, "a", 3)
	c.nodes[3].Stop(t)
	if _, err := harness.TryBroker(t, harness.WithSetting("node.id", "3"), harness.WithDir(old)); err == nil || !strings.Contains(err.Error(), "removed from the cluster") {
		t.Errorf("the lost node's folders, found again: %v", err)
	}
}
