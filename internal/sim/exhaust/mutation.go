package exhaust

import (
	"fmt"
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
	endIsLogEnd  bool // R5: every epoch is said to end at the log end
	noCompare    bool // R7: a transaction doesn't compare the record
	noEntry      bool // R16: a promotion appends nothing to the list
	staleList    bool // R18: once adopted, the source's list isn't looked at again
	noFences     bool // R13, R22: no fetch is fenced by the leader epoch
	noCutAtAll   bool // R19: nobody makes the first cut
	pointStays   bool // R19: records are read back under the checkpoint of the adopted list
	cutInSync    bool // R19: only in-sync replicas make the first cut
	leadUncut    bool // R19: who leads what clients write to makes no first cut
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
	then       []action // behind the world's beginning, if anything
	left       budgets  // what may happen in place of what the world allows, if anything
	minISR     int      // 0: 1
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
	if last := req.LastEpoch; r.endIsLogEnd {
		req.LastEpoch = types.NoLeaderEpoch
		if found, _ := l.History.EndOffsetFor(last, l.LogStart, l.LogEnd); found < last {
			req.LastEpoch = last
		}
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
	return r.noCutAtAll || r.cutInSync && !n.rec.InISR(n.id) || r.leadUncut && n.leading
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
		if err == nil && done.Outcome == mirror.Promoted {
			done.Record.Mirror.SourceEpochMax = rec.Mirror.SourceEpochMax
		}
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
//
//tidy:long a table with an entry for each rule
func mutations() []mutation {
	wrong := []string{"OneWriter", "LogMatching", "MirrorPrefix", "AckedIsKept", "ISRHoldsHW", "Ownership", "PANIC"}
	with := func(more ...string) []string { return append(slices.Clone(wrong), more...) }
	history := with("EpochHistory")
	return []mutation{
		{name: "history-kept", rule: "R1: the history is not cut with the log", finds: history, world: "cluster", depth: 4, rules: rules{keepHistory: true},
			left: budgets{forWritesA: 1, forElections: 2}},
		{name: "vault-late", rule: "R1: the vault is written after the cut", finds: []string{"VaultComplete"}, world: "cluster", depth: 5, rules: rules{vaultLate: true},
			left: budgets{forWritesA: 2, forElections: 1, forCrashes: 2, forUnclean: 1}},
		{name: "no-vault", rule: "R1: what a cut takes is not kept", finds: []string{"VaultComplete"}, world: "cluster", depth: 4, rules: rules{noVault: true},
			left: budgets{forWritesA: 2, forElections: 1, forUnclean: 1}},
		{name: "point-early", rule: "R1: the timeline checkpoint is written before the cut", finds: wrong, world: "forked", depth: 3, rules: rules{pointEarly: true},
			left: budgets{forStarts: 2, forCrashes: 1}},
		{name: "trailing-entry", rule: "R3: a follower keeps its own election's entry", finds: history, world: "cluster", depth: 2, rules: rules{keepTrailing: true},
			left: budgets{forElections: 2}},
		{name: "no-election-entry", rule: "R3: an election makes no entry", finds: history, world: "cluster", depth: 2, rules: rules{noElection: true},
			left: budgets{forWritesA: 2, forElections: 2}},
		{name: "epoch-at-batch", rule: "R4: an epoch begins at its batch, behind a compaction gap", finds: history, world: "cluster", depth: 7, rules: rules{epochAtBatch: true},
			then: steps("kill a2", "settle ISR A", "write a1", "stop a1", "start a1", "elect a1"), left: budgets{forWritesA: 2, forCompactions: 1}},
		{name: "end-is-log-end", rule: "R5: every epoch is said to end at the log end", finds: history, world: "cluster", depth: 4, rules: rules{endIsLogEnd: true},
			left: budgets{forWritesA: 2, forElections: 1}},
		{name: "no-compare", rule: "R7: a transaction doesn't compare the record", finds: with("Record", "EpochCovers"), world: "cluster", depth: 4, rules: rules{noCompare: true},
			left: budgets{forWritesA: 1, forElections: 2, forCrashes: 1, forLate: 1, forShrinks: 1}},
		{name: "no-divergence", rule: "R13: a follower compares no epochs", finds: history, world: "cluster", depth: 3, rules: rules{follower: replica.Rules{IgnoreDivergence: true}},
			left: budgets{forWritesA: 2, forElections: 1}},
		{name: "cut-to-hw", rule: "R13: a follower cuts to its high watermark", finds: history, world: "cluster", depth: 3, rules: rules{follower: replica.Rules{CutToHighWatermark: true}},
			then: steps("write a1", "fetch a2", "answer a2", "fetch a2", "elect a2", "write a2"), left: budgets{forWritesA: 1, forElections: 1, forParts: 1}},
		{name: "take-late", rule: "R13: a late answer is taken", finds: history, world: "cluster", depth: 8, rules: rules{follower: replica.Rules{TakeLate: true}},
			left: budgets{forWritesA: 1, forElections: 2, forParts: 1, forCrashes: 1}},
		{name: "count-unproved", rule: "R14: who has not fetched in the epoch counts", finds: wrong, world: "cluster", depth: 3, rules: rules{leader: replica.LeaderRules{CountUnproved: true}},
			left: budgets{forWritesA: 1, forElections: 1}},
		{name: "join-below-start", rule: "R15: a join below the epoch's start", finds: wrong, world: "cluster", minISR: 2, depth: 7, rules: rules{leader: replica.LeaderRules{JoinBelowEpochStart: true}},
			then: steps("write a1", "replicate a2"), left: budgets{forElections: 2, forParts: 1, forCrashes: 1, forStops: 1}},
		{name: "no-entry", rule: "R16: a promotion appends nothing to the list", finds: wrong, world: "mirrored", depth: 5, rules: rules{noEntry: true},
			left: budgets{forWritesA: 1, forWritesB: 1, forElections: 2, forFailovers: 1}},
		{name: "larger-bound", rule: "R17: the bound is the larger of the two first unshared epochs", finds: wrong, world: "promoted", depth: 4, rules: firstCut(timeline.Rules{LargerBound: true}),
			then: forkedTwice, left: budgets{forStarts: 3}},
		{name: "stale-list", rule: "R18: once adopted, the source's list isn't looked at again", rules: rules{staleList: true},
			unreached: "of two clusters, none changes its list while the other copies from it: it would have to mirror a third"},
		{name: "no-fences", rule: "R18, R22: a fetch isn't fenced by the leader epoch", finds: history, world: "forked", depth: 5, rules: rules{noFences: true},
			then: steps("preview B"), left: budgets{forStarts: 2, forLags: 1, forParts: 1}},
		{name: "no-first-cut", rule: "R19: nobody makes the first cut", finds: wrong, world: "forked", depth: 3, rules: rules{noCutAtAll: true, mirror: mirror.Rules{NoFirstCut: true}},
			left: budgets{forStarts: 2}},
		{name: "cut-in-sync", rule: "R19: only in-sync replicas make the first cut", finds: wrong, world: "forked", depth: 6, rules: rules{cutInSync: true},
			left: budgets{forStarts: 2, forCrashes: 1, forElections: 1}},
		{name: "lead-uncut", rule: "R19: a leader that clients write to serves without its first cut", finds: wrong, world: "forked", depth: 3, rules: rules{leadUncut: true},
			then: quoted, left: budgets{forFailovers: 1, forElections: 1, forLags: 2}},
		{name: "point-stays", rule: "R19: an abandon reads records back under the checkpoint of the adopted list", finds: wrong, world: "promoted", depth: 4, rules: rules{pointStays: true},
			left: budgets{forStarts: 2, forCrashes: 1, forAbandons: 1}},
		{name: "no-realign", rule: "R20: the second cut comes without its transaction", finds: with("CutHasEpoch"), world: "mirrored", depth: 5, rules: inMirror(mirror.Rules{NoRealign: true}),
			then: torn, left: budgets{forUnclean: 1, forCrashes: 1, forWritesA: 1}},
		{name: "no-raise", rule: "R21: a batch above the leader epoch is appended without a raise", finds: []string{"EpochCovers"}, world: "mirrored", depth: 7, rules: inMirror(mirror.Rules{NoRaise: true}),
			then: steps("elect a2", "replicate a1"), left: budgets{forElections: 1, forWritesA: 1}},
		{name: "same-epoch", rule: "R22: an adoption keeps the leader epoch", finds: with("Record", "CutHasEpoch", "EpochCovers"), world: "promoted", depth: 3, rules: rules{sameEpoch: true},
			left: budgets{forStarts: 2}},
		{name: "in-two", rule: "R23: a promotion is two transactions", finds: wrong, world: "mirrored", depth: 5, rules: rules{inTwo: true},
			left: budgets{forWritesA: 1, forWritesB: 1, forElections: 2, forFailovers: 1}},
		{name: "promote-again", rule: "R23: a late retry promotes once more", finds: []string{"PromotedOnce"}, world: "promoted", depth: 1, rules: rules{again: true},
			left: budgets{forRetries: 1}},
		{name: "no-consent", rule: "R24: no plan is asked for", finds: []string{"Consent"}, world: "promoted", depth: 2, rules: inMirror(mirror.Rules{NoConsent: true}),
			left: budgets{forStarts: 1}},
		{name: "no-fence", rule: "R25: a start doesn't close the partition first", finds: []string{"Consent"}, world: "promoted", depth: 4, rules: rules{noFence: true},
			left: budgets{forStarts: 2, forLate: 1, forWritesA: 1, forWritesB: 1}},
		{name: "no-path", rule: "R25: the source's mirror path isn't looked at", finds: []string{"NoLoop", "PANIC"}, world: "promoted", depth: 4, rules: inMirror(mirror.Rules{NoPath: true}),
			left: budgets{forStarts: 3}},
		{name: "no-gap-check", rule: "R28: a gap is jumped", finds: []string{"NoSilentGap"}, world: "mirrored", depth: 7, rules: inMirror(mirror.Rules{NoGapCheck: true}),
			left: budgets{forWritesA: 1, forTrims: 2, forParts: 1}},
		{name: "kafka-answer", rule: "R5: an epoch above the last one is out of range", rules: rules{kafkaAnswer: true},
			unreached: "only a mirror's leader knows fewer epochs than who asks it; its followers restart their logs, through the vault, and come to the same end; a mirror of a mirror needs a third cluster"},
		{name: "epochs-only", rule: "R19: the first offset of the first unshared entry isn't looked at", rules: firstCut(timeline.Rules{EpochsOnly: true}),
			unreached: "records there have epochs that the source's history ends below: the second cut finds them; the rule spares its transaction"},
		{name: "low-epoch", rule: "R23: the promoted epoch isn't above what was seen of the source", rules: rules{lowEpoch: true},
			unreached: "timelines tell equal epochs apart; the step is for clusters that know none"},
		{name: "no-probe", rule: "R26: the last batch isn't compared", rules: inMirror(mirror.Rules{NoProbe: true}),
			unreached: "no source here is restored or written anew with epochs that it had before: within the rules equal epochs mean equal bytes"},
		{name: "no-identity", rule: "R26: ids aren't compared", rules: inMirror(mirror.Rules{NoIdentity: true}),
			unreached: "one topic, and the same two clusters at the same addresses"},
		{name: "no-mirror-ahead", rule: "R27: a shorter source that is a mirror counts as diverged", rules: inMirror(mirror.Rules{NoMirrorAhead: true}),
			unreached: "a mirror of a mirror needs a third cluster; of two, the second start is refused (R25)"},
	}
}

// Beginnings of single mutations, behind their world's.
var (
	// torn: A's leader is alone in sync, B has copied what A's other replica lacks.
	torn = steps("kill a2", "settle ISR A", "write a1", "copy b1", "replicate b2", "kill a1", "start a2", "elect uncleanly a2")
	// quoted: B is closed for its failback to A, which is to cut what both of its replicas hold.
	quoted = steps("preview B", "begin start B quoting")
	// forkedTwice: both have made an entry behind the shared ones, A by a promotion and B by an
	// abandoned start. In between B lost a record that A has, and wrote another in its
	// place, in an epoch between both entries'.
	forkedTwice = steps("preview A", "begin start A quoting", "finish start A", "replicate a2", "copy a1", "replicate a2", "fail over A",
		"power loss b1", "power loss b2", "start b1", "start b2", "elect uncleanly b1", "replicate b2",
		"elect b2", "replicate b1", "elect b1", "replicate b2", "elect b2", "replicate b1", "elect b1", "replicate b2", "write b1", "replicate b2",
		"preview B", "begin start B quoting", "finish start B", "abandon B", "replicate b2")
)

// mutationNamed finds a rule that can be switched off; the empty name is none.
func mutationNamed(name string) (mutation, error) {
	if name == "" {
		return mutation{}, nil
	}
	for _, m := range mutations() {
		if m.name == name {
			return m, nil
		}
	}
	return mutation{}, fmt.Errorf("no rule %q to switch off", name)
}

// narrow begins the world where a mutation shows best, with as much as it needs.
func (w *world) narrow(m mutation) {
	w.prefix = slices.Concat(w.prefix, m.then)
	if m.left != (budgets{}) {
		w.left = m.left
	}
	w.minISR = m.minISR
	w.mute = map[string]bool{}
	for _, invariant := range m.mute {
		w.mute[invariant] = true
	}
}

// Found is what became of one rule that was switched off.
type Found struct {
	Name, Rule string
	// Unreached says why nothing can be found, empty if something must.
	Unreached string
	// Story is the shortest counterexample; nil if there is none.
	Story  *Story
	Result *Result
	// Expected: one of the invariants that the rule guards is the one that broke.
	Expected bool
}

// String is a line of a table.
func (f Found) String() string {
	switch {
	case f.Unreached != "":
		return fmt.Sprintf("%-18s     -  %s: can't be found: %s", f.Name, f.Rule, f.Unreached)
	case f.Story == nil:
		return fmt.Sprintf("%-18s     -  %s: NOT FOUND, %s", f.Name, f.Rule, f.Result.Summary())
	}
	return fmt.Sprintf("%-18s %5d  %-14s %8d states  %s", f.Name, f.Story.Depth, f.Story.Invariant, f.Result.seen(), f.Rule)
}

// SwitchOff switches each rule off, one at a time, and tells what broke and at which depth.
func SwitchOff(tell func(Found)) error {
	for _, m := range mutations() {
		f := Found{Name: m.name, Rule: m.rule, Unreached: m.unreached}
		if m.unreached == "" {
			r, err := Look(Search{Mutation: m.name})
			if err != nil {
				return err
			}
			f.Result, f.Story = r, r.Story
			f.Expected = r.Story != nil && slices.Contains(m.finds, r.Story.Invariant)
		}
		tell(f)
	}
	return nil
}
