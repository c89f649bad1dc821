package sim

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"tidemark/internal/batch"
	"tidemark/internal/broker"
	"tidemark/internal/broker/mirror"
	"tidemark/internal/core/meta"
	core "tidemark/internal/core/mirror"
	"tidemark/internal/core/replica"
	"tidemark/internal/core/types"
	"tidemark/internal/log"
)

const (
	startID       = "start-1"
	sourceTimeout = 1500 * time.Millisecond
	longPoll      = 500 * time.Millisecond
)

// copyPart is one mirrored partition of the present process: the production
// partition, the production copier while it is a mirror, and what the copier's
// effects ask for outside the shard.
type copyPart struct {
	n      *standby
	k      *kernel
	id     meta.PartitionID
	tp     types.TopicPartition
	inline *broker.Inline
	step   *mirror.Stepper

	leader int           // the source broker of the last look
	topic  types.TopicID // the source's topic id at the last look
	gone   int           // looks in a row that did not show the topic
	// pending is the fetch that the copier waits for, for the mutation that accepts late answers.
	pending core.Fetch
	// promoting: a promotion is computed or on its way; retryDue: it will be tried again.
	promoting, retryDue bool
	lastStatus          string
}

func (c *copyPart) note(format string, args ...any) {
	c.k.note("standby", "%s %s", c.tp, fmt.Sprintf(format, args...))
}

func (c *copyPart) isOpen() bool {
	_, ok := c.inline.Partition().View()
	return ok
}

func (c *copyPart) record() (*meta.PartitionRecord, meta.Revision) {
	return c.n.image.Partition(c.id.Topic, c.id.Number)
}

// showMirrors has a copier for each partition that is a mirror's, and shows it the record (run.show).
func (n *standby) showMirrors() {
	for _, c := range n.parts {
		if !n.alive() || n.closing {
			return
		}
		rec, _ := c.record()
		if rec == nil || rec.Writable || rec.Mirror == nil {
			c.halt()
			continue
		}
		if c.promoting {
			continue
		}
		if c.step == nil {
			c.newStepper()
		}
		c.feed(nil, nil, nil)
	}
	if n.w.failoverWanted && n.alive() {
		n.promoteAll()
	}
}

func (c *copyPart) newStepper() {
	settings := c.n.cfg.Mirror
	settings.EpochHeadroom = c.n.w.o.Headroom
	settings.GapPolicy = "fail"
	if c.n.w.o.ContinueOverGap {
		settings.GapPolicy = "continue"
	}
	c.step = mirror.NewStepper(mirror.StepperOptions{
		Node: mirrorNode{n: c.n}, Mirror: mirrorName, ID: c.id, Part: c.inline.Mirrored(), Settings: &settings,
		Logger: c.n.log, Metrics: c.n.w.metrics, Rules: c.n.w.mutation.Mirror,
	})
	c.tick(c.step)
}

func (c *copyPart) halt() {
	if c.step != nil {
		c.step.Halt()
		c.step = nil
	}
}

// tick passes time for what has a cadence, and shows the copier a fresh look at
// the source now and then, as a node's metadata refresh does.
func (c *copyPart) tick(s *mirror.Stepper) {
	d := c.k.dice("ticks")
	c.n.after(d.between(3*time.Second, 6*time.Second), "tick", func() {
		if c.step != s {
			return
		}
		c.feed(core.Tick{}, nil, nil)
		if c.step == s && c.n.alive() && d.chance(0.4) {
			c.look(func(src core.Source, _ int) core.Event { return core.Refreshed{Source: src} }, func(core.Reason) core.Event { return nil })
		}
		c.tick(s)
	})
}

// feed gives one event to the copier and starts what it asks for. from is the
// source's answer that the event comes from, for the checkers.
func (c *copyPart) feed(ev core.Event, data []byte, from *answer) {
	s := c.step
	if s == nil || !c.n.alive() || c.n.closing || !c.isOpen() {
		return
	}
	before, _ := c.inline.Partition().View()
	out, err := s.Step(ev, data)
	if !c.n.alive() {
		return
	}
	if err != nil && c.n.dirFault == nil {
		c.note("can't be worked on: %v", err)
	}
	if after, ok := c.inline.Partition().View(); ok && (out.Cut || after.LogStart > before.LogEnd) {
		c.note("cuts: [%d, %d) to [%d, %d), history %v", before.LogStart, before.LogEnd, after.LogStart, after.LogEnd, after.History)
	}
	c.n.w.check.stepped(c, before, out.Cut, ev, from)
	if out.Cut {
		c.n.after(c.k.dice("groups").between(0, 50*time.Millisecond), "groups follow the cut", s.CutFollowed)
	}
	c.tellStatus(s)
	for _, e := range out.Effects {
		c.dispatch(s, e)
	}
}

func (c *copyPart) tellStatus(s *mirror.Stepper) {
	st := s.Status()
	text := st.State
	if st.Reason != "" {
		text += " " + string(st.Reason) + ": " + st.Detail
		c.k.probe("mirror: " + string(st.Reason))
	}
	if text != c.lastStatus {
		c.lastStatus = text
		v, _ := c.inline.Partition().View()
		c.note("is %s; [%d, %d)", text, v.LogStart, v.LogEnd)
	}
}

// dispatch starts what an effect asks for outside the shard (broker/mirror/dispatch.go).
func (c *copyPart) dispatch(s *mirror.Stepper, e core.Effect) {
	give := func(ev core.Event) {
		if c.step == s {
			c.feed(ev, nil, nil)
		}
	}
	switch e := e.(type) {
	case core.LookUp:
		c.look(func(src core.Source, leader int) core.Event {
			c.leader, c.topic = leader, src.TopicID
			return core.SourceShown{Ticket: e.Ticket, Source: src}
		}, func(r core.Reason) core.Event {
			return core.SourceFailed{Ticket: e.Ticket, Reason: r, Detail: "the look failed"}
		})
	case core.Fetch:
		c.fetch(s, e)
	case core.AskVouch:
		c.vouch(s, e)
	case core.Probe:
		c.probeBatch(s, e)
	case mirror.Proposal:
		c.k.probe("mirror: proposes " + e.Purpose.String())
		c.note("proposes %s: epoch %d, %s", e.Purpose, e.Record.LeaderEpoch, e.Record.Mirror.State)
		c.n.write(&change{id: c.id, from: e.From, record: e.Record, done: func(applied bool) {
			c.n.after(c.k.dice("proposed").between(0, time.Millisecond), "proposed", func() { give(core.Proposed{Ticket: e.Ticket, Applied: applied}) })
		}})
	case core.Backoff:
		wait := time.Duration(core.BackoffMax(e.Attempt)) * time.Millisecond
		c.n.after(c.k.dice("backoff").between(0, wait+1), "backoff", func() { give(core.BackoffOver{Ticket: e.Ticket}) })
	case core.Tell:
		c.k.probe("mirror: tells " + string(e.Code))
		c.note("tells %s %s: %s", e.Code, e.Reason, e.Detail)
	case core.StopFetching:
	}
}

// call sends one request to the source; each answer that comes is given to the
// copier, and if none comes in time, a failure.
func (c *copyPart) call(s *mirror.Stepper, what string, serve func(reply func(ev func() core.Event)), lost func() core.Event) {
	life := c.n.life
	here := func(make func() core.Event) {
		if c.n.life != life {
			return
		}
		c.n.run(func() {
			if c.step != s {
				return
			}
			if ev := make(); ev != nil {
				c.feed(ev, nil, nil)
			}
		})
	}
	c.n.w.net.call("standby", "source", what, sourceTimeout, func(reply func(func())) {
		serve(func(ev func() core.Event) { reply(func() { here(ev) }) })
	}, func() { here(lost) })
}

// look is one look at the source (broker/mirror/lookup.go).
func (c *copyPart) look(shown func(core.Source, int) core.Event, failed func(core.Reason) core.Event) {
	d := c.k.dice("look-ups")
	c.call(c.step, "look up", func(reply func(func() core.Event)) {
		src, leader, reason := c.n.w.src.lookUp(c.id.Number, d)
		reply(func() core.Event {
			const goneLooks = 3
			switch {
			case reason == core.SourceTopicGone:
				if c.gone++; c.gone < goneLooks {
					return failed(core.SourceLeaderMoved)
				}
				return failed(core.SourceTopicGone)
			case reason != "":
				return failed(reason)
			}
			c.gone = 0
			return shown(src, leader)
		})
	}, func() core.Event { return failed(core.SourceUnreachable) })
}

// fetch sends one fetch; the source holds it while it has nothing new.
func (c *copyPart) fetch(s *mirror.Stepper, e core.Fetch) {
	c.pending = e
	broker, topic, maxBytes := c.leader, c.topic, c.n.w.o.FetchBytes
	if e.Peek || c.k.buggified("small fetch") {
		maxBytes = 1
	}
	life, d := c.n.life, c.k.dice("corrupt answers")
	corrupt := !c.n.w.net.calm && d.chance(c.n.w.o.CorruptAnswer)
	v, _ := c.inline.Partition().View()
	c.n.w.net.call("standby", "source", "fetch", sourceTimeout, func(reply func(func())) {
		answer := func() {
			a := c.n.w.sourcePart(c.id.Number).fetch(broker, topic, e.Request, maxBytes)
			if corrupt {
				a.damage(d)
			}
			reply(func() {
				if c.n.life == life {
					c.n.run(func() { c.answered(s, e, &a) })
				}
			})
		}
		p := c.n.w.sourcePart(c.id.Number)
		a := p.fetch(broker, topic, e.Request, maxBytes)
		if a.failed == "" && a.kind == replica.AnswerData && len(a.records) == 0 && !e.Peek && a.start <= v.LogStart && a.hw <= v.HighWatermark {
			p.wait(longPoll, answer)
			return
		}
		answer()
	}, func() {
		if c.n.life == life && c.step == s {
			c.n.run(func() {
				c.feed(core.SourceFailed{Ticket: e.Ticket, Reason: core.SourceUnreachable, Detail: "timed out"}, nil, nil)
			})
		}
	})
}

// damage turns over one bit of the first batch that its checksum covers.
func (a *answer) damage(d dice) {
	const covered = 21 // offset of the attributes in a batch
	h, err := batch.ParseHeader(a.records)
	if err != nil || h.Size() > len(a.records) {
		return
	}
	a.records = slices.Clone(a.records)
	a.records[covered+d.IntN(h.Size()-covered)] ^= 1 << d.IntN(8)
	a.damaged = true
}

// answered turns an answer into the copier's event (fetcher.answer).
func (c *copyPart) answered(s *mirror.Stepper, e core.Fetch, a *answer) {
	if c.step != s {
		return
	}
	if e.Ticket != c.pending.Ticket {
		c.k.probe("mirror: late answer")
		if c.n.w.mutation.AcceptLate && !c.pending.Peek && !e.Peek {
			// As if nobody compared tickets, sessions and offsets (R13).
			e.Ticket, e.Request = c.pending.Ticket, c.pending.Request
		}
	}
	if a.failed != "" {
		c.feed(core.SourceFailed{Ticket: e.Ticket, Reason: a.failed, Detail: "the source answered that its leader moved"}, nil, nil)
		return
	}
	r := replica.Reply{To: e.Request, Kind: a.kind, LogStart: a.start, HighWatermark: a.hw, Diverging: replica.EpochEnd{Epoch: a.diverging.epoch, End: a.diverging.start}}
	switch a.kind {
	case replica.AnswerOutOfRange:
		r.LogStart, r.HighWatermark = types.NoOffset, types.NoOffset
	case replica.AnswerDiverging:
		c.k.probe("mirror: divergence")
		c.note("is told that epoch %d ends at %d (asked at %d, last epoch %d, leader epoch %d)",
			a.diverging.epoch, a.diverging.start, e.Request.Offset, e.Request.LastEpoch, e.Request.LeaderEpoch)
	case replica.AnswerFenced, replica.AnswerUnknownEpoch:
		c.k.probe("mirror: " + a.kind.String())
	}
	ev, data := s.WithRecords(e, r, a.records)
	c.feed(ev, data, a)
}

// vouch asks whether the source's history reaches down to an epoch (R28).
func (c *copyPart) vouch(s *mirror.Stepper, e core.AskVouch) {
	c.k.probe("mirror: asks to vouch")
	c.call(s, "vouch", func(reply func(func() core.Event)) {
		yes := c.n.w.sourcePart(c.id.Number).vouches(e.Epoch, e.Offset)
		reply(func() core.Event { return core.Vouched{Ticket: e.Ticket, Yes: yes} })
	}, func() core.Event {
		return core.SourceFailed{Ticket: e.Ticket, Reason: core.SourceUnreachable, Detail: "timed out"}
	})
}

// probeBatch compares the last own batch with the source's (broker/mirror/probe.go).
func (c *copyPart) probeBatch(s *mirror.Stepper, e core.Probe) {
	fail := func(why string) core.Event {
		return core.SourceFailed{Ticket: e.Ticket, Reason: core.SourceUnreachable, Detail: why}
	}
	own, h, ok, err := s.LastBatchBelow(e.Below)
	if err != nil || !ok {
		c.n.after(0, "probe", func() {
			if c.step == s {
				c.feed(core.Probed{Ticket: e.Ticket, Result: core.ProbeMissing}, nil, nil)
			}
		})
		return
	}
	broker := c.leader
	c.call(s, "probe", func(reply func(func() core.Event)) {
		a, found := c.n.w.sourcePart(c.id.Number).batchesAt(broker, e.LeaderEpoch, h.BaseOffset, len(own)+64<<10)
		reply(func() core.Event {
			p := core.Probed{Ticket: e.Ticket, Base: h.BaseOffset, Last: h.LastOffset(), Result: core.ProbeMissing}
			switch {
			case a.failed != "" || !found && a.kind != replica.AnswerOutOfRange:
				return fail("the source's leader moved")
			case !found:
				return p
			}
			r, err := s.Compare(own, h, a.records, c.n.w.o.Compacted)
			if err != nil {
				return fail(err.Error())
			}
			p.Result = r
			return p
		})
	}, func() core.Event { return fail("timed out") })
}

// chores of one partition: retention, flush.ms (broker/schedule.go).
func (c *copyPart) chores(d dice) {
	if !c.isOpen() {
		return
	}
	flush := c.k.now > 0 && d.chance(min(1, float64(time.Second)/float64(c.n.w.o.FlushEvery)))
	retain := d.chance(0.3)
	if err := c.inline.PrepareAgain(); err != nil && c.n.alive() {
		c.note("still can't be served: %v", err)
	}
	if !c.isOpen() {
		return
	}
	if !c.n.alive() {
		return
	}
	c.n.w.check.shown(c)
	before, _ := c.inline.Partition().View()
	err := c.inline.Partition().Do(background, func(o *broker.Owned) error {
		if flush {
			if err := o.Log().Flush(); err != nil {
				return err
			}
		}
		if retain {
			_, err := o.Log().EnforceRetention(c.n.clock.now())
			return err
		}
		return nil
	})
	if err != nil && c.n.alive() && !errors.Is(err, log.ErrNoSpace) {
		c.note("chores: %v", err)
	}
	if c.n.alive() {
		c.n.w.check.chored(c, before)
	}
}
