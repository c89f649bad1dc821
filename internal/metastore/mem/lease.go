package mem

import (
	"context"
	"maps"
	"slices"
	"time"

	"tidemark/internal/metastore"
)

// Grant implements metastore.Store.
func (s *Store) Grant(ctx context.Context, ttl time.Duration) (metastore.LeaseID, error) {
	if err := s.lock(ctx); err != nil {
		return 0, err
	}
	defer s.mu.Unlock()
	id := s.nextLease
	s.nextLease++
	ttl = max((ttl + time.Second - 1).Truncate(time.Second), time.Second) // whole seconds, rounded up, as in etcd
	s.leases[id] = &lease{ttl: ttl, ends: s.now + ttl}
	return id, nil
}

// KeepAlive implements metastore.Store.
func (s *Store) KeepAlive(ctx context.Context, id metastore.LeaseID) (time.Duration, error) {
	if err := s.lock(ctx); err != nil {
		return 0, err
	}
	defer s.mu.Unlock()
	l, ok := s.leases[id]
	if !ok {
		return 0, metastore.ErrLeaseNotFound
	}
	l.ends = s.now + l.ttl
	return l.ttl, nil
}

// Revoke implements metastore.Store.
func (s *Store) Revoke(ctx context.Context, id metastore.LeaseID) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	if s.leases[id] == nil {
		return metastore.ErrLeaseNotFound
	}
	s.endLease(id)
	return nil
}

// endLease deletes the lease and its keys, in one revision.
func (s *Store) endLease(id metastore.LeaseID) {
	delete(s.leases, id)
	next := metastore.Events{Revision: s.revision + 1}
	for _, key := range slices.Clone(s.keys) {
		if s.kvs[key].Lease == id {
			next.Events = append(next.Events, s.delete(key, next.Revision))
		}
	}
	s.record(next)
}

// Advance moves the store's clock; leases that end by then end in order of their ids.
func (s *Store) Advance(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now += d
	for _, id := range slices.Sorted(maps.Keys(s.leases)) {
		if s.leases[id].ends <= s.now {
			s.endLease(id)
		}
	}
}

// ExpireLease ends a lease at once, as if nobody had kept it alive. Unknown leases are ignored.
func (s *Store) ExpireLease(id metastore.LeaseID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leases[id] != nil {
		s.endLease(id)
	}
}
