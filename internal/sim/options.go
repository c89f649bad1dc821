package sim

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// Options are one run's features and fault rates. Swarm draws them from the
// seed: every run has its own mixture, so that no fault hides another one in every run.
type Options struct {
	Partitions int           // of the mirrored topic
	Length     time.Duration // of the phase with faults, virtual
	Calm       time.Duration // bound of the liveness phase

	// Network: probabilities per message.
	Messages
	CorruptAnswer float64
	// The source: probabilities of a slow replication, of a deposed leader that doesn't know it.
	SlowReplica, Zombie float64
	Compacted           bool // cleanup.policy=compact on both sides
	Transactions        bool
	FetchBytes          int // one answer's records at most

	// The metadata store.
	SlowWatch, TxnFault float64

	// The standby.
	Headroom        int32 // mirror.epoch.headroom
	ContinueOverGap bool  // gap.policy=continue
	SegmentBytes    int32
	RetentionBytes  int64 // -1: the standby keeps everything
	FlushEvery      time.Duration
	VaultBytes      int64   // -1: no bound
	KeepBlock       float64 // of a power loss: what unsynced blocks and names survive
	KeepEntry       float64
	PowerLoss       float64 // the share of crashes that lose what was not synced
	Buggify         bool

	// Rates are the actions of each kind per virtual minute; kinds without a rate don't happen.
	Rates map[string]float64
}

// Profiles are the mixtures that a run can be made with.
var profiles = map[string]func(*Options){
	// swarm is any mixture.
	"swarm": func(*Options) {},
	// calm has no faults at all: what fails here fails always.
	"calm": func(o *Options) {
		o.SlowMessage, o.DropMessage, o.DuplicateMessage, o.CorruptAnswer, o.SlowReplica, o.Zombie = 0, 0, 0, 0, 0, 0
		o.SlowWatch, o.TxnFault, o.Buggify = 0, 0, false
		o.Rates = map[string]float64{"produce": 60, "elect": 2, "failover": 0.3}
	},
	// divergence has a source that loses what was copied, and a standby that crashes.
	"divergence": func(o *Options) {
		o.SlowReplica, o.PowerLoss, o.FlushEvery = 0.6, 0.5, 50*time.Millisecond
		o.Rates = map[string]float64{"produce": 120, "elect": 5, "elect-unclean": 20, "retain": 3, "crash-in-write": 15, "crash": 2, "disk-error": 1}
	},
	// contradiction has a source whose leaders' epoch histories contradict their batches.
	"contradiction": func(o *Options) {
		o.Rates = map[string]float64{"produce": 20, "elect": 2, "elect-unclean": 1, "contradict": 6, "crash": 1, "cut-link": 1}
	},
	// elections has a source that elects all the time, and little else.
	"elections": func(o *Options) {
		o.Rates = map[string]float64{"produce": 90, "elect": 15, "elect-unclean": 10, "source-down": 2, "retain": 1}
	},
	// crashes stops the standby again and again.
	"crashes": func(o *Options) {
		o.Rates = map[string]float64{"produce": 60, "elect-unclean": 6, "crash": 8, "crash-in-write": 12, "retain": 1, "failover": 0.2}
	},
}

// Swarm draws a run's options from its seed.
func Swarm(seed uint64, profile string) (Options, error) {
	adjust, ok := profiles[profile]
	if !ok {
		return Options{}, fmt.Errorf("no profile %q", profile)
	}
	d := dice{rand.New(rand.NewPCG(seed, 0x7377_6172_6d))}
	o := Options{
		Partitions: 1 + d.IntN(2), Length: d.between(30*time.Second, 3*time.Minute), Calm: 10 * time.Minute,
		Messages:      Messages{SlowMessage: d.some(0.6, 0.1), DropMessage: d.some(0.4, 0.05), DuplicateMessage: d.some(0.5, 0.2)},
		CorruptAnswer: d.some(0.2, 0.02),
		SlowReplica:   d.some(0.7, 0.7), Zombie: d.some(0.5, 1), Compacted: d.chance(0.3), Transactions: d.chance(0.4),
		FetchBytes: pick(d, 1, 600, 4000, 100_000), SlowWatch: d.some(0.4, 0.3), TxnFault: d.some(0.5, 0.3),
		Headroom: pick(d, int32(0), 1, 8), ContinueOverGap: d.chance(0.5), SegmentBytes: pick(d, int32(600), 2500, 20_000),
		RetentionBytes: pick(d, int64(-1), -1, -1, 6000), FlushEvery: pick(d, 50*time.Millisecond, 2*time.Second, time.Hour),
		VaultBytes: pick(d, int64(-1), -1, -1, 5000), KeepBlock: pick(d, 0, 0.5, 1), KeepEntry: pick(d, 0, 0.5, 1), PowerLoss: d.Float64(), Buggify: d.chance(0.7),
		Rates: map[string]float64{"produce": pick(d, 10.0, 60, 200)},
	}
	for _, a := range worldActions {
		on, x := d.chance(0.5), d.Float64()
		if a.rate > 0 && on {
			o.Rates[a.name] = a.rate * 2 * x
		}
	}
	adjust(&o)
	return o, nil
}

func pick[T any](d dice, from ...T) T { return from[d.IntN(len(from))] }

// String lists what is on, in one line per subject.
func (o *Options) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d partitions, %v with faults; segments %d bytes, retention %d, vault %d, flush.ms %v, headroom %d, gaps continue %v, compacted %v, transactions %v\n",
		o.Partitions, o.Length.Round(time.Second), o.SegmentBytes, o.RetentionBytes, o.VaultBytes, o.FlushEvery, o.Headroom, o.ContinueOverGap, o.Compacted, o.Transactions)
	fmt.Fprintf(&b, "messages: slow %.3f lost %.3f twice %.3f corrupt %.4f; fetches up to %d bytes; source: slow replica %.2f zombie %.2f; store: slow watch %.2f txn fault %.2f\n",
		o.SlowMessage, o.DropMessage, o.DuplicateMessage, o.CorruptAnswer, o.FetchBytes, o.SlowReplica, o.Zombie, o.SlowWatch, o.TxnFault)
	fmt.Fprintf(&b, "crashes: %.0f%% lose power, keeping %.1f of blocks and %.1f of names; buggify %v", 100*o.PowerLoss, o.KeepBlock, o.KeepEntry, o.Buggify)
	return b.String() + worldActions.describe(o.Rates)
}
