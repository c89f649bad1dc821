package mirror

import (
	"log/slog"

	"tidemark/internal/batch"
	"tidemark/internal/config"
	"tidemark/internal/core/meta"
	core "tidemark/internal/core/mirror"
	"tidemark/internal/core/replica"
	"tidemark/internal/core/types"
	"tidemark/internal/telemetry"
)

// Stepper is the copying of one partition without goroutines and without a
// source client: the simulator gives the events and carries out what is meant
// for outside the shard. What happens on the shard (the machine, the cuts, the
// vault, the appends, the hold, the promotion) is what a node does.
type Stepper struct {
	c    *copier
	made uint64 // the cut that was told last
}

// StepperOptions are what a Stepper has of its node.
type StepperOptions struct {
	Node     Node // ClusterID, Me and Now are used
	Mirror   string
	ID       meta.PartitionID
	Part     Partition
	Settings *config.Mirror
	Logger   *slog.Logger
	Metrics  *telemetry.Metrics
	Rules    Rules
}

// Rules names what the simulator switches off to see that its checks find it.
// The zero value has every rule on.
type Rules struct {
	Core                core.Rules
	CheckpointBeforeCut bool // R1: the timeline checkpoint is written before the cut
	PromoteAnyStart     bool // R23: a late failover promotes a later start
	NoStartFence        bool // R25: a start doesn't close the partition before its second look
	MadeUnasked         bool // R23, I-260: what is made for a mirror doesn't ask whether it runs
	SwitchesNothing     bool // I-262: a switchover goes on without partitions
	ReturnsUndecided    bool // I-265: a switchover that another broker is at work at is taken back as it is
	SwitchesOpen        bool // I-271: a switchover asks nobody for what is open, and promotes copies with open transactions
	ForksToLogEnd       bool // R14: a drill's fork ends at the log end, and not at the high watermark
	CutsAnywhere        bool // I-250: cuts are done once whoever is called a coordinator was asked, groups loaded or not
}

// Outside is what a step leaves to be done outside the shard.
type Outside struct {
	// Effects in order; a Propose comes as a Proposal.
	Effects []core.Effect
	// Cut: the log was cut at CutAt, or begins there in this process. Committed offsets
	// follow; then call CutFollowed.
	Cut   bool
	CutAt types.Offset
}

// Proposal is a Propose with the revision of the record that it was made from.
type Proposal struct {
	core.Propose
	From meta.Revision
}

// NewStepper makes the copier of a partition that the image has shown.
func NewStepper(o StepperOptions) *Stepper {
	m := &Mirrors{
		o:   Options{Node: o.Node, Logger: o.Logger, Metrics: o.Metrics},
		log: o.Logger, events: newJournal(types.NoBroker, nil, nil, nil), proved: map[meta.PartitionID]provedTo{},
	}
	r := &run{m: m, name: o.Mirror, copiers: map[meta.PartitionID]*copier{}}
	r.settings.Store(o.Settings)
	c := newCopier(r, o.ID, o.Part)
	c.rules = o.Rules
	return &Stepper{c: c}
}

// Step shows the record if it has changed, then the event (nil: none); data are
// the records of a Fetched. A stepper that was halted does nothing (I-141).
func (s *Stepper) Step(ev core.Event, data []byte) (Outside, error) {
	if s.c.halted.Load() {
		return Outside{}, nil
	}
	st, err := s.c.stepOnShard(ev, data)
	out := Outside{Effects: st.out, Cut: st.lower, CutAt: st.cut.end}
	if st.lower {
		s.made = st.cut.made
	}
	for i, e := range out.Effects {
		if p, ok := e.(proposal); ok {
			out.Effects[i] = Proposal{p.Propose, p.from}
		}
	}
	return out, err
}

// CutFollowed says that the group offsets have followed the last cut.
func (s *Stepper) CutFollowed() { s.c.cutFollowed(s.made) }

// Halt ends the copying: later steps do nothing.
func (s *Stepper) Halt() { s.c.halted.Store(true) }

// Status is what the machine says of itself.
func (s *Stepper) Status() core.Status {
	if st := s.c.status.Load(); st != nil {
		return st.Status
	}
	return core.Status{}
}

// Promote computes the promotion after Halt, and the revision it was made from (R23).
func (s *Stepper) Promote(req core.PromoteRequest) (done core.Promotion, from meta.Revision, err error) {
	err = s.c.part.Do(s.c.run.alone(), func(o Owned) error {
		done, from, err = s.c.promote(o, req)
		return err
	})
	return done, from, err
}

// Own gives the log as the machine sees it, with the record that the partition was shown last.
func (s *Stepper) Own() (own core.Own, rec *meta.PartitionRecord, rev meta.Revision, err error) {
	err = s.c.part.Do(s.c.run.alone(), func(o Owned) error {
		rec, rev = o.Record()
		own = s.c.own(o)
		return nil
	})
	return own, rec, rev, err
}

// WithRecords makes the event of a source's answer, as a fetcher does.
func (s *Stepper) WithRecords(f core.Fetch, reply replica.Reply, records []byte) (core.Event, []byte) {
	return withRecords(f, reply, records)
}

// LastBatchBelow reads the own batch that a probe compares.
func (s *Stepper) LastBatchBelow(below types.Offset) (raw []byte, h batch.Header, ok bool, err error) {
	return lastBatchBelow(s.c.part.Log(), below)
}

// Compare compares an own batch with what the source has from its base offset on.
func (s *Stepper) Compare(own []byte, h batch.Header, theirs []byte, compacted bool) (core.ProbeResult, error) {
	return compareWith(own, h, theirs, compacted)
}
