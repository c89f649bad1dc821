//go:build chaos && linux

// Package harm is what tests do to brokers that run as processes at places of a
// network: kill and freeze them, take from their disks what was not synced, break,
// fill and slow down those disks, move their clocks, cut and slow the links.
//
// A Nemesis carries single faults out and writes down what it did and what was met.
// Which one comes when, on whom and for how long is a schedule of the test's own:
// package harm draws nothing but what a power loss takes. The tests of chaos and
// chaosmirror use it; they are its tests too.
package harm

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"tidemark/test/chaos/links"
)

// Nemesis does harm, and keeps the record of it.
type Nemesis struct {
	T     testing.TB
	Net   links.Network
	Began time.Time
	// Patience bounds each wait for a node that has to end.
	Patience time.Duration

	// quiet is held for writing while only one may do harm.
	quiet sync.RWMutex

	power sync.Mutex // guards the following
	r     *rand.Rand // of power losses

	mu       sync.Mutex // guards the following
	injected map[string]int
	seen     map[string]int
	ends     map[string]int // processes that ended by themselves, by their last words
}

// New makes a nemesis whose power losses follow from the seed.
func New(t testing.TB, net links.Network, seed uint64, patience time.Duration) *Nemesis {
	return &Nemesis{T: t, Net: net, Began: time.Now(), Patience: patience, r: rand.New(rand.NewPCG(seed, 0x706f776572)),
		injected: map[string]int{}, seen: map[string]int{}, ends: map[string]int{}}
}

// Log tells of the run, with the time since its begin.
func (n *Nemesis) Log(format string, args ...any) {
	n.T.Helper()
	n.T.Logf("%7.1fs "+format, append([]any{time.Since(n.Began).Seconds()}, args...)...)
}

// Saw counts something that the run met.
func (n *Nemesis) Saw(what string, by int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.seen[what] += by
}

// Injects counts a fault that begins.
func (n *Nemesis) Injects(fault string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.injected[fault]++
}

// Alone runs f while nobody runs Beside.
func (n *Nemesis) Alone(f func()) {
	n.quiet.Lock()
	defer n.quiet.Unlock()
	f()
}

// Beside runs f while others do too, and nobody is Alone.
func (n *Nemesis) Beside(f func()) {
	n.quiet.RLock()
	defer n.quiet.RUnlock()
	f()
}

// Pause is a part of a schedule: it ends early with ctx.
func Pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// Injected says how often each of the faults was injected, a line each.
func (n *Nemesis) Injected(faults ...string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	var b strings.Builder
	for _, f := range faults {
		fmt.Fprintf(&b, "\n  %5d × %s", n.injected[f], f)
	}
	return b.String()
}

// Met says what the run met, a line each.
func (n *Nemesis) Met() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.seen["packets dropped by cuts"] = int(n.Net.Dropped())
	var b strings.Builder
	b.WriteString("\nmet:")
	for _, what := range slices.Sorted(maps.Keys(n.seen)) {
		fmt.Fprintf(&b, "\n  %7d %s", n.seen[what], what)
	}
	for _, words := range slices.Sorted(maps.Keys(n.ends)) {
		fmt.Fprintf(&b, "\n  %7d × a process ended by itself: %s", n.ends[words], words)
	}
	return b.String()
}
