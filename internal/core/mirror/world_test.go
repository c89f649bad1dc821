package mirror

import (
	"fmt"
	"slices"
	"strings"

	"tidemark/internal/core/meta"
	"tidemark/internal/core/modellog"
	"tidemark/internal/core/replica"
	"tidemark/internal/core/timeline"
	"tidemark/internal/core/types"
)

func view(l *modellog.Log) replica.Log {
	return replica.Log{LogStart: l.Start, LogEnd: l.End, HighWatermark: l.HighWatermark, History: l.History.Clone()}
}

// modelSource is the source cluster's partition as its leader answers it.
type modelSource struct {
	modellog.Log
	cluster   string
	topic     types.TopicID
	epoch     types.LeaderEpoch
	timelines timeline.List // nil: plain Kafka
	isMirror  bool
	path      []string
	down      bool
	limited   bool // it gives records below upto only
	upto      types.Offset
}

// elect makes a leader of the next epoch whose log ends at end: below the present end it is an unclean election.
func (s *modelSource) elect(e types.LeaderEpoch, end types.Offset) {
	s.Cut(end)
	s.epoch = e
	s.Lead(e)
}

func (s *modelSource) look() Source {
	v := view(&s.Log)
	last, _ := v.LastEpoch()
	return Source{ClusterID: s.cluster, TopicID: s.topic, LeaderEpoch: s.epoch, LogStart: s.Start, LogEnd: s.End,
		Timelines: s.timelines, IsMirror: s.isMirror, LastEpoch: last, Path: s.path}
}

// answer is the reply to a fetch as H2's log and R5 give it, at most most records.
func (s *modelSource) answer(r replica.Request, most int) (replica.Reply, []modellog.Record) {
	v := view(&s.Log)
	a := replica.AnswerRequest(&v, s.epoch, r)
	reply := replica.Reply{To: r, Kind: a.Kind, Diverging: a.Diverging, LogStart: s.Start, HighWatermark: s.End}
	if a.Kind == replica.AnswerOutOfRange {
		reply.LogStart = types.NoOffset // as Kafka
	}
	if a.Kind != replica.AnswerData {
		return reply, nil
	}
	i := s.Index(r.Offset)
	sent := s.Records[i:min(len(s.Records), i+most)]
	if s.limited {
		sent = sent[:max(0, min(len(sent), s.Index(s.upto)-i))]
	}
	for _, r := range sent {
		reply.Batches = append(reply.Batches, replica.Batch{Base: r.Offset, Next: r.Offset + 1, Epoch: r.Epoch})
	}
	return reply, slices.Clone(sent)
}

// vaulted is what one cut sent to the vault.
type vaulted struct {
	cause   Cause
	records []modellog.Record
}

// world is one source, one mirrored partition on one broker, and the driver between them.
type world struct {
	source  modelSource
	own     modellog.Log
	point   timeline.Checkpoint
	hasPt   bool
	cleaned types.Offset // how far the own log is compacted
	rec     meta.PartitionRecord
	fetched bool // AllFetched
	machine *Partition
	policy  Policy

	now     types.Millis
	vault   []vaulted
	pending []Effect          // asking effects not answered yet
	reply   []modellog.Record // of the fetch being answered
	replyOf Ticket
	batch   int // records per fetch

	refuse   int    // proposals to refuse
	failLog  Reason // the next log group fails with it
	probeLie bool   // the next probe reports a difference
	forgot   bool   // since the last append the record forgot what was given up (R28)
	script   strings.Builder
	problem  error
	steps    int
	onFetch  func(replica.Reply) error // looks at every accepted fetch
	onCut    func(Effect)              // looks at every log effect before it is carried out
}

func newWorld(p Policy) *world {
	w := &world{policy: p, batch: 3, fetched: true, machine: New(p)}
	w.source = modelSource{cluster: "A", topic: p.TopicID, epoch: 1}
	w.source.Lead(1)
	w.rec = meta.PartitionRecord{Replicas: []types.BrokerID{p.Me}, ISR: []meta.ISRMember{{ID: p.Me, BrokerEpoch: p.BrokerEpoch}},
		Leader: p.Me, LeaderBrokerEpoch: p.BrokerEpoch, MinISR: 1, Mirror: NewMirrored("standby", "s1")}
	return w
}

func (w *world) view() *Own {
	return &Own{Log: view(&w.own), Checkpoint: w.point, HasCheckpoint: w.hasPt, Cleaned: w.cleaned}
}

// step gives one event to the machine and carries the effects out, as far as
// they need no answer from elsewhere.
func (w *world) step(ev Event) {
	var out Effects
	w.machine.Step(w.now, w.view(), ev, &out)
	for i := 0; i < len(out.List); i++ {
		if t, isLog := ticketOfLog(out.List[i]); isLog {
			n := i
			for n < len(out.List) {
				if _, ok := ticketOfLog(out.List[n]); !ok {
					break
				}
				n++
			}
			group := out.List[i:n]
			i = n - 1
			w.pending = append(w.pending, w.carryOut(t, group))
			continue
		}
		w.note(out.List[i])
		switch e := out.List[i].(type) {
		case Tell, StopFetching:
		default:
			w.pending = append(w.pending, e)
		}
	}
}

// done stands for a log group that was carried out; its answer is still to come.
type done struct {
	ticket Ticket
	failed Reason
}

func (done) isEffect() {}

func ticketOfLog(e Effect) (Ticket, bool) {
	switch e := e.(type) {
	case Cut:
		return e.Ticket, true
	case Restart:
		return e.Ticket, true
	case RaiseLogStart:
		return e.Ticket, true
	case SetCheckpoint:
		return e.Ticket, true
	case Append:
		return e.Ticket, true
	}
	return 0, false
}

func (w *world) carryOut(t Ticket, group []Effect) Effect {
	for _, e := range group {
		w.note(e)
		if w.failLog != "" {
			r := w.failLog
			w.failLog = ""
			return done{t, r}
		}
		if w.onCut != nil {
			w.onCut(e)
		}
		switch e := e.(type) {
		case Cut:
			w.keep(e.Cause, w.own.Cut(e.At))
			w.cleaned = min(w.cleaned, e.At)
		case Restart:
			w.keep(e.Cause, w.own.Restart(e.At))
			w.cleaned = min(w.cleaned, e.At)
		case RaiseLogStart:
			gone := w.own.RaiseStart(e.At, false)
			if !e.Vouched {
				w.keep(CauseLogStart, gone)
			}
		case SetCheckpoint:
			w.point, w.hasPt = e.Checkpoint, true
		case Append:
			w.forgot = false
			for _, r := range w.reply[:e.Batches] {
				if r.Epoch > e.MaxEpoch {
					w.fail("batch of epoch %d appended above %d", r.Epoch, e.MaxEpoch)
				}
				w.own.Append(r)
			}
			w.own.HighWatermark = w.own.End
		}
	}
	return done{t, ""}
}

func (w *world) keep(c Cause, gone []modellog.Record) {
	if len(gone) > 0 {
		w.vault = append(w.vault, vaulted{c, gone})
	}
}

func (w *world) fail(format string, args ...any) {
	if w.problem == nil {
		w.problem = fmt.Errorf(format, args...)
	}
}

// show gives the present record to the machine.
func (w *world) show() {
	rec := w.rec.Clone()
	w.step(RecordShown{Record: &rec, Leading: true, AllFetched: w.fetched})
}

// answerNext answers the oldest question. It reports false if there is none, or
// if it is a fetch for which the source has nothing new.
func (w *world) answerNext(idleToo bool) bool {
	if len(w.pending) == 0 {
		return false
	}
	e := w.pending[0]
	if f, ok := e.(Fetch); ok && !f.Peek && !idleToo && w.isIdle(f) {
		if f.Ticket == w.machine.ticket {
			return false
		}
		w.pending = w.pending[1:] // overtaken: nobody waits for it
		return w.answerNext(idleToo)
	}
	w.pending = w.pending[1:]
	w.now++
	w.steps++
	switch e := e.(type) {
	case LookUp:
		if w.source.down {
			w.step(SourceFailed{Ticket: e.Ticket, Reason: SourceUnreachable, Detail: "connection refused"})
			break
		}
		w.step(SourceShown{Ticket: e.Ticket, Source: w.source.look()})
	case Fetch:
		w.answerFetch(e)
	case AskVouch:
		v := view(&w.source.Log)
		a := replica.AnswerRequest(&v, w.source.epoch, replica.Request{Offset: e.Offset, LastEpoch: e.Epoch, LeaderEpoch: -1})
		w.step(Vouched{Ticket: e.Ticket, Yes: a.Vouched})
	case Probe:
		w.step(w.probe(e))
	case Propose:
		w.commit(e)
	case Backoff:
		w.now += BackoffMax(e.Attempt)
		w.step(BackoffOver{Ticket: e.Ticket})
	case done:
		if e.failed != "" {
			w.step(LogFailed{Ticket: e.ticket, Reason: e.failed, Detail: "as told"})
			break
		}
		w.step(LogDone{Ticket: e.ticket})
	}
	return true
}

// isIdle: the source would only hold the fetch.
func (w *world) isIdle(f Fetch) bool {
	if w.source.down {
		return false
	}
	reply, _ := w.source.answer(f.Request, 1)
	return reply.Kind == replica.AnswerData && len(reply.Batches) == 0 && reply.LogStart <= w.own.Start
}

func (w *world) answerFetch(e Fetch) {
	if w.source.down {
		w.step(SourceFailed{Ticket: e.Ticket, Reason: SourceUnreachable, Detail: "connection reset"})
		return
	}
	reply, sent := w.source.answer(e.Request, w.batch)
	w.deliver(e, reply, sent)
}

func (w *world) deliver(e Fetch, reply replica.Reply, sent []modellog.Record) {
	w.reply, w.replyOf = sent, e.Ticket
	before := w.own.End
	w.step(Fetched{Ticket: e.Ticket, Reply: reply, Bytes: 100 * len(sent), SourceEnd: w.source.End})
	if w.own.End > before && w.onFetch != nil {
		if err := w.onFetch(reply); err != nil {
			w.fail("%v", err)
		}
	}
}

// probe compares the last own record below with the source's.
func (w *world) probe(e Probe) Probed {
	i := w.own.Index(e.Below)
	if i == 0 {
		return Probed{Ticket: e.Ticket, Result: ProbeMissing}
	}
	ours := w.own.Records[i-1]
	p := Probed{Ticket: e.Ticket, Base: ours.Offset, Last: ours.Offset}
	theirs, ok := w.source.At(ours.Offset)
	switch {
	case w.probeLie:
		w.probeLie, p.Result = false, ProbeDifferent
	case !ok:
		p.Result = ProbeMissing
	case theirs != ours:
		p.Result = ProbeDifferent
	}
	return p
}

func (w *world) commit(e Propose) {
	if w.refuse > 0 {
		w.refuse--
		w.show()
		w.step(Proposed{Ticket: e.Ticket, Applied: false})
		return
	}
	w.forgot = w.forgot || w.rec.Mirror.GivenUpFrom != nil && e.Purpose == ForSeen
	w.rec = e.Record.Clone()
	w.show()
	w.step(Proposed{Ticket: e.Ticket, Applied: true})
}

// settle answers until nothing moves by itself, or a backoff is all that is left
// if stopAtBackoff. It reports whether it settled within bound.
func (w *world) settle(bound int, stopAtBackoff bool) bool {
	for range bound {
		if len(w.pending) > 0 && stopAtBackoff {
			if b, ok := w.pending[0].(Backoff); ok && b.Ticket == w.machine.ticket {
				return true
			}
		}
		if w.problem != nil || !w.answerNext(false) {
			return true
		}
	}
	return false
}

// note writes one effect into the script's output.
func (w *world) note(e Effect) {
	f := func(format string, args ...any) { fmt.Fprintf(&w.script, format+"\n", args...) }
	switch e := e.(type) {
	case LookUp:
		f("look up")
	case Fetch:
		kind := "fetch"
		if e.Peek {
			kind = "peek"
		}
		f("%s offset %d, last epoch %d, leader epoch %d", kind, e.Request.Offset, e.Request.LastEpoch, e.Request.LeaderEpoch)
	case AskVouch:
		f("ask whether the source's history reaches epoch %d", e.Epoch)
	case Probe:
		f("probe below %d", e.Below)
	case Propose:
		f("propose %s: %s", e.Purpose, describe(&e.Record))
	case Cut:
		f("cut at %d (%s)", e.At, e.Cause)
	case Restart:
		f("restart at %d (%s)", e.At, e.Cause)
	case RaiseLogStart:
		f("log start %d, vouched %v", e.At, e.Vouched)
	case SetCheckpoint:
		f("checkpoint %s of epoch %d", describeList(e.Checkpoint.List), e.Checkpoint.LeaderEpoch)
	case Append:
		f("append %d batches, epochs up to %d", e.Batches, e.MaxEpoch)
	case Backoff:
		f("back off, attempt %d (%s)", e.Attempt, e.Reason)
	case StopFetching:
		f("stop fetching")
	case Tell:
		f("tell %s%s: %s", e.Code, spaced(string(e.Reason)), e.Detail)
	}
}

func spaced(s string) string {
	if s == "" {
		return ""
	}
	return " " + s
}

func describeList(l timeline.List) string {
	var words []string
	for _, e := range l {
		id := e.ID
		if strings.HasPrefix(id, "derived-") {
			id = "derived"
		}
		words = append(words, fmt.Sprintf("(%s,%d,%d)", id, e.FirstEpoch, e.FirstOffset))
	}
	return strings.Join(words, "")
}

func describe(r *meta.PartitionRecord) string {
	mode := "read-only"
	if r.Writable {
		mode = "writable"
	}
	s := fmt.Sprintf("epoch %d, %s, list %s, ISR %d", r.LeaderEpoch, mode, describeList(r.Timelines), len(r.ISR))
	if r.Mirror != nil {
		s += ", " + r.Mirror.State
		if r.Mirror.Reason != "" {
			s += " " + r.Mirror.Reason
		}
	}
	return s
}
