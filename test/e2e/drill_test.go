package e2e

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"tidemark/internal/broker/mirror"
	"tidemark/internal/compare"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/test/e2e/harness"
)

// forkFolders are the folders of a node's log dir whose names say that they are, or
// were to be, a drill's.
func forkFolders(t testing.TB, b *harness.Broker) []string {
	t.Helper()
	entries, err := os.ReadDir(b.Dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "drill.") || strings.HasSuffix(e.Name(), ".fork") {
			out = append(out, e.Name())
		}
	}
	return out
}

// values reads what a partition has from the beginning, as a consumer of committed records.
func values(t testing.TB, b *harness.Broker, topic string, partition int32, n int) []string {
	t.Helper()
	c := b.Client(t, kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {partition: kgo.NewOffset().AtStart()}}))
	defer c.Close()
	var got []string
	for ctx := harness.Context(t); len(got) < n; {
		fetches := c.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			t.Fatalf("%s-%d: got %d of %d records: %v", topic, partition, len(got), n, err)
		}
		fetches.EachRecord(func(r *kgo.Record) { got = append(got, string(r.Value)) })
	}
	return got
}

// TestDrill plays a failover on a fork: the fork has the mirror's records and groups
// and takes writes; the mirror's files have the bytes they had, and it goes on.
func TestDrill(t *testing.T) {
	src := harness.StartBroker(t)
	src.CreateTopic(t, "orders", 2, map[string]string{"segment.bytes": "1000", "retention.ms": "-1"})
	src.CreateTopic(t, "left", 1, nil)
	src.Produce(t, "orders", 0, harness.Values("a", 40)...)
	src.Produce(t, "orders", 1, harness.Values("b", 5)...)
	commit(t, src.Admin(t), "readers", "orders", 30, 2)
	standby := startStandby(t)
	mirrorOf(t, standby, mirror.Spec{Bootstrap: []string{src.Addr}})
	awaitEnd(t, standby, "orders", 0, 40)
	awaitEnd(t, standby, "orders", 1, 5)
	awaitEnd(t, standby, "left", 0, 0)
	adm := standby.Admin(t)
	harness.Eventually(t, "the group is here", func() bool {
		return committed(t, adm, "readers", "orders", 0) == 30 && committed(t, adm, "readers", "orders", 1) == 2
	})
	op := operate(t, standby)

	if _, says := op.run("mirror", "drill", "m", "friday", "--topics", "orders", "--dry-run"); !strings.Contains(says, "2 partitions of 1 topics would be forked under drill.friday.") {
		t.Errorf("the dry run says %q", says)
	}
	if left := forkFolders(t, standby); len(left) > 0 {
		t.Errorf("the dry run left %v", left)
	}
	before := [][]byte{standby.LogBytes(t, "orders", 0), standby.LogBytes(t, "orders", 1)}
	var report mirror.DrillReport
	op.json(&report, "mirror", "drill", "m", "friday", "--topics", "orders")
	checkDrill(t, report, 2)
	if report.CopiedBytes > 0 || report.LinkedBytes != int64(len(before[0])+len(before[1])) {
		t.Errorf("%d bytes linked, %d copied of %d", report.LinkedBytes, report.CopiedBytes, len(before[0])+len(before[1]))
	}
	if report.Loss == nil || report.Loss.Records != 0 || report.Partitions[0].End != 40 || report.Partitions[0].Loss == nil {
		t.Errorf("the loss: %+v, %+v", report.Loss, report.Partitions)
	}
	if len(report.Groups) != 1 || report.Groups[0] != (mirror.DrillGroup{Group: "drill.friday.readers", Of: "readers", Offsets: 2}) {
		t.Errorf("groups: %+v", report.Groups)
	}
	if at := committed(t, standby.Admin(t), "drill.friday.readers", "drill.friday.orders", 0); at != 30 {
		t.Errorf("the fork's group is at %d", at)
	}
	got := values(t, standby, "drill.friday.orders", 0, 41)
	if !slices.Equal(got[:40], harness.Values("a", 40)) || !strings.HasPrefix(got[40], "drill ") {
		t.Errorf("the fork holds %q", got)
	}
	standby.Produce(t, "drill.friday.orders", 0, harness.Values("drilled", 60)...)
	for p, want := range before {
		if !bytes.Equal(standby.LogBytes(t, "orders", int32(p)), want) {
			t.Errorf("the drill changed the mirror's partition %d", p)
		}
	}
	src.Produce(t, "orders", 0, harness.Values("more", 40)...)
	awaitEnd(t, standby, "orders", 0, 80)
	checkEqual(t, src.Client(t), standby.Client(t), compare.Options{}, "orders")
	checkVerify(t, standby)
	if says := op.fails("mirror", "drill", "m", "friday"); !strings.Contains(says, "exists") {
		t.Errorf("a second drill of the name: %s", says)
	}

	// The fork is an ordinary topic: it is there after a restart, whatever the mirror does.
	standby = standby.Restart(t)
	if again := values(t, standby, "drill.friday.orders", 0, 101); !slices.Equal(again[:41], got) {
		t.Errorf("after a restart the fork holds %q", again)
	}
	op = operate(t, standby)
	var list []mirror.Drill
	op.json(&list, "mirror", "drill", "list")
	if len(list) != 1 || list[0].Drill != "friday" || list[0].Mirror != "m" || list[0].Partitions != 2 || !slices.Equal(list[0].Topics, []string{"drill.friday.orders"}) {
		t.Errorf("list: %+v", list)
	}
	if out, _ := op.run("mirror", "drill", "delete", "friday", "--dry-run"); !strings.Contains(out, "would be deleted") {
		t.Errorf("a dry run of the deletion says %q", out)
	}
	op.run("mirror", "drill", "delete", "friday", "--yes")
	if says := op.fails("mirror", "drill", "delete", "friday", "--yes"); !strings.Contains(says, "no such drill") {
		t.Errorf("deleted twice: %s", says)
	}
	awaitEnd(t, standby, "orders", 0, 80)
	checkEqual(t, src.Client(t), standby.Client(t), compare.Options{}, "orders")

	if err := standby.Mirrors().Pause(harness.Context(t), "m"); err != nil {
		t.Fatal(err)
	}
	if says := op.fails("mirror", "drill", "m", "friday"); !strings.Contains(says, "only of a running mirror") {
		t.Errorf("a drill of a paused mirror: %s", says)
	}
}

// checkDrill checks what every drill that was made says of itself.
func checkDrill(t testing.TB, r mirror.DrillReport, partitions int) {
	t.Helper()
	if len(r.Partitions) != partitions || r.FailoverMs <= 0 || len(r.Steps) != 9 || len(r.Message) < 2 {
		t.Errorf("drill: %+v", r)
	}
	var sum float64
	for _, s := range r.Steps {
		if s.Failover {
			sum += s.Ms
		}
	}
	if d := sum - r.FailoverMs; d > 0.01 || d < -0.01 {
		t.Errorf("the failover would take %.3f ms, its steps %.3f", r.FailoverMs, sum)
	}
	for _, p := range r.Partitions {
		if !p.Proved || p.Fault != "" {
			t.Errorf("%s-%d: proved %v: %s", p.Topic, p.Partition, p.Proved, p.Fault)
		}
	}
}

// TestDrillOnThreeNodes: the fork's replicas are equal, wherever they are led, and take
// acks=all; a transaction that the mirror holds open is over in the fork.
func TestDrillOnThreeNodes(t *testing.T) {
	const partitions = 6
	src, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(partitions, "t"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(src.Close)
	seeds, manual := kgo.SeedBrokers(src.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner())
	open := harness.Connect(t, seeds, manual, kgo.TransactionalID("open"), kgo.TransactionTimeout(10*time.Minute)) // longer than the test
	plain := harness.Connect(t, seeds, manual)
	produce := func(c *kgo.Client, partition int32, value string) {
		if err := c.ProduceSync(harness.Context(t), &kgo.Record{Topic: "t", Partition: partition, Value: []byte(value)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	for p := range int32(partitions) {
		for i := range 10 {
			produce(plain, p, fmt.Sprintf("%d-%d", p, i))
		}
	}
	if err := open.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	produce(open, 0, "never committed")

	c := harness.StartCluster(t, 3, append([]harness.Option{
		harness.WithSetting("mirror.replication.factor", "3"), harness.WithSetting("min.insync.replicas", "2"),
	}, quick...)...)
	mirrorOf(t, c.Nodes[1], mirror.Spec{Bootstrap: src.ListenAddrs()})
	leaders := map[types.BrokerID]bool{}
	for p := range int32(partitions) {
		harness.Eventually(t, fmt.Sprintf("partition %d mirrors on three replicas", p), func() bool {
			r := c.Record("t", p)
			return r != nil && r.Mirror != nil && r.Mirror.State == meta.MirrorMirroring && len(r.ISR) == 3
		})
		leaders[c.Record("t", p).Leader] = true
	}
	if len(leaders) < 2 {
		t.Fatalf("led by %v: nothing to see", leaders)
	}
	mirrored := func(p int32) map[types.BrokerID][]byte {
		out := map[types.BrokerID][]byte{}
		for id, n := range c.Nodes {
			out[id] = n.LogBytes(t, "t", p)
		}
		return out
	}
	for p := range int32(partitions) {
		harness.Eventually(t, fmt.Sprintf("every replica of partition %d has everything", p), func() bool {
			for _, n := range c.Nodes {
				part, ok := n.PartitionByName("t", p)
				if !ok {
					return false
				}
				if v, open := part.View(); !open || v.LogEnd < 10 || p == 0 && v.LogEnd < 11 || v.HighWatermark != v.LogEnd {
					return false
				}
			}
			return true
		})
	}
	before := make([]map[types.BrokerID][]byte, partitions)
	for p := range before {
		before[p] = mirrored(int32(p))
	}
	report, err := c.Nodes[2].Mirrors().Drill(harness.Context(t), "m", mirror.DrillRequest{Drill: "d"})
	if err != nil {
		t.Fatal(err)
	}
	checkDrill(t, report, partitions)
	if report.CopiedBytes > 0 {
		t.Errorf("%d bytes were copied", report.CopiedBytes)
	}
	for p := range before {
		for id, now := range mirrored(int32(p)) {
			if !bytes.Equal(now, before[p][id]) {
				t.Errorf("the drill changed partition %d on node %d", p, id)
			}
		}
		rec := c.Nodes[2].RecordOf("drill.d.t", int32(p))
		if rec == nil || !rec.Writable || rec.Mirror != nil || len(rec.ISR) != 3 || rec.Leader != c.Record("t", int32(p)).Leader || rec.LeaderEpoch < 65536 {
			t.Errorf("the fork's record: %+v", rec)
		}
	}
	client := c.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.RequiredAcks(kgo.AllISRAcks()))
	for p := range int32(partitions) {
		if err := client.ProduceSync(harness.Context(t), &kgo.Record{Topic: "drill.d.t", Partition: p, Value: []byte("written")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
		harness.Eventually(t, fmt.Sprintf("the replicas of fork %d are equal", p), func() bool {
			first := c.Nodes[1].LogBytes(t, "drill.d.t", p)
			return len(first) > 0 && bytes.Equal(first, c.Nodes[2].LogBytes(t, "drill.d.t", p)) && bytes.Equal(first, c.Nodes[3].LogBytes(t, "drill.d.t", p))
		})
		if !bytes.HasPrefix(c.Nodes[1].LogBytes(t, "drill.d.t", p), before[p][1]) {
			t.Errorf("fork %d doesn't begin with the mirror's bytes", p)
		}
	}
	if got := values(t, c.Nodes[1], "drill.d.t", 0, 12); got[10] == "never committed" || got[11] != "written" {
		t.Errorf("a consumer of committed records reads %q", got)
	}
	// A replica that starts anew finds its fork, and follows on.
	c.Restart(t, 3)
	harness.Eventually(t, "node 3 is in sync again", func() bool {
		r := c.Nodes[1].RecordOf("drill.d.t", 0)
		return len(r.ISR) == 3 && c.Nodes[3].Ready() == nil
	})
	if _, err := c.Nodes[1].Mirrors().DeleteDrill(harness.Context(t), "d", false); err != nil {
		t.Fatal(err)
	}
	for id, n := range c.Nodes {
		harness.Eventually(t, fmt.Sprintf("node %d has no partition of the fork", id), func() bool {
			return !slices.ContainsFunc(forkFolders(t, n), func(name string) bool { return !strings.HasSuffix(name, "-delete") })
		})
	}
}

// TestADrillThatCantBeMadeLeavesNothing: its topics' names are taken when it comes to
// its transaction, by a namesake that differs in '.' and '_'.
func TestADrillThatCantBeMadeLeavesNothing(t *testing.T) {
	src := harness.StartBroker(t)
	src.CreateTopic(t, "t", 1, nil)
	src.Produce(t, "t", 0, "a")
	standby := startStandby(t)
	mirrorOf(t, standby, mirror.Spec{Bootstrap: []string{src.Addr}})
	awaitEnd(t, standby, "t", 0, 1)
	standby.CreateTopic(t, "drill_d_t", 1, nil)
	_, err := standby.Mirrors().Drill(harness.Context(t), "m", mirror.DrillRequest{Drill: "d"})
	if err == nil || !strings.Contains(err.Error(), "nothing of it was made") {
		t.Fatal(err)
	}
	harness.Eventually(t, "nothing is left of it", func() bool { return len(forkFolders(t, standby)) == 0 })
	if p, ok := standby.PartitionByName("drill_d_t", 0); !ok || p == nil {
		t.Error("the namesake is gone")
	}
	src.Produce(t, "t", 0, "b")
	awaitEnd(t, standby, "t", 0, 2)
	checkEqual(t, src.Client(t), standby.Client(t), compare.Options{}, "t")
}
