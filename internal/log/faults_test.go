package log

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tidemark/internal/core/types"
	"tidemark/internal/vfs"
	"tidemark/internal/vfs/faultfs"
)

// procedures are what the n-th failing operation is tried on. Each begins with
// a flushed story of 40 records and says what may have become of it.
var procedures = []struct {
	name string
	do   func(l *Log, t testing.TB) error
	ends []types.Offset // log ends that are right afterwards, with or without the failure
}{
	{"append", func(l *Log, t testing.TB) error {
		_, err := l.AppendAsFollower(spec{base: 40, epoch: 3, size: 20}.build(t), 9)
		return err
	}, []types.Offset{40, 41}},
	{"append in a new epoch", func(l *Log, t testing.TB) error {
		_, err := l.AppendAsFollower(spec{base: 40, epoch: 5, size: 20}.build(t), 9)
		return err
	}, []types.Offset{40, 41}},
	{"append that rolls", func(l *Log, t testing.TB) error {
		raw := append(spec{base: 40, epoch: 3, size: 600}.build(t), spec{base: 41, epoch: 6, size: 600}.build(t)...)
		_, err := l.AppendAsFollower(raw, 9)
		return err
	}, []types.Offset{40, 41, 42}},
	{"roll", func(l *Log, t testing.TB) error { return l.Roll() }, []types.Offset{40}},
	{"flush", func(l *Log, t testing.TB) error {
		if _, err := l.AppendAsFollower(spec{base: 40, epoch: 3}.build(t), 9); err != nil {
			return err
		}
		return l.Flush()
	}, []types.Offset{40, 41}},
	{"assign epoch", func(l *Log, t testing.TB) error { return l.AssignEpoch(7) }, []types.Offset{40}},
	{"restart", func(l *Log, t testing.TB) error {
		_, err := l.Restart(100, CutReason{Cause: CauseRestart})
		return err
	}, []types.Offset{0, 7, 14, 21, 28, 35, 40, 100}}, // it removes from the end: whole segments may be left
	{"cut", func(l *Log, t testing.TB) error {
		_, err := l.Cut(16, CutReason{Cause: CauseDivergence})
		return err
	}, offsets(16, 40)},
	{"cut into a gap", func(l *Log, t testing.TB) error {
		if _, err := l.AppendAsFollower(spec{base: 50, epoch: 3}.build(t), 9); err != nil {
			return err
		}
		if err := l.Flush(); err != nil {
			return err
		}
		_, err := l.Cut(45, CutReason{Cause: CauseDivergence})
		return err
	}, offsets(40, 51)},
	{"retention", func(l *Log, t testing.TB) error {
		if _, err := l.RaiseLogStart(15, true, CutReason{}); err != nil {
			return err
		}
		_, err := l.EnforceRetention(5)
		return err
	}, []types.Offset{40}},
	{"timelines", func(l *Log, t testing.TB) error { return l.SetTimelineCheckpoint([]byte("t")) }, []types.Offset{40}},
	{"close", func(l *Log, t testing.TB) error { return l.Close() }, []types.Offset{40}},
}

// offsets lists those from first to last.
func offsets(first, last types.Offset) []types.Offset {
	var out []types.Offset
	for o := first; o <= last; o++ {
		out = append(out, o)
	}
	return out
}

// TestEveryOperationFails fails the n-th mutating operation of each procedure:
// the error says that the log is offline, or that the disk is full and then the
// same call succeeds. After a crash right there the log opens to a log end that
// the procedure allows, and what was flushed is there.
func TestEveryOperationFails(t *testing.T) {
	for _, p := range procedures {
		for _, cause := range []error{syscall.EIO, syscall.ENOSPC} {
			t.Run(p.name+" "+cause.Error(), func(t *testing.T) {
				for n := 0; failNth(t, p.do, p.ends, n, cause); n++ {
				}
			})
		}
	}
}

func failNth(t *testing.T, do func(*Log, testing.TB) error, ends []types.Offset, n int, cause error) (fired bool) {
	mem := memFS(t)
	ffs := faultfs.New(mem)
	o := options(ffs)
	o.Config.Delete = false
	l, _ := mustOpen(t, o)
	story(t, l)
	l.SetHighWatermark(40)
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	want := contents(t, l, 1<<20)
	rule := ffs.Inject(faultfs.Rule{Kinds: faultfs.Mutating, Skip: n, Times: 1, Err: cause, Short: 9})
	err := do(l, t)
	rule.Remove()
	fired = rule.Fired() > 0
	if err == nil && fired && !vfs.IsNoSpace(cause) && n > 0 {
		t.Logf("op %d failed and nobody said so", n) // a file removed for good measure
	}
	if err != nil {
		if !fired || errors.Is(err, ErrOffline) == errors.Is(err, ErrNoSpace) {
			t.Fatalf("op %d: %v", n, err)
		}
		if errors.Is(err, ErrNoSpace) { // nothing torn, and it resumes
			if err := do(l, t); err != nil {
				t.Fatalf("op %d, again with room: %v", n, err)
			}
			fired = true
		} else if _, again := l.AppendAsFollower(nil, 9); !errors.Is(again, ErrOffline) && !errors.Is(again, ErrClosed) {
			t.Fatalf("op %d: an offline log takes appends: %v", n, again)
		}
	}
	v := l.View()
	for seed := range uint64(3) {
		disk := mem.CrashClone(vfs.CrashConfig{Seed: seed, KeepBlock: float64(seed) / 2, KeepEntry: float64(seed) / 2})
		again := options(disk)
		again.RecoveryPoint = min(v.RecoveryPoint, 40)
		l2, r, err := Open(again)
		if err != nil {
			t.Fatalf("op %d seed %d: %v", n, seed, err)
		}
		v2 := l2.View()
		if !contains(ends, v2.LogEnd) {
			t.Fatalf("op %d seed %d: log end %d, %+v", n, seed, v2.LogEnd, r)
		}
		if got := contents(t, l2, 1<<20); v2.LogStart == 0 && !strings.HasPrefix(string(got)+string(want[min(len(got), len(want)):]), string(want)) {
			t.Fatalf("op %d seed %d: flushed bytes differ", n, seed)
		}
		l2.CloseUnclean()
	}
	return fired
}

func contains(ends []types.Offset, o types.Offset) bool {
	for _, e := range ends {
		if e == o {
			return true
		}
	}
	return false
}

// TestOpenFails fails the n-th operation of any kind of an open after a crash:
// an error and no half-open log, and the next open finds everything.
func TestOpenFails(t *testing.T) {
	crashed := memFS(t)
	l, _ := mustOpen(t, options(crashed))
	story(t, l)
	l.SetHighWatermark(40)
	want := pictureOf(t, l)
	disk := crashed.CrashClone(vfs.CrashConfig{Seed: 1, KeepBlock: 1, KeepEntry: 1})
	put(t, disk, lastSegment(t, disk), append(get(t, disk, lastSegment(t, disk)), 1, 2, 3))
	for n := 0; ; n++ {
		mem := disk.CrashClone(vfs.CrashConfig{})
		ffs := faultfs.New(mem)
		rule := ffs.Inject(faultfs.Rule{Kinds: faultfs.Any &^ faultfs.Close, Skip: n, Times: 1})
		o := options(ffs)
		o.HighWatermark = 40
		half, _, err := Open(o)
		if err == nil {
			half.CloseUnclean()
		}
		if err == nil && rule.Fired() > 0 {
			t.Logf("op %d failed and the open went on", n)
		}
		rule.Remove()
		whole, _ := mustOpen(t, o)
		if d := cmp.Diff(want, pictureOf(t, whole)); d != "" {
			t.Fatalf("op %d:\n%s", n, d)
		}
		whole.CloseUnclean()
		if rule.Fired() == 0 {
			t.Logf("%d operations", n)
			return
		}
	}
}

// TestDiskFull fills the disk under a growing log: appends are refused with a
// clear error, nothing torn is left, reads go on, and it resumes.
func TestDiskFull(t *testing.T) {
	mem := memFS(t)
	ffs := faultfs.New(mem)
	l, _ := mustOpen(t, options(ffs))
	at, refused := types.Offset(0), 0
	for room := int64(0); room < 3000; room += 37 {
		ffs.SetSpace(room)
		for {
			a, err := l.AppendAsFollower(spec{base: at, epoch: types.LeaderEpoch(at / 4), size: int(at*31) % 200, ts: 1}.build(t), 1<<30)
			if err != nil {
				if !errors.Is(err, ErrNoSpace) || !vfs.IsNoSpace(err) || errors.Is(err, ErrOffline) {
					t.Fatal(err)
				}
				refused++
				break
			}
			at = a.NextOffset
		}
		if v := l.View(); v.LogEnd != at || v.Offline != nil {
			t.Fatalf("%+v, appended up to %d", v, at)
		}
		contents(t, l, 300)
		if r, err := VerifyDir(mem, testDir); err != nil || len(r.Problems) > 0 {
			t.Fatalf("with %d bytes of room: %v %v", room, err, r.Problems)
		}
	}
	if at < 20 || refused < 20 {
		t.Fatalf("%d records, %d refusals: the test tested nothing", at, refused)
	}
	ffs.SetSpace(-1)
	follow(t, l, spec{base: at, epoch: 1000})
}

// TestFailedSyncIsFinal: after a failed fsync the log takes no more writes, and
// the whole directory is told once, with the cause.
func TestFailedSyncIsFinal(t *testing.T) {
	ffs := faultfs.New(memFS(t))
	o := options(ffs)
	var told []error
	o.OnOffline = func(err error) { told = append(told, err) }
	l, _ := mustOpen(t, o)
	story(t, l)
	ffs.Inject(faultfs.Rule{Kinds: faultfs.Sync, Pattern: "*.log", Times: 1})
	for range 2 {
		if err := l.Flush(); !errors.Is(err, ErrOffline) || !errors.Is(err, syscall.EIO) {
			t.Fatalf("%v", err)
		}
	}
	for name, f := range map[string]func() error{
		"assign":  func() error { return l.AssignEpoch(9) },
		"cut":     func() error { _, err := l.Cut(5, CutReason{}); return err },
		"restart": func() error { _, err := l.Restart(5, CutReason{}); return err },
		"delete":  func() error { _, err := l.DeleteRecords(5); return err },
		"retain":  func() error { _, err := l.EnforceRetention(5); return err },
		"close":   func() error { return l.Close() },
	} {
		if err := f(); !errors.Is(err, ErrOffline) && !errors.Is(err, ErrClosed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if len(told) != 1 {
		t.Fatalf("told %d times", len(told))
	}
	if l.View().RecoveryPoint != 0 {
		t.Fatal("the recovery point rose over a failed sync")
	}
}

// TestRollSyncsTheFolder is KAFKA-3968: before a flush reports offsets durable,
// the names of the files that hold them are.
func TestRollSyncsTheFolder(t *testing.T) {
	mem := memFS(t)
	l, _ := mustOpen(t, options(mem))
	for i := range types.Offset(30) {
		follow(t, l, spec{base: i, epoch: 1, size: 100})
		if err := l.Flush(); err != nil {
			t.Fatal(err)
		}
		o := options(mem.CrashClone(vfs.CrashConfig{}))
		o.RecoveryPoint = l.RecoveryPoint()
		after, r := mustOpen(t, o)
		if v := after.View(); v.LogEnd != i+1 || o.RecoveryPoint != i+1 || !v.History.Equal(l.View().History) {
			t.Fatalf("flushed up to %d, power lost: %+v %+v", i+1, v, r)
		}
		after.CloseUnclean()
	}
	if l.View().Segments < 3 {
		t.Fatal("nothing rolled")
	}
}
