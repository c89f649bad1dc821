package sim

import (
	"slices"
	"time"

	"tidemark/internal/broker"
	"tidemark/internal/broker/api"
	"tidemark/internal/broker/coordinator"
	"tidemark/internal/core/meta"
	"tidemark/internal/log"
	"tidemark/internal/metastore"
	"tidemark/internal/metastore/backup"
)

// serviceMutations switch off what groups, deletions, sessions, the vault and restores rest on.
func serviceMutations() []*Mutation {
	return []*Mutation{
		{Name: "commit-unreplicated", Rule: "R14: a group's commit is answered before it is replicated", Finds: []string{"CommitKept", "OneOwner"},
			Cluster: &clusterMutation{rules: broker.VirtualRules{Groups: coordinator.Rules{AckUnreplicated: true}}, adjust: groupsAtWork}},
		{Name: "coordinator-unfenced", Rule: "R10: a coordinator serves on after it has lost its partition", Finds: []string{"CoordinatorFence", "CommitKept", "OneOwner", "LeaseFence"},
			Cluster: &clusterMutation{rules: broker.VirtualRules{Groups: coordinator.Rules{NoFence: true}}, adjust: groupsAtWork}},
		{Name: "delete-at-once", Rule: "KIP-107: a deletion of records is answered before the in-sync replicas have made it", Finds: []string{"DeletedIsGone"},
			Cluster: &clusterMutation{rules: broker.VirtualRules{DeleteAtOnce: true}, adjust: func(o *ClusterOptions) {
				o.Compacted, o.Unclean, o.SlowMessage = false, false, 0.2
				o.Rates = map[string]float64{"write": 300, "delete-records": 40, "elect-preferred": 30, "restart-cleanly": 6, "cut-link": 6}
			}}},
		{Name: "retain-above-mark", Rule: "retention doesn't stop at the high watermark", Finds: []string{"LogStartLegal", "ISRHoldsHW", "AckedIsKept", "PANIC"},
			Cluster: &clusterMutation{rules: broker.VirtualRules{Log: log.Rules{RetainAboveMark: true}}, adjust: func(o *ClusterOptions) {
				o.Compacted, o.SegmentBytes, o.RetentionBytes, o.MinISR, o.LagMax = false, 900, 1000, 2, 10*time.Second
				o.Rates = map[string]float64{"write": 400, "cut-link": 12, "crash": 4}
			}}},
		{Name: "compact-newest", Rule: "compaction drops the newest record of a key too", Finds: []string{"AckedIsKept", "CommitKept"},
			Cluster: &clusterMutation{rules: broker.VirtualRules{Log: log.Rules{CompactNewest: true}}, adjust: func(o *ClusterOptions) {
				o.Compacted, o.SegmentBytes = true, 900
				o.Rates = map[string]float64{"write": 300, "elect-preferred": 6, "crash": 4}
			}}},
		{Name: "session-no-news", Rule: "KIP-227: a fetch session tells of a moved mark with records only", Finds: []string{"Convergence"},
			Cluster: &clusterMutation{rules: broker.VirtualRules{Sessions: api.SessionRules{NoNews: true}}, adjust: func(o *ClusterOptions) {
				o.Wire, o.SessionSlots, o.Length, o.Calm, o.Members = true, 0, 10*time.Second, time.Minute, 0
				o.Rates = map[string]float64{"write": 60, "read": 60}
			}}},
		{Name: "cuts-unkept", Rule: "R1: what a follower's cut removes is not kept", Finds: []string{"VaultComplete"},
			Cluster: &clusterMutation{noVault: true, adjust: backToBack}},
		{Name: "kept-late", Rule: "R1: what a follower's cut removes is kept after the cut", Finds: []string{"VaultComplete"}, from: 8,
			Cluster: &clusterMutation{vaultLate: true, adjust: func(o *ClusterOptions) {
				backToBack(o)
				o.VaultBytes, o.PowerLoss = 0, 0
				o.Rates["crash"] = 12
			}}},
		{Name: "old-metadata", Rule: "R19: a node starts on metadata older than what its folders have followed", Finds: []string{"MetadataWentBack"},
			Cluster: &clusterMutation{rules: broker.VirtualRules{TrustOldMetadata: true}, adjust: restoresOften}},
		{Name: "restore-unmarked", Rule: "R19: a restore leaves leaders and ISR as the backup has them", Finds: []string{"AckedIsKept", "EpochRises", "OneLeader", "OneWriter", "ISRHoldsHW", "UncleanNotAllowed", "LogMatching", "EpochHistory", "PANIC", "Convergence", "ConsumerSeesStable"}, from: 9,
			Cluster: &clusterMutation{restoreUnmarked: true, adjust: restoresOften}},
	}
}

func groupsAtWork(o *ClusterOptions) {
	o.Members, o.Unclean, o.Compacted, o.Lease, o.RestartMost = 4, false, false, 3*time.Second, 4*time.Second
	o.SlowMessage, o.SlowWatch = 0.1, 0.4
	o.Rates = map[string]float64{"write": 60, "crash-coordinator": 8, "cut-link": 12, "elect-preferred": 12, "cut-store": 4, "group-leave": 6, "group-pause": 2}
}

func restoresOften(o *ClusterOptions) {
	o.Length, o.Compacted, o.Unclean = 2*time.Minute, false, false
	o.Rates = map[string]float64{"write": 90, "read": 20, "backup": 3, "restore": 3, "elect-preferred": 6, "cut-link": 2, "crash": 1}
}

// putUnmarked is a restore that says nothing but that it is one.
func (c *cluster) putUnmarked(b *backup.Backup) error {
	keys := meta.KeysOf("cluster")
	for chunk := range slices.Chunk(b.KVs, 50) {
		var txn metastore.Txn
		for _, kv := range chunk {
			if kv.Key == keys.Cluster() {
				rec, err := meta.DecodeCluster(kv.Key, kv.Value)
				if err != nil {
					return err
				}
				rec.Restore = &meta.Restore{ID: c.restoreID(), Revision: b.Revision}
				kv.Value = rec.Encode()
			}
			txn.Then = append(txn.Then, meta.Put(kv.Key, kv.Value))
		}
		if _, err := c.store.Txn(background, txn); err != nil {
			return err
		}
	}
	return nil
}
