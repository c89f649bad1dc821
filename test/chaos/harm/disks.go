//go:build chaos && linux

package harm

import (
	"context"
	"errors"
	"fmt"
	"time"

	"tidemark/internal/await"
	"tidemark/internal/vfs/switchboard"
	"tidemark/test/chaos/nodes"
)

// FailSyncs breaks a disk. The node must not go on with it; what it had not
// synced is lost, if so, and the disk is as good as new when it is started again.
// Whoever starts it is the caller.
func (n *Nemesis) FailSyncs(ctx context.Context, hold time.Duration, b *nodes.Node, loses bool) {
	n.breakDisk(ctx, hold, b, "syncs that failed", switchboard.SyncFails, switchboard.SyncHits)
	if loses {
		n.PowerLoss(b)
	} else {
		Kill(b)
	}
	b.Board.Set(switchboard.SyncFails, 0)
}

// FailWrites breaks a disk that loses nothing.
func (n *Nemesis) FailWrites(ctx context.Context, hold time.Duration, b *nodes.Node) {
	n.breakDisk(ctx, hold, b, "writes that failed", switchboard.WriteFails, switchboard.WriteHits)
	Kill(b)
	b.Board.Set(switchboard.WriteFails, 0)
}

// breakDisk demands that a node whose only log dir failed ends.
func (n *Nemesis) breakDisk(ctx context.Context, hold time.Duration, b *nodes.Node, what string, fails, hits switchboard.Word) {
	before := b.Board.Get(hits)
	b.Board.Set(fails, 1)
	Pause(ctx, hold)
	n.Saw(what, int(b.Board.Get(hits)-before))
	if before == b.Board.Get(hits) {
		n.Saw("broken disks that nobody touched", 1)
		return
	}
	await.NoError(n.T, n.Patience, fmt.Sprintf("node %d ends after its disk failed", b.ID), func() error {
		if b.Running() {
			return errors.New("it goes on")
		}
		return nil
	})
	n.Saw("nodes that ended with a broken disk", 1)
}

// FillDisks leaves no room on disks for a while: nothing can grow.
func (n *Nemesis) FillDisks(ctx context.Context, hold time.Duration, list ...*nodes.Node) {
	before := int64(0)
	for _, b := range list {
		before += b.Board.Get(switchboard.RefusedHits)
		b.Board.Set(switchboard.DiskFull, 1)
	}
	Pause(ctx, hold)
	after := int64(0)
	for _, b := range list {
		b.Board.Set(switchboard.DiskFull, 0)
		after += b.Board.Get(switchboard.RefusedHits)
	}
	n.Saw("operations that a full disk refused", int(after-before))
}

// FillForReal leaves little room on a disk of the node's own, lets the load fill it,
// and gives it its whole size again. The kernel refuses whatever it likes: writes in
// part, folders, renames, and the metadata store's files as well.
func (n *Nemesis) FillForReal(ctx context.Context, hold time.Duration, b *nodes.Node, left, whole int64) {
	await.NoError(n.T, n.Patience, "the disk is made small", func() error {
		used, _, err := b.Disk.Usage(b.Folder())
		if err != nil {
			return err
		}
		return b.Disk.Resize(b.ID, b.Dir, used+left) // refused if more is used by now
	})
	n.Log("  node %d has room for %d bytes", b.ID, left)
	full, look := false, time.NewTicker(100*time.Millisecond)
	defer look.Stop()
	for end := time.Now().Add(hold); time.Now().Before(end) && ctx.Err() == nil; {
		<-look.C
		if _, free, err := b.Disk.Usage(b.Folder()); err != nil {
			n.T.Error(err)
		} else if free < 4096 && !full {
			full = true
			n.Saw("disks that were full for real", 1)
		}
	}
	if err := b.Disk.Resize(b.ID, b.Dir, whole); err != nil {
		n.T.Error(err)
	}
}

// SlowDisk has each sync of a node take longer.
func SlowDisk(ctx context.Context, hold, by time.Duration, b *nodes.Node) {
	b.Board.Set(switchboard.SyncDelayMs, by.Milliseconds())
	Pause(ctx, hold)
	b.Board.Set(switchboard.SyncDelayMs, 0)
}

// ShiftClock sets a node's wall clock wrong, and right again.
func (n *Nemesis) ShiftClock(ctx context.Context, hold, by time.Duration, b *nodes.Node) {
	n.Log("  the clock of node %d jumps by %v", b.ID, by.Round(time.Second))
	b.Board.Set(switchboard.ClockShiftMs, by.Milliseconds())
	Pause(ctx, hold)
	b.Board.Set(switchboard.ClockShiftMs, 0)
}
