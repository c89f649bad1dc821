package broker

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"tidemark/internal/clock"
	"tidemark/internal/core/meta"
	"tidemark/internal/metastore"
)

// watchPause is how long the viewer waits after a watch has failed for no good reason.
const watchPause = 100 * time.Millisecond

// viewer keeps the node's one image of the metadata (R9): it starts with a
// linearizable read and moves with a watch, never back.
type viewer struct {
	store  metastore.Store
	logger *slog.Logger
	// before is told of each image before anybody can see it, after once it can
	// be seen; both in order, on the viewer's goroutine.
	before, after func(old, image *meta.Image, d meta.Delta)
	broken        func(error) // the store went back or away: nothing may be believed any more

	image atomic.Pointer[meta.Image]

	mu    sync.Mutex // guards the following
	tick  chan struct{}
	taken meta.Revision // up to here before and after have run
}

// newViewer reads the cluster's metadata.
func newViewer(ctx context.Context, store metastore.Store, clusterID string, l *slog.Logger) (*viewer, meta.Delta, error) {
	kvs, rev, err := store.Range(ctx, meta.KeysOf(clusterID).Root())
	if err != nil {
		return nil, meta.Delta{}, err
	}
	image, delta := meta.Load(clusterID, kvs, rev)
	v := &viewer{store: store, logger: l, tick: make(chan struct{})}
	v.image.Store(image)
	v.taken = rev
	return v, delta, nil
}

func (v *viewer) current() *meta.Image { return v.image.Load() }

// await waits until the image knows everything up to a revision, and the node's
// partitions have been told.
func (v *viewer) await(ctx context.Context, rev meta.Revision) error {
	for {
		v.mu.Lock()
		tick, taken := v.tick, v.taken
		v.mu.Unlock()
		if taken >= rev {
			return nil
		}
		if _, err := clock.Wait(ctx, clock.Forever, tick); err != nil {
			return err
		}
	}
}

// run follows the watch until ctx ends.
func (v *viewer) run(ctx context.Context) {
	root := v.current().Keys().Root()
	w := v.store.Watch(ctx, root, v.current().Revision())
	defer func() { _ = w.Close() }() // a watch that ends has nothing to lose
	for {
		ev, err := w.Next(ctx)
		switch {
		case err == nil:
			old := v.current()
			image, d := old.Apply(ev)
			v.take(old, image, d)
			continue
		case ctx.Err() != nil:
			return
		case errors.Is(err, metastore.ErrClosed):
			v.broken(err)
			return
		case !errors.Is(err, metastore.ErrCompacted):
			v.logger.Warn("metadata watch failed", "err", err, "retry", watchPause)
			if clock.Sleep(ctx, watchPause) != nil {
				return
			}
		}
		_ = w.Close()
		if !v.reload(ctx, root) {
			return
		}
		w = v.store.Watch(ctx, root, v.current().Revision())
	}
}

// reload reads everything again after the watch has lost its place; false ends the viewer.
func (v *viewer) reload(ctx context.Context, root string) bool {
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		kvs, rev, err := v.store.Range(ctx, root)
		if err == nil {
			old := v.current()
			image, d, err := old.Reload(kvs, rev)
			if err != nil {
				v.broken(err)
				return false
			}
			v.take(old, image, d)
			return true
		}
		v.logger.Warn("metadata can't be read", "err", err, "retry", wait)
		if clock.Sleep(ctx, wait) != nil {
			return false
		}
	}
}

// take publishes an image: who works by it is told around it, then who waits for it.
func (v *viewer) take(old, image *meta.Image, d meta.Delta) {
	if image == old {
		return
	}
	if !d.IsEmpty() && v.before != nil {
		v.before(old, image, d)
	}
	v.image.Store(image)
	if !d.IsEmpty() && v.after != nil {
		v.after(old, image, d)
	}
	v.mu.Lock()
	v.taken = image.Revision()
	close(v.tick)
	v.tick = make(chan struct{})
	v.mu.Unlock()
}
