package api

import (
	"strings"

	"tidemark/internal/core/types"
	"tidemark/internal/wire"
)

// transactionAPIs is the table of the APIs about transactions: one row per file.
func transactionAPIs() []entry {
	return []entry{
		on(wire.KeyAddPartitionsToTxn, (*Call).addPartitionsToTxn),
		on(wire.KeyAddOffsetsToTxn, (*Call).addOffsetsToTxn),
		on(wire.KeyEndTxn, (*Call).endTxn),
		on(wire.KeyWriteTxnMarkers, (*Call).writeTxnMarkers),
		on(wire.KeyTxnOffsetCommit, (*Call).txnOffsetCommit),
		on(wire.KeyDescribeProducers, (*Call).describeProducers),
		on(wire.KeyDescribeTransactions, (*Call).describeTransactions),
		on(wire.KeyListTransactions, (*Call).listTransactions),
	}
}

// cloneNames gives partitions whose names outlive the request.
func cloneNames(tps []types.TopicPartition) []types.TopicPartition {
	for i := range tps {
		tps[i].Topic = strings.Clone(tps[i].Topic)
	}
	return tps
}
