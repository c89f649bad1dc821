package broker

import (
	"cmp"
	"slices"
	"sync"
)

// progress tells subscribers that something they may wait for has moved. It
// replaces purgatories: a waiting fetch is one entry in the list of each of its
// partitions, and goes when its request ends.
type progress struct {
	mu sync.Mutex // guards the following; never held across a subscriber's function
	// subs are in the order of their ids, so that a simulated run has one order.
	subs []subscriber
	next uint64
}

type subscriber struct {
	id uint64
	f  func()
}

// subscribe has f called at each move until cancel.
func (g *progress) subscribe(f func()) (cancel func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	id := g.next
	g.next++
	g.subs = append(g.subs, subscriber{id, f})
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		at, ok := slices.BinarySearchFunc(g.subs, id, func(s subscriber, id uint64) int { return cmp.Compare(s.id, id) })
		if ok {
			g.subs = slices.Delete(g.subs, at, at+1)
		}
		if len(g.subs) == 0 {
			g.subs = nil // an idle partition costs nothing
		}
	}
}

// fire calls every subscriber.
func (g *progress) fire() {
	var few [4]subscriber // mostly the followers of a partition
	g.mu.Lock()
	list := append(few[:0], g.subs...)
	g.mu.Unlock()
	for _, s := range list {
		s.f()
	}
}
