package exhaust

import (
	"slices"

	"tidemark/internal/core/meta"
	"tidemark/internal/core/mirror"
	"tidemark/internal/core/replica"
	"tidemark/internal/core/timeline"
	"tidemark/internal/core/types"
)

// rules are those of the core and those that are the explorer's own, as far as
// they can be switched off. The zero value has every rule on.
type rules struct {
	name     string // of the mutation, empty for none
	mirror   mirror.Rules
	follower replica.Rules
	leader   replica.LeaderRules

	keepHistory  bool // R1: the history is not cut with the log
	vaultLate    bool // R1: the vault is written after the cut
	noVault      bool // R1: nothing is kept
	pointEarly   bool // R1: the timeline checkpoint is written before the cut
	keepTrailing bool // R3: a follower keeps its own election's entry
	noElection   bool // R3: an election makes no entry
	epochAtBatch bool // R4
	kafkaAnswer  bool // R5: an epoch above the last one is out of range
	noCompare    bool // R7: a transaction doesn't compare the record
	noEntry      bool // R16: a promotion appends nothing to the list
	staleList    bool // R18: once adopted, the source's list isn't looked at again
	noFences     bool // R13, R22: no fetch is fenced by the leader epoch
	noCutAtAll   bool // R19: nobody makes the first cut
	pointStays   bool // R19: records are read back under the checkpoint of the adopted list
	cutInSync    bool // R19: only in-sync replicas make the first cut
	sameEpoch    bool // R18, R22: an adoption doesn't raise the leader epoch
	lowEpoch     bool // R23: the promoted epoch is not above what was seen of the source
	inTwo        bool // R23: a promotion is two transactions
	again        bool // R23: a late retry promotes once more
	noFence      bool // R25: a start doesn't close the partition first
}

// mutation is one rule switched off.
type mutation struct {
	name, rule string
	finds      []string // invariants of which one breaks
	world      string   // in which it is looked for
	depth      int      // at which it must be found
	rules      rules
	mute       []string // invariants that would notice at once, when the harm is to be seen
	unreached  string   // why it can't be found here, empty if it can
}

// compares are the compares of a transaction.
func (r *rules) compares(c int, list []meta.Compare) []meta.Compare {
	if !r.noCompare {
		return list
	}
	return slices.DeleteFunc(slices.Clone(list), func(m meta.Compare) bool { return m.Key == partitionKeys[c] })
}

// answer is R5's answer.
func (r *rules) answer(l *replica.Log, e types.LeaderEpoch, req replica.Request) replica.Answer {
	if r.noFences {
		req.LeaderEpoch = types.NoLeaderEpoch
	}
	a := replica.AnswerRequest(l, e, req)
	last, ok := l.History.Latest()
	if r.kafkaAnswer && a.Kind == replica.AnswerDiverging && ok && req.LastEpoch > last.Epoch {
		return replica.Answer{Kind: replica.AnswerOutOfRange}
	}
	return a
}

// fences reports whether a fetch is fenced by its leader epoch.
func (r *rules) fences() bool { return !r.noFences }

// looked is a look at the source as the mirror takes it.
func (r *rules) looked(s mirror.Source, rec *meta.PartitionRecord) mirror.Source {
	if r.staleList && rec.IsMirror() && len(rec.Timelines) > 0 && rec.Mirror.State != meta.MirrorStarting {
		s.Timelines = rec.Timelines
	}
	return s
}

// skipsFirstCut reports whether a replica takes the list without the cut.
func (r *rules) skipsFirstCut(n *node) bool {
	return r.noCutAtAll || r.cutInSync && !n.rec.InISR(n.id)
}

// proposed is the record that a machine's transaction writes.
func (r *rules) proposed(e mirror.Propose, old *meta.PartitionRecord) meta.PartitionRecord {
	if e.Purpose == mirror.ForAdoption {
		return r.adopting(e.Record, old)
	}
	return e.Record
}

// adopting is the record of an adoption.
func (r *rules) adopting(next meta.PartitionRecord, old *meta.PartitionRecord) meta.PartitionRecord {
	if last, ok := next.Timelines.Last(); r.sameEpoch && ok && last.FirstEpoch <= old.LeaderEpoch {
		next.LeaderEpoch = old.LeaderEpoch
	}
	return next
}

// promote is R23.
func (r *rules) promote(rec *meta.PartitionRecord, req mirror.PromoteRequest, retry bool) (mirror.Promotion, error) {
	if r.again && retry && rec.Writable && rec.Mirror != nil {
		try := rec.Clone()
		try.Writable, try.Promotions = false, nil
		done, err := mirror.Promote(&try, req)
		if err == nil {
			done.Record.Promotions = append(rec.Clone().Promotions, done.Made)
		}
		return done, err
	}
	if r.lowEpoch && rec.Mirror != nil {
		low := rec.Clone()
		low.Mirror.SourceEpochMax = types.NoLeaderEpoch
		facts := mirror.Facts{LeaderEpoch: types.NoLeaderEpoch}
		if req.Facts != nil {
			facts = *req.Facts
			facts.LeaderEpoch = types.NoLeaderEpoch
		}
		req.Facts = &facts
		done, err := mirror.Promote(&low, req)
		return done, err
	}
	return mirror.Promote(rec, req)
}

// promoting is the record of a promotion.
func (r *rules) promoting(next meta.PartitionRecord, old *meta.PartitionRecord) meta.PartitionRecord {
	if r.noEntry || r.inTwo {
		next.Timelines = old.Timelines
	}
	return next
}

// inSecond is the second half of a promotion in two transactions, on its way.
func (x *step) inSecond(c, i int, whole *meta.PartitionRecord) {
	k := &x.s.c[c]
	if !x.w.rules.inTwo || !k.rec.Writable {
		return
	}
	second := whole.Clone()
	second.LeaderEpoch++
	if t, ok := x.write(c, i, second, forVerb, k.rev); ok {
		k.late = append(k.late[:len(k.late):len(k.late)], t)
	}
}

func inMirror(r mirror.Rules) rules { return rules{mirror: r} }

func firstCut(r timeline.Rules) rules { return rules{mirror: mirror.Rules{FirstCut: r}} }

// mutations are the rules that can be switched off, in the order of their numbers.
func mutations() []mutation {
	wrong := []string{"OneWriter", "LogMatching", "MirrorPrefix", "AckedIsKept", "ISRHoldsHW", "Ownership", "PANIC"}
	with := func(more ...string) []string { return append(slices.Clone(wrong), more...) }
	return []mutation{
		{name: "history-kept", rule: "R1: the history is not cut with the log", finds: with("EpochHistory"), world: "cluster", rules: rules{keepHistory: true}},
		{name: "vault-late", rule: "R1: the vault is written after the cut", finds: []string{"VaultComplete"}, world: "cluster", rules: rules{vaultLate: true}},
		{name: "no-vault", rule: "R1: what a cut takes is not kept", finds: []string{"VaultComplete"}, world: "cluster", rules: rules{noVault: true}},
		{name: "point-early", rule: "R1: the timeline checkpoint is written before the cut", finds: wrong, world: "promoted", rules: rules{pointEarly: true}},
		{name: "trailing-entry", rule: "R3: a follower keeps its own election's entry", finds: with("EpochHistory"), world: "cluster", rules: rules{keepTrailing: true}},
		{name: "no-election-entry", rule: "R3: an election makes no entry", finds: with("EpochHistory"), world: "cluster", rules: rules{noElection: true}},
		{name: "epoch-at-batch", rule: "R4: an epoch begins at its batch, behind a compaction gap", finds: with("EpochHistory"), world: "compacted", rules: rules{epochAtBatch: true}},
		{name: "kafka-answer", rule: "R5: an epoch above the last one is out of range", finds: with("Convergence", "EpochHistory"), world: "cluster", rules: rules{kafkaAnswer: true}},
		{name: "no-compare", rule: "R7: a transaction doesn't compare the record", finds: with("Record", "EpochCovers", "OneWriter"), world: "cluster", rules: rules{noCompare: true}},
		{name: "no-divergence", rule: "R13: a follower compares no epochs", finds: with("EpochHistory"), world: "cluster", rules: rules{follower: replica.Rules{IgnoreDivergence: true}}},
		{name: "cut-to-hw", rule: "R13: a follower cuts to its high watermark", finds: with("EpochHistory"), world: "cluster", rules: rules{follower: replica.Rules{CutToHighWatermark: true}}},
		{name: "take-late", rule: "R13: a late answer is taken", finds: with("EpochHistory"), world: "cluster", rules: rules{follower: replica.Rules{TakeLate: true}}},
		{name: "count-unproved", rule: "R14: who has not fetched in the epoch counts", finds: wrong, world: "cluster", rules: rules{leader: replica.LeaderRules{CountUnproved: true}}},
		{name: "join-below-start", rule: "R15: a join below the epoch's start", finds: wrong, world: "cluster", rules: rules{leader: replica.LeaderRules{JoinBelowEpochStart: true}}},
		{name: "no-entry", rule: "R16: a promotion appends nothing to the list", finds: wrong, world: "promoted", rules: rules{noEntry: true}},
		{name: "larger-bound", rule: "R17: the bound is the larger of the two first unshared epochs", finds: wrong, world: "promoted", rules: firstCut(timeline.Rules{LargerBound: true})},
		{name: "stale-list", rule: "R18: once adopted, the source's list isn't looked at again", finds: wrong, world: "promoted", rules: rules{staleList: true}},
		{name: "no-fences", rule: "R18, R22: a fetch isn't fenced by the leader epoch", finds: with("EpochHistory"), world: "cluster", rules: rules{noFences: true}},
		{name: "no-first-cut", rule: "R19: nobody makes the first cut", finds: wrong, world: "promoted", rules: rules{noCutAtAll: true, mirror: mirror.Rules{NoFirstCut: true}}},
		{name: "cut-in-sync", rule: "R19: only in-sync replicas make the first cut", finds: wrong, world: "promoted", rules: rules{cutInSync: true}},
		{name: "point-stays", rule: "R19: an abandon reads records back under the checkpoint of the adopted list", finds: wrong, world: "promoted", rules: rules{pointStays: true}},
		{name: "epochs-only", rule: "R19: the first offset of the first unshared entry isn't looked at", finds: wrong, world: "promoted", rules: firstCut(timeline.Rules{EpochsOnly: true})},
		{name: "no-realign", rule: "R20: the second cut comes without its transaction", finds: with("CutHasEpoch"), world: "mirrored", rules: inMirror(mirror.Rules{NoRealign: true})},
		{name: "no-raise", rule: "R21: a batch above the leader epoch is appended without a raise", finds: []string{"EpochCovers"}, world: "mirrored", rules: inMirror(mirror.Rules{NoRaise: true})},
		{name: "same-epoch", rule: "R22: an adoption keeps the leader epoch", finds: with("Record", "CutHasEpoch", "EpochCovers"), world: "promoted", rules: rules{sameEpoch: true}},
		{name: "low-epoch", rule: "R23: the promoted epoch isn't above what was seen of the source", finds: with("EpochCovers", "OneWriter"), world: "mirrored", rules: rules{lowEpoch: true}},
		{name: "in-two", rule: "R23: a promotion is two transactions", finds: wrong, world: "mirrored", rules: rules{inTwo: true}},
		{name: "promote-again", rule: "R23: a late retry promotes once more", finds: []string{"PromotedOnce"}, world: "promoted", rules: rules{again: true}},
		{name: "no-consent", rule: "R24: no plan is asked for", finds: []string{"Consent"}, world: "promoted", rules: inMirror(mirror.Rules{NoConsent: true})},
		{name: "no-fence", rule: "R25: a start doesn't close the partition first", finds: []string{"Consent"}, world: "promoted", rules: rules{noFence: true}},
		{name: "no-path", rule: "R25: the source's mirror path isn't looked at", finds: []string{"NoLoop", "PANIC"}, world: "promoted", rules: inMirror(mirror.Rules{NoPath: true})},
		{name: "no-gap-check", rule: "R28: a gap is jumped", finds: []string{"NoSilentGap"}, world: "mirrored", rules: inMirror(mirror.Rules{NoGapCheck: true})},
		{name: "no-probe", rule: "R26: the last batch isn't compared", unreached: "no source here is restored or written anew with epochs that it had before: within the rules equal epochs mean equal bytes", rules: inMirror(mirror.Rules{NoProbe: true})},
		{name: "no-identity", rule: "R26: ids aren't compared", unreached: "one topic, and the same two clusters at the same addresses", rules: inMirror(mirror.Rules{NoIdentity: true})},
		{name: "no-mirror-ahead", rule: "R27: a shorter source that is a mirror counts as diverged", unreached: "a mirror of a mirror needs a third cluster; of two, the second start is refused (R25)", rules: inMirror(mirror.Rules{NoMirrorAhead: true})},
	}
}

// Mutation is a rule that can be switched off, for people.
type Mutation struct{ Name, Rule string }

// Mutations lists the rules that can be switched off.
func Mutations() []Mutation {
	var list []Mutation
	for _, m := range mutations() {
		list = append(list, Mutation{m.name, m.rule})
	}
	return list
}
