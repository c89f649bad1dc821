//go:build chaos && linux

package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"tidemark/test/chaos/harm"
)

// sizes is what a run had grown to at one moment.
type sizes struct {
	at                     time.Duration // since the first node started
	records                int           // sends, polls and commits written down
	heap                   int64         // bytes of the test, garbage apart
	folders, ledgers, logs int64         // bytes of all nodes
}

func (s sizes) String() string {
	return fmt.Sprintf("%d entries of the record, %d MB of memory; folders of all nodes %d MB, ledgers %.1f MB, logs %.1f MB",
		s.records, s.heap>>20, s.folders>>20, float64(s.ledgers)/(1<<20), float64(s.logs)/(1<<20))
}

// measure says how large the run is. Files may come and go meanwhile.
func (w *world) measure() sizes {
	s := sizes{at: time.Since(w.n.Began)}
	w.c.rec.mu.Lock()
	s.records = len(w.c.rec.h.Sends) + len(w.c.rec.h.Polls) + len(w.c.rec.h.Commits)
	w.c.rec.mu.Unlock()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	s.heap = int64(m.HeapAlloc)
	count := func(name string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) || err == nil && e.IsDir() {
			return nil
		}
		if err != nil {
			return err
		}
		info, err := e.Info()
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return err
		case e.Name() == "ledger":
			s.ledgers += info.Size()
		case strings.HasSuffix(name, ".log") && filepath.Dir(name) == w.dir:
			s.logs += info.Size()
		default:
			s.folders += info.Size()
		}
		return nil
	}
	err := filepath.WalkDir(w.dir, count)
	if w.n.small != nil {
		err = errors.Join(err, filepath.WalkDir(w.n.small.Folder(), count))
	}
	if err != nil {
		w.t.Errorf("measure the run: %v", err)
	}
	return s
}

// watchSizes measures now and then until ctx ends.
func (w *world) watchSizes(ctx context.Context) {
	every := max(10*time.Second, w.chosen.faultsFor/10)
	for ctx.Err() == nil {
		s := w.measure()
		w.grown = append(w.grown, s)
		w.n.Log("size: %v", s)
		harm.Pause(ctx, every)
	}
}

// growth says what an hour of such a run would come to.
func (w *world) growth() string {
	if len(w.grown) < 2 {
		return "the run was too short to say how it grows"
	}
	// The first measure is of the start, the second of a run that runs.
	first, last := w.grown[min(1, len(w.grown)-2)], w.grown[len(w.grown)-1]
	span := last.at - first.at
	rest := max(0, time.Hour-last.at)
	hour := func(a, b int64) int64 { return b + int64(float64(b-a)*float64(rest)/float64(span)) }
	var m runtime.MemStats
	runtime.ReadMemStats(&m) // after the judge
	return fmt.Sprintf("size after %v: %v; the test took at most %d MB from the system\nan hour of it: about %d entries of the record (bound: %d sends), %d MB of memory for them; of each partition %d MB are kept",
		last.at.Round(time.Second), last, m.Sys>>20, hour(int64(first.records), int64(last.records)), sendsMax, hour(first.heap, last.heap)>>20, retentionBytes>>20)
}
