package sim

import (
	"strings"
	"time"

	"tidemark/internal/broker"
	"tidemark/internal/broker/mirror"
	"tidemark/internal/core/meta"
	core "tidemark/internal/core/mirror"
	"tidemark/internal/core/timeline"
	"tidemark/internal/log"
	"tidemark/internal/metastore"
)

// mirrorsMutation is what a mutation switches off in the system of several clusters.
type mirrorsMutation struct {
	rules broker.MirrorRules
	log   log.Rules
	// noVault and vaultLate (R1): nothing is kept, or after the cut.
	noVault, vaultLate bool
	// change, if not nil, changes a transaction on its way to a cluster's store.
	change func(s *storeLink, txn metastore.Txn) metastore.Txn
	adjust func(*MirrorsOptions)
	// retriesAreOld: a failover that is asked for again ends no later start than the one it was ordered for.
	retriesAreOld bool
	// mute are invariants that aren't judged: they notice at once, and the harm is to be seen.
	mute []string
}

// mirrorsMutations are those of the system of several clusters.
//
//tidy:long a table, one rule a row
func mirrorsMutations() []*Mutation {
	harm := []string{"Ownership", "LogMatching", "MirrorPrefix", "OneWriter", "AckedIsKept", "CutHasEpoch", "PANIC"}
	of := func(name, rule string, finds []string, m *mirrorsMutation) *Mutation {
		return &Mutation{Name: "mirrors-" + name, Rule: rule, Finds: finds, Profile: "mirrors", Mirrors: m}
	}
	coreRules := func(r core.Rules) broker.MirrorRules { return broker.MirrorRules{Mirror: mirror.Rules{Core: r}} }
	cuts := func(r timeline.Rules) broker.MirrorRules {
		return broker.MirrorRules{FirstCut: r, Mirror: mirror.Rules{Core: core.Rules{FirstCut: r}}}
	}
	startingAt := func(seed uint64, m *Mutation) *Mutation {
		m.from = seed
		return m
	}
	return []*Mutation{
		startingAt(13, of("no-entry", "R16: a promotion names no new history", harm,
			&mirrorsMutation{change: withoutEntry, adjust: forks, mute: []string{"PromotedOnce"}})),
		startingAt(15, of("larger-bound", "R17: the bound is the larger of the first unshared epochs", harm,
			&mirrorsMutation{rules: cuts(timeline.Rules{LargerBound: true}), adjust: siblings})),
		of("adopts-in-epoch", "R18: an adoption keeps the leader epoch", append([]string{"EpochRises"}, harm...),
			&mirrorsMutation{change: keepsEpoch, adjust: sleepers}),
		of("no-first-cut", "R19: a list is taken without the cut", harm,
			&mirrorsMutation{rules: cuts(timeline.Rules{NoCut: true}), adjust: forks}),
		of("epochs-only", "R19: the first unshared offset is not looked at", harm,
			&mirrorsMutation{rules: cuts(timeline.Rules{EpochsOnly: true}), adjust: sleepers}),
		startingAt(38, of("first-cut-in-sync", "R19: only in-sync replicas make the first cut", harm,
			&mirrorsMutation{rules: broker.MirrorRules{FirstCutInSync: true}, adjust: sleepers})),
		of("no-cut-before-leading", "R19: a leader serves without its first cut", harm,
			&mirrorsMutation{rules: broker.MirrorRules{NoCutBeforeLeading: true}, adjust: func(o *MirrorsOptions) {
				forks(o)
				o.Brokers, o.Replicas, o.MinISR, o.LagMax, o.Partitions, o.Messages, o.SlowWatch, o.TxnFault = 2, 2, 1, 30*time.Second, 1, Messages{}, 0, 0
				o.Rates = map[string]float64{"write": 60, "mirror": 6, "failover": 4, "failback": 3, "oversleep": 15}
			}}),
		startingAt(7, of("checkpoint-before-cut", "R1: the timeline checkpoint is written before the cut", harm,
			&mirrorsMutation{rules: broker.MirrorRules{Mirror: mirror.Rules{CheckpointBeforeCut: true}}, adjust: func(o *MirrorsOptions) {
				forks(o)
				o.RestartMost, o.FlushEvery = 500*time.Millisecond, 100*time.Millisecond
				o.Rates["crash-in-write"], o.Rates["failback"], o.Rates["failover"] = 40, 30, 20
			}})),
		of("no-realign", "R20: the second cut comes without its transaction", harm,
			&mirrorsMutation{rules: coreRules(core.Rules{NoRealign: true}), adjust: losses}),
		of("no-raise", "R21: a batch above the leader epoch is appended without a raise", append([]string{"EpochCovers"}, harm...),
			&mirrorsMutation{rules: coreRules(core.Rules{NoRaise: true}), adjust: losses}),
		of("fence-in-epoch", "R22: a change of writable keeps the leader epoch", append([]string{"EpochRises"}, harm...),
			&mirrorsMutation{change: fencesInEpoch, adjust: forks}),
		of("promotes-in-two", "R23: a promotion is two transactions", append([]string{"PromotedOnce"}, harm...),
			&mirrorsMutation{change: promotesInTwo, adjust: forks}),
		of("made-unasked", "R23: what is made for a mirror doesn't ask whether it runs (I-260)", []string{"PromotedOnce"},
			&mirrorsMutation{rules: broker.MirrorRules{Mirror: mirror.Rules{MadeUnasked: true}}, adjust: func(o *MirrorsOptions) {
				forks(o)
				o.Sites, o.SlowMessage, o.SlowWatch = 3, 0.4, 0.3
				o.Rates["mirror"], o.Rates["failover"] = 20, 60
			}}),
		of("switches-nothing", "R23: a switchover goes on though everything was promoted (I-262)", append([]string{"PromotedOnce", "Convergence", "OrderedOrReturned"}, harm...),
			&mirrorsMutation{rules: broker.MirrorRules{Mirror: mirror.Rules{SwitchesNothing: true}}, adjust: func(o *MirrorsOptions) {
				forks(o)
				o.LateVerbs = 0.7
				o.Rates["failover"], o.Rates["failback"], o.Rates["switchover"] = 12, 30, 30
			}}),
		of("returns-undecided", "R8: a switchover is taken back while its order can still be committed (I-265)", append([]string{"OrderedOrReturned"}, harm...),
			&mirrorsMutation{rules: broker.MirrorRules{Mirror: mirror.Rules{ReturnsUndecided: true}}, adjust: func(o *MirrorsOptions) {
				mirrorsProfiles["mirrors-switch"](o)
				o.Brokers, o.Replicas, o.MinISR = 2, 1, 1
			}}),
		of("switches-open", "ADR 28: a switchover promotes copies in which transactions are open (I-271)", []string{"TxnWhole"},
			&mirrorsMutation{rules: broker.MirrorRules{Mirror: mirror.Rules{SwitchesOpen: true}}, adjust: mirrorsProfiles["mirrors-switch-txn"]}),
		startingAt(2, of("promotes-any-start", "R23: a late retry promotes a later start", []string{"PromotedOnce"},
			&mirrorsMutation{retriesAreOld: true, rules: broker.MirrorRules{Mirror: mirror.Rules{PromoteAnyStart: true}}, adjust: func(o *MirrorsOptions) {
				forks(o)
				o.LateVerbs = 0.7
				o.Rates["failover"], o.Rates["failback"] = 12, 30
			}})),
		of("no-consent", "R24: no plan is asked for", []string{"Consent"},
			&mirrorsMutation{rules: coreRules(core.Rules{NoConsent: true}), adjust: forks}),
		startingAt(28, of("no-start-fence", "R25: a start doesn't close the partition", append([]string{"Consent"}, harm...),
			&mirrorsMutation{rules: broker.MirrorRules{Mirror: mirror.Rules{NoStartFence: true}}, adjust: func(o *MirrorsOptions) {
				forks(o)
				// So few writes that a plan often holds, and slow enough that one comes between look and adoption.
				o.SlowMessage, o.Partitions, o.SlowWatch, o.TxnFault = 0.3, 1, 0, 0
				o.Rates["write"], o.Rates["failback"], o.Rates["failover"], o.Rates["mirror"] = 40, 40, 30, 10
			}})),
		of("no-path", "R25: the source's mirror path is not looked at", []string{"PANIC", "Convergence"},
			&mirrorsMutation{rules: coreRules(core.Rules{NoPath: true}), adjust: forks}),
		of("no-identity", "R26: topic id and cluster id are not compared", append([]string{"VaultComplete", "Convergence"}, harm...),
			&mirrorsMutation{rules: coreRules(core.Rules{NoIdentity: true}), adjust: func(o *MirrorsOptions) {
				losses(o)
				o.Rates["kafka-recreate"], o.Rates["alter"] = 2, 6
			}}),
		of("no-probe", "R26: the last batch is not compared", harm,
			&mirrorsMutation{rules: coreRules(core.Rules{NoProbe: true}), adjust: func(o *MirrorsOptions) {
				losses(o)
				o.Rates["kafka-rewrite"], o.Rates["cut-wan"] = 4, 6
			}}),
		startingAt(2, of("no-mirror-ahead", "R27: a mirror that is behind counts as diverged", []string{"AheadOfMirror"},
			&mirrorsMutation{rules: coreRules(core.Rules{NoMirrorAhead: true}), adjust: func(o *MirrorsOptions) {
				forks(o)
				o.Sites, o.PowerLoss, o.KeepBlock, o.FlushEvery, o.RestartMost = 3, 1, 0, time.Hour, 500*time.Millisecond
				o.Rates["crash"], o.Rates["failover"], o.Rates["cut-wan"] = 10, 1, 6
			}})),
		startingAt(34, of("no-gap-check", "R28: a gap is jumped in silence", []string{"NoSilentGap"},
			&mirrorsMutation{rules: coreRules(core.Rules{NoGapCheck: true}), adjust: func(o *MirrorsOptions) {
				losses(o)
				o.ContinueOverGap = false
				o.Rates["kafka-retain"], o.Rates["cut-wan"], o.Rates["pause"] = 12, 8, 4
			}})),
		of("full-vault-drops", "R29: a full vault lets every cut go", []string{"VaultComplete"},
			&mirrorsMutation{rules: broker.MirrorRules{Keeper: func(v log.Keeper) log.Keeper { return fullKeeper{v} }}, adjust: func(o *MirrorsOptions) {
				forks(o)
				o.VaultBytes = 1500
			}}),
		of("no-vault", "R1: what a cut removes is not kept", []string{"VaultComplete"},
			&mirrorsMutation{noVault: true, adjust: forks}),
		of("vault-late", "R1: the vault is written after the cut", []string{"VaultComplete"},
			&mirrorsMutation{vaultLate: true, adjust: forks}),
		of("gap-at-batch", "R4: an epoch begins at its batch, behind a compaction gap", []string{"EpochHistory"},
			&mirrorsMutation{log: log.Rules{EpochAtBatch: true}, adjust: func(o *MirrorsOptions) {
				losses(o)
				o.Compacted = true
				o.Rates["kafka-compact"], o.Rates["kafka-elect"] = 20, 12
			}}),
		startingAt(20, of("keeps-compacted", "ADR 27: a cut below what the own compaction has reached goes no further down", []string{"Convergence", "LogMatching"},
			&mirrorsMutation{rules: coreRules(core.Rules{KeepsCompacted: true}), adjust: func(o *MirrorsOptions) {
				forks(o)
				o.Compacted, o.SegmentBytes = true, 600
				o.Rates["failover"], o.Rates["failback"] = 12, 20
			}})),
		of("kip1279-no-entry", "R16: what a KIP-1279 source says it mirrored makes no entry of the list", harm,
			&mirrorsMutation{rules: coreRules(core.Rules{NoTakenOver: true}), adjust: func(o *MirrorsOptions) {
				forks(o)
				o.KIP1279 = true
			}}),
		startingAt(1796036867546223745, of("cuts-unawaited", "DESIGN §6.3: clients are answered before committed offsets have followed a cut", []string{"GroupNotAhead"},
			&mirrorsMutation{rules: broker.MirrorRules{CutsUnawaited: true}})),
		of("cuts-anywhere", "I-250: a cut counts as followed though a coordinator has not loaded its groups", []string{"GroupNotAhead"},
			&mirrorsMutation{rules: broker.MirrorRules{Mirror: mirror.Rules{CutsAnywhere: true}}, adjust: coordinatorsMove}),
		startingAt(18, of("groups-stay", "DESIGN §6.3: a cut lowers no group's offset", []string{"GroupNotAhead"},
			&mirrorsMutation{rules: broker.MirrorRules{GroupsStay: true}, adjust: func(o *MirrorsOptions) {
				forks(o)
				o.Rates["commit"] = 40
			}})),
	}
}

// forks are runs in which both sides are written, and change sides again and again.
func forks(o *MirrorsOptions) {
	o.Sites, o.Kafka, o.Compacted, o.Unclean, o.Producers, o.Loyal, o.VaultBytes, o.PromotionStep = 2, false, false, false, 2, 0.95, -1, 1
	o.Brokers, o.Replicas, o.MinISR = 1, 1, 1
	o.Rates = map[string]float64{"write": 150, "commit": 5, "mirror": 10, "failover": 8, "failback": 12, "cut-wan": 3}
}

// sleepers are forks of clusters whose replicas are away again and again.
func sleepers(o *MirrorsOptions) {
	forks(o)
	o.Brokers, o.Replicas, o.MinISR, o.PowerLoss, o.Lease, o.LagMax, o.RestartMost = 2, 2, 1, 0, 3*time.Second, 2*time.Second, 12*time.Second
	o.Rates["crash"], o.Rates["restart-cleanly"], o.Rates["elect-preferred"] = 8, 3, 6
}

// coordinatorsMove are forks whose cuts meet coordinators that were just elected and don't know it.
func coordinatorsMove(o *MirrorsOptions) {
	forks(o)
	o.Brokers, o.Replicas, o.MinISR, o.Partitions, o.LagMax, o.Messages, o.SlowWatch, o.TxnFault = 3, 2, 1, 1, 30*time.Second, Messages{}, 0, 0
	o.GroupSync = 20 * time.Second // else the next round has what the source committed, which is lower
	o.Rates = map[string]float64{"write": 60, "mirror": 6, "failover": 4, "failback": 2, "oversleep-office": 15}
}

// siblings are two mirrors of one Kafka cluster, each failed over while the other copies on:
// of their timelines, which begin at one history, the later one begins higher in epoch and offset.
func siblings(o *MirrorsOptions) {
	forks(o)
	o.Kafka, o.Headroom = true, 0
	o.Rates["kafka-write"], o.Rates["kafka-elect"], o.Rates["mirror"], o.Rates["failover"], o.Rates["failback"] = 150, 10, 10, 4, 10
}

// losses are runs behind a source that loses what was copied.
func losses(o *MirrorsOptions) {
	o.Kafka, o.Compacted, o.VaultBytes, o.SlowReplica, o.Headroom, o.Sites, o.Brokers, o.Replicas, o.MinISR = true, false, -1, 0.6, 0, 2, 1, 1, 1
	o.Rates = map[string]float64{"mirror": 6, "kafka-write": 150, "kafka-elect": 6, "kafka-elect-unclean": 12, "kafka-retain": 1, "failover": 0.3, "cut-wan": 1}
}

// eachRecord changes the partition records of a transaction, as what the store has now.
func eachRecord(s *storeLink, txn metastore.Txn, change func(key string, now, next *meta.PartitionRecord) bool) metastore.Txn {
	out := txn
	out.Then = append([]metastore.Op(nil), txn.Then...)
	for i, op := range out.Then {
		if op.Kind != meta.OpPut || !strings.Contains(op.Key, "/partitions/") {
			continue
		}
		next, err := meta.DecodePartition(op.Key, op.Value)
		kv, _, errNow := s.m.c.store.Get(background, op.Key)
		if err != nil || errNow != nil || kv.ModRevision == 0 {
			continue
		}
		now, err := meta.DecodePartition(op.Key, kv.Value)
		if err == nil && change(op.Key, now, next) {
			out.Then[i].Value = next.Encode()
		}
	}
	return out
}

func isPromotion(now, next *meta.PartitionRecord) bool {
	return !now.Writable && next.Writable && len(next.Promotions) > len(now.Promotions)
}

// withoutEntry has promotions name no history of their own.
func withoutEntry(s *storeLink, txn metastore.Txn) metastore.Txn {
	return eachRecord(s, txn, func(_ string, now, next *meta.PartitionRecord) bool {
		if !isPromotion(now, next) || len(now.Timelines) == 0 {
			return false
		}
		next.Timelines = now.Timelines
		return true
	})
}

// promotesInTwo has a promotion's list follow a little later.
func promotesInTwo(s *storeLink, txn metastore.Txn) metastore.Txn {
	return eachRecord(s, txn, func(key string, now, next *meta.PartitionRecord) bool {
		if !isPromotion(now, next) || len(now.Timelines) == 0 {
			return false
		}
		list := next.Timelines
		next.Timelines = now.Timelines
		c := s.m.c
		c.k.after(300*time.Millisecond, "second half of a promotion", func() {
			kv, _, err := c.store.Get(background, key)
			if err != nil || kv.ModRevision == 0 {
				return
			}
			rec, err := meta.DecodePartition(key, kv.Value)
			if err == nil && rec.Writable && rec.LeaderEpoch == next.LeaderEpoch {
				rec.Timelines = list
				_, _ = c.store.Txn(background, metastore.Txn{If: []meta.Compare{meta.ModRevisionIs(key, kv.ModRevision)}, Then: []meta.Op{meta.Put(key, rec.Encode())}})
				c.storeChanged()
			}
		})
		return true
	})
}

// keepsEpoch has adoptions keep the leader epoch.
func keepsEpoch(s *storeLink, txn metastore.Txn) metastore.Txn {
	return eachRecord(s, txn, func(_ string, now, next *meta.PartitionRecord) bool {
		if next.Writable || len(now.Timelines) == 0 || now.Timelines.Equal(next.Timelines) {
			return false
		}
		next.LeaderEpoch = now.LeaderEpoch
		return true
	})
}

// fencesInEpoch has a partition closed to clients in the leader epoch in which they write.
func fencesInEpoch(s *storeLink, txn metastore.Txn) metastore.Txn {
	return eachRecord(s, txn, func(_ string, now, next *meta.PartitionRecord) bool {
		if !now.Writable || next.Writable {
			return false
		}
		next.LeaderEpoch = now.LeaderEpoch
		return true
	})
}

// fullKeeper says that a cut is kept when there is no room for it.
type fullKeeper struct{ vault log.Keeper }

// Keep implements log.Keeper.
func (k fullKeeper) Keep(r log.Removal) (string, error) {
	id, err := k.vault.Keep(r)
	if err != nil {
		return "", nil //nolint:nilerr // the rule that is switched off
	}
	return id, nil
}
