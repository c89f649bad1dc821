package broker

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"tidemark/internal/core/types"
)

// chores runs what happens by the clock: retention, compaction, flushing,
// checkpoints, removal of deleted folders. Each is one goroutine that close stops and waits for.
type chores struct {
	b      *Broker
	ctx    context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup
	logger *slog.Logger
}

func newChores(b *Broker) *chores {
	ctx, cancel := context.WithCancel(b.ctx)
	return &chores{b: b, ctx: ctx, cancel: cancel, logger: b.logger}
}

func (c *chores) close() {
	c.cancel()
	c.work.Wait()
}

// every runs f each interval until the chores end. An interval of "never" starts nothing.
func (c *chores) every(interval types.Millis, f func()) {
	const longest = types.Millis(1<<63-1) / types.Millis(time.Millisecond)
	if interval <= 0 || interval > longest {
		return
	}
	c.work.Go(func() {
		tick := time.NewTicker(time.Duration(interval) * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-c.ctx.Done():
				return
			case <-tick.C:
				f()
			}
		}
	})
}

// removeLater removes a renamed folder after a delay. What is left when the
// node stops is removed at its next start.
func (c *chores) removeLater(d *logDir, folder string, delay types.Millis) {
	c.work.Go(func() {
		t := time.NewTimer(time.Duration(delay) * time.Millisecond)
		defer t.Stop()
		select {
		case <-c.ctx.Done():
			return
		case <-t.C:
		}
		if !strings.HasPrefix(folder, d.path) {
			folder = filepath.Join(d.path, folder)
		}
		if err := d.fs.RemoveAll(folder); err != nil && !errors.Is(err, fs.ErrNotExist) {
			c.logger.Error("folder of a deleted partition can't be removed", "folder", folder, "err", err)
		}
	})
}
