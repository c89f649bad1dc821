package log

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tidemark/internal/batch"
	"tidemark/internal/core/types"
	"tidemark/internal/vfs"
	"tidemark/internal/vfs/faultfs"
)

const forkDir = "d/fork-0"

var forkPartition = types.TopicPartition{Topic: "fork", Partition: 0}

// forkOf makes a fork of l that ends at `to`, as a node does.
func forkOf(l *Log, fsys vfs.FS, to types.Offset) (Marked, error) {
	f := Fork{Dir: forkDir, TopicID: types.TopicID{9}, Timelines: []byte("fork's")}
	j, err := l.StartFork(to)
	if err != nil {
		return Marked{}, err
	}
	defer j.Release()
	if err := l.EndFork(j, j.Make(f)); err != nil {
		return Marked{}, err
	}
	return j.Marks(f), fsys.SyncDir("d")
}

func mustFork(t testing.TB, l *Log, fsys vfs.FS, to types.Offset) Options {
	t.Helper()
	m, err := forkOf(l, fsys, to)
	if err != nil {
		t.Fatal(err)
	}
	return forkOptions(fsys, m)
}

func forkOptions(fsys vfs.FS, m Marked) Options {
	o := options(fsys)
	o.Dir, o.TopicPartition, o.TopicID = forkDir, forkPartition, types.TopicID{9}
	o.RecoveryPoint, o.HighWatermark, o.LogStart = m.RecoveryPoint, m.HighWatermark, m.LogStart
	return o
}

// files gives the bytes of every file in a folder.
func files(t testing.TB, fsys vfs.FS, dir string) map[string]string {
	t.Helper()
	names, err := fsys.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, name := range names {
		out[name] = string(get(t, fsys, join(dir, name)))
	}
	return out
}

// TestForkIsTheLogUpToThere: a fork shows what a log would that never had more, and
// making it changes no byte of the log, nor does anything that is done to it then.
func TestForkIsTheLogUpToThere(t *testing.T) {
	for _, rolled := range []bool{false, true} {
		for to := range types.Offset(41) {
			fsys := memFS(t)
			l, _ := mustOpen(t, options(fsys))
			story(t, l)
			l.SetHighWatermark(40)
			if rolled {
				if err := l.Roll(); err != nil {
					t.Fatal(err)
				}
			}
			before := files(t, fsys, testDir)
			o := mustFork(t, l, fsys, to)
			f, r := mustOpen(t, o)
			if r.TruncatedBytes > 0 || r.BelowMark || r.HistoryRebuilt {
				t.Fatalf("fork at %d: %+v", to, r)
			}
			if d := cmp.Diff(shortStory(t, int(to), to), pictureOf(t, f)); d != "" {
				t.Fatalf("fork at %d (-never had more +fork):\n%s", to, d)
			}
			if err := f.AssignEpoch(100); err != nil {
				t.Fatal(err)
			}
			for range 20 {
				lead(t, f, spec{epoch: 100, size: 60})
			}
			if _, err := f.Cut(to/2, CutReason{Cause: CauseDivergence}); err != nil {
				t.Fatal(err)
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(before, files(t, fsys, testDir)); d != "" {
				t.Fatalf("fork at %d changed the log:\n%s", to, d)
			}
		}
	}
}

// TestForkLinks: of a log that has rolled no byte of a segment is copied.
func TestForkLinks(t *testing.T) {
	fsys := memFS(t)
	l, _ := mustOpen(t, options(fsys))
	story(t, l)
	if err := l.Roll(); err != nil {
		t.Fatal(err)
	}
	j, err := l.StartFork(40)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Release()
	if linked, copied := j.Size(); copied != 0 || linked != l.View().Size {
		t.Errorf("%d bytes linked and %d copied of %d", linked, copied, l.View().Size)
	}
	if err := l.EndFork(j, j.Make(Fork{Dir: forkDir, TopicID: types.TopicID{9}})); err != nil {
		t.Fatal(err)
	}
	for name := range files(t, fsys, forkDir) {
		base, suffix, ok := parseFileName(name)
		if info, err := fsys.Stat(join(forkDir, name)); err != nil || ok && base < 40 && info.Links != 2 || ok && base == 40 && suffix == logSuffix && info.Links != 1 {
			t.Errorf("%s has %d names (%v)", name, info.Links, err)
		}
	}
}

// TestForkInsideABatch is refused; so is one that the log doesn't reach.
func TestForkInsideABatch(t *testing.T) {
	fsys := memFS(t)
	l, _ := mustOpen(t, options(fsys))
	follow(t, l, spec{base: 0, n: 10, epoch: 1}, spec{base: 10, n: 10, epoch: 1})
	for _, to := range []types.Offset{5, 15, 21} {
		if _, err := forkOf(l, fsys, to); !errors.Is(err, ErrOutOfRange) {
			t.Errorf("fork at %d: %v", to, err)
		}
	}
	if _, err := forkOf(l, fsys, 10); err != nil {
		t.Error(err)
	}
}

// TestForkSeesThatTheLogMoved: a cut, a compaction or retention beside a fork that is
// being made, between any two of its steps, gives a whole fork or ErrForkMoved, and
// never one with other bytes.
func TestForkSeesThatTheLogMoved(t *testing.T) {
	for name, change := range map[string]func(*Log) error{
		"cut": func(l *Log) error { _, err := l.Cut(9, CutReason{Cause: CauseDivergence}); return err },
		"retention": func(l *Log) error {
			_, err := l.RaiseLogStart(25, true, CutReason{})
			return errors.Join(err, expire(l))
		},
	} {
		t.Run(name, func(t *testing.T) {
			moved := 0
			for n := 0; ; n++ {
				mem := memFS(t)
				at := &atOperation{FS: mem, left: -1}
				l, _ := mustOpen(t, options(at))
				story(t, l)
				l.SetHighWatermark(40)
				if err := l.Roll(); err != nil {
					t.Fatal(err)
				}
				all := contents(t, l, 1<<20)
				j, err := l.StartFork(40)
				if err != nil {
					t.Fatal(err)
				}
				at.left, at.do = n, func() {
					if err := change(l); err != nil {
						t.Error(err)
					}
				}
				f := Fork{Dir: forkDir, TopicID: types.TopicID{9}}
				err = l.EndFork(j, j.Make(f))
				j.Release()
				ran := at.left < 0
				at.left = -1
				switch {
				case errors.Is(err, ErrForkMoved):
					moved++
				case err != nil:
					t.Fatalf("operation %d: %v", n, err)
				default:
					fork, r := mustOpen(t, forkOptions(mem, j.Marks(f)))
					if got := contents(t, fork, 1<<20); !bytes.Equal(got, all) {
						t.Fatalf("operation %d: the fork has %d bytes of %d: %+v", n, len(got), len(all), r)
					}
				}
				l.CloseUnclean()
				if !ran {
					break
				}
			}
			if moved == 0 {
				t.Error("no fork noticed")
			}
		})
	}
}

// expire removes the segments below the log start.
func expire(l *Log) error {
	_, err := l.EnforceRetention(2_000_000)
	return err
}

// atOperation runs do before the operation that changes the disk whose number is left.
type atOperation struct {
	vfs.FS
	left int
	do   func()
}

func (f *atOperation) tick() {
	if f.left < 0 {
		return
	}
	if f.left--; f.left < 0 {
		f.do()
	}
}

func (f *atOperation) Link(from, to string) error { f.tick(); return f.FS.Link(from, to) }
func (f *atOperation) Create(name string) (vfs.File, error) {
	f.tick()
	return f.FS.Create(name)
}
func (f *atOperation) SyncDir(dir string) error { f.tick(); return f.FS.SyncDir(dir) }

// sharedCut is one of the two logs that share segments, and the other.
type sharedCut struct {
	name       string
	cut, other func(*vfs.Mem, Marked) Options
}

func sharedCuts() []sharedCut {
	log := func(fsys *vfs.Mem, _ Marked) Options {
		o := options(fsys)
		o.RecoveryPoint, o.HighWatermark = 40, 35
		return o
	}
	fork := func(fsys *vfs.Mem, m Marked) Options {
		o := forkOptions(fsys, m)
		o.HighWatermark = 35
		return o
	}
	return []sharedCut{{"the log is cut", log, fork}, {"the fork is cut", fork, log}}
}

// findChangedBytes cuts one of two logs that share segments, losing power before and
// after every operation of the cut, cuts again and writes on, and says what of the
// other one's bytes, or of the cut log, is not as it must be.
func findChangedBytes(t *testing.T, which sharedCut, o types.Offset, rules Rules) string {
	t.Helper()
	want := shortStory(t, int(o), min(35, o))
	for n := 0; ; n++ {
		mem := memFS(t)
		l, _ := mustOpen(t, options(mem))
		story(t, l)
		if err := errors.Join(l.Roll(), l.Flush()); err != nil {
			t.Fatal(err)
		}
		all := contents(t, l, 1<<20)
		marks, err := forkOf(l, mem, 40)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(l.Close(), mem.SyncDir("d")); err != nil {
			t.Fatal(err)
		}
		ffs := faultfs.New(mem)
		opts := which.cut(mem, marks)
		opts.FS, opts.Rules, opts.Keeper = ffs, rules, &memoKeeper{}
		cut, _ := mustOpen(t, opts)
		rule := ffs.Inject(faultfs.Rule{Kinds: faultfs.Mutating, Skip: n, Times: 1, Late: n%2 == 1})
		_, _ = cut.Cut(o, CutReason{Cause: CauseDivergence})
		fired := rule.Fired() > 0
		rule.Remove()
		for seed := range uint64(3) {
			disk := mem.CrashClone(vfs.CrashConfig{Seed: seed, KeepBlock: float64(seed) / 2, KeepEntry: float64(seed) / 2})
			where := fmt.Sprintf("cut at %d, operation %d, seed %d: ", o, n, seed)
			if found := otherBytes(t, which.other(disk, marks), all); found != "" {
				return where + found
			}
			again := which.cut(disk, marks)
			again.Rules = rules
			l2, _ := mustOpen(t, again)
			if _, err := l2.Cut(o, CutReason{Cause: CauseDivergence}); err != nil {
				return where + err.Error()
			}
			if d := cmp.Diff(want, pictureOf(t, l2)); d != "" {
				return where + d
			}
			for i := range types.Offset(30) { // what is written now, and the indexes of it, are the cut log's alone
				follow(t, l2, spec{base: o + i, epoch: 50, size: 60})
			}
			if err := l2.Close(); err != nil {
				return where + err.Error()
			}
			if found := otherBytes(t, which.other(disk, marks), all); found != "" {
				return where + "after more was written " + found
			}
			if v, err := VerifyDir(disk, which.other(disk, marks).Dir); err != nil || len(v.Problems) > 0 {
				return where + fmt.Sprint(err, v.Problems)
			}
		}
		cut.CloseUnclean()
		if !fired {
			return ""
		}
	}
}

// otherBytes says how a log differs from what it must hold.
func otherBytes(t *testing.T, o Options, want []byte) string {
	t.Helper()
	const differs = "the other log has other bytes: "
	l, r, err := Open(o)
	if err != nil {
		return differs + err.Error()
	}
	defer l.CloseUnclean()
	if r.TruncatedBytes > 0 || !bytes.Equal(contents(t, l, 1<<20), want) {
		return differs + fmt.Sprintf("%+v", r)
	}
	return ""
}

// TestCutLeavesTheOtherLogsBytes is I-310: a cut of either of two logs that share
// segments, with a power loss anywhere, changes no byte that the other one shows.
func TestCutLeavesTheOtherLogsBytes(t *testing.T) {
	for _, which := range sharedCuts() {
		t.Run(which.name, func(t *testing.T) {
			for _, o := range []types.Offset{0, 7, 15, 30, 39} {
				if found := findChangedBytes(t, which, o, Rules{}); found != "" {
					t.Fatal(found)
				}
			}
		})
	}
}

// TestCutInPlaceIsFound: the check above finds the rule switched off.
func TestCutInPlaceIsFound(t *testing.T) {
	for _, which := range sharedCuts() {
		if found := findChangedBytes(t, which, 15, Rules{CutSharedInPlace: true}); !strings.Contains(found, "the other log has other bytes") {
			t.Errorf("%s in place: found %q", which.name, found)
		}
	}
}

// TestForkSurvivesCrashes: power lost anywhere while a fork is made leaves the log as
// it was; a fork that was said to be made is whole.
func TestForkSurvivesCrashes(t *testing.T) {
	for n := 0; ; n++ {
		mem := memFS(t)
		ffs := faultfs.New(mem)
		l, _ := mustOpen(t, options(ffs))
		story(t, l)
		if err := errors.Join(l.Roll(), l.Flush()); err != nil {
			t.Fatal(err)
		}
		all := contents(t, l, 1<<20)
		rule := ffs.Inject(faultfs.Rule{Kinds: faultfs.Mutating, Skip: n, Times: 1, Late: n%2 == 1})
		marks, err := forkOf(l, ffs, 40)
		fired := rule.Fired() > 0
		rule.Remove()
		for seed := range uint64(3) {
			disk := mem.CrashClone(vfs.CrashConfig{Seed: seed, KeepBlock: float64(seed) / 2, KeepEntry: float64(seed) / 2})
			o := options(disk)
			o.RecoveryPoint = 40
			again, r := mustOpen(t, o)
			if !bytes.Equal(contents(t, again, 1<<20), all) || r.TruncatedBytes > 0 {
				t.Fatalf("operation %d, seed %d: %+v", n, seed, r)
			}
			again.CloseUnclean()
			if err == nil {
				f, r := mustOpen(t, forkOptions(disk, marks))
				if !bytes.Equal(contents(t, f, 1<<20), all) || r.TruncatedBytes > 0 {
					t.Fatalf("operation %d, seed %d: the fork: %+v", n, seed, r)
				}
				f.CloseUnclean()
			}
		}
		l.CloseUnclean()
		if !fired {
			break
		}
	}
}

// TestRecoveryLeavesTheForksBytes: what recovery cuts off a damaged log stays in the
// fork's file, and the other way round.
func TestRecoveryLeavesTheForksBytes(t *testing.T) {
	for _, which := range sharedCuts() {
		mem := memFS(t)
		l, _ := mustOpen(t, options(mem))
		story(t, l)
		if err := errors.Join(l.Roll(), l.Flush()); err != nil {
			t.Fatal(err)
		}
		marks, err := forkOf(l, mem, 40)
		if err != nil {
			t.Fatal(err)
		}
		l.CloseUnclean()
		hurt := which.cut(mem, marks)
		hurt.RecoveryPoint = 0 // every batch is checked
		names := slices.Sorted(func(yield func(string) bool) {
			for name := range files(t, mem, hurt.Dir) {
				if strings.HasSuffix(name, logSuffix) && !yield(name) {
					return
				}
			}
		})
		name := join(hurt.Dir, names[2])
		b := get(t, mem, name)
		b[len(b)-1] ^= 1
		put(t, mem, name, b)
		o := which.other(mem, marks)
		damaged := files(t, mem, o.Dir)
		r2, r := mustOpen(t, hurt)
		if r.TruncatedBytes == 0 {
			t.Fatalf("%s: nothing was cut: %+v", which.name, r)
		}
		end := r2.View().LogEnd
		follow(t, r2, spec{base: end, epoch: 50}, spec{base: end + 1, epoch: 50})
		if err := r2.Close(); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(damaged, files(t, mem, o.Dir)); d != "" {
			t.Fatalf("%s: recovery changed the other log:\n%s", which.name, d)
		}
	}
}

// TestCompactionOfSharedSegments: a compacted log leaves its fork's records alone.
func TestCompactionOfSharedSegments(t *testing.T) {
	fsys := memFS(t)
	l, _ := mustOpen(t, compactOptions(fsys))
	for i := range types.Offset(40) {
		follow(t, l, spec{base: i, epoch: 1, key: fmt.Sprint(i % 3), size: 60})
	}
	l.SetHighWatermark(40)
	if err := errors.Join(l.Roll(), l.Flush()); err != nil {
		t.Fatal(err)
	}
	all := contents(t, l, 1<<20)
	f, _ := mustOpen(t, mustFork(t, l, fsys, 40))
	if _, err := compactNow(l, 10_000); err != nil {
		t.Fatal(err)
	}
	if left := contents(t, l, 1<<20); len(left) >= len(all) {
		t.Fatal("nothing was compacted")
	}
	if !bytes.Equal(contents(t, f, 1<<20), all) {
		t.Fatal("the fork was compacted with its log")
	}
	for it := batch.Iterate(contents(t, f, 1<<20)); it.Next(); {
		if err := batch.VerifyCRC(it.Raw); err != nil {
			t.Fatal(err)
		}
	}
}

// TestCutOfASharedSegmentWithoutRoom is refused as a whole: what stays can't be copied,
// or the keeper has no room for what goes; with room it goes through.
func TestCutOfASharedSegmentWithoutRoom(t *testing.T) {
	mem := memFS(t)
	ffs := faultfs.New(mem)
	o := options(ffs)
	keeper := &memoKeeper{}
	o.Keeper = keeper
	l, _ := mustOpen(t, o)
	story(t, l)
	if err := l.Roll(); err != nil {
		t.Fatal(err)
	}
	mustFork(t, l, ffs, 40)
	before, shared := pictureOf(t, l), files(t, mem, forkDir)
	refused := func(what string, want error) {
		t.Helper()
		if _, err := l.Cut(17, CutReason{Cause: CauseDivergence}); !errors.Is(err, want) {
			t.Errorf("%s: %v", what, err)
		}
		if d := cmp.Diff(before, pictureOf(t, l)); d != "" {
			t.Errorf("%s changed the log:\n%s", what, d)
		}
		for name := range files(t, mem, testDir) {
			if strings.HasSuffix(name, vfs.TempSuffix) {
				t.Errorf("%s left %s", what, name)
			}
		}
	}
	rule := ffs.Inject(faultfs.Rule{Kinds: faultfs.Write, Pattern: "*" + vfs.TempSuffix, Err: syscall.ENOSPC})
	refused("a full disk", ErrNoSpace)
	rule.Remove()
	if len(keeper.removals) > 0 {
		t.Error("records were kept for a cut that wasn't made")
	}
	keeper.err = errors.New("full")
	refused("a full vault", keeper.err)
	keeper.err = nil
	if _, err := l.Cut(17, CutReason{Cause: CauseDivergence}); err != nil {
		t.Fatal(err)
	}
	if v := l.View(); v.LogEnd != 17 {
		t.Errorf("log end %d", v.LogEnd)
	}
	if d := cmp.Diff(shared, files(t, mem, forkDir)); d != "" {
		t.Errorf("the fork changed:\n%s", d)
	}
}
