package storetest

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"tidemark/internal/metastore"
)

// Severed is a store that a test can cut one node off from: calls fail, the
// watch falls silent. It can also keep transactions back. Used by tests of nodes.
type Severed struct {
	metastore.Store
	cut atomic.Bool

	mu   sync.Mutex // guards the following
	keep func(metastore.Txn) bool
	let  chan struct{}
	kept *int
}

// Cut cuts the node off, or heals that.
func (s *Severed) Cut(cut bool) { s.cut.Store(cut) }

// IsCut reports whether the node is cut off.
func (s *Severed) IsCut() bool { return s.cut.Load() }

// Keep keeps back the transactions that match until let is called; kept says how many wait.
// A later Keep takes its place for what comes from then on: what was kept waits for its own let.
func (s *Severed) Keep(match func(metastore.Txn) bool) (kept func() int, let func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	mine, count := make(chan struct{}), new(int)
	s.keep, s.let, s.kept = match, mine, count
	return func() int { s.mu.Lock(); defer s.mu.Unlock(); return *count },
		func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.let == mine {
				s.keep = nil
			}
			close(mine)
		}
}

// Get implements metastore.Store.
func (s *Severed) Get(ctx context.Context, key string) (metastore.KV, metastore.Revision, error) {
	if s.cut.Load() {
		return metastore.KV{}, 0, metastore.ErrUnavailable
	}
	return s.Store.Get(ctx, key)
}

// Range implements metastore.Store.
func (s *Severed) Range(ctx context.Context, prefix string) ([]metastore.KV, metastore.Revision, error) {
	if s.cut.Load() {
		return nil, 0, metastore.ErrUnavailable
	}
	return s.Store.Range(ctx, prefix)
}

// Txn implements metastore.Store.
func (s *Severed) Txn(ctx context.Context, txn metastore.Txn) (metastore.TxnResult, error) {
	if s.cut.Load() {
		return metastore.TxnResult{}, metastore.ErrUnavailable
	}
	s.mu.Lock()
	let := s.let
	waits := s.keep != nil && s.keep(txn)
	if waits {
		*s.kept++
	}
	s.mu.Unlock()
	if waits {
		select {
		case <-let:
		case <-ctx.Done():
			return metastore.TxnResult{}, metastore.ErrUnknownOutcome
		}
	}
	return s.Store.Txn(ctx, txn)
}

// KeepAlive implements metastore.Store.
func (s *Severed) KeepAlive(ctx context.Context, id metastore.LeaseID) (time.Duration, error) {
	if s.cut.Load() {
		return 0, metastore.ErrUnavailable
	}
	return s.Store.KeepAlive(ctx, id)
}

// Revoke implements metastore.Store.
func (s *Severed) Revoke(ctx context.Context, id metastore.LeaseID) error {
	if s.cut.Load() {
		return metastore.ErrUnavailable
	}
	return s.Store.Revoke(ctx, id)
}

// Watch implements metastore.Store.
func (s *Severed) Watch(ctx context.Context, prefix string, after metastore.Revision) metastore.Watcher {
	return &severedWatch{Watcher: s.Store.Watch(ctx, prefix, after), s: s}
}

type severedWatch struct {
	metastore.Watcher
	s *Severed
}

// Next implements metastore.Watcher.
func (w *severedWatch) Next(ctx context.Context) (metastore.Events, error) {
	events, err := w.Watcher.Next(ctx)
	if err == nil && w.s.cut.Load() {
		return metastore.Events{}, metastore.ErrUnavailable
	}
	return events, err
}
