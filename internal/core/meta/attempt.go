package meta

import "tidemark/internal/core/types"

// LevelAttempts is the level of FeatureMetadata from which switchovers have a record, and
// the fences that they set name it (docs/adr/0032).
const LevelAttempts = 4

// Attempt is one switchover of a mirror. Its number is drawn in the transaction that
// writes it into the mirror's record, so that of two one is the later.
type Attempt struct {
	// Restore is the restore that the mirror's metadata came from (ClusterRecord.RestoreID):
	// numbers before and after it can't be compared.
	Restore string `json:"restore,omitempty"`
	// Number is 1 for the first.
	Number int64 `json:"number"`
}

// IsZero reports whether it stands for none: a program or a cluster below LevelAttempts has none.
func (a Attempt) IsZero() bool { return a == Attempt{} }

// After reports whether a began later than b. None is before any; those of different
// restores are neither.
func (a Attempt) After(b Attempt) bool {
	return !a.IsZero() && (b.IsZero() || a.Restore == b.Restore && a.Number > b.Number)
}

// What became of a switchover.
const (
	SwitchWorking   = "working"   // under way: it may still be ordered to promote
	SwitchOrdered   = "ordered"   // the order to promote was committed with this state
	SwitchReturning = "returning" // given up: it can't be ordered any more, and its fences are taken back
	SwitchOver      = "over"      // given up, and its fences are taken back as far as that can be
)

var switchStates = []string{SwitchWorking, SwitchOrdered, SwitchReturning, SwitchOver}

// Switchover is the newest switchover of a mirror: the one place in which it is decided
// whether it promotes or goes back (docs/adr/0032).
type Switchover struct {
	Attempt Attempt `json:"attempt"`
	// StartID is the start of the mirror that it would end.
	StartID string `json:"startId"`
	// State is one of the Switch… constants.
	State string `json:"state"`
	// Broker works at it, or takes its fences back, in its registration BrokerEpoch: once
	// that is over, another one may take them back.
	Broker      types.BrokerID    `json:"broker"`
	BrokerEpoch types.BrokerEpoch `json:"brokerEpoch"`
	At          types.Millis      `json:"at"`
}
