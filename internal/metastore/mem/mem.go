// Package mem is a metadata store in memory.
package mem

import (
	"context"
	"time"

	"tidemark/internal/metastore"
)

// Store is an in-memory metastore.Store.
type Store struct{}

var _ metastore.Store = (*Store)(nil)

// New makes an empty store at revision 1.
func New() *Store { return &Store{} }

// Get implements metastore.Store.
func (s *Store) Get(ctx context.Context, key string) (metastore.KV, metastore.Revision, error) {
	return metastore.KV{}, 0, metastore.ErrUnavailable
}

// Range implements metastore.Store.
func (s *Store) Range(ctx context.Context, prefix string) ([]metastore.KV, metastore.Revision, error) {
	return nil, 0, metastore.ErrUnavailable
}

// Txn implements metastore.Store.
func (s *Store) Txn(ctx context.Context, txn metastore.Txn) (metastore.TxnResult, error) {
	return metastore.TxnResult{}, metastore.ErrUnavailable
}

// Watch implements metastore.Store.
func (s *Store) Watch(ctx context.Context, prefix string, after metastore.Revision) metastore.Watcher {
	return nil
}

// Grant implements metastore.Store.
func (s *Store) Grant(ctx context.Context, ttl time.Duration) (metastore.LeaseID, error) {
	return 0, metastore.ErrUnavailable
}

// KeepAlive implements metastore.Store.
func (s *Store) KeepAlive(ctx context.Context, lease metastore.LeaseID) (time.Duration, error) {
	return 0, metastore.ErrUnavailable
}

// Revoke implements metastore.Store.
func (s *Store) Revoke(ctx context.Context, lease metastore.LeaseID) error {
	return metastore.ErrUnavailable
}

// MaxTxnOps implements metastore.Store.
func (s *Store) MaxTxnOps() int { return 2048 }

// Close implements metastore.Store.
func (s *Store) Close() error { return nil }
