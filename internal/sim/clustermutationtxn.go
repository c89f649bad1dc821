package sim

import (
	"time"

	"tidemark/internal/broker"
	"tidemark/internal/broker/coordinator/transactions"
	"tidemark/internal/core/transaction"
	"tidemark/internal/log"
)

// txnMutations switch off what transactions rest on.
func txnMutations() []*Mutation {
	table := func(r transaction.Rules) broker.VirtualRules {
		return broker.VirtualRules{Txns: transactions.Rules{Table: r}}
	}
	whole := []string{"TxnWhole", "NoAbortedRead", "OpenEnds"}
	return []*Mutation{
		{Name: "txn-markers-first", Rule: "KIP-98: markers are written before their decision is", Finds: whole,
			Cluster: &clusterMutation{rules: table(transaction.Rules{MarkersFirst: true}), adjust: func(o *ClusterOptions) {
				txnsMove(o)
				o.MinISR, o.SlowMessage = 2, 0.4
				o.Rates["crash-txns"] = 30
			}}},
		{Name: "txn-keeps-epoch", Rule: "KIP-98: a producer that begins anew goes on in the epoch of the one before", Finds: append([]string{"ProducerFenced", "AckedIsKept"}, whole...),
			Cluster: &clusterMutation{rules: table(transaction.Rules{InitKeepsEpoch: true}), adjust: txnsMove}},
		{Name: "txn-forgets-decided", Rule: "KIP-98: a new coordinator leaves decisions alone that aren't carried out", Finds: append([]string{"Convergence"}, whole...),
			Cluster: &clusterMutation{rules: table(transaction.Rules{ForgetDecided: true}), adjust: txnsMove}},
		{Name: "txn-no-timeouts", Rule: "KIP-98: nobody ends what a dead producer has open", Finds: []string{"OpenEnds"},
			Cluster: &clusterMutation{rules: table(transaction.Rules{NoTimeouts: true}), noSuccessors: true, adjust: txnsMove}},
		{Name: "txn-unguarded", Rule: "KIP-890: a batch that comes late opens a transaction", Finds: whole,
			Cluster: &clusterMutation{rules: broker.VirtualRules{NoTxnGuards: true}, slowPeers: true, adjust: func(o *ClusterOptions) {
				txnsMove(o)
				o.TxnTries = 1
			}}},
		{Name: "txn-late-coordinator", Rule: "KIP-98: a marker is taken of a coordinator that another one has followed", Finds: whole,
			Cluster: &clusterMutation{rules: broker.VirtualRules{Log: log.Rules{AnyCoordinatorEpoch: true}}, slowPeers: true, adjust: func(o *ClusterOptions) {
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
	}
}

// txnsMove has coordinators and leaders move again and again while producers come and go.
func txnsMove(o *ClusterOptions) {
	clusterProfiles["cluster-txn"](o)
	o.Length, o.Lease, o.RestartMost, o.SlowMessage, o.PowerLoss = 90*time.Second, 3*time.Second, 4*time.Second, 0.15, 0
	o.Rates = map[string]float64{"write": 20, "txn-die": 12, "txn-second": 8, "txn-pause": 4, "txn-late": 20, "crash-txns": 10, "crash-leader": 4, "cut-link": 10, "elect-preferred": 20}
}
