package etcd

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"tidemark/internal/core/meta"
	"tidemark/internal/metastore"
)

// watcher turns etcd's watch responses into whole revisions. etcd never splits
// a revision over two responses (unless fragments are asked for).
type watcher struct {
	store  *Store
	ctx    context.Context // ends with the watch
	cancel context.CancelCauseFunc
	detach func() bool // from the store's context
	prefix string

	// The following belong to the goroutine that calls Next.
	responses clientv3.WatchChan // nil: to be opened
	seen      metastore.Revision // everything up to here was queued
	queue     []metastore.Events
	failed    error
	reopened  int // times in a row without an answer in between
}

// progressInterval is how long a watch waits in silence before it asks.
const progressInterval = 500 * time.Millisecond

// Watch implements metastore.Store.
func (s *Store) Watch(ctx context.Context, prefix string, after metastore.Revision) metastore.Watcher {
	ctx, cancel := context.WithCancelCause(ctx)
	detach := context.AfterFunc(s.ctx, func() { cancel(metastore.ErrClosed) })
	return &watcher{store: s, ctx: ctx, cancel: cancel, detach: detach, prefix: prefix, seen: after}
}

// Next implements metastore.Watcher.
func (w *watcher) Next(ctx context.Context) (metastore.Events, error) {
	idle := time.NewTicker(progressInterval)
	defer idle.Stop()
	for {
		if w.failed != nil {
			return metastore.Events{}, w.failed
		}
		if len(w.queue) > 0 {
			next := w.queue[0]
			w.queue = w.queue[1:]
			return next, nil
		}
		if w.responses == nil {
			if err := w.open(ctx); err != nil {
				return metastore.Events{}, err
			}
		}
		select {
		case resp, ok := <-w.responses:
			w.take(resp, ok)
		case <-idle.C:
			w.askProgress()
		case <-w.ctx.Done():
			w.failed = context.Cause(w.ctx)
		case <-ctx.Done():
			return metastore.Events{}, ctx.Err()
		}
	}
}

// open begins to watch after the last revision seen.
func (w *watcher) open(ctx context.Context) error {
	if w.reopened > 0 {
		if err := w.store.pause(ctx, min(w.reopened, 5)); err != nil {
			return err
		}
	}
	w.reopened++
	// Without this a watch on a member that lost the quorum just says nothing.
	wctx := clientv3.WithRequireLeader(w.ctx)
	w.responses = w.store.cli.Watch(wctx, w.prefix, clientv3.WithPrefix(), clientv3.WithRev(int64(w.seen)+1), clientv3.WithProgressNotify())
	return nil
}

// askProgress has the server say up to which revision nothing happened below
// the prefix: who waits for a revision of other keys would wait for minutes else.
func (w *watcher) askProgress() {
	if !w.store.o.AskProgress {
		return
	}
	ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(w.ctx), progressInterval)
	defer cancel()
	_ = w.store.cli.RequestProgress(ctx) // a lost connection is the watch's matter
}

// take queues the revisions of one response, or decides what its end means.
func (w *watcher) take(resp clientv3.WatchResponse, ok bool) {
	switch {
	case w.ctx.Err() != nil:
		w.failed = context.Cause(w.ctx)
	case resp.CompactRevision != 0:
		w.failed = fmt.Errorf("%w: up to %d, wanted after %d", metastore.ErrCompacted, resp.CompactRevision, w.seen)
		w.cancel(w.failed)
	case !ok || resp.Err() != nil:
		w.responses = nil // the leader or the connection is gone: open it again
	default:
		w.reopened = 0
		w.enqueue(resp)
	}
}

func (w *watcher) enqueue(resp clientv3.WatchResponse) {
	before := w.seen
	for _, ev := range resp.Events {
		revision := metastore.Revision(ev.Kv.ModRevision)
		if revision <= before {
			continue // seen before the watch was opened again
		}
		if n := len(w.queue); n == 0 || w.queue[n-1].Revision != revision {
			w.queue = append(w.queue, metastore.Events{Revision: revision})
			w.seen = revision
		}
		last := &w.queue[len(w.queue)-1]
		kind := meta.EventPut
		if ev.Type == clientv3.EventTypeDelete {
			kind = meta.EventDelete
		}
		last.Events = append(last.Events, metastore.Event{Kind: kind, KV: fromEtcd(ev.Kv)})
	}
	if resp.IsProgressNotify() && metastore.Revision(resp.Header.Revision) > w.seen {
		w.seen = metastore.Revision(resp.Header.Revision)
		w.queue = append(w.queue, metastore.Events{Revision: w.seen})
	}
}

// Close implements metastore.Watcher.
func (w *watcher) Close() error {
	w.cancel(metastore.ErrClosed)
	w.detach()
	return nil
}
