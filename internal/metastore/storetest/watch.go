package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"tidemark/internal/core/meta"
	"tidemark/internal/metastore"
)

func describe(events metastore.Events) string {
	var parts []string
	for _, ev := range events.Events {
		if ev.Kind == meta.EventDelete {
			parts = append(parts, "-"+ev.KV.Key)
		} else {
			parts = append(parts, "+"+ev.KV.Key+"="+string(ev.KV.Value))
		}
	}
	slices.Sort(parts)
	return fmt.Sprint(events.Revision, parts)
}

func testWatchOrder(t *testing.T, sub Subject) {
	s := sub.Store
	start := do(t, s, put("/w/old", "x"))
	w := watch(t, s, "/w/", start)
	r1 := do(t, s, put("/w/a", "1"), put("/w/b", "1"), put("/v/a", "no"))
	do(t, s, put("/x", "no"))
	r2 := do(t, s, put("/w/a", "2"), meta.Delete("/w/b"))
	r3 := do(t, s, meta.DeletePrefix("/w/"))
	f := func(want string) metastore.Events {
		t.Helper()
		events := nextChange(t, w)
		if got := describe(events); got != want {
			t.Fatalf("got %s, want %s", got, want)
		}
		return events
	}
	first := f(fmt.Sprint(r1, []string{"+/w/a=1", "+/w/b=1"}))
	if kv := first.Events[0].KV; kv.CreateRevision != r1 || kv.ModRevision != r1 {
		t.Fatalf("event %+v, want revision %d", kv, r1)
	}
	second := f(fmt.Sprint(r2, []string{"+/w/a=2", "-/w/b"}))
	for _, ev := range second.Events {
		if ev.KV.ModRevision != r2 || ev.Kind == meta.EventPut && ev.KV.CreateRevision != r1 {
			t.Fatalf("event %+v, want revision %d, created at %d", ev.KV, r2, r1)
		}
	}
	f(fmt.Sprint(r3, []string{"-/w/a", "-/w/old"}))
}

func testWatchResume(t *testing.T, sub Subject) {
	s := sub.Store
	var revisions []metastore.Revision
	for i := range 10 {
		revisions = append(revisions, do(t, s, put("/w/a", fmt.Sprint(i)), put("/w/b", fmt.Sprint(i))))
	}
	for i, after := range revisions {
		w := watch(t, s, "/w/", after-1)
		for j := i; j < len(revisions); j++ {
			want := fmt.Sprint(revisions[j], []string{fmt.Sprintf("+/w/a=%d", j), fmt.Sprintf("+/w/b=%d", j)})
			if got := describe(nextChange(t, w)); got != want {
				t.Fatalf("after %d: got %s, want %s", after-1, got, want)
			}
		}
		w.Close()
	}
	future := watch(t, s, "/w/", revisions[9]+1)
	do(t, s, put("/w/a", "skipped"))
	r := do(t, s, put("/w/a", "seen"))
	if got, want := describe(nextChange(t, future)), fmt.Sprint(r, []string{"+/w/a=seen"}); got != want {
		t.Fatalf("got %s, want %s", got, want)
	}
}

// testWatchEqualsRange keeps a map by the watch alone while several writers
// work, and compares it with what a read says at the end.
func testWatchEqualsRange(t *testing.T, sub Subject) {
	s := sub.Store
	const writers, each = 4, 60
	w := watch(t, s, "/m/", 0)
	var wg sync.WaitGroup
	for n := range writers {
		wg.Go(func() {
			for i := range each {
				own := fmt.Sprintf("/m/%d/%d", n, i%7)
				ops := []metastore.Op{put(own, fmt.Sprint(i)), put(fmt.Sprintf("/m/count/%d", n), fmt.Sprint(i)), put("/other", "x")}
				if i%5 == 4 {
					ops[0] = meta.Delete(own)
				}
				if _, err := s.Txn(context.Background(), metastore.Txn{Then: ops}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	end := do(t, s, put("/m/end", "x"))
	seen := make(map[string]metastore.KV)
	for last := metastore.Revision(0); last < end; {
		events := nextChange(t, w)
		if events.Revision <= last {
			t.Fatalf("revision %d after %d", events.Revision, last)
		}
		last = events.Revision
		for _, ev := range events.Events {
			if ev.KV.ModRevision != last {
				t.Fatalf("event of revision %d in revision %d", ev.KV.ModRevision, last)
			}
			if ev.Kind == meta.EventDelete {
				delete(seen, ev.KV.Key)
			} else {
				seen[ev.KV.Key] = ev.KV
			}
		}
	}
	kvs, _, err := s.Range(bounded(t), "/m/")
	if err != nil || len(kvs) != len(seen) {
		t.Fatalf("%d keys, watched %d; %v", len(kvs), len(seen), err)
	}
	for _, kv := range kvs {
		got := seen[kv.Key]
		if string(got.Value) != string(kv.Value) || got.ModRevision != kv.ModRevision || got.CreateRevision != kv.CreateRevision {
			t.Fatalf("watched %+v, read %+v", got, kv)
		}
	}
}

func testWatchCompacted(t *testing.T, sub Subject) {
	s := sub.Store
	first := do(t, s, put("/w/a", "1"))
	do(t, s, put("/w/a", "2"))
	third := do(t, s, put("/w/a", "3"))
	last := do(t, s, put("/w/a", "4"))
	sub.Compact(t, third)
	w := watch(t, s, "/w/", first-1)
	for range 2 {
		_, err := nextChangeOr(bounded(t), w)
		wantError(t, err, metastore.ErrCompacted)
	}
	fresh := watch(t, s, "/w/", third)
	if got, want := describe(nextChange(t, fresh)), fmt.Sprint(last, []string{"+/w/a=4"}); got != want {
		t.Fatalf("got %s, want %s", got, want)
	}
	wantValue(t, s, "/w/a", "4")
}

func testWatchEnds(t *testing.T, sub Subject) {
	s := sub.Store
	start := do(t, s, put("/w/a", "0"))

	// The context of Next ends only the call.
	w := watch(t, s, "/w/", start)
	short, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	_, err := nextChangeOr(short, w)
	cancel()
	wantError(t, err, context.DeadlineExceeded)
	r := do(t, s, put("/w/a", "1"))
	if got, want := describe(nextChange(t, w)), fmt.Sprint(r, []string{"+/w/a=1"}); got != want {
		t.Fatalf("got %s, want %s", got, want)
	}

	// Close wakes the one who waits.
	waiting := make(chan error, 1)
	go func() {
		_, err := nextChangeOr(context.Background(), w)
		waiting <- err
	}()
	w.Close()
	w.Close()
	select {
	case err := <-waiting:
		wantError(t, err, metastore.ErrClosed)
	case <-time.After(patience):
		t.Fatal("Close didn't wake Next")
	}

	// The watch ends with its context.
	ctx, end := context.WithCancel(context.Background())
	bound := s.Watch(ctx, "/w/", r)
	defer bound.Close()
	end()
	_, err = nextChangeOr(bounded(t), bound)
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("error %v, want context.Canceled", err)
	}
}

// testWatchProgress: a watch says soon that a revision had nothing for it, so
// that who waits for that revision goes on; and it loses no event thereby.
func testWatchProgress(t *testing.T, sub Subject) {
	s := sub.Store
	seen := do(t, s, put("/w/a", "0"))
	w := watch(t, s, "/w/", seen)
	for i := range 3 {
		other := do(t, s, put("/other", fmt.Sprint(i)))
		for seen < other {
			events, err := w.Next(bounded(t))
			if err != nil || len(events.Events) != 0 || events.Revision <= seen {
				t.Fatalf("%+v, %v; want progress from %d to %d", events, err, seen, other)
			}
			seen = events.Revision
		}
		r := do(t, s, put("/w/a", fmt.Sprint(i)))
		if got, want := describe(nextChange(t, w)), fmt.Sprint(r, []string{fmt.Sprintf("+/w/a=%d", i)}); got != want {
			t.Fatalf("got %s, want %s", got, want)
		}
		seen = r
	}
}
