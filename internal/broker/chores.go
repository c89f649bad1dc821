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

	"tidemark/internal/clock"
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
	clock.Join(c.b.ctx, &c.work)
}

// every runs f each interval until the chores end. An interval of "never" starts nothing.
func (c *chores) every(interval types.Millis, f func()) {
	const longest = types.Millis(1<<63-1) / types.Millis(time.Millisecond)
	if interval <= 0 || interval > longest {
		return
	}
	clock.Go(c.ctx, &c.work, func() {
		pause := time.Duration(interval) * time.Millisecond
		for last := clock.Now(c.ctx); ; {
			if clock.Sleep(c.ctx, max(pause-clock.Since(c.ctx, last), 0)) != nil {
				return
			}
			last = clock.Now(c.ctx)
			f()
		}
	})
}

// removeLater removes a renamed folder after a delay. What is left when the
// node stops is removed at its next start.
func (c *chores) removeLater(d *logDir, folder string, delay types.Millis) {
	clock.Go(c.ctx, &c.work, func() {
		if clock.Sleep(c.ctx, time.Duration(delay)*time.Millisecond) != nil {
			return
		}
		if !strings.HasPrefix(folder, d.path) {
			folder = filepath.Join(d.path, folder)
		}
		if err := d.fs.RemoveAll(folder); err != nil && !errors.Is(err, fs.ErrNotExist) {
			c.logger.Error("folder of a deleted partition can't be removed", "folder", folder, "err", err)
		}
	})
}
