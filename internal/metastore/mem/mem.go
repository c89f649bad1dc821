// Package mem is a metadata store in memory: revisioned, deterministic, with
// every fault that a caller of a real one must survive.
//
// It starts no goroutine and reads no clock: leases end by Advance or
// ExpireLease, watchers are woken by the call that made the event, and the same
// calls give the same revisions. The simulator and the tests of whatever
// stands on a metastore.Store use it. faults.go holds what a test can make it
// do: unknown outcomes (applied, not applied, applied late), outages, delayed
// watches, compaction, and going back to a backup.
//
// It is tested by the conformance suite that real stores pass too
// (metastore/storetest).
package mem

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"tidemark/internal/core/meta"
	"tidemark/internal/metastore"
)

// DefaultMaxTxnOps is the limit of a new store; SetMaxTxnOps changes it.
const DefaultMaxTxnOps = 2048

// MaxRequestBytes bounds keys and values of a transaction, as etcd's default does.
const MaxRequestBytes = 1536 * 1024

// Store is an in-memory metastore.Store.
type Store struct {
	mu sync.Mutex // guards the following
	// changed is closed and replaced whenever a watcher may have something to see.
	changed   chan struct{}
	closed    bool
	maxTxnOps int

	revision metastore.Revision
	kvs      map[string]metastore.KV
	keys     []string // sorted
	// history holds one element for each revision from historyFrom on, base what was there before.
	history     []metastore.Events
	historyFrom metastore.Revision
	base        map[string]metastore.KV
	compacted   metastore.Revision

	now       time.Duration // virtual, moved by Advance
	leases    map[metastore.LeaseID]*lease
	nextLease metastore.LeaseID

	faults     []Fault
	late       []metastore.Txn
	down       bool
	watchHeld  bool
	watchUntil metastore.Revision // while held, watchers see no later revision
	restores   int
}

type lease struct {
	ttl, ends time.Duration
}

var _ metastore.Store = (*Store)(nil)

// New makes an empty store at revision 1, as a new etcd has.
func New() *Store {
	return &Store{
		changed:     make(chan struct{}),
		maxTxnOps:   DefaultMaxTxnOps,
		revision:    1,
		kvs:         make(map[string]metastore.KV),
		historyFrom: 2,
		base:        make(map[string]metastore.KV),
		leases:      make(map[metastore.LeaseID]*lease),
		nextLease:   1,
	}
}

// lock takes the mutex for a call with ctx; unless it gives an error the caller unlocks.
func (s *Store) lock(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	switch {
	case s.closed:
		s.mu.Unlock()
		return metastore.ErrClosed
	case s.down:
		s.mu.Unlock()
		return metastore.ErrUnavailable
	}
	return nil
}

// Get implements metastore.Store.
func (s *Store) Get(ctx context.Context, key string) (metastore.KV, metastore.Revision, error) {
	if err := s.lock(ctx); err != nil {
		return metastore.KV{}, 0, err
	}
	defer s.mu.Unlock()
	kv, ok := s.kvs[key]
	if !ok {
		return metastore.KV{Key: key}, s.revision, nil
	}
	return copied(kv), s.revision, nil
}

// Range implements metastore.Store.
func (s *Store) Range(ctx context.Context, prefix string) ([]metastore.KV, metastore.Revision, error) {
	if err := s.lock(ctx); err != nil {
		return nil, 0, err
	}
	defer s.mu.Unlock()
	var kvs []metastore.KV
	for _, key := range s.keysBelow(prefix) {
		kvs = append(kvs, copied(s.kvs[key]))
	}
	return kvs, s.revision, nil
}

// RangeAt implements metastore.Store.
func (s *Store) RangeAt(ctx context.Context, prefix string, at metastore.Revision) ([]metastore.KV, error) {
	if err := s.lock(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	switch {
	case at > s.revision:
		return nil, fmt.Errorf("revision %d is not reached, the store is at %d: %w", at, s.revision, metastore.ErrInvalidTxn)
	case at < s.compacted || at < s.historyFrom-1:
		return nil, metastore.ErrCompacted
	}
	then := maps.Clone(s.base)
	for _, ev := range s.history[:at+1-s.historyFrom] {
		replay(then, ev)
	}
	var kvs []metastore.KV
	for _, key := range slices.Sorted(maps.Keys(then)) {
		if strings.HasPrefix(key, prefix) {
			kvs = append(kvs, copied(then[key]))
		}
	}
	return kvs, nil
}

// replay does what was done at one revision.
func replay(kvs map[string]metastore.KV, at metastore.Events) {
	for _, ev := range at.Events {
		if ev.Kind == meta.EventPut {
			kvs[ev.KV.Key] = ev.KV
		} else {
			delete(kvs, ev.KV.Key)
		}
	}
}

func (s *Store) keysBelow(prefix string) []string {
	from, _ := slices.BinarySearch(s.keys, prefix)
	to := from
	for to < len(s.keys) && strings.HasPrefix(s.keys[to], prefix) {
		to++
	}
	return s.keys[from:to]
}

func copied(kv metastore.KV) metastore.KV {
	kv.Value = slices.Clone(kv.Value)
	return kv
}

// Txn implements metastore.Store.
func (s *Store) Txn(ctx context.Context, txn metastore.Txn) (metastore.TxnResult, error) {
	if err := s.lock(ctx); err != nil {
		return metastore.TxnResult{}, err
	}
	defer s.mu.Unlock()
	if err := s.admissible(txn); err != nil {
		return metastore.TxnResult{}, err
	}
	switch s.nextFault() {
	case UnknownNotApplied:
		return metastore.TxnResult{}, metastore.ErrUnknownOutcome
	case UnknownApplied:
		s.apply(txn)
		return metastore.TxnResult{}, metastore.ErrUnknownOutcome
	case UnknownLate:
		s.late = append(s.late, txn)
		return metastore.TxnResult{}, metastore.ErrUnknownOutcome
	case Unavailable:
		return metastore.TxnResult{}, metastore.ErrUnavailable
	}
	return s.apply(txn), nil
}

// admissible refuses what no store would do.
func (s *Store) admissible(txn metastore.Txn) error {
	if len(txn.If) > s.maxTxnOps || len(txn.Then) > s.maxTxnOps {
		return fmt.Errorf("%d compares, %d operations: %w", len(txn.If), len(txn.Then), metastore.ErrTxnTooLarge)
	}
	size := 0
	puts := make(map[string]bool, len(txn.Then))
	for _, op := range txn.Then {
		size += len(op.Key) + len(op.Value)
		if op.Key == "" {
			return fmt.Errorf("empty key: %w", metastore.ErrInvalidTxn)
		}
		if op.Kind != meta.OpPut {
			continue
		}
		if puts[op.Key] {
			return fmt.Errorf("%s written twice: %w", op.Key, metastore.ErrInvalidTxn)
		}
		puts[op.Key] = true
		if op.Lease != 0 && s.leases[op.Lease] == nil {
			return metastore.ErrLeaseNotFound
		}
	}
	for _, op := range txn.Then {
		if op.Kind == meta.OpDelete && puts[op.Key] {
			return fmt.Errorf("%s written and deleted: %w", op.Key, metastore.ErrInvalidTxn)
		}
		if op.Kind != meta.OpDeletePrefix {
			continue
		}
		for key := range puts {
			if strings.HasPrefix(key, op.Key) {
				return fmt.Errorf("%s written and deleted: %w", key, metastore.ErrInvalidTxn)
			}
		}
	}
	if size > MaxRequestBytes {
		return fmt.Errorf("%d bytes: %w", size, metastore.ErrTxnTooLarge)
	}
	return nil
}

// apply carries the transaction out if its compares hold.
func (s *Store) apply(txn metastore.Txn) metastore.TxnResult {
	for _, c := range txn.If {
		if !holds(c, s.kvs[c.Key]) {
			return metastore.TxnResult{Revision: s.revision}
		}
	}
	next := metastore.Events{Revision: s.revision + 1}
	for _, op := range txn.Then {
		switch op.Kind {
		case meta.OpPut:
			next.Events = append(next.Events, s.put(op, next.Revision))
		case meta.OpDelete:
			if _, ok := s.kvs[op.Key]; ok {
				next.Events = append(next.Events, s.delete(op.Key, next.Revision))
			}
		case meta.OpDeletePrefix:
			for _, key := range slices.Clone(s.keysBelow(op.Key)) {
				next.Events = append(next.Events, s.delete(key, next.Revision))
			}
		}
	}
	s.record(next)
	return metastore.TxnResult{Succeeded: true, Revision: s.revision}
}

// record ends a revision; one without events doesn't count.
func (s *Store) record(next metastore.Events) {
	if len(next.Events) == 0 {
		return
	}
	s.revision = next.Revision
	s.history = append(s.history, next)
	s.wake()
}

func holds(c metastore.Compare, kv metastore.KV) bool {
	switch c.Kind {
	case meta.CompareModRevision:
		return kv.ModRevision == c.Revision
	case meta.CompareCreateRevision:
		return kv.CreateRevision == c.Revision
	case meta.CompareExists:
		return kv.ModRevision != 0
	case meta.CompareValue:
		return kv.ModRevision != 0 && string(kv.Value) == string(c.Value)
	}
	return false
}

func (s *Store) put(op metastore.Op, revision metastore.Revision) metastore.Event {
	kv, ok := s.kvs[op.Key]
	if !ok {
		at, _ := slices.BinarySearch(s.keys, op.Key)
		s.keys = slices.Insert(s.keys, at, op.Key)
		kv = metastore.KV{Key: op.Key, CreateRevision: revision}
	}
	kv.Value, kv.ModRevision, kv.Lease = slices.Clone(op.Value), revision, op.Lease
	s.kvs[op.Key] = kv
	return metastore.Event{Kind: meta.EventPut, KV: copied(kv)}
}

func (s *Store) delete(key string, revision metastore.Revision) metastore.Event {
	delete(s.kvs, key)
	at, _ := slices.BinarySearch(s.keys, key)
	s.keys = slices.Delete(s.keys, at, at+1)
	return metastore.Event{Kind: meta.EventDelete, KV: metastore.KV{Key: key, ModRevision: revision}}
}

func (s *Store) wake() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// MaxTxnOps implements metastore.Store.
func (s *Store) MaxTxnOps() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.maxTxnOps
}

// Close implements metastore.Store.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.closed = true
		s.wake()
	}
	return nil
}
