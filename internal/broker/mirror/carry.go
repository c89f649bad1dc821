package mirror

import (
	"errors"
	"fmt"

	"tidemark/internal/batch"
	"tidemark/internal/core/meta"
	core "tidemark/internal/core/mirror"
	"tidemark/internal/core/types"
	"tidemark/internal/log"
	"tidemark/internal/vault"
)

// carry carries out the log effects of one step on the shard, puts the others
// aside for later, and gives the event that answers the log effects, if there were any.
func (c *copier) carry(o Owned, list []core.Effect) core.Event {
	var group []core.Effect
	var ticket core.Ticket
	for _, e := range list {
		switch e := e.(type) {
		case core.Cut:
			group, ticket = append(group, e), e.Ticket
		case core.Restart:
			group, ticket = append(group, e), e.Ticket
		case core.RaiseLogStart:
			group, ticket = append(group, e), e.Ticket
		case core.SetCheckpoint:
			group, ticket = append(group, e), e.Ticket
		case core.Append:
			group, ticket = append(group, e), e.Ticket
		case core.Propose:
			if e.Purpose == core.ForRealign {
				c.realigning, c.realignTicket = true, e.Ticket
				c.hold(o)
			}
			c.deferred = append(c.deferred, proposal{e, c.revision})
		case core.Fetch:
			if !e.Peek { // the logs agree: no cut is owed
				c.owing = false
			}
			c.deferred = append(c.deferred, e)
		default:
			c.deferred = append(c.deferred, e)
		}
	}
	if len(group) == 0 {
		return nil
	}
	for i, e := range group {
		err := c.onLog(o, e, checkpointAfter(group[i+1:]))
		if cuts(e) && err != nil {
			// R20's transaction covers the next try as well: until then nobody reads
			// what is to go in its leader epoch (R29: serves nothing).
			c.owing = true
			c.hold(o)
		}
		if err != nil {
			return core.LogFailed{Ticket: ticket, Reason: reasonOfLog(err), Detail: err.Error()}
		}
	}
	return core.LogDone{Ticket: ticket}
}

// cuts reports whether an effect is the second cut.
func cuts(e core.Effect) bool {
	switch e := e.(type) {
	case core.Cut:
		return e.Cause != core.CauseTimeline
	case core.Restart:
		return true
	}
	return false
}

// proposal is a Propose with the revision of the record that it was made from.
type proposal struct {
	core.Propose
	from meta.Revision
}

// checkpointAfter is the timeline checkpoint that a cut makes true (R1 step 6), nil if none follows.
func checkpointAfter(rest []core.Effect) []byte {
	for _, e := range rest {
		if s, ok := e.(core.SetCheckpoint); ok {
			return s.Checkpoint.Format()
		}
	}
	return nil
}

// onLog carries out one log effect.
func (c *copier) onLog(o Owned, e core.Effect, checkpoint []byte) error {
	before := o.Log().View()
	switch e := e.(type) {
	case core.Cut:
		reason := log.CutReason{Cause: log.Cause(e.Cause), Order: log.OrderedBySource, Note: c.note(e), LeaderHighWatermark: types.NoOffset}
		if e.Cause == core.CauseTimeline {
			reason.Timelines = checkpoint
		}
		if c.rules.CheckpointBeforeCut && checkpoint != nil {
			if err := o.Log().SetTimelineCheckpoint(checkpoint); err != nil {
				return err
			}
		}
		if e.MayDrop {
			reason.LeaderHighWatermark = e.At
		}
		r, err := o.Log().Cut(e.At, reason)
		o.Refresh() // before an append: followers' positions are lowered with the log (R1)
		c.tellCut(o, before, r, reason.Cause, err)
		return err
	case core.Restart:
		reason := log.CutReason{Cause: log.Cause(e.Cause), Order: log.OrderedBySource, Note: "mirror " + c.run.name + ": whole log", LeaderHighWatermark: types.NoOffset}
		r, err := o.Log().Restart(e.At, reason)
		o.Refresh()
		c.tellCut(o, before, r, reason.Cause, err)
		return err
	case core.RaiseLogStart:
		reason := log.CutReason{Cause: log.CauseLogStart, Order: log.OrderedBySource, Note: "mirror " + c.run.name + ": the source's log start", LeaderHighWatermark: types.NoOffset}
		r, err := o.Log().RaiseLogStart(e.At, e.Vouched, reason)
		if err == nil && r.KeptID != "" {
			c.tellCut(o, before, r, reason.Cause, nil)
		}
		return err
	case core.SetCheckpoint:
		return o.Log().SetTimelineCheckpoint(e.Checkpoint.Format())
	case core.Append:
		return c.append(o, e)
	}
	return nil
}

func (c *copier) note(e core.Cut) string {
	note := fmt.Sprintf("mirror %s: the source's epoch %d ends at %d", c.run.name, e.SourceEpoch, e.SourceEnd)
	if e.Cause == core.CauseTimeline {
		note = "mirror " + c.run.name + ": first cut"
	}
	if e.Anew {
		note += "; compaction here had reached above: the whole log is copied anew"
	}
	return note
}

// tellCut notes a cut: events and metrics, and that group offsets are to follow.
func (c *copier) tellCut(o Owned, before log.View, r log.CutResult, cause log.Cause, err error) {
	if err != nil {
		return
	}
	if r.LogEnd < before.LogEnd {
		o.CutMade()
		c.run.m.unprove(c.id, r.LogEnd)
		c.sights.forget()
	}
	if r.From == r.To {
		return
	}
	n := int64(r.To - r.From)
	c.run.m.o.Metrics.Mirror.Cuts.WithLabelValues(c.run.name, string(cause)).Inc()
	c.run.m.o.Metrics.Log.CutRecords.WithLabelValues(string(cause), string(log.OrderedBySource)).Add(float64(n))
	message := fmt.Sprintf("%s: %d offsets (%d to %d) were cut because of %s, %s; vault entry %s", c.tp, n, r.From, r.To-1, cause, orderText(log.OrderedBySource), orNone(r.KeptID))
	if len(r.LostTransactions) > 0 {
		message += fmt.Sprintf("; %d producers' transactions lost their marker", len(r.LostTransactions))
	}
	kind := core.CutDone
	if r.KeptID == "" && r.Bytes > 0 {
		// Only what was never committed anywhere may go unkept, with a full vault (R29).
		kind, message = core.DroppedUnvaulted, message+": the vault is full"
	}
	c.run.m.events.add(c.run.m.log, Event{
		At: c.now(), Mirror: c.run.name, Kind: string(kind), Topic: c.tp.Topic, Partition: c.tp.Partition,
		From: r.From, To: r.To, Records: n, VaultID: r.KeptID, OrderedBy: log.OrderedBySource, Message: message,
	})
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// errRefusedBatch is what the log says of a batch that the reply's headers didn't show to be bad.
var errRefusedBatch = errors.New("the source's batch was refused")

// append appends the first batches of the reply as they came.
func (c *copier) append(o Owned, e core.Append) error {
	size, err := prefixOf(c.data, e.Batches)
	if err != nil {
		return err
	}
	a, err := o.Log().AppendAsFollower(c.data[:size], e.MaxEpoch)
	mt := c.run.m.o.Metrics.Mirror
	mt.Bytes.WithLabelValues(c.run.name, c.tp.Topic).Add(float64(a.Bytes))
	mt.Batches.WithLabelValues(c.run.name, c.tp.Topic).Add(float64(a.Batches))
	switch {
	case err != nil:
		return err
	case a.StoppedBy != nil:
		return fmt.Errorf("%w at offset %d: %w", errRefusedBatch, a.NextOffset, a.StoppedBy)
	case a.Batches != e.Batches:
		return fmt.Errorf("%w: %d of %d went in", errRefusedBatch, a.Batches, e.Batches)
	}
	return nil
}

// prefixOf gives the size of the first n batches of b.
func prefixOf(b []byte, n int) (int, error) {
	size := 0
	for range n {
		h, err := batch.ParseHeader(b[size:])
		if err != nil {
			return 0, fmt.Errorf("%w: %w", errRefusedBatch, err)
		}
		if size += h.Size(); size > len(b) {
			return 0, fmt.Errorf("%w: it is cut short", errRefusedBatch)
		}
	}
	return size, nil
}

// reasonOfLog says which of the machine's reasons an error of the log is.
func reasonOfLog(err error) core.Reason {
	var full *vault.ErrFull
	switch {
	case errors.As(err, &full):
		return core.VaultFull
	case errors.Is(err, log.ErrNoSpace):
		return core.DiskFull
	case errors.Is(err, errRefusedBatch):
		return core.CorruptSource
	default:
		return core.LogOffline
	}
}
