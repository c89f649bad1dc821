package broker

import (
	"maps"
	"slices"
	"sync"
)

// progress tells subscribers that something they may wait for has moved. It
// replaces purgatories: a waiting fetch is one entry in the list of each of its
// partitions, and goes when its request ends.
type progress struct {
	mu sync.Mutex // guards the following; never held across a subscriber's function
	// subs is nil while nobody waits: an idle partition costs nothing.
	subs map[uint64]func()
	next uint64
}

// subscribe has f called at each move until cancel.
func (g *progress) subscribe(f func()) (cancel func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.subs == nil {
		g.subs = make(map[uint64]func())
	}
	id := g.next
	g.next++
	g.subs[id] = f
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.subs, id)
	}
}

// fire calls every subscriber.
func (g *progress) fire() {
	g.mu.Lock()
	if len(g.subs) == 0 {
		g.mu.Unlock()
		return
	}
	list := make([]func(), 0, len(g.subs))
	for _, id := range slices.Sorted(maps.Keys(g.subs)) { // a simulated run has one order
		list = append(list, g.subs[id])
	}
	g.mu.Unlock()
	for _, f := range list {
		f()
	}
}
