package storetest

import (
	"context"
	"fmt"
	"strconv"
	"testing"

	"tidemark/internal/core/meta"
	"tidemark/internal/metastore"
)

// outcome is what a forgetful store does with a transaction.
type outcome int

const (
	passes    outcome = iota
	happens           // carried out, and the answer is lost
	lost              // not carried out, and nobody knows
	refusedUs         // the store says that it is not available
)

// forgetful is a store that loses answers, by a given list.
type forgetful struct {
	metastore.Store
	outcomes []outcome
	// between runs after each lost answer, before the next attempt.
	between func()
}

// Txn implements metastore.Store.
func (f *forgetful) Txn(ctx context.Context, txn metastore.Txn) (metastore.TxnResult, error) {
	next := passes
	if len(f.outcomes) > 0 {
		next, f.outcomes = f.outcomes[0], f.outcomes[1:]
	}
	if next == passes {
		return f.Store.Txn(ctx, txn)
	}
	if next == happens {
		if _, err := f.Store.Txn(ctx, txn); err != nil {
			return metastore.TxnResult{}, err
		}
	}
	if f.between != nil {
		f.between()
	}
	if next == refusedUs {
		return metastore.TxnResult{}, metastore.ErrUnavailable
	}
	return metastore.TxnResult{}, metastore.ErrUnknownOutcome
}

func testCommit(t *testing.T, sub Subject) {
	s := sub.Store
	plan := meta.Plan{Why: "make a", If: []meta.Compare{meta.Absent("/a")}, Then: []meta.Op{put("/a", "1"), put("/b", "1")}}
	r, err := metastore.Commit(bounded(t), s, plan)
	if err != nil || get(t, s, "/a").ModRevision != r {
		t.Fatalf("revision %d, %v", r, err)
	}
	_, err = metastore.Commit(bounded(t), s, plan)
	wantError(t, err, metastore.ErrRefused)
	again := meta.Plan{Why: "next", If: []meta.Compare{meta.ModRevisionIs("/a", r)}, Then: []meta.Op{put("/a", "2")}}
	never := meta.Plan{Why: "never", If: []meta.Compare{meta.Absent("/a")}, Then: []meta.Op{put("/c", "1")}}
	_, done, err := metastore.CommitAll(bounded(t), s, []meta.Plan{again, never, again})
	wantError(t, err, metastore.ErrRefused)
	if done != 1 {
		t.Fatalf("%d plans done, want 1", done)
	}
	wantValue(t, s, "/a", "2")
	wantAbsent(t, s, "/c")
}

func testCommitUnknown(t *testing.T, sub Subject) {
	s := sub.Store
	n := 0
	f := func(name string, want error, between func(), outcomes ...outcome) {
		t.Helper()
		n++
		key := fmt.Sprintf("/u/%d", n)
		start := do(t, s, put(key, "old"))
		plan := meta.Plan{Why: name, If: []meta.Compare{meta.ModRevisionIs(key, start)}, Then: []meta.Op{put(key, "mine"), put(key+"/more", "mine")}}
		store := &forgetful{Store: s, outcomes: outcomes, between: between}
		r, err := metastore.Commit(bounded(t), store, plan)
		if want != nil {
			wantError(t, err, want)
			return
		}
		if kv := get(t, s, key); err != nil || kv.ModRevision != r || string(kv.Value) != "mine" {
			t.Fatalf("%s: revision %d, %v; the key holds %q of %d", name, r, err, kv.Value, kv.ModRevision)
		}
	}
	f("passes", nil, nil)
	f("happened", nil, nil, happens)
	f("lost", nil, nil, lost)
	f("lost twice, then happened", nil, nil, lost, lost, happens)
	f("lost, then away for a while", nil, nil, lost, refusedUs, refusedUs)
	f("happened, then away for a while", nil, nil, happens, refusedUs)
	f("not available", metastore.ErrUnavailable, nil, refusedUs)
	// Somebody wrote meanwhile: whether ours came before can't be told.
	foreign := func() { do(t, s, put(fmt.Sprintf("/u/%d", n), "theirs"), put(fmt.Sprintf("/u/%d/more", n), "theirs")) }
	f("lost, then overtaken", metastore.ErrUnknownOutcome, foreign, lost)
	f("happened, then overwritten", metastore.ErrUnknownOutcome, foreign, happens)
	// Somebody wrote the same to one key, and not to the other.
	same := func() { do(t, s, put(fmt.Sprintf("/u/%d", n), "mine")) }
	f("lost, and half of it was put by others", metastore.ErrUnknownOutcome, func() {
		do(t, s, put(fmt.Sprintf("/u/%d/more", n), "theirs"))
		same()
	}, lost)
	f("happened, then one half was put again by others", nil, func() { do(t, s, put(fmt.Sprintf("/u/%d/more", n), "theirs")) }, happens)
	testCommitUnwritten(t, s)

	ctx, cancel := context.WithCancel(context.Background())
	start := do(t, s, put("/u/x", "old"))
	plan := meta.Plan{Why: "give up", If: []meta.Compare{meta.ModRevisionIs("/u/x", start)}, Then: []meta.Op{put("/u/x", "mine")}}
	_, err := metastore.Commit(ctx, &forgetful{Store: s, outcomes: []outcome{happens}, between: cancel}, plan)
	wantError(t, err, metastore.ErrUnknownOutcome)
}

func testCommitUnknownDelete(t *testing.T, sub Subject) {
	s := sub.Store
	f := func(outcomes ...outcome) {
		t.Helper()
		r := do(t, s, put("/d/a", "x"), put("/d/b/1", "x"), put("/d/b/2", "x"))
		plan := meta.Plan{Why: "delete", If: []meta.Compare{meta.ModRevisionIs("/d/a", r)}, Then: []meta.Op{meta.Delete("/d/a"), meta.DeletePrefix("/d/b/")}}
		if _, err := metastore.Commit(bounded(t), &forgetful{Store: s, outcomes: outcomes}, plan); err != nil {
			t.Fatal(err)
		}
		if kvs, _, err := s.Range(bounded(t), "/d/"); err != nil || len(kvs) != 0 {
			t.Fatalf("left over: %v, %v", kvs, err)
		}
	}
	f()
	f(lost)
	f(happens)
	f(lost, happens)
}

// testCommitExactlyOnce counts with a store that loses two of three answers:
// every commit that succeeds must have counted once.
func testCommitExactlyOnce(t *testing.T, sub Subject) {
	s := sub.Store
	do(t, s, put("/n", "0"))
	pattern := []outcome{lost, happens, passes, happens, happens, lost, lost, passes, refusedUs}
	const rounds = 40
	for i := range rounds {
		kv := get(t, s, "/n")
		if string(kv.Value) != strconv.Itoa(i) {
			t.Fatalf("counted to %s after %d commits", kv.Value, i)
		}
		store := &forgetful{Store: s, outcomes: []outcome{lost, pattern[i%len(pattern)], pattern[(i*5+2)%len(pattern)]}}
		plan := meta.Plan{Why: "count", If: []meta.Compare{meta.ModRevisionIs("/n", kv.ModRevision)}, Then: []meta.Op{put("/n", strconv.Itoa(i+1))}}
		if _, err := metastore.Commit(bounded(t), store, plan); err != nil {
			t.Fatal(err)
		}
	}
}

// testCommitUnwritten has others put what a plan puts into one of two keys, and leave the
// other one as the plan found it: the plan did not happen.
func testCommitUnwritten(t *testing.T, s metastore.Store) {
	t.Helper()
	a, b := do(t, s, put("/v/a", "old")), do(t, s, put("/v/b", "mine"))
	plan := meta.Plan{Why: "both", If: []meta.Compare{meta.ModRevisionIs("/v/a", a), meta.ModRevisionIs("/v/b", b)}, Then: []meta.Op{put("/v/a", "mine"), put("/v/b", "mine")}}
	store := &forgetful{Store: s, outcomes: []outcome{lost}, between: func() { do(t, s, put("/v/a", "mine")) }}
	_, err := metastore.Commit(bounded(t), store, plan)
	wantError(t, err, metastore.ErrUnknownOutcome)
}
