package mirror

import (
	"context"
	"fmt"
	"iter"
	"slices"

	"tidemark/internal/core/meta"
	core "tidemark/internal/core/mirror"
	"tidemark/internal/core/types"
	"tidemark/internal/telemetry"
)

// The states of a mirror as a whole.
const (
	stateCreated    = "CREATED"
	stateConnecting = "CONNECTING"
	stateRunning    = "RUNNING"
	statePaused     = "PAUSED"
	stateStopping   = "STOPPING"
	stateStopped    = "STOPPED"
	stateFailed     = "FAILED"
)

// Status gives a mirror with all its partitions.
func (m *Mirrors) Status(_ context.Context, name string) (Status, error) {
	image := m.o.Node.Image()
	e, ok := image.Mirror(name)
	if !ok {
		return Status{}, fmt.Errorf("%w: %s", ErrUnknownMirror, name)
	}
	return m.statuses(image, []*meta.Mirror{e})[0], nil
}

// List gives all mirrors.
func (m *Mirrors) List(context.Context) ([]Status, error) {
	image := m.o.Node.Image()
	return m.statuses(image, slices.Collect(image.Mirrors())), nil
}

// statuses walks the partitions once for all mirrors asked for.
func (m *Mirrors) statuses(image *meta.Image, mirrors []*meta.Mirror) []Status {
	out := make([]Status, len(mirrors))
	place := make(map[string]int, len(mirrors))
	for i, e := range mirrors {
		out[i] = Status{Mirror: e.ID, SourceClusterID: e.Record.SourceClusterID, StartID: e.Record.StartID, Partitions: []PartitionStatus{}}
		place[e.ID] = i
	}
	for t := range image.TopicsByName() {
		for p := range image.PartitionsOf(t.ID) {
			if p.Record == nil || p.Record.Mirror == nil {
				continue
			}
			if i, ok := place[p.Record.Mirror.Name]; ok {
				st := m.partitionStatus(t.Record.Name, p)
				describeLeaderless(image, p, m.o.Node.Me(), &st)
				out[i].Partitions = append(out[i].Partitions, st)
			}
		}
	}
	for i, e := range mirrors {
		out[i].Loss = sumLoss(out[i].Partitions)
		out[i].Verified = m.reports.summary(e.ID)
		m.summarize(&out[i], e.Record)
		out[i].Switchover = m.switchStatus(image, e.Record)
	}
	return out
}

// partitionStatus puts together what the record, the log and the copier say.
func (m *Mirrors) partitionStatus(topic string, e *meta.Partition) PartitionStatus {
	rec := e.Record
	mi := rec.Mirror
	p := PartitionStatus{
		Topic: topic, Partition: e.ID.Number, StartID: core.TopicStart(mi), State: mi.State, Reason: mi.Reason, SrcEpoch: mi.SourceEpochMax, Epoch: rec.LeaderEpoch,
		SrcStart: mi.SourceStart, SrcEnd: mi.SourceEnd, Start: types.NoOffset, End: types.NoOffset, Bytes: -1, LagRecords: -1, LagBytes: -1, LagMs: -1,
		VerifiedTo: m.provedTo(e.ID, mi.StartID),
	}
	if part, held := m.o.Node.Partition(e.ID.Topic, e.ID.Number); held {
		if v, open := part.View(); open {
			p.Start, p.End, p.Bytes = v.LogStart, v.LogEnd, v.Size
		}
	}
	if rec.IsOwn() {
		if rec.Fence != nil {
			p.Reason = closedWords(topic, rec.Fence)
		}
		p.Promotion = promotionOf(rec)
		p.LagRecords, p.LagBytes, p.LagMs = 0, 0, 0
		if n := len(rec.Promotions); n > 0 {
			p.Loss = lossOf(&rec.Promotions[n-1])
		}
		if r := m.run(mi.Name); r != nil {
			if p.SplitBrain = r.watch.alarmOf(e.ID); p.SplitBrain != nil {
				p.Reason = "SPLIT_BRAIN: " + p.SplitBrain.words()
			}
		}
		return p
	}
	copied, seenAt := mi.Copied, mi.SourceSeenAt
	if r := m.run(mi.Name); r != nil {
		if c := r.copier(e.ID); c != nil {
			c.describe(&p)
			if s := c.status.Load(); s != nil {
				copied, seenAt = copied || s.Facts.Copied, max(seenAt, s.Facts.SeenAt, c.sightedAt())
			}
		}
	}
	p.Loss = lossNow(&p, copied, seenAt, m.o.Node.Now())
	if r, _ := core.ReasonOf(p.Reason); r == core.TopicIDMismatch || core.MadeAgain(mi) {
		p.Loss = p.Loss.madeAgain()
	}
	return p
}

// passing are the reasons of a partition that only waits: for the source to be
// reached, to elect, to adopt its own source's list, or to catch up.
var passing = map[core.Reason]bool{
	core.SourceUnreachable: true, core.SourceLeaderMoved: true, core.SourceNotReady: true, core.Reason(core.AheadOfMirror): true,
}

// describe adds what the copier knows beyond the record.
func (c *copier) describe(p *PartitionStatus) {
	s := c.status.Load()
	switch {
	case s == nil:
		return
	case s.offline != "":
		p.State, p.Reason = meta.MirrorFailed, string(core.LogOffline)+": "+s.offline
		return
	}
	// The copier may not have seen the record that is shown here: of its state
	// only the moment of R21 counts, and of a paused partition no trouble.
	if s.State == meta.MirrorEpochFencing && p.State == meta.MirrorMirroring {
		p.State = s.State
	}
	if s.Reason != "" && p.State != meta.MirrorPaused {
		if !passing[s.Reason] {
			p.State = meta.MirrorFailed // not worth a write of the record, but a failure all the same
		}
		p.Reason = string(s.Reason)
		if s.Detail != "" {
			p.Reason += ": " + s.Detail
		}
	}
	f := s.Facts
	p.SrcEpoch = max(p.SrcEpoch, f.LeaderEpoch)
	if f.SeenAt < 0 {
		return
	}
	if f.Start >= 0 {
		p.SrcStart = f.Start
	}
	if f.End >= 0 {
		p.SrcEnd = f.End
		p.LagRecords = max(int64(p.SrcEnd-p.End), 0)
		p.LagBytes, p.LagMs = s.Lag.Bytes, int64(s.Lag.Millis)
		if p.LagRecords == 0 {
			p.LagBytes, p.LagMs = 0, 0
		} else if s.Lag.Records > 0 {
			p.LagMs += int64(c.now() - s.at) // nothing has come since
		}
	}
}

func promotionOf(rec *meta.PartitionRecord) *Promotion {
	n := len(rec.Promotions)
	if n == 0 {
		return nil
	}
	made := rec.Promotions[n-1]
	return &Promotion{
		LastMirroredEpoch: made.LastMirroredEpoch, LastMirroredOffset: made.LogEnd,
		SrcEndLastSeen: made.SourceEnd, SrcEndSeenAt: made.SourceSeenAt, PromotedEpoch: made.PromotedEpoch,
	}
}

// summarize gives the mirror's state as a whole.
func (m *Mirrors) summarize(s *Status, rec *meta.MirrorRecord) {
	var promoted, failed, alarmed int
	for _, p := range s.Partitions {
		if p.SplitBrain != nil {
			alarmed++
		}
		if p.Promotion != nil {
			promoted++
		} else if p.State == meta.MirrorFailed {
			failed++
		}
	}
	switch rec.Want {
	case meta.WantCreated:
		s.State = stateCreated
		return
	case meta.WantPaused:
		s.State = statePaused
		return
	case meta.WantStopped:
		s.State = stateStopped
		if alarmed > 0 {
			s.Reason = fmt.Sprintf("split brain: the old source took writes or elected after the failover, in %d partitions", alarmed)
		}
		if promoted < len(s.Partitions) {
			s.State = stateStopping
			if r := m.run(rec.Name); r != nil && s.Reason == "" {
				s.Reason, _ = r.health.last(syncFailover)
			}
		}
		return
	}
	s.State = stateRunning
	r := m.run(rec.Name)
	if r == nil {
		s.State = stateConnecting
		return
	}
	why, met := r.health.last(syncMetadata)
	if lasting, err := r.health.lasting(syncMetadata); err != nil {
		s.FailingMs, s.WayOut = max(lasting.Milliseconds(), 1), sourceWayOut(rec, err)
	}
	switch {
	case !met:
		s.State, s.Reason = stateConnecting, why
		if r.client == nil {
			s.State = stateFailed
		}
	case why != "":
		s.Reason = why
	default:
		s.Reason = r.topicsTrouble(m.o.Node.Image())
	}
	if failed > 0 && failed+promoted == len(s.Partitions) {
		s.State = stateFailed
		if s.Reason == "" {
			s.Reason = "every partition has failed; their reasons say why"
		}
	} else if failed > 0 && s.Reason == "" {
		s.Reason = fmt.Sprintf("%d of %d partitions have failed", failed, len(s.Partitions))
	}
}

// Describe gives a mirror with its settings, without secrets, and the health of each sync.
func (m *Mirrors) Describe(ctx context.Context, name string) (Description, error) {
	st, err := m.StatusEverywhere(ctx, name)
	if err != nil {
		return Description{}, err
	}
	e, ok := m.o.Node.Image().Mirror(name)
	if !ok {
		return Description{}, fmt.Errorf("%w: %s", ErrUnknownMirror, name)
	}
	d := Description{Status: st, Spec: spec(e.Record), Syncs: []SyncHealth{}, Groups: []GroupSync{}, StartID: e.Record.StartID}
	d.Replication = m.replication(e.Record)
	if r := m.run(name); r != nil {
		d.Syncs = r.syncs(m.o.Node.Image())
		d.Groups = r.groups.list(ctx)
	}
	return d, nil
}

// Stats walks all mirrored partitions for /metrics.
func (m *Mirrors) Stats() iter.Seq[telemetry.MirrorStat] {
	return func(yield func(telemetry.MirrorStat) bool) {
		list, err := m.List(context.WithoutCancel(m.ctx))
		if err != nil {
			return
		}
		for _, s := range list {
			for _, p := range s.Partitions {
				lossMs := int64(-1)
				if p.Loss != nil && p.Loss.Known {
					lossMs = p.Loss.Ms
				}
				ok := yield(telemetry.MirrorStat{
					Mirror: s.Mirror, TopicPartition: types.TopicPartition{Topic: p.Topic, Partition: p.Partition}, State: p.State,
					SourceEnd: p.SrcEnd, LogEnd: p.End, LagRecords: p.LagRecords, LagBytes: p.LagBytes, LagMs: p.LagMs,
					SourceEpoch: p.SrcEpoch, Epoch: p.Epoch, LossMs: lossMs,
				})
				if !ok {
					return
				}
			}
		}
	}
}
