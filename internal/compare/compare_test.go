package compare

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"tidemark/internal/batch"
	"tidemark/internal/core/types"
)

// rawBatch builds one batch of values at an offset and epoch.
func rawBatch(t *testing.T, base types.Offset, epoch types.LeaderEpoch, values ...string) []byte {
	t.Helper()
	b := batch.NewBuilder(batch.BuilderOptions{})
	for i, v := range values {
		b.Append(types.Millis(1700000000000+int64(i)), []byte("k"), []byte(v))
	}
	raw, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	batch.Stamp(raw, base, epoch)
	return raw
}

// TestDescribeNamesTheDifference plants one difference of each kind between two batches.
func TestDescribeNamesTheDifference(t *testing.T) {
	same := rawBatch(t, 10, 3, "a", "b")
	f := func(x, y []byte, want string) {
		t.Helper()
		got := describe("source", "standby", x, y)
		if (want == "") != (got == "") || !strings.Contains(got, want) {
			t.Errorf("said %q, want %q in it", got, want)
		}
	}
	f(same, bytes.Clone(same), "")
	f(same, nil, "source has a batch at offset 10 that standby lacks")
	f(nil, same, "standby has a batch at offset 10 that source lacks")
	f(same, rawBatch(t, 11, 3, "a", "b"), "base offset is 10 on source and 11 on standby")
	f(same, rawBatch(t, 10, 4, "a", "b"), "leader epoch is 3 on source and 4 on standby")
	f(same, rawBatch(t, 10, 3, "a", "bb"), "size")
	f(same, rawBatch(t, 10, 3, "a", "c"), "CRC")
	flipped := bytes.Clone(same)
	flipped[len(flipped)-1] ^= 1 // the checksum field itself stays
	f(same, flipped, fmt.Sprintf("byte %d", len(same)-1))
}

// TestRecordDifferenceNamesTheField plants one difference of each kind between two records.
func TestRecordDifferenceNamesTheField(t *testing.T) {
	f := func(change func(*flatRecord), want string) {
		t.Helper()
		x := flatRecord{offset: 1, epoch: 2, timestamp: 3, key: []byte("k"), value: []byte{}, headers: []batch.RecordHeader{{Key: "h", Value: []byte("v")}}}
		y := x
		y.headers = []batch.RecordHeader{x.headers[0]}
		change(&y)
		got := recordDifference(&x, &y)
		if (want == "") != (got == "") || !strings.Contains(got, want) {
			t.Errorf("said %q, want %q in it", got, want)
		}
	}
	f(func(*flatRecord) {}, "")
	f(func(r *flatRecord) { r.epoch = 9 }, "leader epoch 2 and 9")
	f(func(r *flatRecord) { r.timestamp = 9 }, "timestamp 3 and 9")
	f(func(r *flatRecord) { r.control = true }, "control")
	f(func(r *flatRecord) { r.key = nil }, "key")
	f(func(r *flatRecord) { r.value = nil }, "value") // null is not empty
	f(func(r *flatRecord) { r.headers = nil }, "1 and 0 headers")
	f(func(r *flatRecord) { r.headers[0].Value = nil }, "header 0")
}

// TestNewestDifference shows which losses on a compacted topic count.
func TestNewestDifference(t *testing.T) {
	f := func(x, y map[string]last, wantFault bool) {
		t.Helper()
		sx := &recordStream{r: &reader{side: Side{Name: "source"}}, newest: x}
		sy := &recordStream{r: &reader{side: Side{Name: "standby"}}, newest: y}
		if got := newestDifference(sx, sy); (got != "") != wantFault {
			t.Errorf("said %q, want a fault: %v", got, wantFault)
		}
	}
	f(map[string]last{"a": {offset: 5}}, map[string]last{"a": {offset: 5}}, false)
	f(map[string]last{"a": {offset: 5}}, map[string]last{"a": {offset: 4}}, true)
	f(map[string]last{"a": {offset: 5}}, map[string]last{}, true)
	f(map[string]last{}, map[string]last{"a": {offset: 5, tombstone: true}}, false)
}

// fake is a cluster with one topic that holds the values, one batch each.
func fake(t *testing.T, values ...string) Side {
	t.Helper()
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "t"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.DefaultProduceTopic("t"), kgo.DisableIdempotentWrite())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	for i, v := range values {
		r := kgo.StringRecord(v)
		r.Timestamp = time.UnixMilli(1700000000000 + int64(i))
		if err := cl.ProduceSync(context.Background(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	return Side{Name: strings.Join(values, ""), Client: cl}
}

// TestPartitionsFindsWhatDiffers compares whole clusters over the wire.
func TestPartitionsFindsWhatDiffers(t *testing.T) {
	f := func(a, b []string, want string) {
		t.Helper()
		results, err := Partitions(context.Background(), fake(t, a...), fake(t, b...), []string{"t"}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if len(results) != 1 {
			t.Fatalf("%d results", len(results))
		}
		r := results[0]
		if (want == "") != (r.Difference == "") || !strings.Contains(r.Difference, want) {
			t.Errorf("%v and %v: said %q, want %q in it", a, b, r.Difference, want)
		}
		if want == "" && r.Batches != int64(len(a)) {
			t.Errorf("%d batches compared, want %d", r.Batches, len(a))
		}
	}
	f([]string{"x", "y", "z"}, []string{"x", "y", "z"}, "")
	f([]string{"x", "y", "z"}, []string{"x", "q", "z"}, "batch at offset 1: CRC")
	f([]string{"x", "y", "z"}, []string{"x", "y"}, "ends at 3")
}
