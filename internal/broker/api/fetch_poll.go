package api

import (
	"time"

	"tidemark/internal/clock"
)

// poll reads what is there, and waits for more until the request is satisfied.
//
// Each round looks at the partitions in the queue only: at first all that the
// request names (in a session: those with something new), afterwards those that
// moved. The image of a round is taken after the wait before it: a woken
// request starts anew (R9).
func (f *fetchCall) poll() {
	for _, p := range f.parts {
		f.look(p)
	}
	f.round()
	for waiting := false; !f.satisfied(); waiting = true {
		if !waiting && f.session == nil {
			f.watch()
			continue
		}
		if f.news {
			f.deadline, f.news = earlier(f.deadline, clock.Now(f.Ctx).Add(newsPatience)), false
		}
		if !f.wait() {
			return
		}
		f.Image = f.Call.Server.Image()
		f.round()
	}
}

// newsPatience is how long a follower's fetch that has no records, but news of a
// high watermark, a log start or a partition new in the session, waits for records to
// go with it. Without the wait each write of a lone producer would cost a second answer.
const newsPatience = 5 * time.Millisecond

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// round looks at the partitions that wait in the queue now, up to the point
// where the answer is full: what is left waits for the next request. What this one
// names is looked at all the same, without records: a client takes what an incremental
// answer leaves out for what agrees with it and has nothing new (R5, KIP-227).
func (f *fetchCall) round() {
	for range f.queue.size() {
		if f.bytes > 0 && f.bytes >= f.maxBytes {
			for _, p := range f.queue.takeAsked() {
				f.look(p)
			}
			return
		}
		p := f.queue.next()
		if p == nil {
			return
		}
		if !p.forgotten {
			f.look(p)
		}
	}
}

// satisfied reports whether the answer goes out now.
func (f *fetchCall) satisfied() bool {
	return f.urgent || f.bytes >= f.minBytes || f.deadline.IsZero() || f.empty()
}

// empty reports whether the request names no partition at all: there is
// nothing to wait for.
func (f *fetchCall) empty() bool {
	return f.full && len(f.parts) == 0
}

// watch subscribes a request without session to its partitions, and looks at
// them again: they may have moved before.
func (f *fetchCall) watch() {
	for _, p := range f.parts {
		if p.part != nil {
			p.subscribe(f.queue)
		}
	}
	for _, p := range f.parts {
		f.look(p)
	}
}

// wait blocks until a partition moves (true), or it is time to answer (false).
func (f *fetchCall) wait() bool {
	left := f.deadline.Sub(clock.Now(f.Ctx))
	if left <= 0 {
		return false
	}
	var interrupt <-chan struct{}
	if f.session != nil {
		interrupt = f.session.interrupted()
	}
	which, err := clock.WaitAny(f.Ctx, left, f.queue.wake, f.draining, interrupt)
	return err == nil && which == 0
}
