package exhaust

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// kind is a kind of step.
type kind uint8

const (
	doProduce   kind = iota // a client writes one record to a leader
	doReplicate             // a follower fetches until it has everything
	doFetch                 // a follower asks once; the answer is on its way
	doReceive               // the answer on its way comes
	doCopy                  // a mirror copies until nothing is left
	doCopyOnce              // a mirror goes on until it has changed something
	doAnswer                // the source answers what a mirror asks; the answer is on its way
	doElect                 // a clean election
	doUnclean               // an unclean election
	doCrash                 // kill -9: the disk keeps what was written
	doPowerLoss             // what was not synced is lost, one record or all
	doStop                  // a shutdown in order
	doRestart
	doSettle   // the controller takes who is gone out of the ISR
	doShrink   // a leader takes a follower that lags out of the ISR
	doShow     // an image that lags shows the record
	doLate     // a transaction of unknown outcome reaches the store
	doPreview  // the operator looks at what a start would take
	doBegin    // the start's first half; quoting the plan, or not
	doFinish   // its second half
	doFailover // the mirror is promoted
	doRetry    // the same request once more
	doAbandon  // the start is taken back
	doTrim     // the leader's log start rises by one record
	doCompact  // the leader's log loses a record from its middle
	kinds
)

var kindNames = [kinds]string{
	"write", "replicate", "fetch", "answer", "copy", "copy on", "source answers", "elect", "elect uncleanly", "kill", "power loss", "stop", "start", "settle ISR", "shrink ISR",
	"show record", "late transaction", "preview", "begin start", "finish start", "fail over", "fail over again", "abandon", "trim", "compact",
}

// action is one step: what, where, which variant.
//
//	bits 0-4 kind, 5 cluster, 6 node, 7-8 variant, 9-10 timing, 11-13 cut
type action uint16

// timings of a transaction that a step writes.
const (
	atOnce    = 0
	late      = 1 // its outcome isn't known, it reaches the store later or never
	otherLags = 2 // it is in force; the other node's image doesn't show it yet
	mineLags  = 3 // the writer's own image doesn't
)

func act(k kind, c, i int) action          { return action(k) | action(c)<<5 | action(i)<<6 }
func (a action) kind() kind                { return kind(a & 31) }
func (a action) cluster() int              { return int(a >> 5 & 1) }
func (a action) node() int                 { return int(a >> 6 & 1) }
func (a action) variant() int              { return int(a >> 7 & 3) }
func (a action) timing() int               { return int(a >> 9 & 3) }
func (a action) cut() int                  { return int(a >> 11 & 7) }
func (a action) with(variant int) action   { return a | action(variant)<<7 }
func (a action) timed(t int) action        { return a | action(t)<<9 }
func (a action) cutBefore(part int) action { return a | action(part)<<11 }

// String names the step for the story.
func (a action) String() string {
	where := clusterIDs[a.cluster()]
	switch a.kind() {
	case doReplicate, doFetch, doReceive, doCopy, doCopyOnce, doAnswer, doElect, doUnclean, doCrash, doPowerLoss, doStop, doRestart, doShow, doProduce:
		where = name(a.cluster(), a.node())
	}
	s := kindNames[a.kind()] + " " + where
	switch {
	case a.kind() == doPowerLoss && a.variant() == 1:
		s += " (of all that was not synced)"
	case a.kind() == doBegin && a.variant() == 1:
		s += " (quoting the plan)"
	}
	s += [...]string{"", ", outcome unknown", ", shown to the other node later", ", shown to the writer later"}[a.timing()]
	if a.cut() > 0 {
		s += fmt.Sprintf(", power lost before part %d of the cut", a.cut())
	}
	return s
}

// steps reads actions as String writes them at once: "kill a2", "begin start A
// quoting" for one that quotes the plan. It is for scripts of this package: a line that is none panics.
func steps(lines ...string) []action {
	list := make([]action, len(lines))
	for i, line := range lines {
		rest, quoting := strings.CutSuffix(line, " quoting")
		at := strings.LastIndexByte(rest, ' ')
		k := slices.Index(kindNames[:], rest[:max(at, 0)])
		where := rest[at+1:]
		if k < 0 || len(where) == 0 || len(where) > 2 {
			panic("exhaust: no step " + line)
		}
		a := act(kind(k), int(where[0]|0x20)-'a', 0)
		if len(where) == 2 {
			a = act(kind(k), int(where[0]|0x20)-'a', int(where[1]-'1'))
		}
		if quoting {
			a = a.with(1)
		}
		list[i] = a
	}
	return list
}

// cost is the budget that a kind of step takes from, -1 for none.
func (a action) cost() budget {
	switch a.kind() {
	case doProduce:
		return budget(a.cluster())
	case doFetch, doCopyOnce, doAnswer:
		return forParts
	case doElect:
		return forElections
	case doUnclean:
		return forUnclean
	case doCrash, doPowerLoss:
		return forCrashes
	case doStop:
		return forStops
	case doShrink:
		return forShrinks
	case doPreview, doBegin:
		return forStarts
	case doFailover:
		return forFailovers
	case doRetry:
		return forRetries
	case doAbandon:
		return forAbandons
	case doTrim:
		return forTrims
	case doCompact:
		return forCompactions
	}
	return free
}

// budget is what steps of a kind are counted against.
type budget int8

const (
	free       budget = -1
	forWritesA budget = 0
	forWritesB budget = 1
	forParts   budget = iota
	forElections
	forUnclean
	forCrashes
	forStops
	forShrinks
	forStarts
	forFailovers
	forRetries
	forAbandons
	forTrims
	forCompactions
	forLate // transactions of unknown outcome
	forLags // images that lag
	kindsOfBudget
)

// budgets is how often each may still happen.
type budgets [kindsOfBudget]uint8

func (b *budgets) has(k budget) bool { return k == free || b[k] > 0 }

func (b *budgets) take(k budget) {
	if k != free {
		b[k]--
	}
}

// writesRecord lists kinds of steps that write a transaction whose timing is a choice.
func (k kind) writesRecord() bool {
	switch k {
	case doReplicate, doReceive, doFetch, doCopy, doCopyOnce, doElect, doUnclean, doBegin, doFinish, doFailover, doAbandon, doShrink, doSettle:
		return true
	}
	return false
}

// candidates appends the steps that may be possible, by what is cheap to see.
func (s *state) candidates(list []action, firstOnly bool) []action {
	for c := range clusters {
		if firstOnly && c > 0 {
			break
		}
		k := &s.c[c]
		for i, n := range k.nodes {
			list = s.nodeActions(list, c, i, n)
		}
		list = append(list, act(doSettle, c, 0), act(doShrink, c, 0), act(doFailover, c, 0), act(doRetry, c, 0), act(doAbandon, c, 0),
			act(doPreview, c, 0), act(doBegin, c, 0), act(doBegin, c, 0).with(1), act(doFinish, c, 0), act(doTrim, c, 0), act(doCompact, c, 0))
		for at := range k.late {
			list = append(list, act(doLate, c, 0).with(at))
		}
	}
	return list
}

func (s *state) nodeActions(list []action, c, i int, n *node) []action {
	if !n.up {
		return append(list, act(doRestart, c, i))
	}
	list = append(list, act(doCrash, c, i), act(doPowerLoss, c, i), act(doPowerLoss, c, i).with(1), act(doStop, c, i), act(doElect, c, i), act(doUnclean, c, i), act(doProduce, c, i))
	if n.rev != s.c[c].rev {
		list = append(list, act(doShow, c, i))
	}
	if n.answer != nil {
		list = append(list, act(doReceive, c, i))
	}
	if _, following := n.follower.Session(); following {
		list = append(list, act(doReplicate, c, i), act(doFetch, c, i))
	}
	if n.machine != nil && n.ask != nil {
		list = append(list, act(doCopy, c, i), act(doCopyOnce, c, i), act(doAnswer, c, i))
	}
	return list
}

// do carries one action out on a state of its own; false if it isn't possible.
func (x *step) do(a action) bool {
	if !x.s.left.has(a.cost()) {
		return false
	}
	switch a.timing() {
	case late:
		if !x.s.left.has(forLate) || len(x.s.c[a.cluster()].late) > 1 {
			return false
		}
	case otherLags, mineLags:
		if !x.s.left.has(forLags) {
			return false
		}
	}
	if a.cut() > 0 && !x.s.left.has(forCrashes) {
		return false
	}
	x.cutAt, x.timing, x.timed = a.cut(), a.timing(), false
	if !x.carryOutAction(a) {
		return false
	}
	if x.timing != atOnce && !x.timed || a.cut() > 0 && !x.stopped {
		return false // there was nothing to delay, or to stop
	}
	x.s.left.take(a.cost())
	switch {
	case a.timing() == late:
		x.s.left.take(forLate)
	case a.timing() != atOnce:
		x.s.left.take(forLags)
	}
	if a.cut() > 0 {
		x.s.left.take(forCrashes)
	}
	x.settleLate()
	return true
}

func (x *step) carryOutAction(a action) bool {
	c, i := a.cluster(), a.node()
	k := &x.s.c[c]
	n := k.nodes[i]
	switch a.kind() {
	case doProduce:
		if !n.serves() || !n.rec.Writable || n.leader == nil {
			return false
		}
		x.write1(c, i)
	case doReplicate:
		return x.replicate(c, i)
	case doFetch:
		return n.answer == nil && x.askLeader(c, i)
	case doReceive:
		x.receive(c, i)
	case doCopy:
		return x.copyOn(c, i, false)
	case doCopyOnce:
		return x.copyOn(c, i, true)
	case doAnswer:
		return x.answers(c, i)
	case doElect, doUnclean:
		return x.elect(c, i, a.kind() == doUnclean)
	case doCrash:
		x.crash(c, i, 0)
	case doPowerLoss:
		if n.log.End <= max(n.synced, n.log.Start) || a.variant() == 1 && n.log.End-1 <= max(n.synced, n.log.Start) {
			return false
		}
		x.crash(c, i, [...]int{1, math.MaxInt}[a.variant()])
	case doStop:
		x.stop(c, i)
	case doRestart:
		x.start(c, i)
	case doSettle:
		return x.settle(c)
	case doShrink:
		return x.shrink(c)
	case doShow:
		x.shown(c, i)
	case doLate:
		return x.comesLate(c, a.variant())
	default:
		return x.verb(a)
	}
	return true
}

func (x *step) verb(a action) bool {
	c := a.cluster()
	switch a.kind() {
	case doPreview:
		return x.preview(c)
	case doBegin:
		return (a.variant() == 0 || x.s.c[c].quoted.id != "") && x.begin(c, a.variant() == 1)
	case doFinish:
		return x.finishStart(c)
	case doFailover:
		return x.s.c[c].rec.IsMirror() && x.failover(c, false)
	case doRetry:
		return x.failover(c, true)
	case doAbandon:
		return x.abandon(c)
	case doTrim:
		return x.trim(c)
	case doCompact:
		return x.compact(c)
	}
	return false
}

// comesLate delivers a transaction of unknown outcome.
func (x *step) comesLate(c, at int) bool {
	k := &x.s.c[c]
	if at >= len(k.late) || !k.holds(c, k.late[at].plan) {
		return false
	}
	t := k.late[at]
	k.late = append(append([]*txn{}, k.late[:at]...), k.late[at+1:]...)
	x.note("the late transaction comes: %s", describe(t.record))
	if !x.commit(c, t, nobody) {
		return false
	}
	if x.problem == nil {
		x.finish(c, t, true)
	}
	return true
}

// hold keeps a transaction back if the step says that its outcome isn't known.
func (x *step) hold(c int, t *txn) bool {
	if x.timing != late || x.timed {
		return false
	}
	x.timed = true
	k := &x.s.c[c]
	k.late = append(k.late[:len(k.late):len(k.late)], t)
	x.note("the outcome isn't known")
	return true
}

// lagOf says whose image lags behind the step's first transaction.
func (x *step) lagOf(c int) lagging {
	if x.timed || x.timing != otherLags && x.timing != mineLags {
		return nobody
	}
	i := x.s.c[c].leaderIndex()
	if i < 0 {
		return nobody
	}
	if x.timing == otherLags {
		i = 1 - i
	}
	if !x.s.c[c].nodes[i].up {
		return nobody
	}
	x.timed = true
	return lagging(i)
}

// trim is retention, or DeleteRecords, at a writable leader.
func (x *step) trim(c int) bool {
	k := &x.s.c[c]
	i := k.server()
	if i < 0 || !k.rec.Writable || k.nodes[i].log.Start >= k.nodes[i].log.HighWatermark {
		return false
	}
	n := x.node(c, i)
	gone := n.log.RaiseStart(n.log.Start+1, true)
	n.synced = max(n.synced, n.log.Start)
	x.passed(gone, true)
	x.note("%s: the log starts at %d", name(c, i), n.log.Start)
	x.refresh(c, i)
	return true
}

// compact takes the first record but one from a leader's log.
func (x *step) compact(c int) bool {
	k := &x.s.c[c]
	i := k.server()
	if i < 0 || len(k.nodes[i].log.Records) < 3 {
		return false
	}
	n := x.node(c, i)
	for at := 1; at < len(n.log.Records)-1; at++ {
		if r := n.log.Records[at]; r.Offset < n.log.HighWatermark {
			n.log.Records = append(append(n.log.Records[:0:0], n.log.Records[:at]...), n.log.Records[at+1:]...)
			x.s.gone = append(x.s.gone[:len(x.s.gone):len(x.s.gone)], r)
			x.note("%s: offset %d is compacted away", name(c, i), r.Offset)
			return true
		}
	}
	return false
}
