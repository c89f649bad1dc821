package sim

import (
	"tidemark/internal/broker"
	"tidemark/internal/core/replica"
	"tidemark/internal/log"
	"tidemark/internal/metastore"
)

// clusterMutation is what a mutation switches off in the system of brokers.
type clusterMutation struct {
	rules    broker.VirtualRules
	keepsELR bool // R12: min ISR is lowered and the ELR stays
	// change, if not nil, changes a transaction on its way to the store.
	change func(s *storeLink, txn metastore.Txn) metastore.Txn
	adjust func(*ClusterOptions)
}

func (m *clusterMutation) changed(s *storeLink, txn metastore.Txn) metastore.Txn {
	if m.change == nil {
		return txn
	}
	return m.change(s, txn)
}

// clusterMutations are those of the system of brokers.
func clusterMutations() []*Mutation {
	return []*Mutation{
		{Name: "cut-to-hw", Profile: "cluster", Rule: "R13: a follower cuts to its high watermark", Finds: []string{"AckedIsKept", "LogMatching", "ISRHoldsHW"},
			Cluster: &clusterMutation{rules: broker.VirtualRules{Follower: replica.Rules{CutToHighWatermark: true}}}},
		{Name: "epoch-unsynced", Profile: "cluster", Rule: "R3: an election is not synced before the leader serves", Finds: []string{"EpochDurable"},
			Cluster: &clusterMutation{rules: broker.VirtualRules{Log: log.Rules{EpochUnsynced: true}}}},
	}
}
