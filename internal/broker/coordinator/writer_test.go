package coordinator

import (
	"testing"

	"tidemark/internal/core/errcode"
	"tidemark/internal/wire"
)

// What the log refuses of a transaction's offsets: an epoch that is over ends the producer,
// a guard that is over has it ask again.
func TestWhatProducersAreToldOfARefusal(t *testing.T) {
	f := func(refused error, want errcode.Code) {
		t.Helper()
		if got := codeOfAppend(refused); got != want {
			t.Errorf("%v: told %v, want %v", refused, got, want)
		}
	}
	f(nil, errcode.None)
	f(wire.ErrInvalidProducerEpoch, wire.ErrInvalidProducerEpoch)
	f(wire.Errorf(wire.ErrInvalidTxnState, "ended"), errcode.CoordinatorLoadInProgress)
	f(wire.ErrNotLeaderOrFollower, errcode.NotCoordinator)
	f(wire.ErrRequestTimedOut, errcode.CoordinatorNotAvailable)
}
