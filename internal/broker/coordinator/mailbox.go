package coordinator

import (
	"sync"

	"tidemark/internal/assert"
	"tidemark/internal/broker/coordinator/statelog"
	"tidemark/internal/core/group"
)

// mailbox holds what a loop is asked to do, and the outcome of its write.
type mailbox struct {
	*statelog.Inbox[group.RequestID, group.Response]

	mu    sync.Mutex   // guards the following
	done  []completion // of the write under way, for the loop
	wrote bool         // done holds an outcome that the loop hasn't taken
}

func newMailbox(t *statelog.Term, most int) *mailbox {
	return &mailbox{Inbox: statelog.NewInbox[group.RequestID, group.Response](t, most)}
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
