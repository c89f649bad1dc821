package e2e

import (
	"crypto/rand"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"tidemark/internal/core/types"
	"tidemark/test/e2e/harness"
)

// TestRecordsOutliveFilesLostWhileStopped: three nodes stop cleanly, and the last of
// them loses files of a partition while it is down. Elected for its clean-shutdown mark,
// it led with what was left, and the others cut theirs to that: every acknowledged record
// was gone (R11).
func TestRecordsOutliveFilesLostWhileStopped(t *testing.T) {
	f := func(name string, harm func(segments []string) error) {
		t.Run(name, func(t *testing.T) {
			c := harness.StartCluster(t, 3, harness.WithSetting("log.segment.bytes", "16384"))
			c.CreateTopic(t, "orders", three, map[string]string{"min.insync.replicas": "2"})
			c.CreateTopic(t, "alone", []types.BrokerID{1}, nil)
			want := make([]string, 60)
			for i := range want { // nothing that compresses: the records fill several segments
				b := make([]byte, 1000)
				_, _ = rand.Read(b)
				want[i] = string(b)
			}
			for batch := range slices.Chunk(want, 5) {
				c.ProduceAll(t, "orders", kgo.AllISRAcks(), batch...)
			}
			c.AwaitEqual(t, "orders", three...)
			for _, id := range []types.BrokerID{3, 2, 1} {
				c.Nodes[id].Stop(t)
			}
			segments, err := filepath.Glob(filepath.Join(c.Nodes[1].Dir, "orders-0", "*.log"))
			if err != nil || len(segments) < 3 {
				t.Fatalf("segments %v, %v", segments, err)
			}
			if err := harm(segments); err != nil {
				t.Fatal(err)
			}
			c.Restart(t, 1).AwaitServed(t, "alone") // the controller has held elections
			e, _ := c.Nodes[1].BrokerEpoch()
			if r := c.Nodes[1].RecordOf("orders", 0); r.Leader == 1 && r.LeaderBrokerEpoch == e {
				t.Error("the node that has lost files leads")
			}
			c.Restart(t, 2)
			c.Restart(t, 3)
			c.AwaitISR(t, "orders", three...)
			if got := c.Nodes[2].Consume(t, "orders", 0, 0, len(want)); !slices.Equal(got, want) {
				t.Errorf("read %d records", len(got))
			}
			c.AwaitEqual(t, "orders", three...)
		})
	}
	f("folder", func(s []string) error { return os.RemoveAll(filepath.Dir(s[0])) })
	f("emptied last segment", func(s []string) error { return os.Truncate(s[len(s)-1], 0) })
	// Records that are missing at the front aren't seen by who follows at the end.
	f("first segment", func(s []string) error { return os.Remove(s[0]) })
	f("emptied second segment", func(s []string) error { return os.Truncate(s[1], 0) })
}
