package batch

import (
	"errors"
	"fmt"

	"tidemark/internal/assert"
	"tidemark/internal/core/types"
)

// Why a walk over copied batches stopped, beside ErrShort, ErrCRC and header damage.
var (
	ErrOffsetFalls = errors.New("offsets step back")              // a base offset below the log end
	ErrEpochFalls  = errors.New("leader epoch falls")             // below that of the record before (R2, R13)
	ErrEpochAhead  = errors.New("leader epoch above the fetch's") // R13; on a mirror R21 raises the local epoch
)

// Chain is the state that copied or recovered batches must continue: where the
// log ends and which epoch its last record has.
//
// Invariant I-03: along accepted batches the log end rises and the epoch never falls.
type Chain struct {
	LogEnd    types.Offset
	LastEpoch types.LeaderEpoch // NoLeaderEpoch if there is no record before
}

// Accepted tells how far a walk came.
type Accepted struct {
	Batches int
	Bytes   int   // of whole valid batches, from the front
	Chain   Chain // after them
	Stopped error // nil if all bytes were taken
}

// Accept walks whole valid batches from the front of b up to the first that is
// cut short, damaged (checksum included), steps back in offset or epoch, or has
// an epoch above maxEpoch (R2, R13). Gaps in offsets are fine: compaction left
// them. visit, if not nil, sees each accepted batch and the chain before it; an
// error of visit stops the walk before that batch.
//
// A follower passes its fetch's leader epoch as maxEpoch; recovery and mirrors
// that judge epochs later pass math.MaxInt32.
func Accept(b []byte, from Chain, maxEpoch types.LeaderEpoch, visit func(h *Header, raw []byte, before Chain) error) Accepted {
	a := Accepted{Chain: from}
	it := Iterate(b)
	for it.Next() {
		err := a.Chain.check(&it.Header, it.Raw, maxEpoch)
		if err == nil && visit != nil {
			err = visit(&it.Header, it.Raw, a.Chain)
		}
		if err != nil {
			a.Stopped = err
			return a
		}
		a.Batches++
		a.Bytes += len(it.Raw)
		next := Chain{LogEnd: it.Header.NextOffset(), LastEpoch: it.Header.PartitionLeaderEpoch}
		if next.LogEnd <= a.Chain.LogEnd || next.LastEpoch < a.Chain.LastEpoch { // arguments are built on failure only
			assert.That(false, "I-03: %+v after %+v", next, a.Chain)
		}
		a.Chain = next
	}
	a.Stopped = it.Err()
	return a
}

// check judges one batch against the chain before it.
func (c Chain) check(h *Header, raw []byte, maxEpoch types.LeaderEpoch) error {
	epoch := h.PartitionLeaderEpoch
	switch {
	case h.BaseOffset < c.LogEnd:
		return fmt.Errorf("%w: batch at %d, log end %d", ErrOffsetFalls, h.BaseOffset, c.LogEnd)
	case epoch < 0:
		return fmt.Errorf("%w: batch at %d without a leader epoch", ErrCorrupt, h.BaseOffset)
	case epoch < c.LastEpoch:
		return fmt.Errorf("%w: batch at %d has %d after %d", ErrEpochFalls, h.BaseOffset, epoch, c.LastEpoch)
	case epoch > maxEpoch:
		return fmt.Errorf("%w: batch at %d has %d, above %d", ErrEpochAhead, h.BaseOffset, epoch, maxEpoch)
	}
	if err := VerifyCRC(raw); err != nil {
		return fmt.Errorf("batch at %d: %w", h.BaseOffset, err)
	}
	return nil
}
