package coordinator

import (
	"context"
	"sync"

	"tidemark/internal/assert"
	"tidemark/internal/clock"
	"tidemark/internal/core/group"
)

// mailbox holds what a loop is asked to do, oldest first. Any goroutine puts,
// the loop takes.
type mailbox struct {
	// news has a token when something was put in since the loop looked last.
	news chan struct{}
	most int // tasks that may wait

	mu    sync.Mutex // guards the following
	tasks []task
	room  chan struct{} // closed once there is room again; nil: nobody waits for it
	shut  bool          // nothing is taken any more
	done  []completion  // of the write under way, for the loop
	wrote bool          // done holds an outcome that the loop hasn't taken
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

func newMailbox(most int) *mailbox { return &mailbox{news: make(chan struct{}, 1), most: most} }

// tell sees to it that the loop looks.
func (m *mailbox) tell() {
	select {
	case m.news <- struct{}{}:
	default:
	}
}

// put queues a task, waiting for room. What was put is answered, whatever becomes of the loop.
func (m *mailbox) put(ctx context.Context, t task) group.ErrorCode {
	for {
		m.mu.Lock()
		if m.shut {
			m.mu.Unlock()
			return group.NotCoordinator
		}
		if len(m.tasks) < m.most {
			m.tasks = append(m.tasks, t)
			m.mu.Unlock()
			m.tell()
			return group.None
		}
		if m.room == nil {
			m.room = make(chan struct{})
		}
		room := m.room
		m.mu.Unlock()
		if _, err := clock.Wait(ctx, clock.Forever, room); err != nil {
			return group.CoordinatorNotAvailable
		}
	}
}

// take gives the oldest n tasks, or fewer. If there are more, the loop is told to look again.
func (m *mailbox) take(n int) []task {
	m.mu.Lock()
	defer m.mu.Unlock()
	n = min(n, len(m.tasks))
	taken := m.tasks[:n:n]
	m.tasks = m.tasks[n:]
	if len(m.tasks) > 0 {
		m.tell()
	} else {
		m.tasks = nil
	}
	if n > 0 && m.room != nil {
		close(m.room)
		m.room = nil
	}
	return taken
}

// written hands the loop the outcome of its write.
func (m *mailbox) written(done []completion) {
	m.mu.Lock()
	// Invariant I-280: a loop has one write under way at a time.
	assert.That(!m.wrote, "I-280: a second write has ended before the loop took the first one's outcome")
	m.done, m.wrote = done, true
	m.mu.Unlock()
	m.tell()
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
	m.mu.Lock()
	tasks := m.tasks
	m.tasks, m.shut = nil, true
	if m.room != nil {
		close(m.room)
		m.room = nil
	}
	m.mu.Unlock()
	for _, t := range tasks {
		if t.answer != nil {
			t.answer.give(group.CodeResponse{Code: group.NotCoordinator})
		}
	}
}
