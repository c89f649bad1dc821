package coordinator

import (
	"context"
	"errors"
	"sync"

	"tidemark/internal/assert"
	"tidemark/internal/broker/coordinator/statelog"
	"tidemark/internal/core/group"
)

// mailbox holds what a loop is asked to do, and the outcome of its write.
type mailbox struct {
	*statelog.Queue[task]

	mu    sync.Mutex   // guards the following
	done  []completion // of the write under way, for the loop
	wrote bool         // done holds an outcome that the loop hasn't taken
}

// task is what a loop is asked to do: an event that answer may wait for, or a
// look at the table.
type task struct {
	event  func(id group.RequestID, l *loop) group.Event
	look   func(t *group.Table)
	answer *answer // nil: nobody waits
}

// answer is what one request waits for.
type answer struct {
	done chan struct{} // closed once response is there
	// response is group.CodeResponse for a look, and for a request that no table has seen.
	response group.Response
}

func newAnswer() *answer { return &answer{done: make(chan struct{})} }

func (a *answer) give(r group.Response) {
	a.response = r
	close(a.done)
}

func newMailbox(most int) *mailbox { return &mailbox{Queue: statelog.NewQueue[task](most)} }

// put queues a task, waiting for room. What was put is answered, whatever becomes of the loop.
func (m *mailbox) put(ctx context.Context, t task) group.ErrorCode {
	err := m.Put(ctx, t)
	switch {
	case errors.Is(err, statelog.ErrShut):
		return group.NotCoordinator
	case err != nil:
		return group.CoordinatorNotAvailable
	}
	return group.None
}

// written hands the loop the outcome of its write.
func (m *mailbox) written(done []completion) {
	m.mu.Lock()
	// Invariant I-280: a loop has one write under way at a time.
	assert.That(!m.wrote, "I-280: a second write has ended before the loop took the first one's outcome")
	m.done, m.wrote = done, true
	m.mu.Unlock()
	m.Tell()
}

// outcome takes the outcome of the write under way; false while there is none.
func (m *mailbox) outcome() ([]completion, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	done, wrote := m.done, m.wrote
	m.done, m.wrote = nil, false
	return done, wrote
}

// close answers what is queued with NOT_COORDINATOR, and whatever would come.
func (m *mailbox) close() {
	for _, t := range m.Shut() {
		if t.answer != nil {
			t.answer.give(group.CodeResponse{Code: group.NotCoordinator})
		}
	}
}
