package mirror

import (
	"errors"

	core "tidemark/internal/core/mirror"
	"tidemark/internal/source"
)

// dispatch starts what an effect asks for outside the shard. seq orders the
// steps of the copier: the dispatches of two steps may overtake each other.
func (c *copier) dispatch(e core.Effect, seq uint64) {
	r := c.run
	switch e := e.(type) {
	case core.LookUp:
		r.looks.ask(c, e.Ticket)
	case core.Fetch:
		r.fetch(c, e, seq)
	case core.StopFetching:
		r.stopFetching(c, seq)
	case core.AskVouch:
		r.spawn(func() { r.vouch(c, e) })
	case core.Probe:
		r.spawn(func() { r.probe(c, e) })
	case proposal:
		r.m.writer.submit(c, e)
	case core.Backoff:
		r.after(r.backoff(e.Attempt), func() { c.step(core.BackoffOver{Ticket: e.Ticket}, nil) })
	case core.Tell:
		c.tell(e)
	}
}

// tell passes on what the machine tells the operator. A cut's own event, with the
// vault's id, comes from where it was made.
func (c *copier) tell(e core.Tell) {
	m := c.run.m
	switch e.Code {
	case core.EpochFencing:
		m.o.Metrics.Mirror.EpochRaises.WithLabelValues(c.run.name).Inc()
	case core.Failed:
		m.o.Metrics.Mirror.Failures.WithLabelValues(c.run.name, string(e.Reason)).Inc()
	}
	text := c.tp.String() + ": " + string(e.Code)
	if e.Reason != "" {
		text += " (" + string(e.Reason) + ")"
	}
	if e.Detail != "" {
		text += ": " + e.Detail
	}
	m.events.add(m.log, Event{
		At: c.now(), Mirror: c.run.name, Kind: string(e.Code), Topic: c.tp.Topic, Partition: c.tp.Partition,
		From: e.From, To: e.To, Records: int64(e.To - e.From), Message: text,
	})
}

// failure turns an error of the source client into the machine's event.
func failure(t core.Ticket, err error) core.SourceFailed {
	return core.SourceFailed{Ticket: t, Reason: reasonOf(err), Detail: err.Error()}
}

// reasonOf says which of the machine's reasons an error of the source client is.
func reasonOf(err error) core.Reason {
	switch {
	case errors.Is(err, source.ErrAuth), errors.Is(err, source.ErrTLS):
		return core.SourceAuth
	case errors.Is(err, source.ErrTooOld):
		return core.SourceTooOld
	case errors.Is(err, source.ErrOtherCluster):
		return core.OtherCluster
	case errors.Is(err, source.ErrProtocol):
		return core.CorruptSource
	default:
		return core.SourceUnreachable
	}
}

// reasonOfCode says which of the machine's reasons a partition's error code is.
func reasonOfCode(code source.Code) core.Reason {
	switch code {
	case source.CodeCorruptMessage:
		return core.CorruptSource
	case source.CodeTopicAuthorizationFailed, source.CodeClusterAuthFailed:
		return core.SourceAuth
	default:
		return core.SourceLeaderMoved
	}
}
