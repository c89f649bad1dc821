package mirror

import (
	"tidemark/internal/core/types"
)

// Partition is one mirrored partition on the broker that leads it. The zero
// value is not ready: New makes one. It is owned by one caller at a time.
type Partition struct {
	policy Policy
}

// New makes the machine of one partition. It does nothing before the first RecordShown.
func New(p Policy) *Partition { return &Partition{policy: p} }

// Step applies one event and appends the effects to out. now is the time of the
// event, own the log at that time. It never blocks and keeps no reference to own or ev.
func (p *Partition) Step(now types.Millis, own *Own, ev Event, out *Effects) {}

// Status is what mirror status shows of one partition.
type Status struct {
	// State is one of meta's Mirror… constants; Reason says why it isn't moving, if so.
	State  string
	Reason Reason
	Detail string
	// Phase says what it is doing right now, for people.
	Phase       string
	SourceEpoch types.LeaderEpoch
	SourceStart types.Offset
	SourceEnd   types.Offset
	SeenAt      types.Millis
	Lag         LagNow
}

// Status gives the present status.
func (p *Partition) Status(now types.Millis, own *Own) Status { return Status{} }
