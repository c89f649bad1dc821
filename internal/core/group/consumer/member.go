package consumer

import (
	"maps"
	"slices"

	"tidemark/internal/core/types"
)

// State is where a member is on its way to its target assignment, by Kafka's numbers.
type State int8

const (
	// Stable: it has what its epoch's target gives it.
	Stable State = iota + 1
	// UnrevokedPartitions: it is to give up partitions that it hasn't let go of yet.
	UnrevokedPartitions
	// UnreleasedPartitions: some of its target is still another member's.
	UnreleasedPartitions
)

// String names the state.
func (s State) String() string {
	switch s {
	case Stable:
		return "STABLE"
	case UnrevokedPartitions:
		return "UNREVOKED_PARTITIONS"
	case UnreleasedPartitions:
		return "UNRELEASED_PARTITIONS"
	}
	return "UNKNOWN"
}

// Epochs that a heartbeat asks for something by (KIP-848).
const (
	JoinEpoch        int32 = 0  // the member joins, or joins anew
	LeaveEpoch       int32 = -1 // the member leaves
	StaticLeaveEpoch int32 = -2 // a static member leaves and will be back
)

// Profile is what a member says of itself.
type Profile struct {
	InstanceID, RackID   string // empty: none
	ClientID, ClientHost string
	Topics               []string // subscribed by name, sorted
	Regex                string   // subscribed by expression; empty: none
	Assignor             string   // the server-side assignor it asks for; empty: any
	RebalanceTimeout     types.Millis
}

func (p *Profile) equal(q *Profile) bool {
	return p.InstanceID == q.InstanceID && p.RackID == q.RackID && p.ClientID == q.ClientID && p.ClientHost == q.ClientHost &&
		slices.Equal(p.Topics, q.Topics) && p.Regex == q.Regex && p.Assignor == q.Assignor && p.RebalanceTimeout == q.RebalanceTimeout
}

// Position is where a member stands: its epoch and what it has.
type Position struct {
	Epoch int32
	// Previous is the epoch before: an answer that told of Epoch may have been lost.
	Previous int32
	State    State
	Assigned Partitions // the member's to read
	Revoking Partitions // the member's until it says that it has let go of them
}

func (p *Position) equal(q *Position) bool {
	return p.Epoch == q.Epoch && p.Previous == q.Previous && p.State == q.State &&
		maps.Equal(p.Assigned, q.Assigned) && maps.Equal(p.Revoking, q.Revoking)
}

// moved gives the position in another epoch.
func (p Position) moved(epoch int32) Position {
	p.Epoch, p.Previous = epoch, p.Epoch
	return p
}

// Member is one member. Nothing in it changes: a change makes another.
type Member struct {
	ID string
	Profile
	Position
	// profiled: the log has told of the member's profile. Without it, it is no member yet.
	profiled bool
}

// hasLeft reports whether a static member is away and its place is kept.
func (m *Member) hasLeft() bool { return m.Epoch == StaticLeaveEpoch }
