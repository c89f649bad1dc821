package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"tidemark/internal/core/meta"
	"tidemark/internal/metastore"
)

func testGet(t *testing.T, sub Subject) {
	s := sub.Store
	wantAbsent(t, s, "/a")
	first := do(t, s, put("/a", "1"))
	second := do(t, s, put("/a", "2"), put("/b", ""))
	if second <= first {
		t.Fatalf("revision %d after %d", second, first)
	}
	kv, now, err := s.Get(bounded(t), "/a")
	if err != nil {
		t.Fatal(err)
	}
	want := metastore.KV{Key: "/a", Value: []byte("2"), CreateRevision: first, ModRevision: second}
	if kv.Key != want.Key || string(kv.Value) != "2" || kv.CreateRevision != first || kv.ModRevision != second || kv.Lease != 0 {
		t.Fatalf("got %+v, want %+v", kv, want)
	}
	if now != second {
		t.Fatalf("store at revision %d, want %d", now, second)
	}
	if kv := get(t, s, "/b"); kv.ModRevision != second || len(kv.Value) != 0 {
		t.Fatalf("empty value: %+v", kv)
	}
}

func testRecreate(t *testing.T, sub Subject) {
	s := sub.Store
	first := do(t, s, put("/a", "1"))
	gone := do(t, s, meta.Delete("/a"))
	wantAbsent(t, s, "/a")
	second := do(t, s, put("/a", "1"))
	if kv := get(t, s, "/a"); kv.CreateRevision != second || !(first < gone && gone < second) {
		t.Fatalf("created at %d, want %d (first %d, deleted %d)", kv.CreateRevision, second, first, gone)
	}
}

func testRange(t *testing.T, sub Subject) {
	s := sub.Store
	do(t, s, put("/p/2", "b"), put("/p/10", "c"), put("/p/1", "a"), put("/p", "no"), put("/q/1", "no"), put("/o/1", "no"))
	last := do(t, s, put("/p/1", "aa"), meta.Delete("/p/2"))
	kvs, revision, err := s.Range(bounded(t), "/p/")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, kv := range kvs {
		got = append(got, kv.Key+"="+string(kv.Value))
	}
	if want := []string{"/p/1=aa", "/p/10=c"}; !slices.Equal(got, want) || revision != last {
		t.Fatalf("%v at %d, want %v at %d", got, revision, want, last)
	}
	if kvs, _, err := s.Range(bounded(t), "/p/1"); err != nil || len(kvs) != 2 {
		t.Fatalf("a prefix is not a folder: %v, %v", kvs, err)
	}
	if kvs, revision, err := s.Range(bounded(t), "/none/"); err != nil || len(kvs) != 0 || revision != last {
		t.Fatalf("%v at %d, %v", kvs, revision, err)
	}
}

// testRangePages writes while it reads: all keys must be of one revision.
// testRangeAt: what was there at a revision, whatever became of it since, until that is compacted.
func testRangeAt(t *testing.T, sub Subject) {
	s := sub.Store
	do(t, s, put("a/1", "old"), put("a/2", "goes"), put("b/1", "another's"))
	then := do(t, s, put("a/3", "stays"))
	do(t, s, put("a/1", "new"), put("a/4", "later"))
	now := do(t, s, meta.Delete("a/2"))
	f := func(at metastore.Revision, want string) {
		t.Helper()
		kvs, err := s.RangeAt(bounded(t), "a/", at)
		if err != nil {
			t.Fatal(err)
		}
		var got strings.Builder
		for _, kv := range kvs {
			fmt.Fprintf(&got, "%s=%s@%d ", kv.Key, kv.Value, kv.ModRevision-then)
		}
		if got.String() != want {
			t.Errorf("at %d: %s, want %s", at-then, &got, want)
		}
	}
	f(then, "a/1=old@-1 a/2=goes@-1 a/3=stays@0 ")
	f(now, "a/1=new@1 a/3=stays@0 a/4=later@1 ")
	if _, err := s.RangeAt(bounded(t), "a/", now+1); err == nil || errors.Is(err, metastore.ErrCompacted) {
		t.Errorf("a revision that is not reached: %v", err)
	}
	sub.Compact(t, now-1)
	f(now-1, "a/1=new@1 a/2=goes@-1 a/3=stays@0 a/4=later@1 ")
	_, err := s.RangeAt(bounded(t), "a/", then)
	wantError(t, err, metastore.ErrCompacted)
}

func testRangePages(t *testing.T, sub Subject) {
	s := sub.Store
	const keys = 100
	write := func(round int) {
		ops := make([]metastore.Op, keys)
		for i := range ops {
			ops[i] = put(fmt.Sprintf("/r/%03d", i), strconv.Itoa(round))
		}
		do(t, s, ops...)
	}
	write(0)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for round := 1; round <= 30; round++ {
			write(round)
		}
	}()
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		kvs, revision, err := s.Range(bounded(t), "/r/")
		if err != nil || len(kvs) != keys {
			t.Fatalf("%d keys, %v", len(kvs), err)
		}
		for _, kv := range kvs {
			if string(kv.Value) != string(kvs[0].Value) || kv.ModRevision != kvs[0].ModRevision || kv.ModRevision > revision {
				t.Fatalf("%s is of revision %d, %s of %d, read at %d", kv.Key, kv.ModRevision, kvs[0].Key, kvs[0].ModRevision, revision)
			}
		}
	}
}

func testCompares(t *testing.T, sub Subject) {
	s := sub.Store
	created := do(t, s, put("/a", "1"))
	modified := do(t, s, put("/a", "2"))
	f := func(name string, want bool, compares ...metastore.Compare) {
		t.Helper()
		before := get(t, s, "/mark").ModRevision
		_, now, _ := s.Get(bounded(t), "/mark")
		res, err := s.Txn(bounded(t), metastore.Txn{If: compares, Then: []metastore.Op{put("/mark", name)}})
		if err != nil || res.Succeeded != want {
			t.Fatalf("%s: %+v, %v; want %v", name, res, err, want)
		}
		after := get(t, s, "/mark").ModRevision
		if want && after != res.Revision || !want && (after != before || res.Revision != now) {
			t.Fatalf("%s: mark at %d, then at %d; transaction says %d", name, before, after, res.Revision)
		}
	}
	f("none", true)
	f("mod revision", true, meta.ModRevisionIs("/a", modified))
	f("old mod revision", false, meta.ModRevisionIs("/a", created))
	f("mod revision of nothing", true, meta.ModRevisionIs("/none", 0))
	f("mod revision 0 of something", false, meta.ModRevisionIs("/a", 0))
	f("create revision", true, meta.CreateRevisionIs("/a", created))
	f("wrong create revision", false, meta.CreateRevisionIs("/a", modified))
	f("absent", true, meta.Absent("/none"))
	f("not absent", false, meta.Absent("/a"))
	f("exists", true, meta.Exists("/a"))
	f("doesn't exist", false, meta.Exists("/none"))
	f("value", true, meta.ValueIs("/a", []byte("2")))
	f("other value", false, meta.ValueIs("/a", []byte("1")))
	f("value of nothing", false, meta.ValueIs("/none", nil))
	f("all hold", true, meta.Exists("/a"), meta.Absent("/none"), meta.ModRevisionIs("/a", modified))
	f("one fails", false, meta.Exists("/a"), meta.Exists("/none"), meta.ModRevisionIs("/a", modified))
	do(t, s, meta.Delete("/a"))
	f("deleted", true, meta.Absent("/a"))
	f("deleted value", false, meta.ValueIs("/a", []byte("2")))
}

func testOneRevision(t *testing.T, sub Subject) {
	s := sub.Store
	do(t, s, put("/d/1", "x"), put("/d/2", "x"), put("/dd", "x"))
	r := do(t, s, put("/a", "1"), meta.DeletePrefix("/d/"), put("/b", "1"), meta.Delete("/none"))
	if a, b := get(t, s, "/a"), get(t, s, "/b"); a.ModRevision != r || b.ModRevision != r {
		t.Fatalf("revisions %d and %d, want %d", a.ModRevision, b.ModRevision, r)
	}
	wantAbsent(t, s, "/d/1")
	wantAbsent(t, s, "/d/2")
	wantValue(t, s, "/dd", "x")
	if again := do(t, s, meta.Delete("/none")); again != r {
		t.Fatalf("a transaction that changed nothing has revision %d, want %d", again, r)
	}
}

func testInvalid(t *testing.T, sub Subject) {
	s := sub.Store
	do(t, s, put("/before", "x"))
	f := func(ops ...metastore.Op) {
		t.Helper()
		_, err := s.Txn(bounded(t), metastore.Txn{Then: ops})
		wantError(t, err, metastore.ErrInvalidTxn)
		if errors.Is(err, metastore.ErrUnknownOutcome) {
			t.Fatalf("%v: but nothing can have been written", err)
		}
	}
	f(put("/a", "1"), put("/a", "2"))
	f(put("/a", "1"), meta.Delete("/a"))
	f(meta.Delete("/a"), put("/a", "1"))
	f(put("/a/1", "1"), meta.DeletePrefix("/a/"))
	f(put("", "1"))
	wantAbsent(t, s, "/a")
	wantAbsent(t, s, "/a/1")
}

func testLimits(t *testing.T, sub Subject) {
	s := sub.Store
	limit := s.MaxTxnOps()
	if limit < 128 {
		t.Fatalf("only %d operations", limit)
	}
	ops := make([]metastore.Op, limit+1)
	compares := make([]metastore.Compare, limit+1)
	for i := range ops {
		ops[i] = put(fmt.Sprintf("/n/%d", i), "x")
		compares[i] = meta.Absent(fmt.Sprintf("/n/%d", i))
	}
	tooLarge := func(txn metastore.Txn) {
		t.Helper()
		_, err := s.Txn(bounded(t), txn)
		wantError(t, err, metastore.ErrTxnTooLarge)
		if errors.Is(err, metastore.ErrUnknownOutcome) {
			t.Fatalf("%v: but nothing can have been written", err)
		}
	}
	tooLarge(metastore.Txn{Then: ops})
	tooLarge(metastore.Txn{If: compares, Then: ops[:1]})
	tooLarge(metastore.Txn{Then: []metastore.Op{put("/big", strings.Repeat("x", 2<<20))}})
	wantAbsent(t, s, "/big")
	doIf(t, s, compares[:limit], ops[:limit]...)
	if kvs, _, err := s.Range(bounded(t), "/n/"); err != nil || len(kvs) != limit {
		t.Fatalf("%d keys, %v; want %d", len(kvs), err, limit)
	}
	do(t, s, put("/fits", strings.Repeat("x", 1<<20)))
}

func testConcurrentCAS(t *testing.T, sub Subject) {
	s := sub.Store
	const workers, each = 8, 25
	do(t, s, put("/n", "0"))
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for range each {
				increment(t, s)
			}
		})
	}
	wg.Wait()
	wantValue(t, s, "/n", strconv.Itoa(workers*each))
}

func increment(t *testing.T, s metastore.Store) {
	for {
		kv, _, err := s.Get(context.Background(), "/n")
		if err != nil {
			t.Error(err)
			return
		}
		n, _ := strconv.Atoi(string(kv.Value))
		res, err := s.Txn(context.Background(), metastore.Txn{
			If:   []metastore.Compare{meta.ModRevisionIs("/n", kv.ModRevision)},
			Then: []metastore.Op{put("/n", strconv.Itoa(n+1))},
		})
		if err != nil {
			t.Error(err)
			return
		}
		if res.Succeeded {
			return
		}
	}
}

func testCancelled(t *testing.T, sub Subject) {
	s := sub.Store
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	f := func(name string, err error) {
		t.Helper()
		if !errors.Is(err, context.Canceled) || errors.Is(err, metastore.ErrUnknownOutcome) {
			t.Fatalf("%s: %v, want context.Canceled and a known outcome", name, err)
		}
	}
	_, _, err := s.Get(ctx, "/a")
	f("get", err)
	_, _, err = s.Range(ctx, "/a")
	f("range", err)
	_, err = s.Txn(ctx, metastore.Txn{Then: []metastore.Op{put("/a", "1")}})
	f("txn", err)
	_, err = s.Grant(ctx, time.Minute)
	f("grant", err)
	_, err = s.KeepAlive(ctx, 1)
	f("keep alive", err)
	f("revoke", s.Revoke(ctx, 1))
	_, err = s.Watch(ctx, "/a", 0).Next(context.Background())
	f("watch", err)
	wantAbsent(t, s, "/a")
}

// testDeadlinesInFlight ends contexts at any point of a write: an error that
// doesn't say ErrUnknownOutcome must mean that nothing was written.
func testDeadlinesInFlight(t *testing.T, sub Subject) {
	s := sub.Store
	for i := range 200 {
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(i*5)*time.Microsecond)
		key := fmt.Sprintf("/k/%d", i)
		res, err := s.Txn(ctx, metastore.Txn{If: []metastore.Compare{meta.Absent(key)}, Then: []metastore.Op{put(key, "x")}})
		cancel()
		kv := get(t, s, key)
		switch {
		case err == nil && (!res.Succeeded || kv.ModRevision != res.Revision):
			t.Fatalf("%s: %+v, but it is at revision %d", key, res, kv.ModRevision)
		case err != nil && !errors.Is(err, metastore.ErrUnknownOutcome) && kv.ModRevision != 0:
			t.Fatalf("%s: %v, but it was written", key, err)
		}
	}
}

func testClosed(t *testing.T, sub Subject) {
	s := sub.Store
	do(t, s, put("/a", "1"))
	w := watch(t, s, "/a", 0)
	nextChange(t, w)
	waiting := make(chan error, 1)
	go func() {
		_, err := nextChangeOr(context.Background(), w)
		waiting <- err
	}()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-waiting:
		wantError(t, err, metastore.ErrClosed)
	case <-time.After(patience):
		t.Fatal("the watch didn't end with the store")
	}
	_, _, err := s.Get(bounded(t), "/a")
	wantError(t, err, metastore.ErrClosed)
	_, err = s.Txn(bounded(t), metastore.Txn{Then: []metastore.Op{put("/a", "2")}})
	wantError(t, err, metastore.ErrClosed)
	_, err = s.Watch(context.Background(), "/a", 0).Next(bounded(t))
	wantError(t, err, metastore.ErrClosed)
	if err := s.Close(); err != nil {
		t.Fatalf("closed twice: %v", err)
	}
}
