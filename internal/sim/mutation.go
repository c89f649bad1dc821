package sim

import (
	"cmp"
	"fmt"
	"slices"

	"tidemark/internal/broker/mirror"
	core "tidemark/internal/core/mirror"
	"tidemark/internal/log"
	"tidemark/internal/vfs"
)

// Mutation is one rule switched off, to see that the checkers find it.
type Mutation struct {
	Name string
	Rule string // what is switched off, in words
	// Finds are the invariants of which one must be found broken.
	Finds []string

	Mirror       mirror.Rules
	Log          log.Rules
	AcceptLate   bool // R13
	VaultLate    bool // R1: the vault is written after the cut
	NoVault      bool // R1: nothing is kept
	PromoteAgain bool // R23
	// from is the first seed that the test looks at: below it nothing is found.
	from uint64
	// Profile is where the mutation is looked for, and adjust what its runs need.
	Profile string
	adjust  func(*Options)

	// Cluster is what is switched off in the system of brokers; nil for the mirror's mutations.
	Cluster *clusterMutation
	// Mirrors is what is switched off in the system of several clusters; nil for the others' mutations.
	Mirrors *mirrorsMutation
}

// Mutations are all that there are, in the order of their names.
func Mutations() []*Mutation {
	list := []*Mutation{
		{Name: "no-raise", Rule: "R21: a batch above the leader epoch is appended without a raise", Finds: []string{"EpochCovers"},
			Mirror: mirror.Rules{Core: core.Rules{NoRaise: true}}},
		{Name: "no-realign", Profile: "divergence", Rule: "R20: the second cut comes without its transaction", Finds: []string{"CutHasEpoch"},
			Mirror: mirror.Rules{Core: core.Rules{NoRealign: true}}},
		{Name: "no-identity", Rule: "R26: topic id and cluster id are not compared", Finds: []string{"MirrorPrefix", "VaultComplete", "Convergence"},
			Mirror: mirror.Rules{Core: core.Rules{NoIdentity: true}}, adjust: with("recreate", 1.5)},
		{Name: "no-gap-check", Rule: "R28: a gap is jumped in silence", Finds: []string{"NoSilentGap"},
			Mirror: mirror.Rules{Core: core.Rules{NoGapCheck: true}}, adjust: func(o *Options) { o.ContinueOverGap = false; with("retain", 10)(o); with("cut-link", 4)(o) }},
		{Name: "no-probe", Rule: "R26: the last batch is not compared", Finds: []string{"MirrorPrefix", "LogMatching"},
			Mirror: mirror.Rules{Core: core.Rules{NoProbe: true}}, adjust: with("rewrite", 3)},
		{Name: "accept-late", Profile: "divergence", Rule: "R13: a late answer is taken for the present one", Finds: []string{"LogMatching", "MirrorPrefix", "Convergence", "PANIC"}, AcceptLate: true,
			adjust: func(o *Options) { o.SlowMessage, o.DuplicateMessage = 0.15, 0.4 }},
		{Name: "epoch-at-batch", Rule: "R4: an epoch begins at its batch, behind a compaction gap", Finds: []string{"EpochHistory"},
			Log: log.Rules{EpochAtBatch: true}, adjust: func(o *Options) { o.Compacted = true; with("compact", 12)(o) }},
		{Name: "history-not-cut", Profile: "divergence", Rule: "R1: the history is not cut with the log", Finds: []string{"EpochHistory", "PANIC"}, Log: log.Rules{CutKeepsHistory: true}},
		{Name: "vault-late", Profile: "divergence", Rule: "R1: the vault is written after the cut", Finds: []string{"VaultComplete"}, VaultLate: true},
		{Name: "no-vault", Profile: "divergence", Rule: "R1: what a cut removes is not kept", Finds: []string{"VaultComplete"}, NoVault: true},
		{Name: "no-rounds", Profile: "contradiction", Rule: "R20: a source that contradicts its own batches is followed in circles", Finds: []string{"NoCircles"},
			Mirror: mirror.Rules{Core: core.Rules{NoRounds: true}}},
		{Name: "promote-again", Rule: "R23: a late retry promotes once more", Finds: []string{"PromotedOnce"}, PromoteAgain: true, adjust: with("failover", 1.5)},
	}
	list = append(list, clusterMutations()...)
	list = append(list, mirrorsMutations()...)
	list = append(list, drillMutations()...)
	slices.SortFunc(list, func(a, b *Mutation) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// mixture is the mutation's mixture of features and faults, with all rules on.
func (m *Mutation) mixture() *Mutation {
	out := &Mutation{Name: m.Name, Profile: m.Profile, adjust: m.adjust}
	if c := m.Cluster; c != nil {
		out.Cluster = &clusterMutation{adjust: c.adjust, slowPeers: c.slowPeers, slowAnswers: c.slowAnswers, diesAtEnd: c.diesAtEnd, noSuccessors: c.noSuccessors}
	}
	if c := m.Mirrors; c != nil {
		out.Mirrors = &mirrorsMutation{adjust: c.adjust}
	}
	return out
}

// Mixtures names the mutations that have a mixture of their own.
func Mixtures() []string {
	var names []string
	for _, m := range Mutations() {
		if m.adjust != nil || m.Cluster != nil && m.Cluster.adjust != nil || m.Mirrors != nil && m.Mirrors.adjust != nil {
			names = append(names, m.Name)
		}
	}
	return names
}

// with gives actions of a kind at least this rate.
func with(kind string, rate float64) func(*Options) {
	return func(o *Options) { o.Rates[kind] = max(o.Rates[kind], rate) }
}

// MutationNamed finds one; the empty name is the one that changes nothing.
func MutationNamed(name string) (*Mutation, error) {
	if name == "" {
		return &Mutation{}, nil
	}
	for _, m := range Mutations() {
		if m.Name == name {
			return m, nil
		}
	}
	return nil, fmt.Errorf("no mutation %q", name)
}

// keeper is what takes a cut's records: the vault, unless that is what is switched off.
func (m *Mutation) keeper(n *standby) log.Keeper {
	switch {
	case m.NoVault:
		return noKeeper{}
	case m.VaultLate:
		return &lateKeeper{n: n}
	}
	return n.vault
}

// noKeeper keeps nothing and says that it does.
type noKeeper struct{}

// Keep implements log.Keeper.
func (noKeeper) Keep(log.Removal) (string, error) { return "kept-nowhere", nil }

// lateKeeper keeps a removal once the cut is over.
type lateKeeper struct{ n *standby }

// copyOf is a removal whose bytes outlive the log's files.
func copyOf(r log.Removal) (log.Removal, error) {
	r.Ranges = slices.Clone(r.Ranges)
	for i := range r.Ranges {
		g := &r.Ranges[i]
		raw := make([]byte, g.Len)
		if _, err := g.File.ReadAt(raw, g.Pos); err != nil {
			return r, err
		}
		f, err := vfs.NewMem().Create("copy")
		if err != nil {
			return r, err
		}
		if _, err := f.WriteAt(raw, g.Pos); err != nil {
			return r, err
		}
		g.File, g.Whole = f, false
	}
	return r, nil
}

// Keep implements log.Keeper.
func (l *lateKeeper) Keep(r log.Removal) (string, error) {
	if err := copyRanges(&r); err != nil {
		return "", err
	}
	l.n.w.check.laterKept++
	l.n.after(0, "keep late", func() {
		l.n.w.check.laterKept--
		_, _ = l.n.vault.Keep(r) // what comes of it is what the checkers are to see
	})
	return "kept-later", nil
}

// copyRanges has a removal hold copies of what goes, for who reads it after the cut.
func copyRanges(r *log.Removal) error {
	for i := range r.Ranges {
		g := &r.Ranges[i]
		raw := make([]byte, g.Len)
		if _, err := g.File.ReadAt(raw, g.Pos); err != nil {
			return err
		}
		copied := vfs.NewMem()
		f, err := copied.Create("copy")
		if err != nil {
			return err
		}
		if _, err := f.WriteAt(raw, g.Pos); err != nil {
			return err
		}
		g.File, g.Whole = f, false
	}
	return nil
}
