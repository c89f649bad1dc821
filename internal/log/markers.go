package log

import (
	"tidemark/internal/batch"
	"tidemark/internal/core/txn"
	"tidemark/internal/core/types"
)

// AbortOpenTransactions (W) writes an ABORT marker for each open transaction,
// at the given leader epoch, which has been assigned (R23: before the first
// client write after a promotion). It gives the transactions that were open.
func (l *Log) AbortOpenTransactions(epoch types.LeaderEpoch, now types.Millis) ([]txn.Txn, error) {
	open := l.OpenTransactions()
	for _, p := range l.Producers() {
		if p.TxnFirstOffset < 0 {
			continue
		}
		raw := batch.NewMarker(batch.Abort, p.ID, p.Epoch, max(p.CoordinatorEpoch, 0), now)
		if _, err := l.AppendAsLeader(raw, epoch, LeaderAppend{Origin: OriginCoordinator}); err != nil {
			return nil, err
		}
	}
	return open, nil
}
