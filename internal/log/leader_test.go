package log

import (
	"bytes"
	"errors"
	"testing"

	"tidemark/internal/assert"
	"tidemark/internal/batch"
	"tidemark/internal/core/txn"
	"tidemark/internal/core/types"
)

// TestLeaderKeepsTheBytes: what a leader stores is what came but for the two
// stamped fields, for every codec: no recompression, no new checksum.
func TestLeaderKeepsTheBytes(t *testing.T) {
	for _, codec := range []batch.Codec{batch.None, batch.Gzip, batch.Snappy, batch.LZ4, batch.Zstd} {
		l, _ := mustOpen(t, options(memFS(t)))
		if err := l.AssignEpoch(4); err != nil {
			t.Fatal(err)
		}
		raw := kv(t, 0, -1, 5, batch.BuilderOptions{Codec: codec}, "k", "v", "k2", "")
		came := bytes.Clone(raw)
		if _, err := l.AppendAsLeader(raw, 4, LeaderAppend{}); err != nil {
			t.Fatal(err)
		}
		got := contents(t, l, 1<<20)
		if !bytes.Equal(got[16:], came[16:]) {
			t.Errorf("%s: stored other bytes", codec)
		}
		if h, err := batch.ParseHeader(got); err != nil || h.PartitionLeaderEpoch != 4 {
			t.Errorf("%+v %v", h, err)
		}
	}
}

// TestLogAppendTime: the broker's time and its checksum; a duplicate is
// answered with the time of the first.
func TestLogAppendTime(t *testing.T) {
	o := options(memFS(t))
	o.Config.LogAppendTime = true
	now := types.Millis(5000)
	o.Now = func() types.Millis { return now }
	l, _ := mustOpen(t, o)
	a := lead(t, l, spec{pid: 3, n: 2, ts: 1})
	now = 6000
	b := lead(t, l, spec{pid: 3, n: 2, ts: 1})
	if a.AppendTime != 5000 || !b.Duplicate || b.AppendTime != 5000 || b.First != a.First {
		t.Fatalf("%+v %+v", a, b)
	}
	for it := batch.Records(contents(t, l, 1000), nil); it.Next(); {
		if it.Record.Timestamp != 5000 {
			t.Errorf("record time %d", it.Record.Timestamp)
		}
	}
}

// TestCompressionType: a topic with a codec of its own stores that codec, and
// the records stay.
func TestCompressionType(t *testing.T) {
	o := options(memFS(t))
	o.Config.Compression = "lz4"
	l, _ := mustOpen(t, o)
	lead(t, l, spec{pid: 3, pe: 1, n: 3, size: 200, ts: 7, txn: true})
	raw := contents(t, l, 10000)
	h, err := batch.ParseHeader(raw)
	if err != nil || h.Compression() != batch.LZ4 || h.ProducerID != 3 || h.ProducerEpoch != 1 || !h.IsTransactional() || h.LastOffsetDelta != 2 {
		t.Fatalf("%+v %v", h, err)
	}
	n := 0
	for it := batch.Records(raw, nil); it.Next(); n++ {
		if it.Record.Timestamp != types.Millis(7+n) || len(it.Record.Value) < 200 {
			t.Errorf("%+v", it.Record)
		}
	}
	if n != 3 {
		t.Errorf("%d records", n)
	}
}

// TestCompressionTypeKeepsTheSize: max.message.bytes holds for what is stored, too.
func TestCompressionTypeKeepsTheSize(t *testing.T) {
	o := options(memFS(t))
	o.Config.Compression, o.Config.MaxMessageBytes = "uncompressed", 500
	l, _ := mustOpen(t, o)
	if err := l.AssignEpoch(0); err != nil {
		t.Fatal(err)
	}
	b := batch.NewBuilder(batch.BuilderOptions{Codec: batch.Gzip})
	b.Append(0, nil, make([]byte, 1000))
	raw, err := b.Build()
	if err != nil || len(raw) > 500 {
		t.Fatal(len(raw), err)
	}
	if _, err := l.AppendAsLeader(raw, 0, LeaderAppend{}); !errors.Is(err, batch.ErrTooLarge) {
		t.Errorf("%v, want %v", err, batch.ErrTooLarge)
	}
	if v := l.View(); v.LogEnd != 0 {
		t.Errorf("log end %d", v.LogEnd)
	}
}

// TestLeaderRefusals: what is refused leaves nothing behind.
func TestLeaderRefusals(t *testing.T) {
	o := options(memFS(t))
	o.Config.Compact, o.Config.TimestampAfterMaxMs, o.Config.MaxMessageBytes = true, 1000, 500
	l, _ := mustOpen(t, o)
	if err := l.AssignEpoch(1); err != nil {
		t.Fatal(err)
	}
	lead(t, l, spec{pid: 3, key: "k", seq: 5})
	f := func(s spec, want error) {
		t.Helper()
		before := l.View()
		if _, err := tryLead(t, l, s); !errors.Is(err, want) {
			t.Errorf("%+v: %v, want %v", s, err, want)
		}
		if after := l.View(); after.LogEnd != before.LogEnd || after.Size != before.Size {
			t.Errorf("%+v left %+v", s, after)
		}
	}
	f(spec{}, batch.ErrInvalidRecord) // no key on a compacted topic
	f(spec{key: "k", size: 600}, batch.ErrTooLarge)
	f(spec{key: "k", ts: 1_002_000}, batch.ErrInvalidTimestamp) // KAFKA-20609
	f(spec{key: "k", pid: 3, seq: 9}, txn.ErrOutOfOrderSequence)
	f(spec{key: "k", pid: 3, pe: -1}, batch.ErrInvalidRecord)
}

// TestLeaderEpochMustBeAssigned is invariant I-22: no append in an epoch that
// isn't the history's last (R3).
func TestLeaderEpochMustBeAssigned(t *testing.T) {
	l, _ := mustOpen(t, options(memFS(t)))
	if err := l.AssignEpoch(3); err != nil {
		t.Fatal(err)
	}
	for _, e := range []types.LeaderEpoch{2, 4} {
		func() {
			defer func() {
				if _, ok := recover().(*assert.Error); !ok {
					t.Errorf("an append in epoch %d passed", e)
				}
			}()
			_, _ = l.AppendAsLeader(spec{}.build(t), e, LeaderAppend{})
		}()
	}
}

// TestAbortOpenTransactions is R23: every open transaction gets its marker at
// the promoted epoch, the last stable offset follows the high watermark.
func TestAbortOpenTransactions(t *testing.T) {
	l, _ := mustOpen(t, options(memFS(t)))
	follow(t, l, spec{base: 0, epoch: 1, pid: 5, pe: 2, txn: true}, spec{base: 1, epoch: 1, pid: 6, txn: true}, spec{base: 2, epoch: 1, pid: 7})
	if err := l.AssignEpoch(70000); err != nil {
		t.Fatal(err)
	}
	open, err := l.AbortOpenTransactions(70000, 9)
	if err != nil || len(open) != 2 || len(l.OpenTransactions()) != 0 {
		t.Fatalf("%v %v", open, err)
	}
	if v := l.SetHighWatermark(5); v.LogEnd != 5 || v.LastStable != 5 || v.LastEpoch != 70000 {
		t.Fatalf("%+v", v)
	}
	if got := l.AbortedTxns(0, 5); len(got) != 2 || got[0] != (AbortedTxn{5, 0}) || got[1] != (AbortedTxn{6, 1}) {
		t.Fatalf("%v", got)
	}
}

// TestDeletedFolder: the name is free at once, the files go later.
func TestDeletedFolder(t *testing.T) {
	o := options(memFS(t))
	l, _ := mustOpen(t, o)
	lead(t, l, spec{n: 3})
	renamed, err := l.Delete()
	if err != nil || !IsDeletedFolder(renamed) || IsDeletedFolder(testDir) {
		t.Fatal(renamed, err)
	}
	again, _ := mustOpen(t, o)
	if v := again.View(); v.LogEnd != 0 {
		t.Fatalf("%+v", v)
	}
	if _, err := l.Read(0, ReadLimit{To: 1, MaxBytes: 1}); !errors.Is(err, ErrClosed) {
		t.Fatalf("%v", err)
	}
	if err := RemoveDeleted(o.FS, renamed); err != nil {
		t.Fatal(err)
	}
	if _, err := o.FS.Stat(renamed); err == nil {
		t.Fatal("still there")
	}
}

// TestWideGap: a batch more than 2^31 offsets above the log end begins a
// segment of its own, and no recovery takes the gap for lost data.
func TestWideGap(t *testing.T) {
	fsys := memFS(t)
	l, dir := openWithCheckpoints(t, fsys, nil)
	follow(t, l, spec{base: 0, epoch: 1}, spec{base: 1, epoch: 1})
	follow(t, l, spec{base: 1 << 40, epoch: 2, ts: 5}, spec{base: 1<<40 + 1, epoch: 2, ts: 6})
	want := pictureOf(t, l)
	if err := errors.Join(l.Flush(), dir.Write()); err != nil {
		t.Fatal(err)
	}
	l2, r := openWithCheckpoints(t, fsys, nil)
	if got := pictureOf(t, l2); got.Bytes != want.Bytes || got.End != want.End || l2.View().Segments != 2 {
		t.Fatalf("%+v %v", l2.View(), r)
	}
	c, err := l2.Read(5, ReadLimit{To: 1 << 50, MaxBytes: 1 << 20})
	if err != nil || c.FirstOffset != 1<<40 {
		t.Fatalf("a read in the gap begins at %d, %v", c.FirstOffset, err)
	}
	c.Release()
}

// TestBumpedMarkers is KIP-890: a marker whose epoch is above its transaction's ends
// none of its own epoch, so that a late copy of it doesn't end the producer's next one.
// What coordinators write for a transaction has no sequence.
func TestBumpedMarkers(t *testing.T) {
	l, _ := mustOpen(t, options(memFS(t)))
	if err := l.AssignEpoch(1); err != nil {
		t.Fatal(err)
	}
	data := func(epoch int16, sequence int32, a LeaderAppend) error {
		b := batch.NewBuilder(batch.BuilderOptions{LeaderEpoch: -1, Transactional: true, Producer: &batch.Producer{ID: 5, Epoch: epoch, BaseSequence: sequence}})
		b.Append(1, []byte("k"), []byte("v"))
		raw, err := b.Build()
		if err != nil {
			t.Fatal(err)
		}
		_, err = l.AppendAsLeader(raw, 1, a)
		return err
	}
	marker := func(epoch int16, bumped bool) error {
		_, err := l.AppendAsLeader(batch.NewMarker(batch.Commit, 5, epoch, 0, 1), 1, LeaderAppend{Origin: OriginCoordinator, BumpedMarker: bumped})
		return err
	}
	f := func(what string, got, want error) {
		t.Helper()
		if !errors.Is(got, want) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	own := LeaderAppend{Origin: OriginCoordinator}
	f("data", data(2, 0, LeaderAppend{}), nil)
	f("a coordinator's", data(2, -1, own), nil)
	f("and another one", data(2, -1, own), nil)
	if !l.InTransaction(5, 2) || l.InTransaction(5, 3) || l.InTransaction(6, 2) {
		t.Error("the open transaction isn't the one of epoch 2")
	}
	f("the marker", marker(3, true), nil)
	f("its copy", marker(3, true), nil)
	f("late data", data(2, 1, LeaderAppend{}), txn.ErrProducerEpoch)
	f("late data of a coordinator", data(2, -1, own), txn.ErrProducerEpoch)
	f("the next transaction", data(3, 0, LeaderAppend{}), nil)
	f("a late copy of the marker", marker(3, true), txn.ErrProducerEpoch)
	if !l.InTransaction(5, 3) {
		t.Error("the next transaction has ended")
	}
	f("a marker of a producer that doesn't bump", marker(3, false), nil)
}
