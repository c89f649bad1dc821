package exhaust

import (
	"bytes"

	"tidemark/internal/core/meta"
	"tidemark/internal/core/mirror"
	"tidemark/internal/core/modellog"
)

// roundsMost is how many fair rounds a state without faults may need to come to rest.
const roundsMost = 30

// converge ends all faults and lets everybody work in turn: then nothing may
// move any more, replicas must be equal and mirrors have what their sources
// have, or say why not.
func (w *world) converge(s *state, e *encoder) (v *violation) {
	x := &step{w: w, s: s.clone()}
	defer func() {
		if v != nil {
			v.detail += " (once all faults had ended and everybody had worked on)"
		}
	}()
	defer func() {
		if p := recover(); p != nil {
			x.problemf("PANIC", "%v", p)
			v = x.problem
		}
	}()
	var before []byte
	for range roundsMost {
		for c := range clusters {
			if !w.only || c == 0 {
				x.round(c)
			}
			if x.problem != nil {
				return x.problem
			}
		}
		now := e.encode(x.s)
		if bytes.Equal(before, now) {
			x.checkRest()
			return x.problem
		}
		before = bytes.Clone(now)
	}
	x.problemf("Convergence", "nothing comes to rest")
	return x.problem
}

// round has everybody of a cluster do what it would do by itself, and the operator allow an unclean election.
func (x *step) round(c int) {
	k := &x.s.c[c]
	for len(k.late) > 0 && x.comesLate(c, 0) {
	}
	for i, n := range k.nodes {
		switch {
		case !n.up:
			x.start(c, i)
		case n.rev != k.rev:
			x.shown(c, i)
		}
	}
	x.settleLate()
	if k.leaderIndex() < 0 {
		_ = x.elect(c, 0, false) || x.elect(c, 1, false) || x.elect(c, 0, true) || x.elect(c, 1, true)
	}
	x.settle(c)
	x.finishStart(c)
	for i := range k.nodes {
		if x.problem != nil {
			return
		}
		if _, following := k.nodes[i].follower.Session(); following {
			x.replicate(c, i)
		}
	}
	for i, n := range k.nodes {
		if x.problem == nil && n.machine != nil && n.leading {
			x.copyOn(c, i, false)
		}
	}
	if x.problem == nil {
		x.check()
	}
}

// checkRest looks at a state that has come to rest.
func (x *step) checkRest() {
	for c := range x.s.c {
		if x.w.only && c > 0 {
			return
		}
		k := &x.s.c[c]
		l := k.leaderIndex()
		if l < 0 {
			x.problemf("Convergence", "%s has no leader", clusterIDs[c])
			return
		}
		a, b := k.nodes[l], k.nodes[1-l]
		failed := mirror.Reason("")
		if k.rec.IsMirror() && k.rec.Mirror.State == meta.MirrorFailed {
			failed, _ = mirror.ReasonOf(k.rec.Mirror.Reason)
		}
		if failed == "" || a.serves() {
			if diff := modellog.Difference(&a.log, &b.log, len(x.s.gone) > 0); diff != "" || a.log.End != b.log.End || len(k.rec.ISR) < replicas {
				x.problemf("Convergence", "%s and %s don't become equal: %s, %s, ISR %v; %s", name(c, l), name(c, 1-l), a.log.String(), b.log.String(), k.rec.ISRIDs(), diff)
				return
			}
		}
		if k.rec.IsMirror() {
			x.checkMirrorRest(c, a, failed)
		}
	}
}

func (x *step) checkMirrorRest(c int, n *node, failed mirror.Reason) {
	o := &x.s.c[1-c]
	switch failed {
	case mirror.PlanRequired, mirror.AheadOfSource, mirror.UnrelatedLogs, mirror.MirrorLoop:
		return // an operator decides
	case mirror.SourceGap:
		if len(x.s.gone) > 0 {
			return
		}
	case "":
		j := o.server()
		if j < 0 {
			return
		}
		source := &o.nodes[j].log
		diff := modellog.Difference(&n.log, source, len(x.s.gone) > 0)
		if n.log.End == source.End && diff == "" && n.rec.Mirror.State == meta.MirrorMirroring {
			return
		}
		if o.rec.IsMirror() {
			return // a circle of starts: the second waits or is refused
		}
		x.problemf("Convergence", "%s (%s) holds %s, its source %s; %s", clusterIDs[c], n.rec.Mirror.State, n.log.String(), source.String(), diff)
		return
	}
	x.problemf("Convergence", "%s failed without cause: %s", clusterIDs[c], n.rec.Mirror.Reason)
}
