package log

import (
	"bytes"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"tidemark/internal/batch"
	"tidemark/internal/core/epoch"
	"tidemark/internal/core/txn"
	"tidemark/internal/core/types"
	"tidemark/internal/vfs"
)

// modelBatch is one batch that the model holds.
type modelBatch struct {
	raw    []byte
	h      batch.Header
	before types.Offset // log end before it
}

// model is what a log must be: the batches, the start, and how much is synced.
type model struct {
	batches []modelBatch
	// gone are deleted batches whose producers are still known: the log was begun anew behind them.
	gone   []modelBatch
	start  types.Offset
	end    types.Offset
	synced types.Offset
	high   types.Offset
}

func (m *model) implied() epoch.History {
	var h epoch.History
	for _, b := range m.batches {
		if _, err := h.AppendedBatch(b.h.PartitionLeaderEpoch, b.before); err != nil {
			panic(err)
		}
	}
	h.TruncateFromStart(m.start)
	h.TruncateFromEnd(m.end)
	return h
}

// covering leaves out the entries without a record: those of a gap that a cut
// ended in say what a leader said, and no batch says otherwise.
func (m *model) covering(h *epoch.History) []epoch.Entry {
	return slices.DeleteFunc(h.Entries(), func(e epoch.Entry) bool {
		end := m.end
		if next, ok := h.Next(e.Epoch); ok {
			end = next.Start
		}
		return !slices.ContainsFunc(m.batches, func(b modelBatch) bool { return b.h.LastOffset() >= e.Start && b.h.BaseOffset < end })
	})
}

// sameEntry compares an entry with the implied one. It may begin lower, down to
// the last record of the epoch before: there, too, a cut in a gap left what the
// leader had said.
func (m *model) sameEntry(got, want epoch.Entry) bool {
	lowest := m.start
	for _, b := range m.batches {
		if b.h.PartitionLeaderEpoch < want.Epoch {
			lowest = max(lowest, b.h.NextOffset())
		}
	}
	return got.Epoch == want.Epoch && got.Start <= want.Start && got.Start >= min(lowest, want.Start)
}

func (m *model) bytes() []byte {
	var out []byte
	for _, b := range m.batches {
		if b.h.LastOffset() >= m.start {
			out = append(out, b.raw...)
		}
	}
	return out
}

func (m *model) lastEpoch() types.LeaderEpoch {
	if len(m.batches) == 0 {
		return 0
	}
	return m.batches[len(m.batches)-1].h.PartitionLeaderEpoch
}

// holds says whether a record is left that wasn't deleted.
func (m *model) holds() bool {
	n := len(m.batches)
	return n > 0 && m.batches[n-1].h.LastOffset() >= m.start
}

// beginAnew makes the log an empty one at the offset, behind deleted records.
func (m *model) beginAnew(at types.Offset) {
	gone := append(slices.Clone(m.gone), m.batches...)
	m.restart(at)
	m.gone = gone
}

// cutBy is what a log does when it is told to cut at o, within itself.
func (m *model) cutBy(o types.Offset) {
	end, high := m.end, m.high
	if m.cut(o); o < end && !m.holds() {
		m.beginAnew(max(m.start, min(m.end, high)))
	}
}

// cut forgets what goes with a cut at o.
func (m *model) cut(o types.Offset) {
	for len(m.batches) > 0 {
		last := m.batches[len(m.batches)-1].h
		if last.LastOffset() < o {
			break
		}
		m.batches = m.batches[:len(m.batches)-1]
		o = min(o, last.BaseOffset)
	}
	m.end = min(m.end, o)
	m.high, m.synced = min(m.high, m.end), min(m.synced, m.end)
}

func (m *model) restart(at types.Offset) {
	*m = model{start: at, end: at, synced: at, high: at}
}

// producers replays the model's batches.
func (m *model) producers() *txn.State {
	s := txn.New(0)
	for _, b := range slices.Concat(m.gone, m.batches) {
		noteProducer(s, &b.h, b.raw)
	}
	return s
}

// machine drives log and model together.
type machine struct {
	t     *rapid.T
	outer testing.TB
	fs    *vfs.Mem
	o     Options
	l     *Log
	m     model
	seqs  map[types.ProducerID]int32
	// retained: segments went whose producers only a snapshot remembers;
	// lossy: and then a crash may have taken that snapshot.
	retained, lossy bool
}

func (x *machine) open() {
	x.o.FS = x.fs
	l, r, err := Open(x.o)
	if err != nil {
		x.t.Fatalf("open: %v, %+v", err, r)
	}
	x.l = l
}

// openedEmpty takes the log start that a log without records has after an open:
// where its one segment begins, which may be its end. Batches below the log start
// are gone, whether their segment is or not.
func (x *machine) openedEmpty() {
	if v := x.l.View(); v.LogStart == x.m.end && !x.m.holds() && v.LogStart != x.m.start {
		x.m.beginAnew(x.m.end)
	}
}

// follow appends copied batches, maybe of producers, transactions, gaps, later epochs.
func (x *machine) follow(t *rapid.T) {
	var raw []byte
	at, e := x.m.end, max(x.l.View().LastEpoch, 0)
	if x.m.holds() {
		e = max(e, x.m.lastEpoch())
	} else if e < x.m.lastEpoch() && x.m.start == x.m.end { // deleted ones don't stand in front of an older epoch
		x.m.beginAnew(x.m.end)
	}
	before := at
	var added []modelBatch
	for range rapid.IntRange(1, 4).Draw(t, "batches") {
		at += types.Offset(rapid.SampledFrom([]int{0, 0, 0, 3}).Draw(t, "gap"))
		e += types.LeaderEpoch(rapid.SampledFrom([]int{0, 0, 1, 4}).Draw(t, "epoch+"))
		pid := types.ProducerID(rapid.IntRange(0, 3).Draw(t, "pid"))
		var b []byte
		if pid > 0 && rapid.IntRange(0, 3).Draw(t, "marker") == 0 {
			b = batch.NewMarker(rapid.SampledFrom([]batch.MarkerKind{batch.Abort, batch.Commit}).Draw(t, "kind"), pid, 0, 1, 5)
			batch.Stamp(b, at, e)
		} else {
			s := spec{base: at, n: rapid.IntRange(1, 5).Draw(t, "n"), epoch: e, size: rapid.IntRange(0, 200).Draw(t, "size"), pid: pid,
				seq: x.seqs[pid], txn: pid > 1, ts: types.Millis(rapid.IntRange(1, 1000).Draw(t, "ts"))}
			x.seqs[pid] += int32(s.n)
			b = s.build(x.tb())
		}
		h, _ := batch.ParseHeader(b)
		added = append(added, modelBatch{b, h, before})
		raw = append(raw, b...)
		at, before = h.NextOffset(), h.NextOffset()
	}
	a, err := x.l.AppendAsFollower(raw, 1<<31-1)
	if err != nil || a.StoppedBy != nil || a.Batches != len(added) {
		t.Fatalf("append: %+v, %v", a, err)
	}
	x.m.batches = append(x.m.batches, added...)
	x.m.end = at
}

// tb is the enclosing test with rapid's way to fail, for the helpers.
func (x *machine) tb() testing.TB { return tbOf{x.outer, x.t} }

type tbOf struct {
	testing.TB
	t *rapid.T
}

func (x tbOf) Fatal(args ...any)                 { x.t.Fatal(args...) }
func (x tbOf) Fatalf(format string, args ...any) { x.t.Fatalf(format, args...) }
func (x tbOf) Helper()                           {}

func (x *machine) flush(t *rapid.T) {
	if err := x.l.Flush(); err != nil {
		t.Fatal(err)
	}
	x.m.synced = x.m.end
}

func (x *machine) roll(t *rapid.T) {
	if err := x.l.Roll(); err != nil {
		t.Fatal(err)
	}
}

func (x *machine) mark(t *rapid.T) {
	o := types.Offset(rapid.Int64Range(int64(x.m.start), int64(x.m.end)).Draw(t, "hw"))
	x.l.SetHighWatermark(o)
	x.m.high = max(o, x.m.start)
}

func (x *machine) cut(t *rapid.T) {
	o := types.Offset(rapid.Int64Range(max(0, int64(x.m.start)-3), int64(x.m.end)+3).Draw(t, "o"))
	res, err := x.l.Cut(o, CutReason{Cause: CauseDivergence})
	if err != nil {
		t.Fatal(err)
	}
	if o < x.m.start {
		x.m.restart(o)
	} else {
		x.m.cutBy(o)
	}
	if res.LogEnd != x.m.end {
		t.Fatalf("cut at %d left log end %d, want %d", o, res.LogEnd, x.m.end)
	}
}

func (x *machine) restart(t *rapid.T) {
	at := types.Offset(rapid.Int64Range(0, int64(x.m.end)+20).Draw(t, "at"))
	if _, err := x.l.Restart(at, CutReason{Cause: CauseRestart}); err != nil {
		t.Fatal(err)
	}
	x.m.restart(at)
}

func (x *machine) raise(t *rapid.T) {
	o := types.Offset(rapid.Int64Range(int64(x.m.start), int64(x.m.end)).Draw(t, "start"))
	if _, err := x.l.RaiseLogStart(o, rapid.Bool().Draw(t, "vouched"), CutReason{Cause: CauseLogStart}); err != nil {
		t.Fatal(err)
	}
	x.m.start = max(x.m.start, o)
	x.m.high = max(x.m.high, x.m.start)
}

func (x *machine) retain(t *rapid.T) {
	x.l.SetHighWatermark(x.m.end)
	x.m.high, x.retained = x.m.end, true
	if _, err := x.l.EnforceRetention(2_000_000); err != nil {
		t.Fatal(err)
	}
	start := x.l.View().LogStart
	if start != x.m.start {
		t.Fatalf("retention by log start moved the start from %d to %d", x.m.start, start)
	}
}

// reopen closes cleanly and opens again.
func (x *machine) reopen(t *rapid.T) {
	if err := x.l.Close(); err != nil {
		t.Fatal(err)
	}
	v := x.l.View()
	x.o.CleanShutdown, x.o.RecoveryPoint, x.o.HighWatermark, x.o.LogStart = true, v.RecoveryPoint, v.HighWatermark, v.LogStart
	x.m.synced = x.m.end
	if rapid.Bool().Draw(t, "power loss") {
		x.fs = x.fs.CrashClone(vfs.CrashConfig{})
	}
	x.open()
	x.openedEmpty()
}

// crash loses power: what was not synced may be gone.
func (x *machine) crash(t *rapid.T) {
	v := x.l.View()
	x.l.CloseUnclean()
	x.o.CleanShutdown, x.o.RecoveryPoint, x.o.HighWatermark, x.o.LogStart = false, v.RecoveryPoint, v.HighWatermark, v.LogStart
	x.fs = x.fs.CrashClone(vfs.CrashConfig{
		Seed: rapid.Uint64().Draw(t, "seed"), KeepBlock: rapid.SampledFrom([]float64{0, 0.5, 1}).Draw(t, "blocks"), KeepEntry: rapid.SampledFrom([]float64{0, 0.5, 1}).Draw(t, "entries"),
	})
	x.open()
	end := x.l.View().LogEnd
	x.lossy = x.lossy || x.retained
	if end < x.m.synced || end > x.m.end {
		t.Fatalf("log end %d after a crash; %d was synced of %d, log start %d", end, x.m.synced, x.m.end, x.m.start)
	}
	high := x.m.high
	switch {
	case end == x.m.start && x.l.View().Size == 0:
		// The snapshot that knows producers of deleted records may have gone, or not.
		x.lossy = x.lossy || len(x.m.batches) > 0 && (len(x.m.gone) > 0 || !x.m.holds())
		x.m.batches = nil
		x.m.beginAnew(end)
	case x.m.end > end:
		x.m.cut(end)
	}
	x.m.synced = min(x.m.synced, end)
	x.m.high = min(high, end)
	if x.m.end != end {
		t.Fatalf("log end %d after a crash is no batch boundary; the batch below begins at %d", end, x.m.end)
	}
	x.openedEmpty()
}

func (x *machine) check(t *rapid.T) {
	v := x.l.View()
	if v.LogStart != x.m.start || v.LogEnd != x.m.end || v.HighWatermark != x.m.high || v.Offline != nil {
		t.Fatalf("view %+v, model %d..%d high %d", v, x.m.start, x.m.end, x.m.high)
	}
	want := x.m.implied()
	if x.m.start == x.m.end {
		want.Clear()
	}
	if !slices.EqualFunc(x.m.covering(v.History), x.m.covering(&want), x.m.sameEntry) {
		t.Fatalf("history %v, the batches imply %v", v.History, &want)
	}
	got := contents(x.tb(), x.l, rapid.IntRange(1, 700).Draw(t, "max bytes"))
	if !bytes.Equal(got, x.m.bytes()) {
		t.Fatalf("%d bytes read, %d in the model, view %+v", len(got), len(x.m.bytes()), v)
	}
	if !x.lossy && len(x.m.batches) > 0 && x.m.batches[0].h.LastOffset() >= x.m.start {
		s := x.m.producers()
		if d := cmp.Diff(s.Open(), x.l.OpenTransactions(), cmp.Comparer(func(a, b txn.Txn) bool { return a == b })); d != "" && len(s.Open())+len(x.l.OpenTransactions()) > 0 {
			t.Fatalf("open transactions (-model +log):\n%s", d)
		}
		if d := cmp.Diff(s.Producers(), x.l.Producers()); d != "" && s.Len() > 0 {
			t.Fatalf("producers (-model +log):\n%s", d)
		}
	}
	x.checkOnDisk(t)
}

func (x *machine) checkOnDisk(t *rapid.T) {
	report, err := VerifyDir(x.fs, testDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range report.Problems {
		t.Fatalf("verify: %v", p)
	}
}

// TestLogAgainstModel drives a follower's log with random operations, crashes
// among them, and compares everything a reader can see with a small model.
func TestLogAgainstModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		x := &machine{t: rt, outer: t, fs: memFS(t), seqs: map[types.ProducerID]int32{}}
		x.o = options(x.fs)
		x.open()
		defer func() { x.l.CloseUnclean() }()
		rt.Repeat(map[string]func(*rapid.T){
			"": x.check, "follow": x.follow, "follow again": x.follow, "flush": x.flush, "roll": x.roll, "mark": x.mark,
			"cut": x.cut, "restart": x.restart, "raise": x.raise, "retain": x.retain, "reopen": x.reopen, "crash": x.crash,
		})
	})
}
