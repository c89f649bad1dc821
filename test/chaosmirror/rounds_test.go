//go:build chaos && linux

package chaosmirror_test

import (
	"fmt"
	"time"

	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/internal/history"
	"tidemark/test/chaos/harm"
	"tidemark/test/chaos/links"
	"tidemark/test/chaos/nodes"
)

// round is how the sides change once.
type round struct {
	load     time.Duration // of the primary alone
	lag      string        // how the standby falls behind: "", "paused", "cut"
	behind   time.Duration // for how long
	switches bool          // without loss
	fork     time.Duration // how long both sides are written
	// sleeperP and sleeperS are the places of a replica that sleeps from before the promotion to after the failback; -1: none.
	sleeperP, sleeperS int
	chain              bool // C is failed over and back as well
	abandons           bool // the failback is taken back if that is possible still
	hasty              bool // the next round doesn't wait until everything mirrors
}

func (w *world) draw() round {
	second := func(most int) time.Duration { return time.Duration(w.r.IntN(most*1000)) * ms }
	r := round{load: 500*ms + second(2), behind: 300*ms + second(2), switches: w.r.IntN(4) == 0, fork: second(2), sleeperP: -1, sleeperS: -1,
		chain: w.r.IntN(3) == 0, abandons: w.r.IntN(4) == 0, hasty: w.r.IntN(4) == 0}
	r.lag = []string{"", "paused", "cut"}[w.r.IntN(3)]
	if r.switches {
		r.lag = ""
	}
	if w.r.IntN(3) == 0 {
		r.sleeperP = w.r.IntN(3)
	}
	if w.r.IntN(5) == 0 {
		r.sleeperS = w.r.IntN(3)
	}
	return r
}

// changeSides plays one round: s takes over from p, and p becomes its mirror.
func (w *world) changeSides(number int, p, s *cluster) {
	r := w.draw()
	w.log("== round %d: %s takes over from %s: %+v", number, s.name, p.name, r)
	w.saw("rounds", 1)
	if w.writers[p] == nil {
		w.writers[p] = w.write(p)
	}
	harm.Pause(w.t.Context(), r.load)
	if r.chain {
		w.failOver(w.c, mirrorName, false)
		w.writers[w.c] = w.write(w.c)
	}
	w.fallBehind(r, p, s)
	w.sleep(p, r.sleeperP)
	w.sleep(s, r.sleeperS)
	clean := false
	if r.switches {
		clean = w.switchOver(p, s)
	} else {
		w.failOver(s, mirrorName, w.consistent(number))
	}
	w.writers[s] = w.write(s)
	harm.Pause(w.t.Context(), r.fork)
	w.stopWriters(p)
	cuts := w.failBack(p, s, clean)
	if r.abandons && w.abandon(p, cuts) {
		w.writers[p] = w.write(p)
		harm.Pause(w.t.Context(), r.fork)
		w.stopWriters(p)
		for tp, more := range w.failBack(p, s, false) {
			cuts[tp] = more
		}
	}
	w.expect(p, cuts)
	if r.chain {
		w.stopWriters(w.c)
		w.expect(w.c, w.failBack(w.c, w.b, false))
	}
	w.wake(p, r.sleeperP)
	w.wake(s, r.sleeperS)
	if !r.hasty {
		w.n.Alone(func() { w.settle() })
	}
}

// fallBehind has the standby miss what the primary takes, or not.
func (w *world) fallBehind(r round, p, s *cluster) {
	switch r.lag {
	case "paused":
		w.verb(s, "pause")
		harm.Pause(w.t.Context(), r.behind)
	case "cut":
		w.n.Beside(func() { // one who changes these links at a time is enough
			w.n.join(p, s, links.Cut)
			w.n.join(s, p, links.Cut)
		})
		harm.Pause(w.t.Context(), r.behind)
		w.n.join(p, s, links.Way{})
		w.n.join(s, p, links.Way{})
	}
}

// patience is how long writers of a side that was given up wait for outcomes.
const patience = 10 * time.Second

// stopWriters ends those of a side that was given up, which may leave a transaction open.
func (w *world) stopWriters(c *cluster) {
	if g := w.writers[c]; g != nil {
		g.deserts.Store(true)
	}
	w.writers[c].stop(patience)
	w.writers[c].stopReading()
	w.writers[c] = nil
}

// expect notes what a failback has to cut.
func (w *world) expect(c *cluster, cuts map[types.TopicPartition]history.Cut) {
	for _, cut := range cuts {
		w.book.mustCut(cut)
		records := 0
		for _, b := range cut.Batches {
			records += len(b.Records)
		}
		w.saw("records that failbacks had to cut from "+c.name, records)
		if len(cut.Batches) > 0 {
			w.saw("cuts of a partition of "+c.name, 1)
		}
	}
}

func (w *world) node(c *cluster, at int) *nodes.Node {
	if at < 0 || at >= len(c.nodes) {
		return nil
	}
	return c.nodes[at]
}

func (w *world) sleep(c *cluster, at int) {
	if b := w.node(c, at); b != nil {
		w.log("  node %d of %s goes to sleep", b.ID, c.name)
		w.saw("replicas that slept through a round", 1)
		w.n.Alone(func() { c.sleep(b) })
	}
}

func (w *world) wake(c *cluster, at int) {
	if b := w.node(c, at); b != nil {
		c.wake(b)
	}
}

// settle waits until everything mirrors, and has the judge look at it. Nothing is harmed meanwhile.
func (w *world) settle() {
	from := time.Now()
	w.whole("after a round", w.clusters()...)
	for _, c := range w.clusters() {
		eventually(w.t, healLimit, "every partition of "+c.name+" is writable or mirrors", func() error {
			r, err := c.look(w.t.Context())
			if err != nil {
				return err
			}
			for tp, rec := range r.partitions {
				if !rec.Writable && (rec.Mirror == nil || rec.Mirror.State != meta.MirrorMirroring) {
					return fmt.Errorf("%s: %s is %s", c.name, tp, mirrorText(rec))
				}
			}
			return nil
		})
	}
	w.observeAll(false, w.clusters()...)
	for _, c := range w.clusters() {
		w.observeGroups(c, false)
		w.observeCommitted(c, false)
	}
	w.hearFalls()
	w.log("  everything mirrors and was looked at after %.1fs", time.Since(from).Seconds())
}
