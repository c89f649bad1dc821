package sim

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// MirrorsOptions are one run's features and fault rates in the system of several clusters.
type MirrorsOptions struct {
	Sites, Brokers, Replicas, MinISR int // Tidemark clusters, and the brokers of each
	Partitions                       int
	Kafka                            bool // a cluster more, of another make, made the topic
	KIP1279                          bool // clusters tell each other no timelines, but what they mirrored last
	Producers                        int  // of each partition
	Length                           time.Duration
	Calm                             time.Duration

	Messages
	SlowWatch, TxnFault float64
	Lease, LagMax       time.Duration
	RestartMost         time.Duration
	SlowReplica, Zombie float64 // of the Kafka cluster

	FlushEvery                      time.Duration
	Unclean, Compacted              bool
	SegmentBytes, FetchBytes        int
	Headroom                        int32 // mirror.epoch.headroom
	ContinueOverGap                 bool  // gap.policy=continue
	PromotionStep                   int32 // mirror.promotion.step; small ones have both sides count the same epochs
	VaultBytes                      int64 // -1: no bound
	Loyal                           float64
	LateVerbs                       float64 // the share of verbs that are asked again later
	PowerLoss, KeepBlock, KeepEntry float64
	Buggify                         bool

	// Authors write transactions; only profiles that name them have any.
	Authors int
	// TxnIDs are the transactional ids of producers with coordinators at all clusters; TxnTimeout
	// and TxnThinks are theirs, as in ClusterOptions.
	TxnIDs                int
	TxnTimeout, TxnThinks time.Duration
	// GroupSync is mirror.group.sync.ms; 0: a second.
	GroupSync time.Duration
	// PlainFailovers makes a failover at a consistent cut one at the log ends: a mutation.
	PlainFailovers bool

	Rates map[string]float64
}

// mirrorsProfiles are the mixtures for the system of several clusters.
var mirrorsProfiles = map[string]func(*MirrorsOptions){
	// mirrors is any mixture.
	"mirrors": func(*MirrorsOptions) {},
	// mirrors-calm has operators and elections, and no faults.
	"mirrors-calm": func(o *MirrorsOptions) {
		o.Messages, o.SlowWatch, o.TxnFault, o.Buggify, o.SlowReplica, o.Zombie, o.LateVerbs = Messages{}, 0, 0, false, 0, 0, 0
		o.Kafka, o.VaultBytes = false, -1
		o.Rates = map[string]float64{
			"write": 60, "commit": 10, "mirror": 4, "failover": 3, "failback": 4, "pause": 1, "resume": 3, "switchover": 2, "abandon": 1, "accept-gap": 1, "delete-mirror": 1, "alter": 1, "elect-preferred": 2, "trim": 1,
		}
	},
	// mirrors-kafka begins at a cluster that knows no timelines.
	"mirrors-kafka": func(o *MirrorsOptions) {
		o.Kafka = true
		for kind, rate := range map[string]float64{"kafka-write": 60, "kafka-elect": 4, "kafka-elect-unclean": 4, "kafka-down": 1, "kafka-retain": 1.5, "kafka-recreate": 0.1} {
			o.Rates[kind] = max(o.Rates[kind], rate)
		}
	},
	// mirrors-drills has drills of mirrors made, written to and deleted, beside everything else.
	"mirrors-drills": func(o *MirrorsOptions) {
		o.Compacted = false
		for kind, rate := range map[string]float64{"mirror": 6, "drill": 10, "drill-delete": 6, "drill-write": 30, "crash-in-write": 3, "write": 60, "kafka-write": 60} {
			o.Rates[kind] = max(o.Rates[kind], rate)
		}
		for _, kind := range []string{"failover", "delete-mirror", "pause"} {
			o.Rates[kind] = min(o.Rates[kind], 0.5)
		}
	},
	// mirrors-txn has transactions at the source, and failovers at a consistent cut alone.
	"mirrors-txn": func(o *MirrorsOptions) {
		o.Authors, o.Sites, o.Partitions, o.Kafka, o.Compacted, o.Unclean = 3, 2, 3, false, false, false
		o.Brokers, o.Replicas, o.MinISR, o.PowerLoss = max(o.Brokers, 2), 2, 2, o.PowerLoss/4
		o.Rates = map[string]float64{"write": 20, "mirror": 8, "failback": 6, "failover-consistent": 6, "crash": 1, "crash-leader": 1, "cut-wan": 6, "cut-link": 2, "elect-preferred": 2, "restart-cleanly": 1}
	},
	// mirrors-switch has switchovers, there and back, whose nodes are lost on the way.
	"mirrors-switch": func(o *MirrorsOptions) {
		o.Sites, o.Kafka, o.Unclean, o.Compacted, o.PowerLoss, o.Loyal = 2, false, false, false, o.PowerLoss/4, max(o.Loyal, 0.8)
		o.Rates = map[string]float64{"write": 60, "commit": 5, "mirror": 12, "failback": 10, "switchover": 6, "switchover-dies": 14, "failover": 1, "resume": 1, "cut-wan": 3, "cut-link": 1, "hold-watch": 2, "elect-preferred": 1}
	},
	// mirrors-switch-txn has transactions on the side that is written, and no promotion but by a switchover.
	"mirrors-switch-txn": func(o *MirrorsOptions) {
		o.Sites, o.Kafka, o.Unclean, o.Compacted, o.PowerLoss, o.Loyal, o.VaultBytes = 2, false, false, false, o.PowerLoss/8, max(o.Loyal, 0.8), -1
		o.Brokers, o.Replicas, o.MinISR, o.Partitions = max(o.Brokers, 2), 2, 2, 3
		o.TxnIDs, o.TxnTimeout, o.TxnThinks = 3, 4*time.Second, 500*time.Millisecond
		o.Rates = map[string]float64{"write": 20, "commit": 5, "mirror": 12, "failback": 8, "switchover": 10, "switchover-dies": 5, "txn-dies": 6, "resume": 1, "cut-wan": 3, "cut-link": 2, "crash": 0.5, "crash-leader": 1, "hold-watch": 1, "elect-preferred": 2}
	},
	// mirrors-kip1279 are two clusters that know each other by KIP-1279 alone.
	"mirrors-kip1279": func(o *MirrorsOptions) {
		o.KIP1279, o.Sites, o.Kafka = true, 2, false
		for kind, rate := range map[string]float64{"mirror": 6, "failover": 5, "failback": 8, "oversleep": 2} {
			o.Rates[kind] = max(o.Rates[kind], rate)
		}
	},
}

// SwarmMirrors draws a run's options from its seed.
func SwarmMirrors(seed uint64, profile string) (MirrorsOptions, error) {
	adjust, ok := mirrorsProfiles[profile]
	if !ok {
		return MirrorsOptions{}, fmt.Errorf("no profile %q", profile)
	}
	d := dice{rand.New(rand.NewPCG(seed, 0x6d_6972_726f_7273))}
	brokers := pick(d, 1, 1, 2, 3)
	replicas := min(1+d.IntN(brokers), 2)
	o := MirrorsOptions{
		Sites: pick(d, 2, 2, 3), Brokers: brokers, Replicas: replicas, MinISR: 1 + d.IntN(replicas), Partitions: pick(d, 1, 1, 2), Kafka: d.chance(0.25), Producers: 1 + d.IntN(2),
		Length: d.between(40*time.Second, 2*time.Minute), Calm: 10 * time.Minute,
		Messages:  Messages{SlowMessage: d.some(0.5, 0.1), DropMessage: d.some(0.4, 0.03), DuplicateMessage: d.some(0.3, 0.05)},
		SlowWatch: d.some(0.4, 0.3), TxnFault: d.some(0.4, 0.2), Lease: pick(d, 3*time.Second, 6*time.Second), LagMax: pick(d, 2*time.Second, 5*time.Second),
		RestartMost: pick(d, 500*time.Millisecond, 4*time.Second, 12*time.Second), SlowReplica: d.some(0.6, 0.5), Zombie: d.some(0.5, 1),
		FlushEvery: pick(d, 100*time.Millisecond, 2*time.Second, time.Hour), Unclean: d.chance(0.3), Compacted: d.chance(0.15),
		SegmentBytes: pick(d, 900, 4000, 100_000), FetchBytes: pick(d, 1, 600, 100_000), Headroom: pick(d, int32(0), 1, 8),
		ContinueOverGap: d.chance(0.4), PromotionStep: pick(d, int32(65_536), 1, 2, 20), VaultBytes: pick(d, int64(-1), -1, -1, -1, 8000), Loyal: d.Float64(), LateVerbs: d.some(0.5, 0.4),
		PowerLoss: d.Float64(), KeepBlock: pick(d, 0, 0.5, 1), KeepEntry: pick(d, 0, 0.5, 1), Buggify: d.chance(0.6),
		Rates: map[string]float64{"write": pick(d, 20.0, 60, 150), "commit": 10, "mirror": 4},
	}
	for _, a := range mirrorsActions {
		on, x := d.chance(0.5), d.Float64()
		if a.rate > 0 && on {
			o.Rates[a.name] = max(o.Rates[a.name], a.rate*2*x)
		}
	}
	adjust(&o)
	return o, nil
}

// topicConfigs are the settings of the topic where it is made.
func (o *MirrorsOptions) topicConfigs() map[string]string { return o.clusterOptions().topicConfigs() }

// clusterOptions are those of each Tidemark cluster.
func (o *MirrorsOptions) clusterOptions() *ClusterOptions {
	return &ClusterOptions{
		Brokers: o.Brokers, Partitions: o.Partitions, Replicas: o.Replicas, MinISR: o.MinISR, Length: o.Length, Calm: o.Calm, Messages: o.Messages,
		SlowWatch: o.SlowWatch, TxnFault: o.TxnFault, Drift: 0.005, Lease: o.Lease, LagMax: o.LagMax, RestartMost: o.RestartMost,
		FlushEvery: o.FlushEvery, Unclean: o.Unclean, Compacted: o.Compacted, SegmentBytes: int32(o.SegmentBytes), FetchBytes: max(o.FetchBytes, 1),
		PowerLoss: o.PowerLoss, KeepBlock: o.KeepBlock, KeepEntry: o.KeepEntry, Buggify: o.Buggify, Rates: map[string]float64{},
		Txns: o.TxnIDs, TxnTimeout: o.TxnTimeout, TxnThinks: o.TxnThinks, TxnTries: 3,
	}
}

// String lists what is on.
func (o *MirrorsOptions) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d clusters of %d brokers, kafka %v, kip1279 %v, %d partitions of %d replicas, min ISR %d, %v with faults; lease %v, segments %d bytes, flush.ms %v, unclean %v, compacted %v, headroom %d, step %d, gaps continue %v, vault %d\n",
		o.Sites, o.Brokers, o.Kafka, o.KIP1279, o.Partitions, o.Replicas, o.MinISR, o.Length.Round(time.Second), o.Lease, o.SegmentBytes, o.FlushEvery, o.Unclean, o.Compacted, o.Headroom, o.PromotionStep, o.ContinueOverGap, o.VaultBytes)
	fmt.Fprintf(&b, "messages: slow %.3f lost %.3f twice %.3f; verbs again %.2f; fetches up to %d bytes; store: slow watch %.2f txn fault %.2f; producers %d, loyal %.2f\n",
		o.SlowMessage, o.DropMessage, o.DuplicateMessage, o.LateVerbs, o.FetchBytes, o.SlowWatch, o.TxnFault, o.Producers, o.Loyal)
	if o.TxnIDs > 0 {
		fmt.Fprintf(&b, "transactional ids %d, transactions of up to %v\n", o.TxnIDs, o.TxnTimeout)
	}
	fmt.Fprintf(&b, "crashes: %.0f%% lose power, keeping %.1f of blocks and %.1f of names; back within %v; buggify %v", 100*o.PowerLoss, o.KeepBlock, o.KeepEntry, o.RestartMost, o.Buggify)
	return b.String() + mirrorsActions.describe(o.Rates)
}

// mirrors makes a world of several clusters.
func (r *Result) mirrors(m *Mutation) (*mirrors, error) {
	if m.Name != "" && m.Mirrors == nil {
		return nil, fmt.Errorf("mutation %s is not for the profiles of several clusters", m.Name)
	}
	o, err := SwarmMirrors(r.Run.Seed, r.Run.Profile)
	if err != nil {
		return nil, err
	}
	if m.Mirrors != nil && m.Mirrors.adjust != nil {
		m.Mirrors.adjust(&o)
	}
	if r.Run.Mixture != "" {
		o.PlainFailovers = false // a rule that is switched off among the options
	}
	r.Options, r.plan = &o, mirrorsActions.plan(r.Run.Seed, o.Rates, o.Length)
	return newMirrors(r.Run.Seed, &o, m, r.story), nil
}
