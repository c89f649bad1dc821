package sim

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// ClusterOptions are one run's features and fault rates in the system of brokers.
type ClusterOptions struct {
	Brokers, Partitions, Replicas, MinISR int
	Producers, Consumers                  int           // of each partition; every third producer has acks=1
	Length                                time.Duration // of the phase with faults, virtual
	Calm                                  time.Duration // bound of the liveness phase

	Messages
	SlowWatch, TxnFault float64
	Drift               float64 // how far a monotonic clock may run fast or slow; the margin of R10 is 0.02
	Lease               time.Duration
	LagMax              time.Duration // replica.lag.time.max.ms
	RestartMost         time.Duration // the longest time between a crash and the next start

	FlushAcks    bool // log.flush.acks
	FlushEvery   time.Duration
	Unclean      bool // unclean.leader.election.enable
	Compacted    bool
	Rebalance    bool // auto.leader.rebalance.enable
	SegmentBytes int32
	FetchBytes   int

	PowerLoss, KeepBlock, KeepEntry float64
	Buggify                         bool

	// Members of consumer groups; 0: there are none, and no __consumer_offsets.
	Members int
	// NewMembers are those of groups of the new protocol (KIP-848). Only profiles that name it have any.
	NewMembers int
	// Wire has followers and consumers speak Kafka's protocol with their fetch
	// sessions; without it a fetch calls the leader's partition.
	Wire           bool
	SessionSlots   int32 // max.incremental.fetch.session.cache.slots; 0: the default
	RetentionBytes int64 // retention.bytes; 0: no limit
	VaultBytes     int64 // vault.max.bytes; 0: the default

	// Txns is how many transactional ids there are; 0: none, and no __transaction_state.
	// Only profiles that name it have any.
	Txns       int
	TxnTimeout time.Duration // transaction.timeout.ms of their producers
	TxnThinks  time.Duration // the longest time between two steps of a transaction
	TxnTries   int           // how often a producer sends a batch before it aborts
	TxnOffsets bool          // their transactions commit offsets of groups too
	// TxnLateAtOnce brings batches that nobody acknowledged once more as soon as their transaction is over.
	TxnLateAtOnce bool
	// DeleteRetention is the topic's delete.retention.ms, which markers of transactions wait
	// for, too; 0: the default.
	DeleteRetention time.Duration

	Rates map[string]float64 // actions of each kind per virtual minute
}

// clusterProfiles are the mixtures for the system of brokers.
var clusterProfiles = map[string]func(*ClusterOptions){
	// cluster is any mixture.
	"cluster": func(*ClusterOptions) {},
	// cluster-calm has no faults at all: what fails here fails always.
	"cluster-calm": func(o *ClusterOptions) {
		o.Messages, o.SlowWatch, o.TxnFault, o.Buggify = Messages{}, 0, 0, false
		o.Rates = map[string]float64{"write": 120, "read": 60}
	},
	// cluster-crashes stops brokers again and again, with loss of power.
	"cluster-crashes": func(o *ClusterOptions) {
		o.PowerLoss, o.Unclean = max(o.PowerLoss, 0.5), false
		o.Rates = map[string]float64{"write": 120, "read": 30, "crash": 6, "crash-in-write": 6, "crash-all": 0.5, "restart-cleanly": 2}
	},
	// cluster-elections moves leaders all the time.
	"cluster-elections": func(o *ClusterOptions) {
		o.Rates = map[string]float64{"write": 150, "read": 30, "elect-preferred": 6, "crash": 4, "cut-link": 6, "expire-lease": 4, "restart-cleanly": 2, "reassign": 2}
	},
	// cluster-groups has consumer groups whose coordinators and members come and go.
	"cluster-groups": func(o *ClusterOptions) {
		o.Members, o.Unclean = max(o.Members, 3), false
		o.Rates = map[string]float64{"write": 90, "crash-coordinator": 4, "group-leave": 6, "group-pause": 4, "cut-link": 4, "cut-store": 2, "elect-preferred": 4, "reassign": 2, "restart-cleanly": 1}
	},
	// cluster-kip848 has groups of the new protocol whose coordinators and members come and go.
	"cluster-kip848": newGroupsAtWork,
	// cluster-deletes lets records go: retention, DeleteRecords, compaction, cuts, with little room in the vault.
	"cluster-deletes": func(o *ClusterOptions) {
		o.SegmentBytes, o.RetentionBytes, o.FlushEvery = min(o.SegmentBytes, 4000), 3000, 100*time.Millisecond
		o.Rates = map[string]float64{"write": 200, "read": 30, "delete-records": 10, "crash": 4, "crash-leader": 4, "cut-link": 8, "elect-preferred": 4, "crash-in-write": 2}
	},
	// cluster-restores puts the metadata back to what it was earlier.
	"cluster-restores": func(o *ClusterOptions) {
		o.Length, o.Members = max(o.Length, 90*time.Second), max(o.Members, 2)
		o.Rates = map[string]float64{"write": 60, "read": 20, "backup": 2, "restore": 1, "crash": 2, "elect-preferred": 3, "reassign": 1, "restart-cleanly": 1}
	},
	// cluster-txn has transactions whose producers, coordinators and leaders die, move and freeze.
	"cluster-txn": transactionsAtWork,
	// cluster-txn-offsets has groups' offsets in them.
	"cluster-txn-offsets": func(o *ClusterOptions) {
		transactionsAtWork(o)
		o.TxnOffsets = true
		o.Rates["crash-coordinator"] = 2
	},
	// cluster-txn-unclean has records of them taken by unclean elections, also of coordinators' logs.
	"cluster-txn-unclean": func(o *ClusterOptions) {
		transactionsAtWork(o)
		o.TxnOffsets, o.Unclean, o.PowerLoss, o.MinISR = true, true, max(o.PowerLoss, 0.5), 1
		o.Rates["elect-unclean"], o.Rates["crash-leader"], o.Rates["crash-txns"] = 2, 4, 4
	},
	// cluster-txn-deletes, -compacted and -restores have them beside what takes records, or takes them back.
	"cluster-txn-deletes": besideDeletes, "cluster-txn-compacted": besideCompaction, "cluster-txn-restores": besideRestores,
	// cluster-returns puts it back while nodes are down that know nothing newer (ADR 29).
	"cluster-returns": returnsOften,
	// cluster-cuts separates brokers from each other and from the store.
	"cluster-cuts": func(o *ClusterOptions) {
		o.Rates = map[string]float64{"write": 120, "read": 60, "cut-link": 12, "cut-store": 6, "crash": 2}
	},
}

// hasGroups reports whether there is a __consumer_offsets.
func (o *ClusterOptions) hasGroups() bool { return o.Members > 0 || o.NewMembers > 0 || o.TxnOffsets }

func newGroupsAtWork(o *ClusterOptions) {
	o.NewMembers, o.Members, o.Partitions = 4+o.Members, 0, 4
	o.Unclean, o.Compacted, o.RetentionBytes = false, false, 0
	o.Rates = map[string]float64{"write": 90, "consumer-leave": 5, "consumer-pause": 5, "consumer-die": 4, "crash-coordinator": 4, "crash-in-write": 1, "cut-link": 4, "cut-store": 2,
		"elect-preferred": 6, "reassign": 2, "restart-cleanly": 1, "expire-lease": 1, "disk-full": 0.5, "clock-jump": 1}
}

func transactionsAtWork(o *ClusterOptions) {
	o.Txns, o.TxnTimeout, o.TxnThinks, o.TxnTries = 3, 3*time.Second, 100*time.Millisecond, 3
	o.Members, o.Unclean, o.Compacted, o.RetentionBytes, o.VaultBytes, o.Partitions = 0, false, false, 0, 0, 3
	o.Rates = map[string]float64{"write": 60, "txn-die": 6, "txn-second": 3, "txn-pause": 4, "txn-late": 20, "crash-txns": 3, "crash": 1, "crash-leader": 2, "crash-in-write": 1,
		"cut-link": 4, "cut-store": 1, "elect-preferred": 8, "reassign": 1, "restart-cleanly": 1, "expire-lease": 1, "clock-jump": 1}
}

// SwarmCluster draws a run's options from its seed.
func SwarmCluster(seed uint64, profile string) (ClusterOptions, error) {
	adjust, ok := clusterProfiles[profile]
	if !ok {
		return ClusterOptions{}, fmt.Errorf("no profile %q", profile)
	}
	d := dice{rand.New(rand.NewPCG(seed, 0x636c_7573_7465_72))}
	o := ClusterOptions{
		Brokers: pick(d, 3, 3, 3, 4, 5), Partitions: 1 + d.IntN(2), Replicas: 3, MinISR: pick(d, 1, 2, 2, 2), Producers: 1 + d.IntN(3), Consumers: 1,
		Length: d.between(30*time.Second, 2*time.Minute), Calm: 10 * time.Minute,
		Messages:  Messages{SlowMessage: d.some(0.6, 0.1), DropMessage: d.some(0.4, 0.05), DuplicateMessage: d.some(0.2, 0.05)},
		SlowWatch: d.some(0.5, 0.4), TxnFault: d.some(0.5, 0.3), Drift: 0.005, Lease: pick(d, 3*time.Second, 6*time.Second), LagMax: pick(d, 2*time.Second, 5*time.Second, 10*time.Second),
		RestartMost: pick(d, 500*time.Millisecond, 4*time.Second, 15*time.Second),
		FlushAcks:   d.chance(0.2), FlushEvery: pick(d, 100*time.Millisecond, 2*time.Second, time.Hour), Unclean: d.chance(0.15), Compacted: d.chance(0.15), Rebalance: d.chance(0.3),
		SegmentBytes: pick(d, int32(900), 4000, 100_000), FetchBytes: pick(d, 1, 600, 100_000),
		PowerLoss: d.Float64(), KeepBlock: pick(d, 0, 0.5, 1), KeepEntry: pick(d, 0, 0.5, 1), Buggify: d.chance(0.7),
		Rates: map[string]float64{"write": pick(d, 30.0, 120, 400), "read": pick(d, 20.0, 60)},
	}
	for _, a := range clusterActions {
		if a.rate == 0 { // of profiles that name it: nothing is drawn
			continue
		}
		on, x := d.chance(0.45), d.Float64()
		if on {
			o.Rates[a.name] = a.rate * 2 * x
		}
	}
	// What was added later is drawn last: the rest of a seed's options stay.
	o.Members = pick(d, 0, 0, 0, 2, 3, 4)
	o.Wire, o.SessionSlots = d.chance(0.4), pick(d, int32(0), 1, 3)
	o.RetentionBytes, o.VaultBytes = pick(d, int64(0), 0, 0, 3000), pick(d, int64(0), 0, 0, 2500)
	adjust(&o)
	return o, nil
}

// String lists what is on.
func (o *ClusterOptions) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d brokers, %d partitions of %d replicas, min ISR %d, %v with faults; lease %v, lag %v, segments %d bytes, flush.ms %v, flush.acks %v, unclean %v, compacted %v, rebalance %v\n",
		o.Brokers, o.Partitions, o.Replicas, o.MinISR, o.Length.Round(time.Second), o.Lease, o.LagMax, o.SegmentBytes, o.FlushEvery, o.FlushAcks, o.Unclean, o.Compacted, o.Rebalance)
	fmt.Fprintf(&b, "messages: slow %.3f lost %.3f twice %.3f; fetches up to %d bytes; store: slow watch %.2f txn fault %.2f; producers %d, consumers %d\n",
		o.SlowMessage, o.DropMessage, o.DuplicateMessage, o.FetchBytes, o.SlowWatch, o.TxnFault, o.Producers, o.Consumers)
	fmt.Fprintf(&b, "group members %d; fetches over the wire %v, session slots %d; retention %d bytes, vault %d\n", o.Members, o.Wire, o.SessionSlots, o.RetentionBytes, o.VaultBytes)
	if o.NewMembers > 0 {
		fmt.Fprintf(&b, "members of groups of the new protocol %d\n", o.NewMembers)
	}
	if o.Txns > 0 {
		fmt.Fprintf(&b, "transactional ids %d, transactions of up to %v, with offsets %v\n", o.Txns, o.TxnTimeout, o.TxnOffsets)
	}
	fmt.Fprintf(&b, "crashes: %.0f%% lose power, keeping %.1f of blocks and %.1f of names; back within %v; buggify %v", 100*o.PowerLoss, o.KeepBlock, o.KeepEntry, o.RestartMost, o.Buggify)
	return b.String() + clusterActions.describe(o.Rates)
}

// cluster makes a world of brokers.
func (r *Result) cluster(m *Mutation) (*cluster, error) {
	if m.Name != "" && m.Cluster == nil {
		return nil, fmt.Errorf("mutation %s is for the profiles of the mirror", m.Name)
	}
	o, err := SwarmCluster(r.Run.Seed, r.Run.Profile)
	if err != nil {
		return nil, err
	}
	if m.Cluster != nil && m.Cluster.adjust != nil {
		m.Cluster.adjust(&o)
	}
	r.Options, r.plan = &o, clusterActions.plan(r.Run.Seed, o.Rates, o.Length)
	return newCluster(r.Run.Seed, &o, m, r.story), nil
}
