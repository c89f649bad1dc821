package sim

import (
	"time"

	core "tidemark/internal/core/mirror"
	"tidemark/internal/core/replica"
	"tidemark/internal/core/types"
)

// answer is what a source broker says to a fetch, before it is the product's event.
type answer struct {
	failed    core.Reason // not empty: no answer of the partition
	kind      replica.AnswerKind
	diverging epochStart
	start, hw types.Offset
	records   []byte
	// tail is the end of the leader's path at that moment, for the checkers.
	tail    *batchNode
	damaged bool
}

// lookUp gives what a client's look at the source shows, and the broker that it
// would fetch from. Sometimes that is a broker that doesn't know yet that it was
// deposed, or metadata that lags: the look is then of an older epoch.
func (s *source) lookUp(number int32, d dice) (core.Source, int, core.Reason) {
	if !s.exist || int(number) >= len(s.parts) {
		return core.Source{}, -1, core.SourceTopicGone
	}
	p := s.parts[number]
	r := p.lead()
	for _, z := range p.replicas {
		if z != r && z.leads >= 0 && !s.down[z.broker] && d.chance(0.3) {
			s.k.probe("source: look at a deposed leader")
			r = z
			break
		}
	}
	if r == nil || s.down[r.broker] {
		return core.Source{}, -1, core.SourceLeaderMoved
	}
	return core.Source{
		ClusterID: s.id, TopicID: s.topic, LeaderEpoch: r.leads, LogStart: r.start, LogEnd: max(r.start, r.hw),
		LastEpoch: types.NoLeaderEpoch,
	}, r.broker, ""
}

// fetch answers a fetch as Kafka does (KafkaApis, Partition.fetchRecords).
func (p *srcPartition) fetch(broker int, topic types.TopicID, req replica.Request, maxBytes int) answer {
	if !p.s.exist || topic != p.s.topic {
		return answer{failed: core.SourceLeaderMoved} // UNKNOWN_TOPIC_ID
	}
	r := p.replicas[broker]
	a := answer{start: r.start, hw: r.hw, tail: r.tail}
	switch {
	case r.leads < 0:
		a.failed = core.SourceLeaderMoved // NOT_LEADER_OR_FOLLOWER
		return a
	case req.LeaderEpoch >= 0 && req.LeaderEpoch < r.leads:
		a.kind = replica.AnswerFenced
		return a
	case req.LeaderEpoch > r.leads:
		a.kind = replica.AnswerUnknownEpoch
		return a
	case req.Offset < r.start:
		a.kind = replica.AnswerOutOfRange
		return a
	}
	if req.LastEpoch >= 0 {
		e, end, ok := r.epochEnd(req.LastEpoch)
		switch {
		case !ok:
			a.kind = replica.AnswerOutOfRange
			return a
		case e < req.LastEpoch || end < req.Offset:
			a.kind, a.diverging = replica.AnswerDiverging, epochStart{e, end}
			return a
		}
	}
	if req.Offset > r.end {
		a.kind = replica.AnswerOutOfRange
		return a
	}
	for _, b := range r.batches {
		if b.next <= req.Offset || b.next > r.hw {
			continue
		}
		if len(a.records) > 0 && len(a.records)+len(b.raw) > maxBytes {
			// A byte limit cuts a batch in two, as Kafka's file ranges do.
			a.records = append(a.records, b.raw[:min(len(b.raw), max(0, maxBytes-len(a.records)))]...)
			break
		}
		a.records = append(a.records, b.raw...)
	}
	return a
}

// epochEnd is Kafka's LeaderEpochFileCache.endOffsetFor; not ok: undefined.
func (r *srcReplica) epochEnd(asked types.LeaderEpoch) (types.LeaderEpoch, types.Offset, bool) {
	n := len(r.history)
	if n == 0 {
		return 0, 0, false
	}
	if last := r.history[n-1]; asked == last.epoch {
		return asked, r.end, true
	} else if asked > last.epoch {
		return 0, 0, false
	}
	if asked < r.history[0].epoch {
		return asked, r.history[0].start, true
	}
	for i := n - 2; i >= 0; i-- {
		if r.history[i].epoch <= asked {
			return r.history[i].epoch, r.history[i+1].start, true
		}
	}
	return 0, 0, false
}

// vouches answers AskVouch as two OffsetForLeaderEpoch requests would.
func (p *srcPartition) vouches(e types.LeaderEpoch, o types.Offset) bool {
	r := p.lead()
	if r == nil {
		return false
	}
	if got, end, ok := r.epochEnd(e); ok && got == e && end > o {
		return true
	}
	got, _, ok := r.epochEnd(e + 1)
	return ok && got == e
}

// wait calls f at the next change of the partition, or after d.
func (p *srcPartition) wait(d time.Duration, f func()) {
	done := false
	once := func() {
		if !done {
			done = true
			f()
		}
	}
	p.waiting = append(p.waiting, once)
	p.s.k.after(d, "long poll ends", once)
}

// batchesAt gives the bytes from an offset on, for a probe; ok is false if the
// source has nothing there any more.
func (p *srcPartition) batchesAt(broker int, epoch types.LeaderEpoch, o types.Offset, maxBytes int) (answer, bool) {
	a := p.fetch(broker, p.s.topic, replica.Request{Offset: o, LastEpoch: types.NoLeaderEpoch, LeaderEpoch: epoch}, maxBytes)
	return a, a.kind == replica.AnswerData
}
