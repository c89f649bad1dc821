package statelog

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"tidemark/internal/clock"
	"tidemark/internal/core/types"
	"tidemark/internal/probe"
)

var probeSuperseded = probe.New("coordinator: elected again before it resigned")

// Loop owns the state of one partition for one term: it embeds its Term.
type Loop interface {
	term() *Term
	// Run loads and serves until the term is over. What waits is answered before it returns.
	Run()
}

// Loops are those of one coordinator, one for each partition of its topic that this
// node leads. The methods may be called from any goroutine.
type Loops[L Loop] struct {
	ctx  context.Context
	open func(partition int32, epoch types.LeaderEpoch) L

	mu     sync.RWMutex // guards the following
	loops  map[int32]L
	closed bool

	running sync.WaitGroup
}

// NewLoops has no loops yet; open makes one, and starts nothing. ctx may carry a clock.
func NewLoops[L Loop](ctx context.Context, open func(partition int32, epoch types.LeaderEpoch) L) *Loops[L] {
	return &Loops[L]{ctx: ctx, open: open, loops: map[int32]L{}}
}

// Elected tells that this node leads a partition of the coordinator's topic from now
// on, in leader epoch epoch: its state is loaded and served. It returns at once. A
// repeated call with the same epoch does nothing.
func (s *Loops[L]) Elected(partition int32, epoch types.LeaderEpoch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	if old, ok := s.loops[partition]; ok {
		if old.term().Epoch >= epoch {
			return
		}
		probeSuperseded.Reached()
		old.term().Stop()
	}
	l := s.open(partition, epoch)
	s.loops[partition] = l
	clock.Go(s.ctx, &s.running, l.Run)
}

// Resigned tells that this node leads a partition of the coordinator's topic no more.
// It returns at once; what waits there is answered with NOT_COORDINATOR.
func (s *Loops[L]) Resigned(partition int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l, ok := s.loops[partition]; ok && !l.term().o.Unfenced {
		delete(s.loops, partition)
		l.term().Stop()
	}
}

// Close stops all loops and waits for them. Waiting requests are answered with
// NOT_COORDINATOR, so that clients look for another coordinator.
func (s *Loops[L]) Close() {
	s.mu.Lock()
	s.closed = true
	for _, l := range s.loops {
		l.term().Stop()
	}
	clear(s.loops)
	s.mu.Unlock()
	clock.Join(s.ctx, &s.running)
}

// Of gives the loop of a partition; the zero L if this node has none.
func (s *Loops[L]) Of(partition int32) L {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.loops[partition]
}

// All gives the loops in the order of their partitions.
func (s *Loops[L]) All() []L {
	s.mu.RLock()
	defer s.mu.RUnlock()
	all := make([]L, 0, len(s.loops))
	for _, l := range s.loops {
		all = append(all, l)
	}
	slices.SortFunc(all, func(a, b L) int { return cmp.Compare(a.term().Partition, b.term().Partition) })
	return all
}
