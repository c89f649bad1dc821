//go:build chaos && linux

package harm

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"tidemark/internal/metastore"
	"tidemark/test/chaos/nodes"
)

// Kill ends processes as kill -9 does; the kernel keeps what they wrote.
func Kill(list ...*nodes.Node) {
	for _, b := range list {
		b.Signal(syscall.SIGKILL) // all at once: none sees another's end
	}
	for _, b := range list {
		b.End(syscall.SIGKILL)
	}
}

// Start starts what doesn't run.
func Start(list ...*nodes.Node) {
	for _, b := range list {
		b.Start()
	}
}

// Freeze stops processes at once, and lets them go on.
func Freeze(ctx context.Context, hold time.Duration, list ...*nodes.Node) {
	for _, b := range list {
		b.Signal(syscall.SIGSTOP)
	}
	Pause(ctx, hold)
	for _, b := range list {
		b.Signal(syscall.SIGCONT)
	}
}

// PowerLoss kills nodes and takes what they had not synced.
func (n *Nemesis) PowerLoss(list ...*nodes.Node) {
	Kill(list...)
	n.power.Lock()
	defer n.power.Unlock()
	for _, b := range list {
		losses, err := b.Board.PowerLoss(n.r)
		if err != nil {
			n.T.Error(err)
		}
		bytes := int64(0)
		for _, l := range losses {
			bytes += l.Size - l.KeptUpTo
		}
		n.Saw("files cut by power losses", len(losses))
		n.Saw("bytes lost to power losses", int(bytes))
		n.Log("  node %d lost %d bytes of %d files", b.ID, bytes, len(losses))
	}
}

// Heal ends every fault of links, disks, clocks and processes, and starts what ended.
func (n *Nemesis) Heal(list ...*nodes.Node) {
	n.Log("heal")
	n.Net.Heal()
	for _, b := range list {
		b.Board.Reset()
		b.Signal(syscall.SIGCONT)
		b.Start()
	}
}

// mayEnd are the words by which a node may end by itself: its disk is broken or
// full, or it starts and can't reach the metadata. A supervisor starts it again.
var mayEnd = []string{syscall.EIO.Error(), syscall.ENOSPC.Error(), metastore.ErrUnavailable.Error()}

// EndedByItself is told of each process that ended unasked (nodes.Node.OwnEnd).
func (n *Nemesis) EndedByItself(b *nodes.Node, err error) {
	words := b.LastWords()
	n.Log("  node %d ended by itself: %v: %s", b.ID, err, words)
	i := slices.IndexFunc(mayEnd, func(reason string) bool { return strings.Contains(words, reason) })
	if i < 0 {
		n.T.Errorf("node %d ended by itself without a reason that is accepted: %v: %s", b.ID, err, words)
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ends[fmt.Sprintf("node %d, %v: %s", b.ID, err, mayEnd[i])]++
}
