package mem_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"tidemark/internal/core/meta"
	"tidemark/internal/metastore"
	"tidemark/internal/metastore/mem"
)

var ctx = context.Background()

func set(t *testing.T, s *mem.Store, key, value string) metastore.Revision {
	t.Helper()
	res, err := s.Txn(ctx, metastore.Txn{Then: []metastore.Op{meta.Put(key, []byte(value))}})
	if err != nil || !res.Succeeded {
		t.Fatalf("%+v, %v", res, err)
	}
	return res.Revision
}

func value(t *testing.T, s *mem.Store, key string) string {
	t.Helper()
	kv, _, err := s.Get(ctx, key)
	if err != nil {
		t.Fatal(err)
	}
	return string(kv.Value)
}

func TestFaultyTransactions(t *testing.T) {
	f := func(fault mem.Fault, want error, after string) {
		t.Helper()
		s := mem.New()
		set(t, s, "/a", "old")
		s.FailTxns(mem.NoFault, fault)
		set(t, s, "/b", "passes")
		_, err := s.Txn(ctx, metastore.Txn{Then: []metastore.Op{meta.Put("/a", []byte("new"))}})
		if !errors.Is(err, want) || value(t, s, "/a") != after {
			t.Errorf("fault %d: %v and %q, want %v and %q", fault, err, value(t, s, "/a"), want, after)
		}
		set(t, s, "/b", "passes again")
	}
	f(mem.UnknownApplied, metastore.ErrUnknownOutcome, "new")
	f(mem.UnknownNotApplied, metastore.ErrUnknownOutcome, "old")
	f(mem.UnknownLate, metastore.ErrUnknownOutcome, "old")
	f(mem.Unavailable, metastore.ErrUnavailable, "old")
}

// TestLateTransaction: what arrives late still compares; a commit that was repeated meanwhile has won.
func TestLateTransaction(t *testing.T) {
	s := mem.New()
	at := set(t, s, "/a", "old")
	plan := meta.Plan{Why: "late", If: []meta.Compare{meta.ModRevisionIs("/a", at)}, Then: []meta.Op{meta.Put("/a", []byte("new"))}}
	s.FailTxns(mem.UnknownLate, mem.UnknownLate)
	r, err := metastore.Commit(ctx, s, plan)
	if err != nil {
		t.Fatal(err)
	}
	if n := s.ReleaseLate(); n != 0 {
		t.Fatalf("%d late transactions happened a second time", n)
	}
	if kv, _, _ := s.Get(ctx, "/a"); kv.ModRevision != r || string(kv.Value) != "new" {
		t.Fatalf("%+v, want revision %d", kv, r)
	}
	s.FailTxns(mem.UnknownLate)
	if _, err := s.Txn(ctx, metastore.Txn{Then: []metastore.Op{meta.Put("/b", []byte("x"))}}); !errors.Is(err, metastore.ErrUnknownOutcome) {
		t.Fatal(err)
	}
	if n := s.ReleaseLate(); n != 1 || value(t, s, "/b") != "x" {
		t.Fatalf("%d late transactions happened", n)
	}
}

func TestHeldWatch(t *testing.T) {
	s := mem.New()
	w := s.NewWatcher(ctx, "/", 0)
	set(t, s, "/a", "1")
	if _, ok, err := w.Poll(); !ok || err != nil {
		t.Fatalf("%v, %v", ok, err)
	}
	s.HoldWatches(true)
	set(t, s, "/a", "2")
	set(t, s, "/a", "3")
	if _, ok, err := w.Poll(); ok || err != nil {
		t.Fatalf("a held watch gave events: %v, %v", ok, err)
	}
	s.HoldWatches(false)
	for range 2 {
		if events, ok, err := w.Poll(); !ok || err != nil || len(events.Events) != 1 {
			t.Fatalf("%v, %v, %v", events, ok, err)
		}
	}
	if _, ok, _ := w.Poll(); ok {
		t.Fatal("more than happened")
	}
}

func TestDown(t *testing.T) {
	s := mem.New()
	w := s.NewWatcher(ctx, "/", 0)
	set(t, s, "/a", "1")
	w.Poll()
	s.SetDown(true)
	_, _, err := s.Get(ctx, "/a")
	_, txnErr := s.Txn(ctx, metastore.Txn{})
	_, leaseErr := s.Grant(ctx, 1)
	if !errors.Is(err, metastore.ErrUnavailable) || !errors.Is(txnErr, metastore.ErrUnavailable) || !errors.Is(leaseErr, metastore.ErrUnavailable) {
		t.Fatalf("%v, %v, %v", err, txnErr, leaseErr)
	}
	s.SetDown(false)
	if value(t, s, "/a") != "1" {
		t.Fatal("lost")
	}
}

// TestLateBehindALease: a late transaction writes no key of a lease that has ended.
func TestLateBehindALease(t *testing.T) {
	s := mem.New()
	lease, err := s.Grant(ctx, 1)
	if err != nil {
		t.Fatal(err)
	}
	s.FailTxns(mem.UnknownLate)
	if _, err := s.Txn(ctx, metastore.Txn{Then: []metastore.Op{meta.PutLeased("/l", nil, lease)}}); !errors.Is(err, metastore.ErrUnknownOutcome) {
		t.Fatal(err)
	}
	s.Advance(time.Minute)
	if n := s.ReleaseLate(); n != 0 {
		t.Errorf("%d transactions were applied", n)
	}
	if kvs, _, err := s.Range(ctx, "/"); err != nil || len(kvs) != 0 {
		t.Errorf("%v, %v: a key that no lease's end will take away", kvs, err)
	}
}

// TestRestore: going back takes revisions, leases and watches back too.
func TestRestore(t *testing.T) {
	s := mem.New()
	lease, _ := s.Grant(ctx, 1)
	at := set(t, s, "/a", "1")
	if _, err := s.Txn(ctx, metastore.Txn{Then: []metastore.Op{meta.PutLeased("/l", nil, lease)}}); err != nil {
		t.Fatal(err)
	}
	backup := s.Backup()
	last := set(t, s, "/a", "2")
	w := s.NewWatcher(ctx, "/", at)
	s.Restore(backup)
	kvs, revision, err := s.Range(ctx, "/")
	if err != nil || len(kvs) != 1 || string(kvs[0].Value) != "1" || kvs[0].ModRevision != at || revision > last {
		t.Fatalf("%v at %d, %v", kvs, revision, err)
	}
	if _, err := w.Next(ctx); !errors.Is(err, metastore.ErrCompacted) {
		t.Fatalf("%v, want ErrCompacted", err)
	}
	if _, err := s.KeepAlive(ctx, lease); !errors.Is(err, metastore.ErrLeaseNotFound) {
		t.Fatalf("%v, want ErrLeaseNotFound", err)
	}
	set(t, s, "/a", "3")
	s.Restore(backup)
	if value(t, s, "/a") != "1" {
		t.Fatal("the backup changed")
	}
}

// TestDeterministic: the same calls give the same revisions and events.
func TestDeterministic(t *testing.T) {
	run := func() (out []metastore.Events) {
		s := mem.New()
		w := s.NewWatcher(ctx, "/", 0)
		for range 5 {
			lease, _ := s.Grant(ctx, 1)
			s.Txn(ctx, metastore.Txn{Then: []metastore.Op{meta.PutLeased("/x/"+string(rune('a'+lease)), nil, lease), meta.PutLeased("/y", nil, lease)}})
		}
		s.Advance(1 << 40)
		for {
			events, ok, _ := w.Poll()
			if !ok {
				return out
			}
			out = append(out, events)
		}
	}
	first := run()
	if len(first) < 10 {
		t.Fatalf("only %d revisions", len(first))
	}
	for range 5 {
		again := run()
		if len(again) != len(first) {
			t.Fatalf("%d revisions, then %d", len(first), len(again))
		}
		for i := range again {
			if again[i].Revision != first[i].Revision || len(again[i].Events) != len(first[i].Events) || again[i].Events[0].KV.Key != first[i].Events[0].KV.Key {
				t.Fatalf("%+v, then %+v", first[i], again[i])
			}
		}
	}
}
