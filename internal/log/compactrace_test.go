package log

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"tidemark/internal/batch"
	"tidemark/internal/core/types"
	"tidemark/internal/vfs"
)

// TestCompactionBesideTraffic compacts again and again, on a goroutine of its
// own, while the log is appended to and read: readers see whole batches only,
// in order, and the latest values are right in the end. On a real file system,
// where renamed files are other files.
func TestCompactionBesideTraffic(t *testing.T) {
	o := compactOptions(vfs.OS())
	o.Dir = t.TempDir() + "/topic-0"
	l, _ := mustOpen(t, o)
	var stop atomic.Bool
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for !stop.Load() {
				if err := readThrough(l); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	want := map[string]string{}
	put := func(i int) {
		key, value := fmt.Sprint("k", i%17), fmt.Sprint(i)
		want[key] = value
		mustFollow(t, l, kv(t, l.View().LogEnd, types.LeaderEpoch(i/100), 5, batch.BuilderOptions{}, key, value, fmt.Sprint("once", i%70), value))
		want[fmt.Sprint("once", i%70)] = value
		l.SetHighWatermark(l.View().LogEnd)
	}
	for i := 0; i < 200; {
		for range 20 {
			put(i)
			i++
		}
		c, err := l.StartCompaction(types.Millis(i), CompactionLimits{MaxKeys: 40})
		if err != nil {
			t.Fatal(err)
		}
		if c == nil {
			continue
		}
		done := make(chan error, 1)
		go func() { done <- c.Run(context.Background()) }()
		for range 5 {
			put(i)
			i++
		}
		if _, err := l.FinishCompaction(c, <-done); err != nil {
			t.Fatal(err)
		}
	}
	stop.Store(true)
	readers.Wait()
	got := latest(visible(t, l))
	for k, v := range want {
		if got[k] != v {
			t.Errorf("%s is %q, want %q", k, got[k], v)
		}
	}
	if l.View().Segments > 100 {
		t.Errorf("%d segments: nothing was merged", l.View().Segments)
	}
}

func readThrough(l *Log) error {
	v := l.View()
	for at := v.LogStart; at < v.HighWatermark; {
		c, err := l.Read(at, ReadLimit{To: v.HighWatermark, MaxBytes: 700, MinOne: true})
		if err != nil {
			return err
		}
		b, err := c.ReadInto(nil)
		c.Release()
		if err != nil || len(b) == 0 {
			return err
		}
		it := batch.Iterate(b)
		for it.Next() {
			if it.Header.NextOffset() <= at {
				return fmt.Errorf("batch at %d when reading from %d", it.Header.BaseOffset, at)
			}
			if err := batch.VerifyCRC(it.Raw); err != nil {
				return err
			}
			at = it.Header.NextOffset()
		}
		if it.Err() != nil {
			return it.Err()
		}
	}
	return nil
}
