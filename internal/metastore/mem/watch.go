package mem

import (
	"context"
	"strings"
	"sync"

	"tidemark/internal/metastore"
)

// Watcher is a watch of a Store. Besides Next it can be polled, which a
// single-threaded simulator needs.
type Watcher struct {
	store  *Store
	ctx    context.Context
	prefix string

	closing sync.Once
	done    chan struct{}

	next     metastore.Revision // the first revision not looked at; guarded by store.mu
	restores int                // store.restores when the watch began
}

var _ metastore.Watcher = (*Watcher)(nil)

// Watch implements metastore.Store.
func (s *Store) Watch(ctx context.Context, prefix string, after metastore.Revision) metastore.Watcher {
	return s.NewWatcher(ctx, prefix, after)
}

// NewWatcher is Watch with the concrete type.
func (s *Store) NewWatcher(ctx context.Context, prefix string, after metastore.Revision) *Watcher {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &Watcher{store: s, ctx: ctx, prefix: prefix, next: after + 1, done: make(chan struct{}), restores: s.restores}
}

// Next implements metastore.Watcher.
func (w *Watcher) Next(ctx context.Context) (metastore.Events, error) {
	for {
		events, found, changed, err := w.look()
		if found || err != nil {
			return events, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return metastore.Events{}, ctx.Err()
		case <-w.ctx.Done():
			return metastore.Events{}, w.ctx.Err()
		case <-w.done:
		}
	}
}

// Poll gives the next events without waiting; ok is false if there are none now.
func (w *Watcher) Poll() (events metastore.Events, ok bool, err error) {
	events, ok, _, err = w.look()
	return events, ok, err
}

// look finds the next events, or the channel that closes when there may be some.
func (w *Watcher) look() (events metastore.Events, found bool, changed <-chan struct{}, err error) {
	s := w.store
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-w.done:
		return events, false, nil, metastore.ErrClosed
	case <-w.ctx.Done():
		return events, false, nil, w.ctx.Err()
	default:
	}
	if s.closed {
		return events, false, nil, metastore.ErrClosed
	}
	if w.restores != s.restores || w.next <= s.compacted {
		return events, false, nil, metastore.ErrCompacted
	}
	last := s.revision
	if s.watchHeld {
		last = min(last, s.watchUntil)
	}
	began := w.next
	for ; w.next <= last; w.next++ {
		if w.next < s.historyFrom {
			continue // revision 1, in which nothing happened
		}
		if hit := below(w.prefix, s.history[w.next-s.historyFrom]); len(hit.Events) > 0 {
			w.next++
			return hit, true, nil, nil
		}
	}
	if w.next > began {
		return metastore.Events{Revision: last}, true, nil, nil
	}
	return events, false, s.changed, nil
}

// below picks the events whose keys begin with prefix.
func below(prefix string, all metastore.Events) metastore.Events {
	out := metastore.Events{Revision: all.Revision}
	for _, ev := range all.Events {
		if strings.HasPrefix(ev.KV.Key, prefix) {
			ev.KV = copied(ev.KV)
			out.Events = append(out.Events, ev)
		}
	}
	return out
}

// Close implements metastore.Watcher.
func (w *Watcher) Close() error {
	w.closing.Do(func() { close(w.done) })
	return nil
}
