package log

import (
	"errors"
	"testing"
	"time"

	"tidemark/internal/core/types"
	"tidemark/internal/vfs"
)

// dated appends one segment per timestamp.
func dated(t testing.TB, l *Log, stamps ...types.Millis) {
	t.Helper()
	for _, ts := range stamps {
		follow(t, l, spec{base: l.View().LogEnd, n: 2, epoch: 1, ts: ts})
		if err := l.Roll(); err != nil {
			t.Fatal(err)
		}
	}
	l.SetHighWatermark(l.View().LogEnd)
}

func TestRetentionByTime(t *testing.T) {
	f := func(now, retention types.Millis, wantStart types.Offset) {
		t.Helper()
		mem := memFS(t)
		mem.SetClock(func() time.Time { return time.UnixMilli(1 << 40) })
		o := options(mem)
		o.Config.RetentionMs = retention
		l, _ := mustOpen(t, o)
		dated(t, l, 1000, 3000, 2000, 4000)
		r, err := l.EnforceRetention(now)
		if err != nil || r.LogStart != wantStart || l.View().LogStart != wantStart {
			t.Errorf("at %d with %d: %+v %v, want log start %d", now, retention, r, err, wantStart)
		}
		contents(t, l, 1000)
	}
	f(1050, 100, 0)
	f(1102, 100, 2)
	f(2500, 100, 2) // the second segment is younger and keeps the third
	f(3102, 100, 6)
	f(9999, 100, 8)
	f(9999, -1, 0)
}

func TestRetentionBySize(t *testing.T) {
	o := options(memFS(t))
	l, _ := mustOpen(t, o)
	dated(t, l, 1000, 1000, 1000, 1000)
	each := l.View().Size / 4
	f := func(limit int64, wantStart types.Offset) {
		t.Helper()
		c := l.Config()
		c.RetentionBytes = limit
		l.UpdateConfig(c)
		if r, err := l.EnforceRetention(1001); err != nil || r.LogStart != wantStart {
			t.Errorf("limit %d: %+v %v, want log start %d", limit, r, err, wantStart)
		}
	}
	f(each*4, 0)
	f(each*3+1, 0) // less than a segment too much
	f(each*3, 2)
	f(0, 8)
}

// TestRetentionStopsAtTheHighWatermark: what is not committed is not deleted.
func TestRetentionStopsAtTheHighWatermark(t *testing.T) {
	o := options(memFS(t))
	o.Config.RetentionMs = 1
	l, _ := mustOpen(t, o)
	dated(t, l, 1000, 1000, 1000)
	l.SetHighWatermark(3)
	if r, err := l.EnforceRetention(9999); err != nil || r.LogStart != 2 || r.Segments != 1 {
		t.Fatalf("%+v %v", r, err)
	}
}

// TestRetentionOfFutureTimes is KAFKA-20609: a segment whose records claim a
// time to come is judged by the file's last change.
func TestRetentionOfFutureTimes(t *testing.T) {
	mem := memFS(t)
	clock := time.UnixMilli(5000)
	mem.SetClock(func() time.Time { return clock })
	o := options(mem)
	o.Config.RetentionMs = 100
	l, _ := mustOpen(t, o)
	dated(t, l, 1<<50, 4000)
	if r, err := l.EnforceRetention(5050); err != nil || r.Segments != 0 {
		t.Fatalf("%+v %v", r, err)
	}
	if r, err := l.EnforceRetention(5200); err != nil || r.Segments != 2 {
		t.Fatalf("%+v %v", r, err)
	}
}

// TestDeleteRecords: up to the high watermark, never back; readers and a later
// open see the new start, and retention removes whole segments below it, also
// of a compacted topic.
func TestDeleteRecords(t *testing.T) {
	mem := memFS(t)
	l, dir := openWithCheckpoints(t, mem, nil)
	c := l.Config()
	c.Compact, c.Delete = true, false
	l.UpdateConfig(c)
	dated(t, l, 1000, 1000, 1000)
	l.SetHighWatermark(5)
	f := func(before, want types.Offset, wantErr error) {
		t.Helper()
		got, err := l.DeleteRecords(before)
		if got != want || !errors.Is(err, wantErr) {
			t.Errorf("before %d: %d, %v", before, got, err)
		}
	}
	f(3, 3, nil)
	f(1, 3, nil)
	f(6, 3, ErrOutOfRange)
	f(-1, 5, nil)
	if _, err := l.Read(4, ReadLimit{To: 6, MaxBytes: 1}); !errors.Is(err, ErrOutOfRange) {
		t.Errorf("%v", err)
	}
	if r, err := l.EnforceRetention(1001); err != nil || r.Segments != 2 || r.LogStart != 5 {
		t.Errorf("%+v %v", r, err)
	}
	if err := errors.Join(l.Flush(), dir.Write()); err != nil {
		t.Fatal(err)
	}
	l2, _ := openWithCheckpoints(t, mem.CrashClone(vfs.CrashConfig{}), nil)
	if v := l2.View(); v.LogStart != 5 || v.LogEnd != 6 {
		t.Errorf("%+v", v)
	}
}

// TestLeaderKeepsItsEntry: a log start at the log end empties a follower's
// history (R1) but leaves a leader its own entry.
func TestLeaderKeepsItsEntry(t *testing.T) {
	l, _ := mustOpen(t, options(memFS(t)))
	lead(t, l, spec{epoch: 3, n: 4})
	l.SetHighWatermark(4)
	if _, err := l.DeleteRecords(4); err != nil {
		t.Fatal(err)
	}
	if got, ok := l.View().History.Latest(); !ok || got.Epoch != 3 || got.Start != 4 {
		t.Fatalf("%v %t", got, ok)
	}
	lead(t, l, spec{n: 1})
	if err := l.BecomeFollower(); err != nil || l.View().History.Len() != 1 {
		t.Fatalf("%v %v", err, l.View().History)
	}
	if _, err := l.RaiseLogStart(5, true, CutReason{}); err != nil || l.View().History.Len() != 0 {
		t.Fatalf("%v %v", err, l.View().History)
	}
}
