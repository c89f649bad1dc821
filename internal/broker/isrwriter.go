package broker

import (
	"context"
	"errors"
	"sync"

	"tidemark/internal/clock"
	"tidemark/internal/core/control"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/internal/metastore"
	"tidemark/internal/probe"
)

var (
	probeTogether     = probe.New("isrwriter: several changes in one transaction")
	probePlannedAnew  = probe.New("isrwriter: refused together, planned anew")
	probeSomeRefused  = probe.New("isrwriter: one of several changes can't be planned")
	probeUnknownOfAll = probe.New("isrwriter: unknown outcome of a transaction of several changes")
)

// isrWriter writes the ISR changes that this broker's partitions propose, one
// transaction at a time: what is proposed meanwhile goes into the next one
// together. When a broker comes back, thousands of partitions let it join within
// a moment. Each in a transaction of its own, all at once, outlast their
// time-outs on a slow store; repeated, they keep it slow, and registrations run out.
type isrWriter struct {
	image  func() *meta.Image
	await  func(context.Context, meta.Revision) error
	me     func() control.Me
	limits func() control.Limits
	commit func(context.Context, meta.Plan) (meta.Revision, error)
	work   *sync.WaitGroup

	mu      sync.Mutex // guards the following
	waiting []*isrWish
	writing bool // a goroutine takes from waiting until it is empty
}

// isrWish is one partition's proposal.
type isrWish struct {
	id     types.TopicID
	number int32
	from   meta.Revision
	isr    []meta.ISRMember
	done   chan struct{} // closed with the outcome
	err    error
}

// isrTogetherMax bounds the proposals that are planned together.
const isrTogetherMax = 500

func newISRWriter(b *Broker) *isrWriter {
	await := func(ctx context.Context, rev meta.Revision) error { return b.view.await(ctx, rev) }
	return &isrWriter{image: b.Image, await: await, me: b.me, limits: b.limits, commit: b.Commit, work: b.env.background}
}

// change writes one partition's proposal and returns once its outcome is known,
// or known to be unknown (see environment.changeISR).
func (w *isrWriter) change(ctx context.Context, id types.TopicID, number int32, from meta.Revision, isr []meta.ISRMember) error {
	wish := &isrWish{id: id, number: number, from: from, isr: isr, done: make(chan struct{})}
	w.mu.Lock()
	w.waiting = append(w.waiting, wish)
	first := !w.writing
	w.writing = true
	w.mu.Unlock()
	if first {
		clock.Go(ctx, w.work, func() { w.run(ctx) })
	}
	_, _ = clock.Wait(context.WithoutCancel(ctx), clock.Forever, wish.done) // run answers every wish, also when ctx ends
	return wish.err
}

func (w *isrWish) end(err error) {
	w.err = err
	close(w.done)
}

func (w *isrWriter) run(ctx context.Context) {
	for {
		w.mu.Lock()
		n := min(len(w.waiting), isrTogetherMax)
		wishes := w.waiting[:n:n]
		w.waiting = w.waiting[n:]
		w.writing = n > 0
		w.mu.Unlock()
		if n == 0 {
			return
		}
		w.write(ctx, wishes)
	}
}

// write carries wishes out in one transaction, or in several if they exceed its
// limits. A merged plan is refused if a part of it would be: the image then shows
// whose record has changed, and the others are planned anew.
func (w *isrWriter) write(ctx context.Context, wishes []*isrWish) {
	var err error
	for range commitTries {
		var merged []meta.Plan
		if wishes, merged = w.plan(ctx, wishes); len(wishes) == 0 {
			return
		}
		if half := len(wishes) / 2; len(merged) > 1 && half > 0 {
			w.write(ctx, wishes[:half])
			w.write(ctx, wishes[half:])
			return
		}
		if len(wishes) > 1 {
			probeTogether.Reached()
		}
		if _, err = w.commit(ctx, merged[0]); !errors.Is(err, ErrRefused) || errors.Is(err, metastore.ErrUnknownOutcome) {
			break
		}
		probePlannedAnew.Reached()
	}
	if len(wishes) > 1 && errors.Is(err, metastore.ErrUnknownOutcome) {
		probeUnknownOfAll.Reached()
	}
	for _, wish := range wishes {
		wish.end(err)
	}
}

// plan merges the wishes that can be planned from the present image and tells the others why not.
func (w *isrWriter) plan(ctx context.Context, wishes []*isrWish) (left []*isrWish, merged []meta.Plan) {
	var plans []meta.Plan
	for _, wish := range wishes {
		// The shard may know a record before the image that holds it is shown to all.
		if err := w.await(ctx, wish.from); err != nil {
			wish.end(errors.Join(control.ErrRecordChanged, err)) // nothing was sent
			continue
		}
		plan, err := control.ChangeISR(w.image(), wish.id, wish.number, wish.from, wish.isr, w.me())
		if err != nil {
			if len(wishes) > 1 {
				probeSomeRefused.Reached()
			}
			wish.end(err)
			continue
		}
		left, plans = append(left, wish), append(plans, plan)
	}
	return left, control.Split(plans, w.limits())
}
