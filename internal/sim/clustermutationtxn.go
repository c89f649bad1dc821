package sim

import (
	"time"

	"tidemark/internal/broker"
	"tidemark/internal/broker/coordinator"
	"tidemark/internal/broker/coordinator/transactions"
	"tidemark/internal/core/transaction"
	"tidemark/internal/log"
	"tidemark/internal/wire"
)

// txnMutations switch off what transactions rest on.
func txnMutations() []*Mutation {
	table := func(r transaction.Rules) broker.VirtualRules {
		return broker.VirtualRules{Txns: transactions.Rules{Table: r}}
	}
	whole := []string{"TxnWhole", "NoAbortedRead", "OpenEnds"}
	return []*Mutation{
		{Name: "txn-markers-first", Rule: "KIP-98: markers are written before their decision is", Finds: whole,
			Cluster: &clusterMutation{rules: table(transaction.Rules{MarkersFirst: true}), slowPeers: int16(wire.KeyWriteTxnMarkers), diesAtEnd: 0.7, adjust: func(o *ClusterOptions) {
				txnsMove(o)
				o.Brokers, o.MinISR, o.TxnTimeout, o.RestartMost, o.Length = 5, 3, 2*time.Second, 4*time.Second, 2*time.Minute // some partitions take a write, and others don't
				o.Messages, o.TxnFault, o.SlowWatch = Messages{}, 0, 0
				o.Rates = map[string]float64{"crash": 8}
			}}},
		{Name: "txn-keeps-epoch", Rule: "KIP-98: a producer that begins anew goes on in the epoch of the one before", Finds: append([]string{"ProducerFenced", "AckedIsKept"}, whole...),
			Cluster: &clusterMutation{rules: table(transaction.Rules{InitKeepsEpoch: true}), adjust: txnsMove}},
		{Name: "txn-forgets-decided", Rule: "KIP-98: a new coordinator leaves decisions alone that aren't carried out", Finds: append([]string{"Convergence"}, whole...),
			Cluster: &clusterMutation{rules: table(transaction.Rules{ForgetDecided: true}), adjust: txnsMove}},
		{Name: "txn-no-timeouts", Rule: "KIP-98: nobody ends what a dead producer has open", Finds: []string{"OpenEnds"}, from: 28,
			Cluster: &clusterMutation{rules: table(transaction.Rules{NoTimeouts: true}), noSuccessors: true, adjust: txnsMove}},
		{Name: "txn-unguarded", Rule: "KIP-890: a batch that comes late opens a transaction", Finds: whole, from: 8,
			Cluster: &clusterMutation{rules: broker.VirtualRules{NoTxnGuards: true}, slowPeers: int16(wire.KeyAddPartitionsToTxn), adjust: func(o *ClusterOptions) {
				txnsMove(o)
				o.TxnTries = 1
				o.Rates = map[string]float64{"elect-preferred": 4}
			}}},
		{Name: "txn-late-coordinator", Rule: "KIP-98: a marker is taken of a coordinator that another one has followed", Finds: whole,
			Cluster: &clusterMutation{rules: broker.VirtualRules{Log: log.Rules{AnyCoordinatorEpoch: true}}, slowPeers: int16(wire.KeyWriteTxnMarkers), adjust: func(o *ClusterOptions) {
				txnsMove(o)
				o.SlowMessage, o.DropMessage, o.TxnThinks, o.TxnTimeout = 0, 0, time.Second, 10*time.Second
				o.Rates = map[string]float64{"crash-txns": 20, "elect-preferred": 30}
			}}},
		{Name: "txn-unreplicated", Rule: "R14: a decision is told before it is replicated", Finds: append([]string{"ProducerFenced"}, whole...),
			Cluster: &clusterMutation{rules: broker.VirtualRules{Txns: transactions.Rules{AckUnreplicated: true}}, adjust: txnsMove}},
		{Name: "txn-coordinator-unfenced", Rule: "R10: a transaction's coordinator serves on after it has lost its partition", Finds: append([]string{"CoordinatorFence", "ProducerFenced", "LeaseFence"}, whole...),
			Cluster: &clusterMutation{rules: broker.VirtualRules{Txns: transactions.Rules{NoFence: true}}, adjust: func(o *ClusterOptions) {
				txnsMove(o)
				o.SlowWatch = 0.4
				o.Rates["cut-store"], o.Rates["cut-link"] = 10, 15
			}}},
		{Name: "txn-compact-aborted", Rule: "KIP-98: compaction takes an aborted record for the newest of its key", Profile: "cluster-txn-compacted", Finds: []string{"TxnWhole", "AckedIsKept"},
			Cluster: &clusterMutation{rules: broker.VirtualRules{Log: log.Rules{CompactAborted: true}}}},
		{Name: "txn-markers-dropped", Rule: "KIP-98: compaction drops markers while records of their transactions are left", Profile: "cluster-txn-compacted", Finds: append([]string{"PANIC"}, whole...),
			Cluster: &clusterMutation{rules: broker.VirtualRules{Log: log.Rules{DropMarkers: true}}}},
		{Name: "txn-offsets-at-once", Rule: "KIP-98: a transaction's offsets are the group's before it has ended", Profile: "cluster-txn-offsets", Finds: append([]string{"CommitKept"}, whole...),
			Cluster: &clusterMutation{rules: broker.VirtualRules{Groups: coordinator.Rules{OffsetsAtOnce: true}}}},
		{Name: "txn-offsets-forgotten", Rule: "KIP-98: a group's new coordinator forgets offsets whose transactions are open", Profile: "cluster-txn-offsets", Finds: append([]string{"CommitKept"}, whole...),
			Cluster: &clusterMutation{rules: broker.VirtualRules{Groups: coordinator.Rules{ForgetPending: true}}, adjust: offsetsMove}},
		{Name: "txn-offsets-unguarded", Rule: "KIP-890: an offset that comes late opens a transaction", Profile: "cluster-txn-offsets", Finds: whole, from: 7,
			Cluster: &clusterMutation{rules: broker.VirtualRules{NoTxnGuards: true}, slowAnswers: int16(wire.KeyAddPartitionsToTxn), adjust: offsetsMove}},
	}
}

// offsetsMove has coordinators of groups move while transactions commit offsets.
func offsetsMove(o *ClusterOptions) {
	txnsMove(o)
	o.TxnOffsets, o.TxnThinks, o.TxnTimeout = true, time.Second, 10*time.Second
	o.Rates = map[string]float64{"write": 20, "crash-coordinator": 6, "elect-preferred": 40, "txn-second": 6}
}

// txnsMove has coordinators and leaders move again and again while producers come and go.
func txnsMove(o *ClusterOptions) {
	clusterProfiles["cluster-txn"](o)
	o.Length, o.Lease, o.RestartMost, o.SlowMessage, o.PowerLoss = 90*time.Second, 3*time.Second, 4*time.Second, 0.15, 0
	o.Rates = map[string]float64{"write": 20, "txn-die": 6, "txn-second": 6, "txn-pause": 4, "txn-late": 20, "crash-txns": 6, "cut-link": 4, "elect-preferred": 10}
}
