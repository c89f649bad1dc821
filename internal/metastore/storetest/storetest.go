// Package storetest is the conformance suite of metadata stores: what it asks
// for, callers rely on. It runs on metastore/mem, on the embedded etcd and on
// an etcd in a process of its own, so that none of them learns on which one it
// runs.
//
// It never skips: what a store can't do by hand (end a lease, compact) its
// Subject must do some other way.
//
// Severed is for tests of those who use a store: it takes it away from them.
package storetest

import (
	"context"
	"errors"
	"testing"
	"time"

	"tidemark/internal/core/meta"
	"tidemark/internal/metastore"
)

// Subject is one empty store under test.
type Subject struct {
	Store metastore.Store
	// Advance lets this much of the store's time pass; nil if real time does it.
	Advance func(time.Duration)
	// Compact makes revisions up to the given one unreadable for watchers.
	Compact func(*testing.T, metastore.Revision)
}

// patience bounds every wait for something that must come.
const patience = 20 * time.Second

// Run runs the suite. open makes an empty store that ends with the test.
func Run(t *testing.T, open func(*testing.T) Subject) {
	for _, c := range []struct {
		name string
		test func(*testing.T, Subject)
	}{
		{"get", testGet},
		{"recreated key has a new create revision", testRecreate},
		{"range", testRange},
		{"range larger than a page", testRangePages},
		{"range of a revision", testRangeAt},
		{"compares", testCompares},
		{"one revision for a transaction", testOneRevision},
		{"invalid transactions", testInvalid},
		{"limits", testLimits},
		{"concurrent compare-and-set", testConcurrentCAS},
		{"cancelled contexts", testCancelled},
		{"deadlines in flight", testDeadlinesInFlight},
		{"closed store", testClosed},
		{"watch gives whole revisions in order", testWatchOrder},
		{"watch resumes after any revision", testWatchResume},
		{"watch equals range under load", testWatchEqualsRange},
		{"watch of a compacted revision", testWatchCompacted},
		{"watch ends", testWatchEnds},
		{"watch passes revisions of other keys", testWatchProgress},
		{"lease ends and takes its keys", testLeaseEnds},
		{"lease kept alive", testLeaseKeptAlive},
		{"lease revoked", testLeaseRevoked},
		{"key leaves its lease", testKeyLeavesLease},
		{"commit", testCommit},
		{"commit after unknown outcomes", testCommitUnknown},
		{"commit of deletions after unknown outcomes", testCommitUnknownDelete},
		{"commit exactly once under unknown outcomes", testCommitExactlyOnce},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, open(t)) })
	}
}

func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// do carries out a transaction that must succeed.
func do(t *testing.T, s metastore.Store, ops ...metastore.Op) metastore.Revision {
	t.Helper()
	return doIf(t, s, nil, ops...)
}

func doIf(t *testing.T, s metastore.Store, compares []metastore.Compare, ops ...metastore.Op) metastore.Revision {
	t.Helper()
	res, err := s.Txn(bounded(t), metastore.Txn{If: compares, Then: ops})
	if err != nil || !res.Succeeded {
		t.Fatalf("transaction: %+v, %v", res, err)
	}
	return res.Revision
}

func put(key, value string) metastore.Op { return meta.Put(key, []byte(value)) }

func get(t *testing.T, s metastore.Store, key string) metastore.KV {
	t.Helper()
	kv, _, err := s.Get(bounded(t), key)
	if err != nil {
		t.Fatalf("get %s: %v", key, err)
	}
	return kv
}

func wantValue(t *testing.T, s metastore.Store, key, want string) {
	t.Helper()
	if kv := get(t, s, key); kv.ModRevision == 0 || string(kv.Value) != want {
		t.Fatalf("%s holds %q at revision %d, want %q", key, kv.Value, kv.ModRevision, want)
	}
}

func wantAbsent(t *testing.T, s metastore.Store, key string) {
	t.Helper()
	if kv := get(t, s, key); kv.ModRevision != 0 || kv.CreateRevision != 0 || kv.Value != nil {
		t.Fatalf("%s holds %q at revision %d, want nothing", key, kv.Value, kv.ModRevision)
	}
}

func wantError(t *testing.T, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Fatalf("error %v, want one that matches %q", got, want)
	}
}

// nextChange gives the next events that are not mere progress.
func nextChange(t *testing.T, w metastore.Watcher) metastore.Events {
	t.Helper()
	events, err := nextChangeOr(bounded(t), w)
	if err != nil {
		t.Fatalf("watch: %v", err)
	}
	return events
}

func nextChangeOr(ctx context.Context, w metastore.Watcher) (metastore.Events, error) {
	for {
		events, err := w.Next(ctx)
		if err != nil || len(events.Events) > 0 {
			return events, err
		}
	}
}

func watch(t *testing.T, s metastore.Store, prefix string, after metastore.Revision) metastore.Watcher {
	t.Helper()
	w := s.Watch(context.Background(), prefix, after)
	t.Cleanup(func() { w.Close() })
	return w
}
