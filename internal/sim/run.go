package sim

import (
	"cmp"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"tidemark/internal/assert"
	"tidemark/internal/core/meta"
	core "tidemark/internal/core/mirror"
	"tidemark/internal/core/types"
)

// Run says which run to make.
type Run struct {
	Seed     uint64
	Profile  string // empty: swarm
	Mutation string // empty: none
	// Mixture names a mutation of which only the features and faults are taken: all rules are on. Empty: none.
	Mixture string
	Steps   int // 0: to the end
	// Keep are the numbers of the plan's actions that happen; nil: all.
	Keep []int
	// Story keeps the lines; StoryLines bounds them (0: all).
	Story      bool
	StoryLines int
}

// Result is what a run came to.
type Result struct {
	Run     Run
	Options fmt.Stringer
	Failure *Failure // nil: nothing was found
	Trace   uint64   // hash of all that happened
	Steps   int
	Virtual time.Duration
	Actions int
	Probes  map[string]int // rare branches that were reached
	story   *story
	plan    []action
}

// Make makes a run.
func Make(r Run) (*Result, error) {
	m, err := r.mutation()
	if err != nil {
		return nil, err
	}
	if r.Profile == "" {
		r.Profile = cmp.Or(m.Profile, "swarm")
	}
	out := &Result{Run: r}
	if r.Story {
		out.story = &story{max: r.StoryLines}
	}
	var w system
	if _, isCluster := clusterProfiles[r.Profile]; isCluster {
		w, err = out.cluster(m)
	} else if _, isMirrors := mirrorsProfiles[r.Profile]; isMirrors {
		w, err = out.mirrors(m)
	} else {
		w, err = out.mirror(m)
	}
	if err != nil {
		return nil, err
	}
	keep := func(int) bool { return true }
	if r.Keep != nil {
		kept := map[int]bool{}
		for _, n := range r.Keep {
			kept[n] = true
		}
		keep = func(n int) bool { return kept[n] }
	}
	k := w.kernel()
	k.schedule(out.plan, keep, w.act)
	out.Actions = len(out.plan)
	live(w, r.Steps)
	w.end()
	out.Failure, out.Trace, out.Steps, out.Virtual, out.Probes = k.failure, k.trace, k.steps, k.now, k.probes
	return out, nil
}

// mutation is what the run switches off, and the mixture that its options are made of.
func (r *Run) mutation() (*Mutation, error) {
	if r.Mixture == "" {
		return MutationNamed(r.Mutation)
	}
	if r.Mutation != "" {
		return nil, fmt.Errorf("a run has mutation %s or mixture %s, not both", r.Mutation, r.Mixture)
	}
	m, err := MutationNamed(r.Mixture)
	if err != nil {
		return nil, err
	}
	return m.mixture(), nil
}

// mirror makes a world of a standby and its source.
func (r *Result) mirror(m *Mutation) (*world, error) {
	if m.Cluster != nil || m.Mirrors != nil {
		return nil, fmt.Errorf("mutation %s is for profile %s and its kin", m.Name, m.Profile)
	}
	o, err := Swarm(r.Run.Seed, r.Run.Profile)
	if err != nil {
		return nil, err
	}
	if m.adjust != nil {
		m.adjust(&o)
	}
	r.Options, r.plan = &o, worldActions.plan(r.Run.Seed, o.Rates, o.Length)
	return newWorld(r.Run.Seed, &o, m, r.story), nil
}

// system is a world that runs a plan.
type system interface {
	kernel() *kernel
	act(kind string, d dice) string
	// bounds gives the length of the phase with faults, the bound of the one
	// without, and how many steps are too many.
	bounds() (length, calm time.Duration, stepsMost int)
	heal()
	unfinished() string // "" once everything has converged
	final()
	end() // frees what a run holds
}

func (w *world) kernel() *kernel { return w.k }
func (w *world) bounds() (time.Duration, time.Duration, int) {
	return w.o.Length, w.o.Calm, mirrorStepsMost
}
func (w *world) end() {}

// mirrorStepsMost bounds a mirror's run: an ordinary one has a few thousand steps.
const mirrorStepsMost = 150_000

// live runs both phases. A panic of the system under test is a failure like any other.
func live(w system, steps int) {
	k := w.kernel()
	length, calm, stepsMost := w.bounds()
	defer func() {
		r := recover()
		if r == nil {
			return
		}
		err, ok := r.(error)
		if !ok {
			err = fmt.Errorf("%v", r)
		}
		where := ""
		var broken *assert.Error
		if !errors.As(err, &broken) {
			where = "\n" + string(debug.Stack())
		}
		k.fail("PANIC", "%v%s", err, where)
	}()
	if steps == 0 {
		defer func() {
			if k.steps >= stepsMost && k.failure == nil {
				k.fail("Convergence", "%d steps: something goes round and round without progress", stepsMost)
			}
		}()
		steps = stepsMost
	}
	if !k.runUntil(length, steps) {
		return
	}
	w.heal()
	end := k.now + calm
	why := "nothing was tried"
	for k.now < end {
		if !k.runUntil(k.now+5*time.Second, steps) {
			return
		}
		if why = w.unfinished(); why == "" {
			w.final()
			return
		}
	}
	k.fail("Convergence", "%v after the last fault: %s", calm, why)
}

// heal ends all faults: from here on the copies must become equal.
func (w *world) heal() {
	w.k.note("PLAN", "all faults end")
	w.net.calm = true
	clear(w.net.cut)
	w.o.SlowReplica, w.o.Zombie = 0, 0
	w.k.buggify = false
	w.storeIsDown = false
	w.store.SetDown(false)
	w.store.HoldWatches(false)
	w.store.ReleaseLate()
	w.node.mem.SetCapacity(0)
	w.full = 1 << 20 // spans that end later change nothing
	w.node.disk.crashIn, w.node.disk.failIn = -1, -1
	d := w.k.dice("heal")
	for b := range srcReplicas {
		w.src.setUp(b, d, false)
	}
	for _, p := range w.src.parts {
		for _, r := range p.replicas {
			if r.broker != p.leader {
				r.leads = -1
			}
			if p.contradicts {
				r.mend()
			}
		}
		p.replicate()
	}
	if w.o.VaultBytes >= 0 { // an operator raises vault.max.bytes
		w.o.VaultBytes, w.o.PowerLoss = -1, 0
		w.node.crash()
	}
	w.resumeMirror()
	w.storeChanged()
}

// unfinished says what has not converged yet, "" if everything has.
func (w *world) unfinished() string {
	n := w.node
	if !n.alive() || !n.serving || len(n.parts) == 0 {
		return "the node doesn't serve"
	}
	for _, c := range n.parts {
		if why := w.behind(c); why != "" {
			return fmt.Sprintf("%s: %s", c.tp, why)
		}
	}
	return ""
}

// behind says what one partition lacks.
func (w *world) behind(c *copyPart) string {
	rec, _ := c.record()
	v, open := c.inline.Partition().View()
	switch {
	case rec == nil || !open:
		return "it isn't open"
	case v.Offline != nil:
		return v.Offline.Error()
	case w.failoverWanted && !rec.Writable:
		return "a failover was ordered and it isn't writable"
	case rec.Writable:
		if _, err := c.inline.Partition().LeaderEpoch(); err != nil {
			return err.Error()
		}
		return ""
	case rec.Mirror.State == meta.MirrorFailed:
		return w.mayFail(c, rec, v.LogEnd)
	}
	p := w.sourcePart(c.id.Number)
	if c.id.Topic != w.src.topic {
		return "the source's topic is another one and the mirror doesn't say so"
	}
	r := p.lead()
	switch {
	case r == nil || r.hw != r.end:
		return "the source has not settled"
	case rec.Mirror.State != meta.MirrorMirroring:
		return "it is " + rec.Mirror.State + " " + rec.Mirror.Reason
	case v.LogEnd != r.end:
		return fmt.Sprintf("the log ends at %d, the source's at %d", v.LogEnd, r.end)
	}
	if _, err := c.inline.Partition().LeaderEpoch(); err != nil {
		return err.Error()
	}
	return ""
}

// mayFail reports whether a partition may stay FAILED for its reason, given what happened.
func (w *world) mayFail(c *copyPart, rec *meta.PartitionRecord, end types.Offset) string {
	reason, _ := core.ReasonOf(rec.Mirror.Reason)
	p := w.sourcePart(c.id.Number)
	ok := false
	switch reason {
	case core.TopicIDMismatch, core.SourceTopicGone:
		ok = c.id.Topic != w.src.topic
	case core.SourceGap:
		ok = !w.o.ContinueOverGap && c.id.Topic == w.src.topic && p.lead() != nil
	case core.SourceRewritten:
		ok = p.rewritten || c.id.Topic != w.src.topic
	}
	if ok {
		w.k.probe("end: mirror stays FAILED, " + string(reason))
		return ""
	}
	return "it is FAILED and nothing justifies it: " + rec.Mirror.Reason
}

// final reads everything once more when all has converged: a mirror's bytes and
// its source's are the same wherever both hold an offset.
func (w *world) final() {
	for _, c := range w.node.parts {
		rec, _ := c.record()
		v, _ := c.inline.Partition().View()
		s := w.check.of(c)
		got, err := readFrom(c.inline.Partition().Log(), v.LogStart)
		if err != nil {
			w.k.fail("LogReadable", "%s at the end: %v", c.tp, err)
			return
		}
		var have strings.Builder
		for i := range got {
			fmt.Fprintf(&have, "%s ", got[i])
			if !s.has(&got[i]) {
				w.k.fail("LogReadable", "%s at the end: %s was not there when it was looked at last", c.tp, got[i])
				return
			}
		}
		w.k.mix(uint64(v.LogEnd), have.String())
		if rec.Writable || rec.Mirror.State == meta.MirrorFailed {
			continue
		}
		r := w.sourcePart(c.id.Number).lead()
		for _, b := range r.batches {
			if b.base < v.LogStart || b.next > v.LogEnd || b.compacted {
				continue
			}
			if !s.has(&shadowBatch{base: b.base, raw: b.raw}) {
				w.k.fail("Convergence", "%s at the end: the source has %s, the mirror has not", c.tp, b)
				return
			}
		}
		w.k.probe("end: mirror equals its source")
	}
}
