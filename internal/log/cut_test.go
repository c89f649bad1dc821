package log

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tidemark/internal/batch"
	"tidemark/internal/core/types"
	"tidemark/internal/vfs"
	"tidemark/internal/vfs/faultfs"
)

// memoKeeper keeps removed bytes in memory.
type memoKeeper struct {
	removals []Removal
	bytes    []byte
	err      error
}

func (k *memoKeeper) Keep(r Removal) (string, error) {
	if k.err != nil {
		return "", k.err
	}
	for _, x := range r.Ranges {
		b := make([]byte, x.Len)
		if err := readFull(x.File, b, x.Pos); err != nil {
			return "", err
		}
		k.bytes = append(k.bytes, b...)
	}
	k.removals = append(k.removals, r)
	return fmt.Sprintf("kept-%d", len(k.removals)), nil
}

// story appends 40 one-record batches in four epochs, rolling on the way: an
// idempotent producer throughout, a transaction in 12..20.
func story(t testing.TB, l *Log) {
	t.Helper()
	for i := range 40 {
		s := spec{base: types.Offset(i), epoch: types.LeaderEpoch(i / 10), size: 60, pid: 7, seq: int32(i), ts: types.Millis(1000 + i)}
		if i >= 12 && i < 20 {
			s.pid, s.seq, s.txn = 8, int32(i-12), true
		}
		if i == 20 {
			mustFollow(t, l, stamped(batch.NewMarker(batch.Abort, 8, 0, 0, 1020), 20, 2))
			continue
		}
		follow(t, l, s)
	}
}

// picture is what a reader can see of a log.
type picture struct {
	Start, End, High types.Offset
	History          [][2]int64
	Bytes            string
	Producers        string
	Open             string
	Aborted          []AbortedTxn
	MaxTs            TimestampOffset
}

func pictureOf(t testing.TB, l *Log) picture {
	t.Helper()
	v := l.View()
	ts, _, err := l.MaxTimestamp()
	if err != nil {
		t.Fatal(err)
	}
	return picture{v.LogStart, v.LogEnd, v.HighWatermark, pairsOf(v.History.Entries()), string(contents(t, l, 500)),
		fmt.Sprint(l.Producers()), fmt.Sprint(l.OpenTransactions()), l.AbortedTxns(0, v.LogEnd), ts}
}

// shortStory is the log as if only the first n batches had ever been written.
func shortStory(t testing.TB, n int, high types.Offset) picture {
	t.Helper()
	full, _ := mustOpen(t, options(memFS(t)))
	story(t, full)
	all := contents(t, full, 1<<20)
	l, _ := mustOpen(t, options(memFS(t)))
	i := 0
	for it := batch.Iterate(all); it.Next() && i < n; i++ {
		mustFollow(t, l, it.Raw)
	}
	l.SetHighWatermark(high)
	return pictureOf(t, l)
}

// TestCutEqualsReplay: after a cut anywhere, everything a reader sees is what a
// log would show that never had more (R1, KAFKA-12153), and what went is kept.
func TestCutEqualsReplay(t *testing.T) {
	for o := range types.Offset(41) {
		keeper := &memoKeeper{}
		opts := options(memFS(t))
		opts.Keeper = keeper
		l, _ := mustOpen(t, opts)
		story(t, l)
		l.SetHighWatermark(25)
		all := contents(t, l, 1<<20)
		res, err := l.Cut(o, CutReason{Cause: CauseDivergence, Order: OrderedByLeader, Note: "test"})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range keeper.removals {
			if r.Cause != CauseDivergence || r.Order != OrderedByLeader {
				t.Fatalf("cut at %d: the keeper hears of %s ordered by %q", o, r.Cause, r.Order)
			}
		}
		want := shortStory(t, int(o), min(25, o))
		if d := cmp.Diff(want, pictureOf(t, l)); d != "" {
			t.Fatalf("cut at %d (-never written +cut):\n%s", o, d)
		}
		left := len(want.Bytes)
		if !bytes.Equal(keeper.bytes, all[left:]) {
			t.Fatalf("cut at %d: %d bytes kept, %d went", o, len(keeper.bytes), len(all)-left)
		}
		if res.LogEnd != o || res.To != 40 || res.From != o || (o < 40) != (res.KeptID != "") || res.Bytes != int64(len(all)-left) {
			t.Fatalf("cut at %d: %+v", o, res)
		}
		if r, err := VerifyDir(opts.FS, testDir); err != nil || len(r.Problems) > 0 {
			t.Fatalf("cut at %d: %v %v", o, err, r.Problems)
		}
	}
}

// TestCutTellsReopenedTransactions: a cut that takes a transaction's marker tells whose.
func TestCutTellsReopenedTransactions(t *testing.T) {
	l, _ := mustOpen(t, options(memFS(t)))
	story(t, l)
	res, err := l.Cut(16, CutReason{Cause: CauseDivergence})
	if err != nil || !slices.Equal(res.LostTransactions, []types.ProducerID{8}) {
		t.Fatalf("%+v, %v", res, err)
	}
}

// TestCutKeepsEndedTransactions: a transaction whose marker lies above the high
// watermark holds the last stable offset across a cut above the marker, though
// the snapshot from which the state is rebuilt doesn't know it.
func TestCutKeepsEndedTransactions(t *testing.T) {
	l, _ := mustOpen(t, options(memFS(t)))
	follow(t, l, spec{base: 0, epoch: 1, n: 2, pid: 8, txn: true})
	mustFollow(t, l, stamped(batch.NewMarker(batch.Commit, 8, 0, 0, 5), 2, 1))
	if err := l.Roll(); err != nil {
		t.Fatal(err)
	}
	follow(t, l, spec{base: 3, epoch: 1}, spec{base: 4, epoch: 1})
	l.SetHighWatermark(1)
	if _, err := l.Cut(4, CutReason{Cause: CauseDivergence}); err != nil {
		t.Fatal(err)
	}
	if v := l.SetHighWatermark(2); v.LastStable != 0 {
		t.Fatalf("last stable offset %d, the marker at 2 isn't committed", v.LastStable)
	}
	if v := l.SetHighWatermark(3); v.LastStable != 3 {
		t.Fatalf("%+v", v)
	}
}

// TestCutSurvivesCrashes fails the n-th operation of a cut, loses power there,
// opens, and repeats the cut: the outcome is the same as without a crash, the
// checkpoints lie at or below the cut, and nothing is missing from what the
// keeper got over both attempts.
func TestCutSurvivesCrashes(t *testing.T) {
	reason := CutReason{Cause: CauseTimeline, Timelines: []byte(`{"new":true}`)}
	for _, o := range []types.Offset{0, 7, 15, 30, 39, 40} {
		want := shortStory(t, int(o), min(35, o))
		var keeper *memoKeeper
		atEveryCrash(t, func(fsys vfs.FS) *Log {
			keeper = &memoKeeper{}
			l, dir := openWithCheckpoints(t, fsys, keeper)
			story(t, l)
			l.SetHighWatermark(35)
			if err := errors.Join(l.SetTimelineCheckpoint([]byte("old")), l.Flush(), dir.Write()); err != nil {
				t.Fatal(err)
			}
			return l
		}, func(l *Log) error {
			_, err := l.Cut(o, reason)
			return err
		}, func(disk vfs.FS, where string) {
			l2, _ := openWithCheckpoints(t, disk, keeper)
			if _, err := l2.Cut(o, reason); err != nil {
				t.Fatal(err)
			}
			checkCut(t, l2, disk, o)
			if d := cmp.Diff(want, pictureOf(t, l2)); d != "" {
				t.Fatalf("cut at %d, %s:\n%s", o, where, d)
			}
			l2.CloseUnclean()
		})
	}
}

// atEveryCrash loses the power at each operation of a change on the disk, in turn, and lets
// judge look at disks with more and more of what was not synced. The operation fails, or
// has happened and says that it failed; either way the change says that the log is offline.
func atEveryCrash(t *testing.T, prepare func(fsys vfs.FS) *Log, change func(l *Log) error, judge func(disk vfs.FS, where string)) {
	t.Helper()
	for n := 0; ; n++ {
		mem := memFS(t)
		ffs := faultfs.New(mem)
		l := prepare(ffs)
		late := n%2 == 1 // a late failure to remove what isn't there is none
		rule := ffs.Inject(faultfs.Rule{Kinds: faultfs.Mutating, Skip: n, Times: 1, Late: late})
		err := change(l)
		fired := rule.Fired() > 0
		rule.Remove()
		if (err != nil && (!fired || !errors.Is(err, ErrOffline))) || (err == nil && fired && !late) {
			t.Fatalf("op %d: fault: %v, %v", n, fired, err)
		}
		for seed := range uint64(5) {
			disk := mem.CrashClone(vfs.CrashConfig{Seed: seed, KeepBlock: float64(seed) / 4, KeepEntry: float64(seed) / 4})
			judge(disk, fmt.Sprintf("op %d, seed %d", n, seed))
		}
		l.CloseUnclean()
		if !fired {
			break
		}
	}
}

func openWithCheckpoints(t testing.TB, fsys vfs.FS, keeper Keeper) (*Log, *DirCheckpoints) {
	t.Helper()
	dir, problems, err := OpenCheckpoints(fsys, "d")
	if err != nil || len(problems) > 0 {
		t.Fatal(err, problems)
	}
	m := dir.Get(testPartition)
	o := options(fsys)
	o.Keeper, o.Checkpoints = keeper, dir
	o.RecoveryPoint, o.HighWatermark, o.LogStart, o.Cleaned, o.Evidence = m.RecoveryPoint, m.HighWatermark, m.LogStart, m.Cleaned, m.Evidence
	l, _, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.CloseUnclean)
	dir.Attach(l)
	return l, dir
}

func checkCut(t testing.TB, l *Log, fsys vfs.FS, o types.Offset) {
	t.Helper()
	for _, file := range checkpointFiles {
		if file.name == EvidenceFile {
			continue // no log of these tests was compacted: it isn't there
		}
		lines, err := ParseOffsets(get(t, fsys, join("d", file.name)))
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range lines {
			if line.Offset > o {
				t.Fatalf("%s says %d after a cut at %d", file.name, line.Offset, o)
			}
		}
	}
	if b := get(t, fsys, join(testDir, TimelineFile)); string(b) != `{"new":true}` {
		t.Fatalf("timeline checkpoint %q", b)
	}
	if v := l.View(); v.LogEnd != o {
		t.Fatalf("log end %d after a cut at %d", v.LogEnd, o)
	}
}

// TestCutOrder watches the operations of a cut: keeper, then segments, then the
// sync of file and folder, then the checkpoints, then epochs, then timelines (R1).
func TestCutOrder(t *testing.T) {
	mem := memFS(t)
	trace := &traceFS{FS: mem}
	keeper := keeperFunc(func(Removal) (string, error) {
		trace.note("keep", "")
		return "id", nil
	})
	l, dir := openWithCheckpoints(t, trace, keeper)
	story(t, l)
	l.SetHighWatermark(40)
	if err := errors.Join(l.Flush(), dir.Write()); err != nil {
		t.Fatal(err)
	}
	trace.ops = nil
	if _, err := l.Cut(15, CutReason{Cause: CauseTimeline, Timelines: []byte("x")}); err != nil {
		t.Fatal(err)
	}
	at := 0
	for _, want := range []string{
		"keep ", "remove 00000000000000000035.log", "truncate ", "sync 000", "syncdir topic-0",
		"rename recovery-point-offset-checkpoint", "syncdir d", "rename replication-offset-checkpoint", "syncdir d",
		"rename leader-epoch-checkpoint", "syncdir topic-0", "rename timeline-checkpoint", "syncdir topic-0",
	} {
		i := slices.IndexFunc(trace.ops[at:], func(op string) bool { return len(op) >= len(want) && op[:len(want)] == want })
		if i < 0 {
			t.Fatalf("no %q after the operations before it in\n%q", want, trace.ops)
		}
		at += i + 1
	}
}

type keeperFunc func(Removal) (string, error)

func (f keeperFunc) Keep(r Removal) (string, error) { return f(r) }

// TestKeeperRefuses: an error of the keeper leaves the log as it was (R29).
func TestKeeperRefuses(t *testing.T) {
	full := errors.New("vault is full")
	o := options(memFS(t))
	o.Keeper = &memoKeeper{err: full}
	l, _ := mustOpen(t, o)
	story(t, l)
	before := pictureOf(t, l)
	for name, f := range map[string]func() error{
		"cut":     func() error { _, err := l.Cut(10, CutReason{}); return err },
		"restart": func() error { _, err := l.Restart(10, CutReason{}); return err },
		"raise":   func() error { _, err := l.RaiseLogStart(10, false, CutReason{}); return err },
	} {
		if err := f(); !errors.Is(err, full) {
			t.Errorf("%s: %v", name, err)
		}
		if d := cmp.Diff(before, pictureOf(t, l)); d != "" {
			t.Errorf("%s changed the log:\n%s", name, d)
		}
	}
	if _, err := l.RaiseLogStart(10, true, CutReason{}); err != nil {
		t.Errorf("a vouched log start went to the keeper: %v", err)
	}
}

// TestRestartMovesAllMarks is KAFKA-9491: start, end and high watermark become the offset.
func TestRestartMovesAllMarks(t *testing.T) {
	keeper := &memoKeeper{}
	o := options(memFS(t))
	o.Keeper = keeper
	l, _ := mustOpen(t, o)
	story(t, l)
	l.SetHighWatermark(30)
	if _, err := l.RaiseLogStart(100, true, CutReason{Cause: CauseRestart}); err != nil {
		t.Fatal(err)
	}
	v := l.View()
	if v.LogStart != 100 || v.LogEnd != 100 || v.HighWatermark != 100 || v.LastStable != 100 || v.History.Len() != 0 || v.HasLastEpoch {
		t.Fatalf("%+v", v)
	}
	if len(keeper.removals) != 1 || keeper.removals[0].From != 0 || keeper.removals[0].To != 40 {
		t.Fatalf("kept %+v", keeper.removals)
	}
	if len(l.Producers()) != 0 {
		t.Fatal("producers of a log that is gone")
	}
	if c, err := l.Read(100, ReadLimit{To: 100, MaxBytes: 1}); err != nil || c.Bytes != 0 {
		t.Fatalf("read at the new start: %v", err)
	}
	follow(t, l, spec{base: 100, epoch: 9})
	l.CloseUnclean()
	o.LogStart, o.HighWatermark = v.LogStart, v.HighWatermark
	again, r := mustOpen(t, o)
	if got := again.View(); got.LogStart != 100 || got.LogEnd != 101 {
		t.Fatalf("%+v %+v", got, r)
	}
}

// TestUnvouchedLogStartIsKept is R28: what an unvouched start passes is kept,
// up to the batch boundary, and a start at the log end empties the history.
func TestUnvouchedLogStartIsKept(t *testing.T) {
	keeper := &memoKeeper{}
	o := options(memFS(t))
	o.Keeper = keeper
	l, _ := mustOpen(t, o)
	story(t, l)
	all := contents(t, l, 1<<20)
	if _, err := l.RaiseLogStart(17, false, CutReason{Cause: CauseLogStart}); err != nil {
		t.Fatal(err)
	}
	rest := contents(t, l, 1<<20)
	if !bytes.Equal(append(slices.Clone(keeper.bytes), rest...), all) {
		t.Fatalf("%d bytes kept and %d left of %d", len(keeper.bytes), len(rest), len(all))
	}
	if got, _ := l.View().History.Earliest(); got.Start != 17 || got.Epoch != 1 {
		t.Fatalf("history begins with %v", got)
	}
	if _, err := l.RaiseLogStart(40, true, CutReason{}); err != nil {
		t.Fatal(err)
	}
	if v := l.View(); v.History.Len() != 0 || v.LogStart != 40 || v.HighWatermark != 40 {
		t.Fatalf("%+v", v)
	}
}

// traceFS notes the operations that change the disk.
type traceFS struct {
	vfs.FS
	ops []string
}

func (f *traceFS) note(op, name string) {
	f.ops = append(f.ops, op+" "+name[max(0, lastSlash(name)):])
}

func lastSlash(name string) int {
	for i := len(name) - 1; i >= 0; i-- {
		if name[i] == '/' {
			return i + 1
		}
	}
	return 0
}

func (f *traceFS) Remove(name string) error {
	f.note("remove", name)
	return f.FS.Remove(name)
}

func (f *traceFS) Rename(from, to string) error {
	f.note("rename", to)
	return f.FS.Rename(from, to)
}

func (f *traceFS) SyncDir(dir string) error {
	f.note("syncdir", dir)
	return f.FS.SyncDir(dir)
}

func (f *traceFS) Create(name string) (vfs.File, error) { return f.wrap(f.FS.Create(name)) }
func (f *traceFS) OpenReadWrite(name string) (vfs.File, error) {
	return f.wrap(f.FS.OpenReadWrite(name))
}

func (f *traceFS) wrap(file vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return &traceFile{file, f}, nil
}

type traceFile struct {
	vfs.File
	fs *traceFS
}

func (f *traceFile) Truncate(n int64) error {
	f.fs.note("truncate", f.Name())
	return f.File.Truncate(n)
}

func (f *traceFile) Sync() error {
	f.fs.note("sync", f.Name())
	return f.File.Sync()
}
