package mirror

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"

	"tidemark/internal/core/meta"
	"tidemark/internal/core/replica"
	"tidemark/internal/core/timeline"
	"tidemark/internal/core/types"
)

// Ask asks the source's leader whether the logs agree at an offset, as a
// follower's fetch does, without taking records. Reply.Vouch is known where
// Reply.LogStart lies at or above the offset asked for; -1 for a LogStart not said.
type Ask func(replica.Request) (replica.Reply, error)

// PlannedCut is what one cut of a dry run would take from the leader's log.
type PlannedCut struct {
	Cause Cause `json:"cause"`
	// From and To (exclusive) are offsets; First and Last are epochs of the history in between.
	From  types.Offset      `json:"from"`
	To    types.Offset      `json:"to"`
	First types.LeaderEpoch `json:"firstEpoch"`
	Last  types.LeaderEpoch `json:"lastEpoch"`
}

// Plan is the dry run of a start at the partition's leader (R24). Its ID names
// the facts that it stands on: both lists, the leader's log end, and the cuts;
// once one of them is another, the plan no longer holds.
type Plan struct {
	ID string
	// Relation of our list to the source's; "empty" if nothing is held here.
	Relation string
	// FirstUnshared is the first epoch of our first entry that the source lacks, NoLeaderEpoch if it lacks none.
	FirstUnshared types.LeaderEpoch
	Ours, Theirs  timeline.List
	LogEnd        types.Offset
	Cuts          []PlannedCut
	// CutAt is the first offset that goes, the log end if none does.
	CutAt types.Offset
	// Gap: the source's log starts above what is left here (R28).
	Gap bool

	forgot   bool // the source was asked, and knows of nothing that it mirrored from here
	ownEntry bool // an entry that this cluster made and the source lacks
	noRoot   bool // no common root, and records are held
}

// Takes reports whether a record would go to the vault.
func (p *Plan) Takes() bool { return len(p.Cuts) > 0 }

// DryRun plays a start at the leader without changing anything: the first cut
// (R19), then the comparison with the source until the logs agree (R13), then
// what the source's log start would pass (R28). The cut of a batch's inside is the whole batch's:
// align gives the base of the batch that holds an offset.
func DryRun(rec *meta.PartitionRecord, pol Policy, s Source, own *Own, align func(types.Offset) types.Offset, ask Ask) (Plan, error) {
	if r := isOtherTopic(pol, s); r.Reason != "" {
		return Plan{}, &r // nothing is asked of it
	}
	list := listAtStart(rec, pol, s, own)
	c := timeline.Compare(rec.Timelines, list)
	p := Plan{Relation: c.Relation.String(), Ours: rec.Timelines, Theirs: list, LogEnd: own.LogEnd, CutAt: own.LogEnd, FirstUnshared: types.NoLeaderEpoch}
	if own.IsEmpty() {
		p.Relation = "empty"
	}
	if c.Shared < len(rec.Timelines) {
		p.FirstUnshared = rec.Timelines[c.Shared].FirstEpoch
	}
	p.forgot = s.Timelines == nil && s.Mirrored != nil && s.Mirrored.LastEpoch < 0
	p.ownEntry = madeHere(rec, c)
	p.noRoot = c.Relation == timeline.NoCommon && !own.IsEmpty()
	d := dryRun{plan: &p, look: own.Log, align: align, source: s}
	d.firstCut(own, list, max(rec.LeaderEpoch, s.LeaderEpoch)+1)
	if err := d.compare(pol, ask); err != nil {
		return Plan{}, err
	}
	p.ID = p.fingerprint()
	return p, nil
}

// madeHere reports whether this cluster made an entry that the source lacks.
func madeHere(rec *meta.PartitionRecord, c timeline.Comparison) bool {
	return slices.ContainsFunc(rec.Timelines[c.Shared:], func(e timeline.Entry) bool { return isOwnEntry(rec, e) })
}

// isOwnEntry reports whether a promotion, or an abandoned start, of this cluster made an entry.
func isOwnEntry(rec *meta.PartitionRecord, e timeline.Entry) bool {
	return slices.Contains(rec.OwnTimelines, e.ID) ||
		slices.ContainsFunc(rec.Promotions, func(p meta.PromotionRecord) bool { return p.PromotedEpoch == e.FirstEpoch })
}

// dryRun moves a look at the log through the cuts.
type dryRun struct {
	plan   *Plan
	look   replica.Log
	align  func(types.Offset) types.Offset
	source Source
}

// logEndAfter is where the log ends after a cut at o: at the base of the batch that o
// lies in, but not below the log start, at which a log that holds nothing more begins anew (R1).
func (d *dryRun) logEndAfter(o types.Offset) types.Offset {
	return max(d.align(o), min(o, d.look.LogStart))
}

func (d *dryRun) take(cause Cause, from types.Offset) {
	if from < d.look.LogEnd {
		first, _ := d.look.History.EpochForOffset(from)
		last, _ := d.look.LastEpoch()
		d.plan.Cuts = append(d.plan.Cuts, PlannedCut{Cause: cause, From: from, To: d.look.LogEnd, First: first, Last: last})
	}
	d.look = d.look.CutTo(from)
	d.plan.CutAt = min(d.plan.CutAt, from)
}

func (d *dryRun) firstCut(own *Own, list timeline.List, epoch types.LeaderEpoch) {
	switch owed := timeline.FirstCut(own.replica(), list, epoch); owed.Kind {
	case timeline.CutAt:
		d.take(CauseTimeline, d.logEndAfter(owed.At))
	case timeline.CutEverything:
		d.take(CauseTimeline, own.LogStart)
	}
}

// roundsPlanned bounds the comparison: each round moves the look's end down.
const roundsPlanned = 10_000

func (d *dryRun) compare(pol Policy, ask Ask) error {
	if d.source.LogStart > d.look.LogEnd {
		d.plan.Gap = !d.look.IsEmpty()
		d.restart()
		return nil
	}
	if d.look.IsEmpty() {
		return nil
	}
	end := d.look.LogEnd
	at := d.look
	for range roundsPlanned {
		last, _ := at.LastEpoch()
		reply, err := ask(replica.Request{Offset: at.LogEnd, LastEpoch: last, LeaderEpoch: d.source.LeaderEpoch})
		if err != nil {
			return err
		}
		switch reply.Kind {
		case replica.AnswerData:
			if at.LogEnd < end {
				d.take(CauseDivergence, at.LogEnd)
			}
			d.logStart(reply)
			return nil
		case replica.AnswerDiverging:
			at = at.CutTo(d.logEndAfter(replica.CutPoint(&at, reply.Diverging)))
			if at.IsEmpty() {
				d.take(CauseDivergence, at.LogEnd)
				return nil
			}
		case replica.AnswerOutOfRange:
			d.restart()
			return nil
		default:
			return &Refusal{SourceLeaderMoved, "the source's leader changed during the comparison: " + reply.Kind.String()}
		}
	}
	_ = pol
	return &Refusal{SourceInconsistent, "the comparison of epochs comes to no end"}
}

// restart: all that is left goes.
func (d *dryRun) restart() {
	d.take(CauseRestart, d.look.LogStart)
}

// logStart takes what the source's log start passes unvouched (R28).
func (d *dryRun) logStart(reply replica.Reply) {
	if reply.LogStart >= d.look.LogEnd && reply.Vouch != replica.VouchYes && !d.look.IsEmpty() {
		d.take(CauseLogStart, d.look.LogStart)
	}
}

// fingerprint names the facts: 12 hexadecimal digits.
func (p *Plan) fingerprint() string {
	h := sha256.New()
	for _, l := range []timeline.List{p.Ours, p.Theirs} {
		fmt.Fprintln(h, "list")
		for _, e := range l {
			fmt.Fprintln(h, e.ID, e.FirstEpoch, e.FirstOffset)
		}
	}
	fmt.Fprintln(h, "end", p.LogEnd, p.Gap)
	for _, c := range p.Cuts {
		fmt.Fprintln(h, c.Cause, c.From, c.To, c.First, c.Last)
	}
	return hex.EncodeToString(h.Sum(nil)[:6])
}

// CombinedID names the plans of many partitions, in the order given, as one.
func CombinedID(plans []string) string {
	if len(plans) == 1 {
		return plans[0]
	}
	h := sha256.New()
	for _, id := range plans {
		fmt.Fprintln(h, id)
	}
	return hex.EncodeToString(h.Sum(nil)[:6])
}

// Consent judges a start by its dry run (R24): what an operator must have seen,
// and whether the plan that was quoted still holds. An empty Reason lets it go on.
func (p *Plan) Consent(rec *meta.PartitionRecord, r StartRequest, rules Rules) Refusal {
	if rules.NoConsent {
		return Refusal{}
	}
	wasWritable := rec.Writable || rec.Fence != nil || rec.Mirror != nil && rec.Mirror.WasWritable
	needed := p.ownEntry || p.noRoot && !rules.NoRootConsent || p.Takes() && wasWritable
	facts := fmt.Sprintf("%s: %d offsets from %d on would go", p.Relation, p.offsets(), p.CutAt)
	switch {
	case p.ownEntry && p.Relation == timeline.Ahead.String() && !r.Rollback:
		return Refusal{AheadOfSource, fmt.Sprintf("this cluster was promoted at epoch %d, which the source doesn't know: make the source a mirror of this cluster, or roll this promotion back", p.FirstUnshared)}
	case !needed:
		return Refusal{}
	case r.PlanID == "" && p.noRoot && p.forgot:
		return Refusal{UnrelatedLogs, "the source knows no last mirrored epoch of this cluster: it never mirrored the topic from here, or its mirror was deleted; nothing says what is shared, " + facts + ", into the vault; look at the preview and quote its plan"}
	case r.PlanID == "" && p.noRoot:
		return Refusal{UnrelatedLogs, "the source's log shares no beginning with ours; " + facts}
	case r.PlanID == "":
		return Refusal{PlanRequired, facts + "; look at the preview and quote its plan"}
	case r.PlanID != p.ID:
		return Refusal{PlanStale, fmt.Sprintf("plan %s no longer holds, now it is %s (%s)", r.PlanID, p.ID, facts)}
	}
	return Refusal{}
}

func (p *Plan) offsets() (n types.Offset) {
	for _, c := range p.Cuts {
		n += c.To - c.From
	}
	return n
}
