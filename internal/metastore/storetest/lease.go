package storetest

import (
	"testing"
	"time"

	"tidemark/internal/core/meta"
	"tidemark/internal/metastore"
)

// leaseTTL is above the floor that etcd raises shorter ones to.
const leaseTTL = 2 * time.Second

func grant(t *testing.T, s metastore.Store) metastore.LeaseID {
	t.Helper()
	lease, err := s.Grant(bounded(t), leaseTTL)
	if err != nil || lease == 0 {
		t.Fatalf("lease %d, %v", lease, err)
	}
	return lease
}

// pass lets time pass, the store's own or the real one.
func (sub Subject) pass(d time.Duration) {
	if sub.Advance != nil {
		sub.Advance(d)
		return
	}
	timer := time.NewTimer(d)
	<-timer.C
}

func testLeaseEnds(t *testing.T, sub Subject) {
	s := sub.Store
	lease := grant(t, s)
	began := time.Now()
	r := do(t, s, meta.PutLeased("/l/a", []byte("1"), lease), meta.PutLeased("/l/b", []byte("1"), lease), put("/l/c", "1"))
	if kv := get(t, s, "/l/a"); kv.Lease != lease {
		t.Fatalf("bound to lease %d, want %d", kv.Lease, lease)
	}
	w := watch(t, s, "/l/", r)
	if sub.Advance != nil {
		sub.Advance(leaseTTL + time.Second)
	}
	events := nextChange(t, w)
	if sub.Advance == nil && time.Since(began) < leaseTTL {
		t.Fatalf("the lease ended after %v, before its time", time.Since(began))
	}
	if len(events.Events) != 2 || events.Events[0].Kind != meta.EventDelete || events.Events[1].Kind != meta.EventDelete {
		t.Fatalf("got %s, want both keys deleted at once", describe(events))
	}
	wantAbsent(t, s, "/l/a")
	wantValue(t, s, "/l/c", "1")
	_, err := s.KeepAlive(bounded(t), lease)
	wantError(t, err, metastore.ErrLeaseNotFound)
	_, err = s.Txn(bounded(t), metastore.Txn{Then: []metastore.Op{meta.PutLeased("/l/a", []byte("2"), lease)}})
	wantError(t, err, metastore.ErrLeaseNotFound)
	wantAbsent(t, s, "/l/a")
}

func testLeaseKeptAlive(t *testing.T, sub Subject) {
	s := sub.Store
	lease := grant(t, s)
	do(t, s, meta.PutLeased("/l/a", []byte("1"), lease))
	for range 6 {
		sub.pass(leaseTTL / 4)
		left, err := s.KeepAlive(bounded(t), lease)
		if err != nil || left < leaseTTL {
			t.Fatalf("kept alive for %v, %v; want %v", left, err, leaseTTL)
		}
	}
	wantValue(t, s, "/l/a", "1")
}

func testLeaseRevoked(t *testing.T, sub Subject) {
	s := sub.Store
	lease, other := grant(t, s), grant(t, s)
	if lease == other {
		t.Fatal("two leases with one id")
	}
	do(t, s, meta.PutLeased("/l/a", []byte("1"), lease), meta.PutLeased("/l/b", []byte("1"), other))
	if err := s.Revoke(bounded(t), lease); err != nil {
		t.Fatal(err)
	}
	wantAbsent(t, s, "/l/a")
	wantValue(t, s, "/l/b", "1")
	wantError(t, s.Revoke(bounded(t), lease), metastore.ErrLeaseNotFound)
	_, err := s.KeepAlive(bounded(t), lease)
	wantError(t, err, metastore.ErrLeaseNotFound)
}

// testKeyLeavesLease: the last write of a key decides to which lease it is bound.
func testKeyLeavesLease(t *testing.T, sub Subject) {
	s := sub.Store
	lease := grant(t, s)
	do(t, s, meta.PutLeased("/l/a", []byte("1"), lease))
	do(t, s, put("/l/a", "2"))
	if err := s.Revoke(bounded(t), lease); err != nil {
		t.Fatal(err)
	}
	wantValue(t, s, "/l/a", "2")
}
