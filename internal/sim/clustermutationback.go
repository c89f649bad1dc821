package sim

import (
	"time"

	"tidemark/internal/broker"
	"tidemark/internal/broker/mirror"
	core "tidemark/internal/core/mirror"
	"tidemark/internal/core/replica"
)

// returnsOften are runs in which nodes are down while others go on, and the metadata is put
// back then: who starts first often knows nothing newer.
func returnsOften(o *ClusterOptions) {
	restoresOften(o)
	o.Brokers, o.Unclean, o.RestartMost, o.PowerLoss, o.Members, o.MinISR, o.LagMax, o.Lease = 3, true, 15*time.Second, 0, 0, 1, 2*time.Second, 3*time.Second
	o.SlowMessage, o.DropMessage, o.TxnFault, o.SlowWatch = 0, 0, 0, 0
	o.Rates = map[string]float64{"write": 500, "read": 20, "backup": 6, "restore": 3, "elect-preferred": 6, "crash": 12}
}

// returnMutations switch off what holds when a replica comes back with what others have
// deleted, compacted or never had.
func returnMutations() []*Mutation {
	return []*Mutation{
		{Name: "trust-epochs", Rule: "R26: a follower's last batch isn't compared with its leader's (ADR 29)", Finds: []string{"LogMatching", "ISRHoldsHW", "AckedIsKept", "VaultComplete", "Convergence"}, from: 10,
			Cluster: &clusterMutation{rules: broker.VirtualRules{TrustEpochs: true}, adjust: returnsOften}},
		{Name: "cut-keeps-compacted", Rule: "R13: a follower that is cut below its own compaction keeps the rest (ADR 27)", Finds: []string{"AckedIsKept", "LogStartLegal"}, from: 15,
			Cluster: &clusterMutation{rules: broker.VirtualRules{Mirrors: broker.MirrorRules{Mirror: mirror.Rules{Core: core.Rules{KeepsCompacted: true}}}}, adjust: func(o *ClusterOptions) {
				o.Compacted, o.Unclean, o.SegmentBytes, o.MinISR, o.LagMax, o.RestartMost = true, true, 900, 1, 2*time.Second, 4*time.Second
				o.Rates = map[string]float64{"write": 400, "cut-link": 12, "crash-leader": 6, "crash": 4, "elect-unclean": 4}
			}}},
		{Name: "join-below-log-start", Rule: "R15: who joins may hold records that were deleted on all in-sync replicas (ADR 24)", Profile: "cluster-deletes", Finds: []string{"DeletedIsGone", "ISRHoldsHW"}, from: 1796025808801276445,
			Cluster: &clusterMutation{rules: broker.VirtualRules{Leader: replica.LeaderRules{JoinBelowLogStart: true}}, adjust: func(o *ClusterOptions) {
				o.Compacted, o.Unclean, o.LagMax, o.MinISR, o.SlowMessage = false, false, 2*time.Second, 1, 0.3
				o.VaultBytes, o.RetentionBytes = 2500, 0
				o.Rates = map[string]float64{"write": 200, "delete-records": 60, "elect-preferred": 30, "cut-link": 12, "crash-leader": 4}
			}}},
	}
}
