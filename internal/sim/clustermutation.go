package sim

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"tidemark/internal/broker"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/replica"
	"tidemark/internal/log"
	"tidemark/internal/metastore"
)

// clusterMutation is what a mutation switches off in the system of brokers.
type clusterMutation struct {
	rules    broker.VirtualRules
	keepsELR bool // R12: min ISR is lowered and the ELR stays
	// lateAnswers has fetches get an answer again that they had before.
	lateAnswers bool
	// sureOfAll has a transaction whose answer is lost count as refused.
	sureOfAll bool
	// noVault keeps nothing of what a cut removes, vaultLate keeps it after the cut (R1).
	noVault, vaultLate bool
	// restoreUnmarked puts a backup's records back as they are (R19).
	restoreUnmarked bool
	// slowPeers is the key of the requests between brokers that often come late; 0: none do.
	slowPeers int16
	// slowAnswers is the key of those whose answers often do.
	slowAnswers int16
	// diesAtEnd is how often a producer dies once it has asked for the end of its transaction.
	diesAtEnd float64
	// noSuccessors: who dies in the middle of a transaction has no successor that would end it.
	noSuccessors bool
	// change, if not nil, changes a transaction on its way to the store.
	change func(s *storeLink, txn metastore.Txn) metastore.Txn
	adjust func(*ClusterOptions)
	// mute are invariants that aren't judged: they notice at once, and the harm is to be seen.
	mute []string
}

func (m *clusterMutation) changed(s *storeLink, txn metastore.Txn) metastore.Txn {
	if m.change == nil {
		return txn
	}
	return m.change(s, txn)
}

// more gives actions of the kinds at least these rates.
func more(rates map[string]float64) func(*ClusterOptions) {
	return func(o *ClusterOptions) {
		for kind, rate := range rates {
			o.Rates[kind] = max(o.Rates[kind], rate)
		}
	}
}

// clusterMutations are those of the system of brokers.
func clusterMutations() []*Mutation {
	harm := []string{"AckedIsKept", "LogMatching", "ISRHoldsHW", "ConsumerSeesStable", "VaultComplete", "CommitKept", "LogStartLegal", "DeletedIsGone"}
	list := []*Mutation{
		{Name: "epoch-unsynced", Rule: "R3: an election is not synced before the leader serves", Finds: []string{"EpochDurable"},
			Cluster: &clusterMutation{rules: broker.VirtualRules{Log: log.Rules{EpochUnsynced: true}}, adjust: more(map[string]float64{"crash": 4})}},
		{Name: "no-election-entry", Rule: "R3: an election leaves no entry before its first record (KAFKA-7415)", Finds: append([]string{"EpochDurable", "Convergence", "EpochHistory", "PANIC"}, harm...),
			Cluster: &clusterMutation{rules: broker.VirtualRules{Log: log.Rules{EpochAtFirstRecord: true}}, adjust: backToBack}},
		{Name: "cut-to-hw", Rule: "R13: a follower cuts to its high watermark (KAFKA-1211)", Finds: harm,
			Cluster: &clusterMutation{rules: broker.VirtualRules{Follower: replica.Rules{CutToHighWatermark: true}}, adjust: func(o *ClusterOptions) {
				backToBack(o)
				o.FetchBytes, o.Producers, o.SlowMessage, o.PowerLoss = 1, 4, 0.2, 0
				o.Rates = map[string]float64{"write": 600, "crash-leader": 15, "elect-preferred": 6}
			}}},
		{Name: "kafka-7415", Rule: "R3, R13: an election leaves no entry, and a follower cuts to its high watermark (KAFKA-7415)", Finds: append([]string{"EpochDurable"}, harm...),
			Cluster: &clusterMutation{rules: broker.VirtualRules{Log: log.Rules{EpochAtFirstRecord: true}, Follower: replica.Rules{CutToHighWatermark: true}}, adjust: backToBack}},
		{Name: "no-divergence", Rule: "R13: a follower compares no epochs", Finds: append([]string{"PANIC", "EpochHistory", "Convergence"}, harm...),
			Cluster: &clusterMutation{rules: broker.VirtualRules{Follower: replica.Rules{IgnoreDivergence: true}}, adjust: backToBack}},
		{Name: "count-unproved", Rule: "R14: a follower counts before it has fetched in the epoch", Finds: harm,
			Cluster: &clusterMutation{rules: broker.VirtualRules{Leader: replica.LeaderRules{CountUnproved: true}}, adjust: backToBack}},
		{Name: "take-late", Rule: "R13: a follower takes an answer that is late", Finds: append([]string{"PANIC", "EpochHistory", "Convergence"}, harm...),
			Cluster: &clusterMutation{rules: broker.VirtualRules{Follower: replica.Rules{TakeLate: true}}, lateAnswers: true, adjust: backToBack}},
		{Name: "join-any-epoch", Rule: "R15: a join counts in another registration than it was proved in", Finds: harm,
			Cluster: &clusterMutation{rules: broker.VirtualRules{Leader: replica.LeaderRules{JoinInAnyEpoch: true}}, adjust: quickRestarts}},
		{Name: "no-lease-fence", Rule: "R10: a broker serves on after its lease", Finds: append([]string{"LeaseFence"}, harm...),
			Cluster: &clusterMutation{rules: broker.VirtualRules{NoLeaseFence: true}, adjust: more(map[string]float64{"cut-store": 8, "read": 60})}},
		{Name: "cut-keeps-history", Rule: "R1: the history is not cut with the log", Finds: []string{"EpochHistory", "PANIC"},
			Cluster: &clusterMutation{rules: broker.VirtualRules{Log: log.Rules{CutKeepsHistory: true}}, adjust: backToBack}},
		{Name: "stale-isr", Rule: "R7: an election doesn't compare the record it was decided on", Finds: append([]string{"UncleanNotAllowed", "EpochRises", "OneLeader", "PANIC"}, harm...),
			Cluster: &clusterMutation{change: withoutRecordCompare, adjust: func(o *ClusterOptions) {
				o.SlowWatch, o.Compacted, o.MinISR, o.LagMax, o.Unclean = 0.6, false, 1, 2*time.Second, false
				o.Rates = map[string]float64{"write": 300, "elect-preferred": 40, "cut-link": 20, "restart-cleanly": 6, "crash": 4}
			}}},
		{Name: "keeps-epoch", Rule: "R10: a restarted leader goes on in its epoch", Finds: append([]string{"OneLeader", "OneWriter"}, harm...),
			Cluster: &clusterMutation{rules: broker.VirtualRules{KeepsEpoch: true}, adjust: quickRestarts}},
		{Name: "kept-after-crash", Rule: "R11: membership of the ISR survives a restart that lost bytes", Finds: harm,
			Cluster: &clusterMutation{change: claimsAll, adjust: quickRestarts}},
		{Name: "unknown-is-refused", Rule: "R8: a write of unknown outcome is taken for not in force", Finds: harm,
			Cluster: &clusterMutation{rules: broker.VirtualRules{UnknownIsRefused: true}, sureOfAll: true, adjust: func(o *ClusterOptions) {
				o.TxnFault, o.SlowWatch, o.Unclean, o.Compacted, o.MinISR, o.LagMax = 0.5, 0.5, false, false, 1, 2*time.Second
				o.SlowMessage, o.DropMessage = 0.1, 0.02
				o.Rates = map[string]float64{"write": 600, "restart-cleanly": 10, "cut-link": 15, "read": 20}
			}}},
		{Name: "join-below-start", Rule: "R15: a join needs the high watermark and not the epoch's start", Finds: harm, from: 155,
			Cluster: &clusterMutation{rules: broker.VirtualRules{Leader: replica.LeaderRules{JoinBelowEpochStart: true}}, adjust: func(o *ClusterOptions) {
				quickRestarts(o)
				o.KeepBlock, o.KeepEntry, o.FlushEvery, o.SlowMessage, o.MinISR, o.Lease = 0.5, 0.5, 100*time.Millisecond, 0.3, 2, 3*time.Second
				o.Rates = map[string]float64{"write": 120, "crash-pair": 15, "crash-leader": 5}
			}}},
		{Name: "keeps-elr", Rule: "R12: min ISR is lowered and the ELR stays", Finds: harm,
			Cluster: &clusterMutation{keepsELR: true, adjust: func(o *ClusterOptions) {
				o.MinISR, o.Unclean, o.Compacted = 2, false, false
				o.Rates = map[string]float64{"write": 120, "min-isr": 12, "cut-link": 12, "crash": 6, "restart-cleanly": 4}
			}}},
		{Name: "trailing-entry", Rule: "R3: a follower keeps its own election's entry without records", Finds: append([]string{"EpochHistory", "PANIC"}, harm...),
			Cluster: &clusterMutation{rules: broker.VirtualRules{Log: log.Rules{KeepTrailingEntry: true}}, adjust: backToBack}},
		{Name: "gap-at-batch", Rule: "R4: an epoch begins at its batch, behind a compaction gap", Finds: append([]string{"EpochHistory"}, harm...),
			Cluster: &clusterMutation{rules: broker.VirtualRules{Log: log.Rules{EpochAtBatch: true}}, adjust: func(o *ClusterOptions) {
				o.Compacted, o.SegmentBytes = true, 900
				o.Rates = map[string]float64{"write": 300, "crash": 4, "restart-cleanly": 4, "cut-link": 6, "reassign": 4, "elect-preferred": 6}
			}}},
	}
	list = append(list, serviceMutations()...)
	list = append(list, returnMutations()...)
	list = append(list, txnMutations()...)
	list = append(list, newGroupMutations()...)
	for _, m := range list {
		m.Profile = cmp.Or(m.Profile, "cluster")
	}
	return list
}

// backToBack are runs in which leaders change often, with little between.
func backToBack(o *ClusterOptions) {
	o.Compacted, o.Unclean, o.MinISR = false, false, min(o.MinISR, 2)
	o.Lease, o.RestartMost, o.FlushEvery = 3*time.Second, 2*time.Second, 100*time.Millisecond
	o.Rates = map[string]float64{"write": 200, "read": 40, "elect-preferred": 10, "crash": 6, "cut-link": 8, "restart-cleanly": 4, "crash-in-write": 3}
}

// quickRestarts are runs in which brokers lose power and are back before their lease has ended.
func quickRestarts(o *ClusterOptions) {
	o.Compacted, o.Unclean, o.PowerLoss, o.KeepBlock, o.KeepEntry, o.FlushEvery, o.FlushAcks = false, false, 1, 0, 0, time.Hour, false
	o.Lease, o.RestartMost = 6*time.Second, 300*time.Millisecond
	o.Members, o.Wire, o.SessionSlots, o.RetentionBytes, o.VaultBytes = 0, false, 0, 0, 0
	o.Rates = map[string]float64{"write": 300, "read": 20, "crash": 12, "cut-link": 4, "cut-store": 2}
}

// withoutRecordCompare drops what compares a partition's record, from elections.
func withoutRecordCompare(s *storeLink, txn metastore.Txn) metastore.Txn {
	elects := false
	for _, op := range txn.Then {
		if op.Kind != meta.OpPut || !strings.Contains(op.Key, "/partitions/") {
			continue
		}
		next, err := meta.DecodePartition(op.Key, op.Value)
		kv, _, errNow := s.m.c.store.Get(background, op.Key)
		if err == nil && errNow == nil && kv.ModRevision != 0 {
			now, err := meta.DecodePartition(op.Key, kv.Value)
			elects = elects || err == nil && next.LeaderEpoch > now.LeaderEpoch
		}
	}
	if !elects {
		return txn
	}
	txn.If = slices.DeleteFunc(slices.Clone(txn.If), func(c meta.Compare) bool { return strings.Contains(c.Key, "/partitions/") })
	return txn
}

// claimsAll has every registration say that nothing was lost since the one before.
func claimsAll(s *storeLink, txn metastore.Txn) metastore.Txn {
	txn.Then = slices.Clone(txn.Then)
	for i, op := range txn.Then {
		if op.Kind != meta.OpPut || !strings.Contains(op.Key, "/brokers/") {
			continue
		}
		rec, err := meta.DecodeBroker(op.Key, op.Value)
		if err != nil {
			continue
		}
		if seen := s.m.c.check.leaseOf[rec.ID]; seen != nil {
			rec.CleanShutdownEpoch = seen.epoch
			txn.Then[i].Value = rec.Encode()
		}
	}
	return txn
}
