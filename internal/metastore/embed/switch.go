package embed

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"tidemark/internal/metastore"
	"tidemark/internal/metastore/etcd"
)

// switchWait bounds how long a call waits for a store while the member restarts.
const switchWait = 2 * time.Second

// switched is one store over the life of the node, whatever etcd is behind it:
// the own member, others while this one learns, and nobody for the moment in
// which a lone member opens its ports. What a change interrupts has an unknown
// outcome if it is a transaction and is asked again if not; watches go on where they were.
type switched struct {
	mu      sync.Mutex // guards the following
	now     *etcd.Store
	changed chan struct{} // closed and replaced with each change
	closed  bool
}

var _ metastore.Store = (*switched)(nil)

func newSwitched() *switched { return &switched{changed: make(chan struct{})} }

// set puts another store in place (nil: none for now) and closes the old one.
func (s *switched) set(next *etcd.Store) error {
	if old := s.replace(next); old != nil {
		return old.Close()
	}
	return nil
}

// replace is set for a caller that closes the old store itself.
func (s *switched) replace(next *etcd.Store) (old *etcd.Store) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old, s.now = s.now, next
	close(s.changed)
	s.changed = make(chan struct{})
	return old
}

// get waits for a store.
func (s *switched) get(ctx context.Context) (*etcd.Store, error) {
	limit := time.NewTimer(switchWait)
	defer limit.Stop()
	for {
		s.mu.Lock()
		now, changed, closed := s.now, s.changed, s.closed
		s.mu.Unlock()
		switch {
		case closed:
			return nil, metastore.ErrClosed
		case now != nil:
			return now, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-limit.C:
			return nil, fmt.Errorf("%w: the metadata member is restarting", metastore.ErrUnavailable)
		}
	}
}

func (s *switched) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// again runs a call that may be repeated freely until a store that stays answers it.
func again[T any](ctx context.Context, s *switched, call func(*etcd.Store) (T, error)) (T, error) {
	for {
		now, err := s.get(ctx)
		if err != nil {
			var none T
			return none, err
		}
		out, err := call(now)
		if !errors.Is(err, metastore.ErrClosed) || s.isClosed() || ctx.Err() != nil {
			return out, err
		}
	}
}

// found is a read's answer.
type found[T any] struct {
	what     T
	revision metastore.Revision
}

// Get implements metastore.Store.
func (s *switched) Get(ctx context.Context, key string) (metastore.KV, metastore.Revision, error) {
	f, err := again(ctx, s, func(now *etcd.Store) (f found[metastore.KV], err error) {
		f.what, f.revision, err = now.Get(ctx, key)
		return f, err
	})
	return f.what, f.revision, err
}

// Range implements metastore.Store.
func (s *switched) Range(ctx context.Context, prefix string) ([]metastore.KV, metastore.Revision, error) {
	f, err := again(ctx, s, func(now *etcd.Store) (f found[[]metastore.KV], err error) {
		f.what, f.revision, err = now.Range(ctx, prefix)
		return f, err
	})
	return f.what, f.revision, err
}

// RangeAt implements metastore.Store.
func (s *switched) RangeAt(ctx context.Context, prefix string, at metastore.Revision) ([]metastore.KV, error) {
	return again(ctx, s, func(now *etcd.Store) ([]metastore.KV, error) { return now.RangeAt(ctx, prefix, at) })
}

// Txn implements metastore.Store. What a change of stores interrupts has an unknown outcome.
func (s *switched) Txn(ctx context.Context, txn metastore.Txn) (metastore.TxnResult, error) {
	now, err := s.get(ctx)
	if err != nil {
		return metastore.TxnResult{}, err
	}
	res, err := now.Txn(ctx, txn)
	if errors.Is(err, metastore.ErrClosed) && !s.isClosed() {
		err = fmt.Errorf("%w: the metadata member restarted meanwhile", metastore.ErrUnknownOutcome)
	}
	return res, err
}

// Grant implements metastore.Store. Of an interrupted attempt at most a lease is left that nobody renews.
func (s *switched) Grant(ctx context.Context, ttl time.Duration) (metastore.LeaseID, error) {
	return again(ctx, s, func(now *etcd.Store) (metastore.LeaseID, error) { return now.Grant(ctx, ttl) })
}

// KeepAlive implements metastore.Store.
func (s *switched) KeepAlive(ctx context.Context, lease metastore.LeaseID) (time.Duration, error) {
	return again(ctx, s, func(now *etcd.Store) (time.Duration, error) { return now.KeepAlive(ctx, lease) })
}

// Revoke implements metastore.Store.
func (s *switched) Revoke(ctx context.Context, lease metastore.LeaseID) error {
	_, err := again(ctx, s, func(now *etcd.Store) (struct{}, error) { return struct{}{}, now.Revoke(ctx, lease) })
	return err
}

// MaxTxnOps implements metastore.Store.
func (s *switched) MaxTxnOps() int { return MaxTxnOps }

// Close implements metastore.Store.
func (s *switched) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	return s.set(nil)
}

// Watch implements metastore.Store.
func (s *switched) Watch(ctx context.Context, prefix string, after metastore.Revision) metastore.Watcher {
	w := &switchedWatch{s: s, parent: ctx, prefix: prefix, after: after}
	w.ctx, w.cancel = context.WithCancel(ctx)
	return w
}

// switchedWatch is a watch that goes on with whatever store there is.
type switchedWatch struct {
	s           *switched
	parent, ctx context.Context
	cancel      context.CancelFunc
	prefix      string

	// The following belong to the goroutine that calls Next.
	after metastore.Revision
	now   metastore.Watcher
}

// Next implements metastore.Watcher.
func (w *switchedWatch) Next(ctx context.Context) (metastore.Events, error) {
	for {
		if w.ctx.Err() != nil {
			return metastore.Events{}, w.ended()
		}
		if w.now == nil {
			store, err := w.s.get(ctx)
			if errors.Is(err, metastore.ErrUnavailable) {
				continue // get has waited
			}
			if err != nil {
				return metastore.Events{}, err
			}
			now := store.Watch(w.ctx, w.prefix, w.after)
			context.AfterFunc(w.ctx, func() { _ = now.Close() }) // it has nothing to lose
			w.now = now
		}
		events, err := w.now.Next(ctx)
		switch {
		case err == nil:
			w.after = max(w.after, events.Revision)
			return events, nil
		case w.ctx.Err() != nil:
			return metastore.Events{}, w.ended()
		case errors.Is(err, metastore.ErrClosed) && !w.s.isClosed():
			w.now = nil // its store was replaced
		default:
			return metastore.Events{}, err
		}
	}
}

// ended says whether the watch's context or its Close ended it.
func (w *switchedWatch) ended() error {
	if err := w.parent.Err(); err != nil {
		return err
	}
	return metastore.ErrClosed
}

// Close implements metastore.Watcher.
func (w *switchedWatch) Close() error {
	w.cancel()
	return nil
}
