// Package metastore is the interface to the metadata quorum and what every use
// of it needs: transactions of compares and operations, a watch that gives
// whole revisions in order, leases, and a commit that is safe to repeat after
// an unknown outcome (R8).
//
// It owns no records and no keys (internal/core/meta does) and writes no
// consensus: metastore/etcd speaks to an etcd cluster, metastore/embed runs
// one in this process, metastore/mem is a deterministic store for tests and
// the simulator. metastore/storetest holds the conformance suite that all of
// them pass, so that nothing learns on which one it runs.
package metastore

import (
	"context"
	"errors"
	"time"

	"tidemark/internal/core/meta"
)

// The plain forms of keys, events and transactions are core/meta's, which must not import this package.
type (
	Revision = meta.Revision
	LeaseID  = meta.LeaseID
	KV       = meta.KV
	Event    = meta.Event
	Events   = meta.Events
	Compare  = meta.Compare
	Op       = meta.Op
)

var (
	// ErrUnknownOutcome is matched when a transaction, grant or revocation may
	// or may not have happened, and may even happen later. Nothing that
	// depends on it may be done until a read shows (R8).
	ErrUnknownOutcome = errors.New("the outcome of the metadata transaction is unknown")
	// ErrUnavailable is matched when the store could not be asked, or refused to work: nothing was written.
	ErrUnavailable = errors.New("the metadata store is not available")
	// ErrCompacted is matched when a watch or a read asks for revisions that the
	// store no longer holds: read everything again.
	ErrCompacted = errors.New("the metadata revision was compacted")
	// ErrLeaseNotFound is matched when a lease has ended or never was.
	ErrLeaseNotFound = errors.New("the lease has ended")
	// ErrTxnTooLarge is matched when a transaction has more compares or operations than MaxTxnOps.
	ErrTxnTooLarge = errors.New("the metadata transaction has too many operations")
	// ErrInvalidTxn is matched when a transaction can never be done, such as one that touches a key twice.
	ErrInvalidTxn = errors.New("invalid metadata transaction")
	// ErrClosed is matched when the store was closed.
	ErrClosed = errors.New("the metadata store is closed")
)

// Txn is one transaction: if all of If hold, all of Then happen, at one
// revision. No key may be touched twice by Then.
type Txn struct {
	If   []Compare
	Then []Op
}

// TxnResult says what became of a transaction.
type TxnResult struct {
	// Succeeded: all compares held and all operations happened.
	Succeeded bool
	// Revision is the transaction's if it succeeded and changed anything, else the store's at that moment.
	Revision Revision
}

// Store is a revisioned key-value store with one order of transactions. All
// methods are safe for any number of goroutines and return soon after their
// context ends.
type Store interface {
	// Get reads one key, linearizably: it sees every transaction that ended
	// before it began. A missing key has ModRevision 0. The revision is the store's.
	Get(ctx context.Context, key string) (KV, Revision, error)
	// Range reads all keys that begin with prefix, in order, as they were
	// together at the returned revision. It is linearizable.
	Range(ctx context.Context, prefix string) ([]KV, Revision, error)
	// RangeAt reads all keys that begin with prefix, in order, as they were at a
	// revision, which must not be above the store's. ErrCompacted if the store
	// doesn't hold it any more.
	RangeAt(ctx context.Context, prefix string, at Revision) ([]KV, error)
	// Txn carries out one transaction. Its error matches ErrUnknownOutcome
	// unless nothing was and will be written.
	Txn(ctx context.Context, txn Txn) (TxnResult, error)
	// Watch gives the changes below prefix with revisions above after. The
	// watcher ends with its context or its Close.
	Watch(ctx context.Context, prefix string, after Revision) Watcher
	// Grant makes a lease that ends ttl after its last keep-alive, never
	// sooner; the store may round ttl up.
	Grant(ctx context.Context, ttl time.Duration) (LeaseID, error)
	// KeepAlive renews the lease and gives the time it will now live at least,
	// counted from before the call. ErrLeaseNotFound if it has ended.
	KeepAlive(ctx context.Context, lease LeaseID) (time.Duration, error)
	// Revoke ends the lease and deletes its keys in one revision. ErrLeaseNotFound if it has ended.
	Revoke(ctx context.Context, lease LeaseID) error
	// MaxTxnOps is how many compares, and how many operations, a transaction may have.
	MaxTxnOps() int
	// Close frees what the store holds. Watchers and calls under way end with ErrClosed or a context error.
	Close() error
}

// Watcher gives events in order of revisions. One goroutine at a time may call Next.
type Watcher interface {
	// Next waits for the next revision that changed something below the
	// prefix and gives all of it at once; or progress, an empty list whose
	// revision says up to where nothing did. After an error that matches
	// ErrCompacted or ErrClosed every call fails alike. A context error ends only the call.
	Next(ctx context.Context) (Events, error)
	// Close ends the watch. It may be called more than once and at any time.
	Close() error
}
