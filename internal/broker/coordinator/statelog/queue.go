package statelog

import (
	"context"
	"errors"
	"sync"

	"tidemark/internal/clock"
)

// ErrShut is a queue that takes nothing any more.
var ErrShut = errors.New("the queue is shut")

// Queue holds what a loop is asked to do, oldest first. Any goroutine puts, the loop takes.
type Queue[T any] struct {
	// News has a token when something was put in since the loop looked last.
	News chan struct{}
	most int // entries that may wait

	mu    sync.Mutex // guards the following
	items []T
	room  chan struct{} // closed once there is room again; nil: nobody waits for it
	shut  bool          // nothing is taken any more
}

// NewQueue makes a queue in which at most so many entries wait.
func NewQueue[T any](most int) *Queue[T] {
	return &Queue[T]{News: make(chan struct{}, 1), most: most}
}

// Tell sees to it that the loop looks.
func (q *Queue[T]) Tell() {
	select {
	case q.News <- struct{}{}:
	default:
	}
}

// Put queues an entry, waiting for room. ErrShut, or the context's error.
func (q *Queue[T]) Put(ctx context.Context, item T) error {
	for {
		q.mu.Lock()
		if q.shut {
			q.mu.Unlock()
			return ErrShut
		}
		if len(q.items) < q.most {
			q.items = append(q.items, item)
			q.mu.Unlock()
			q.Tell()
			return nil
		}
		if q.room == nil {
			q.room = make(chan struct{})
		}
		room := q.room
		q.mu.Unlock()
		if _, err := clock.Wait(ctx, clock.Forever, room); err != nil {
			return err
		}
	}
}

// Take gives the oldest n entries, or fewer. If there are more, the loop is told to look again.
func (q *Queue[T]) Take(n int) []T {
	q.mu.Lock()
	defer q.mu.Unlock()
	n = min(n, len(q.items))
	taken := q.items[:n:n]
	q.items = q.items[n:]
	if len(q.items) > 0 {
		q.Tell()
	} else {
		q.items = nil
	}
	if n > 0 {
		q.makeRoom()
	}
	return taken
}

func (q *Queue[T]) makeRoom() {
	if q.room != nil {
		close(q.room)
		q.room = nil
	}
}

// Shut takes nothing any more and gives what was queued.
func (q *Queue[T]) Shut() []T {
	q.mu.Lock()
	defer q.mu.Unlock()
	left := q.items
	q.items, q.shut = nil, true
	q.makeRoom()
	return left
}
