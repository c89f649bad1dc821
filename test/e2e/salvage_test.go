package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"

	"tidemark/internal/console"
	"tidemark/internal/core/types"
	"tidemark/test/e2e/harness"
)

// TestRestoreWithoutBackup: the only node's metadata loses its log, later its
// database too, and nobody has made a backup. The node says how to go on; the first way keeps all that the
// database had, the second every record and group offset.
func TestRestoreWithoutBackup(t *testing.T) {
	c := &single{trio: trio{t: t, nodes: make(map[int]*harness.Broker), apis: make(map[int]*console.Server)}}
	c.start(1, "")
	adm := c.nodes[1].Admin(t)
	week := "604800001"
	if _, err := adm.CreateTopic(harness.Context(t), 1, 1, map[string]*string{"retention.ms": &week}, "kept"); err != nil {
		t.Fatal(err)
	}
	c.produce("kept", "a", "b")
	commit := make(kadm.Offsets)
	commit.AddOffset("kept", 0, 1, -1)
	if err := adm.CommitAllOffsets(harness.Context(t), "readers", commit); err != nil {
		t.Fatal(err)
	}
	id := c.topicID()

	member := filepath.Join(c.stop(), "metadata", "etcd", "member")
	discard(t, filepath.Join(member, "wal"))
	if why := c.refused(); !strings.Contains(why, "--from-database") {
		t.Errorf("without its log: %s", why)
	}
	if out := c.restore("--from-database"); !strings.Contains(out, "restored cluster") || !strings.Contains(out, "before-restore-") {
		t.Errorf("restore says %s", out)
	}
	c.start(1, c.dir)
	c.check(id, week, "a b", "c")

	discard(t, filepath.Join(c.stop(), "metadata", "etcd"))
	if why := c.refused(); !strings.Contains(why, "--from-folders") {
		t.Errorf("without any metadata: %s", why)
	}
	if out, code := c.try("cluster", "restore", "--from-database", "--node-id", "1", "--data-dir", c.dir, "--yes"); code == 0 || !strings.Contains(out, "--from-folders") {
		t.Errorf("from an empty database: %d, %s", code, out)
	}
	c.restore("--from-folders")
	c.start(1, c.dir)
	c.check(id, "-1", "a b c", "d")
}

// single is a cluster of one node, whose folder outlives its processes.
type single struct {
	trio
	dir string
}

func (c *single) stop() string {
	c.t.Helper()
	c.dir = c.nodes[1].Dir
	c.nodes[1].Stop(c.t)
	return c.dir
}

// refused gives why the node doesn't start on its folder.
func (c *single) refused() string {
	c.t.Helper()
	b, err := harness.TryBroker(c.t, harness.WithSetting("node.id", "1"), harness.WithSetting("min.insync.replicas", "2"), harness.WithDir(c.dir))
	if err == nil {
		b.Stop(c.t)
		c.t.Fatal("it started")
	}
	return err.Error()
}

func (c *single) restore(way string) string {
	c.t.Helper()
	return c.tidemark("cluster", "restore", way, "--node-id", "1", "--data-dir", c.dir, "--yes")
}

func (c *single) topicID() types.TopicID {
	c.t.Helper()
	t, ok := c.nodes[1].Image().TopicByName("kept")
	if !ok {
		c.t.Fatal("the topic isn't there")
	}
	return t.ID
}

// check: the topic is the same, with its records and offsets, and takes another record.
func (c *single) check(id types.TopicID, retention, records, next string) {
	c.t.Helper()
	c.nodes[1].AwaitServed(c.t, "kept")
	if got := c.topicID(); got != id {
		c.t.Errorf("topic id %s, it was %s", got, id)
	}
	if t, _ := c.nodes[1].Image().TopicByName("kept"); t.Record.Configs["retention.ms"] != retention {
		c.t.Errorf("settings %v, want retention.ms=%s", t.Record.Configs, retention)
	}
	c.produce("kept", next)
	want := records + " " + next
	if got := strings.Join(c.nodes[1].Consume(c.t, "kept", 0, 0, len(strings.Fields(want))), " "); got != want {
		c.t.Errorf("records %q, want %q", got, want)
	}
	harness.Eventually(c.t, "the group's offset is read back", func() bool {
		got, err := c.nodes[1].Admin(c.t).FetchOffsets(harness.Context(c.t), "readers")
		o, ok := got.Lookup("kept", 0)
		return err == nil && ok && o.At == 1
	})
}

func discard(t *testing.T, path string) {
	t.Helper()
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
}
