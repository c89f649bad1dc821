package statelog

import (
	"context"
	"errors"
	"maps"
	"slices"

	"tidemark/internal/clock"
	"tidemark/internal/wire"
)

const (
	defaultQueueLength = 1024
	// tasksPerRound bounds how many tasks are taken before their writes are handed
	// on: larger batches under load, no delay without.
	tasksPerRound = 256
)

// Task is what a loop does for a request, on its own goroutine. Whoever waits is
// answered under id, by Inbox.Answer; zero means that nobody waits.
type Task[ID ~uint64] func(id ID)

// entry is a task in the queue.
type entry[ID ~uint64, R any] struct {
	do     Task[ID]
	answer *answer[R] // nil: nobody waits
}

// answer is what one request waits for.
type answer[R any] struct {
	done     chan struct{} // closed once response is there
	response R
}

func (a *answer[R]) give(r R) {
	a.response = r
	close(a.done)
}

// Inbox is a loop's requests: those that wait to be taken, and those that were taken
// and wait for their answer. Any goroutine asks and posts; the rest is the loop's.
type Inbox[ID ~uint64, R any] struct {
	term  *Term
	queue *Queue[entry[ID, R]]

	// The loop's own.
	waiting map[ID]*answer[R]
	last    ID
}

// NewInbox makes the inbox of a term's loop, in which at most so many requests wait
// to be taken; 0 means 1024.
func NewInbox[ID ~uint64, R any](t *Term, most int) *Inbox[ID, R] {
	if most == 0 {
		most = defaultQueueLength
	}
	return &Inbox[ID, R]{term: t, queue: NewQueue[entry[ID, R]](most), waiting: map[ID]*answer[R]{}}
}

// Ask has the loop do a task and waits for its answer; patient: also for a loop that
// is loading. A code says that there is no answer, or that it may be out of date.
func (in *Inbox[ID, R]) Ask(ctx context.Context, patient bool, do Task[ID]) (R, wire.ErrCode) {
	var none R
	if !in.term.isReady() {
		if !patient {
			return none, wire.ErrCoordinatorLoadInProgress
		}
		if _, err := clock.Wait(ctx, clock.Forever, in.term.ready); err != nil {
			return none, wire.ErrCoordinatorLoadInProgress
		}
	}
	if !in.term.Leads() {
		return none, wire.ErrNotCoordinator
	}
	a := &answer[R]{done: make(chan struct{})}
	if err := in.queue.Put(ctx, entry[ID, R]{do: do, answer: a}); errors.Is(err, ErrShut) {
		return none, wire.ErrNotCoordinator
	} else if err != nil {
		return none, wire.ErrCoordinatorNotAvailable
	}
	if _, err := clock.Wait(ctx, clock.Forever, a.done); err != nil {
		return none, wire.ErrCoordinatorNotAvailable
	}
	if !in.term.Leads() {
		probeLateLook.Reached()
		return none, wire.ErrNotCoordinator // another one may have answered more than this one knows
	}
	return a.response, wire.None
}

// Post has the loop do a task that nobody waits for, and waits for room in its queue.
// A loop that has ended forgets all it knew: it does nothing more.
func (in *Inbox[ID, R]) Post(ctx context.Context, do Task[ID]) {
	_ = in.queue.Put(ctx, entry[ID, R]{do: do}) // ended, or ctx is: nobody is there to be told
}

// News has a token when there is something to take, or the loop was told to look.
func (in *Inbox[ID, R]) News() <-chan struct{} { return in.queue.News }

// Tell sees to it that the loop looks.
func (in *Inbox[ID, R]) Tell() { in.queue.Tell() }

// Work does the oldest tasks, a round of them.
func (in *Inbox[ID, R]) Work() {
	taken := in.queue.Take(tasksPerRound)
	ids := make([]ID, len(taken))
	for i, e := range taken { // all of them before the first: a task that breaks the loop must leave nobody waiting
		if e.answer != nil {
			in.last++
			ids[i] = in.last
			in.waiting[ids[i]] = e.answer
		}
	}
	for i, e := range taken {
		e.do(ids[i])
	}
}

// Waiting gives how many requests were taken and not answered yet.
func (in *Inbox[ID, R]) Waiting() int { return len(in.waiting) }

// Answer answers one request, if it still waits.
func (in *Inbox[ID, R]) Answer(id ID, r R) {
	if a := in.waiting[id]; a != nil {
		delete(in.waiting, id)
		a.give(r)
	}
}

// AnswerAll gives all that were taken and still wait the same answer.
func (in *Inbox[ID, R]) AnswerAll(r R) {
	for _, id := range slices.Sorted(maps.Keys(in.waiting)) { // a simulated run has one order
		in.Answer(id, r)
	}
}

// Shut answers what is queued with r. Whoever asks later is refused.
func (in *Inbox[ID, R]) Shut(r R) {
	for _, e := range in.queue.Shut() {
		if e.answer != nil {
			e.answer.give(r)
		}
	}
}
