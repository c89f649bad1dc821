package storetest

import (
	"errors"
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

// inTime runs what must happen while a lease lives, anew with another lease if
// the machine stood still for longer than that. It gives the lease and the time before its grant.
func inTime(t *testing.T, s metastore.Store, do func(lease metastore.LeaseID) error) (metastore.LeaseID, time.Time) {
	t.Helper()
	for until := time.Now().Add(patience); ; {
		began := time.Now()
		lease := grant(t, s)
		err := do(lease)
		switch {
		case err == nil:
			return lease, began
		case !errors.Is(err, metastore.ErrLeaseNotFound) || time.Since(began) < leaseTTL || time.Now().After(until):
			t.Fatalf("%v after the grant: %v", time.Since(began), err)
		}
	}
}

func testLeaseEnds(t *testing.T, sub Subject) {
	s := sub.Store
	var r metastore.Revision
	lease, began := inTime(t, s, func(lease metastore.LeaseID) error {
		ops := []metastore.Op{meta.PutLeased("/l/a", []byte("1"), lease), meta.PutLeased("/l/b", []byte("1"), lease), put("/l/c", "1")}
		res, err := s.Txn(bounded(t), metastore.Txn{Then: ops})
		r = res.Revision
		return err
	})
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
	inTime(t, s, func(lease metastore.LeaseID) error {
		if _, err := s.Txn(bounded(t), metastore.Txn{Then: []metastore.Op{meta.PutLeased("/l/a", []byte("1"), lease)}}); err != nil {
			return err
		}
		for range 6 {
			sub.pass(leaseTTL / 4)
			left, err := s.KeepAlive(bounded(t), lease)
			if err == nil && left < leaseTTL {
				t.Fatalf("kept alive for %v, want %v", left, leaseTTL)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
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
