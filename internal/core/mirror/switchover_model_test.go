package mirror

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"tidemark/internal/core/meta"
	"tidemark/internal/core/timeline"
	"tidemark/internal/core/types"
)

// The model of a switchover's attempts (docs/adr/0032): a mirror's record in one cluster, one
// partition in the other, two nodes at the mirror's side, and everything between them late,
// lost or in another order. All orders are walked, within a budget of what happens. The
// decisions are production's; a mutation replaces one by what would be wrong.

// protocol is what the model's nodes decide by.
type protocol struct {
	fence, takeBack func(*meta.PartitionRecord, meta.Fence) (meta.PartitionRecord, error)
	order           func(*meta.MirrorRecord, meta.Attempt, Holder) (meta.MirrorRecord, error)
	giveUp          func(*meta.MirrorRecord, Holder, string, func(Holder) bool) (meta.MirrorRecord, error)
	// undecided: a take-back is sent without the transaction that gives the attempt up.
	undecided bool
	// uncompared: a transaction is carried out whatever the record is by then (R8).
	uncompared bool
	// muted: a source that stays closed is no fault, so that the other harm is seen.
	muted bool
}

func production() protocol {
	return protocol{fence: CloseForSwitchover, takeBack: TakeBack, order: OrderSwitchover, giveUp: GiveUpSwitchover}
}

// The phases of a node's work at an attempt.
const (
	drains  = iota // its fence is on the way, or stands
	orders         // it has sent the order's transaction
	returns        // it takes the fence back
)

// worker is a node at work at one attempt. Frozen, it goes on at any later time; once its
// process has died, or it has ended, it is gone.
type worker struct {
	node    types.BrokerID
	attempt meta.Attempt
	phase   int
	closed  bool // the source has answered that the fence stands, at the end
	end     int
}

// letter is what is on its way: it comes at any time, or never.
type letter struct {
	kind  string // fence, take back, order
	fence meta.Fence
	// Of an order: who commits it, the record that it was made from, what it makes, and the end that was drained.
	by     Holder
	rev    int
	record *meta.MirrorRecord
	end    int
	// stopped: a take-back that was sent though the mirror had been failed over.
	stopped bool
}

// budget is how often what may happen still may.
type budget struct{ begins, deaths, lapses, writes, failovers, retries, returns int }

// drama is one state of everything.
type drama struct {
	mirror  meta.MirrorRecord
	rev     int
	source  meta.PartitionRecord
	end     int // of the source's log
	regs    [2]types.BrokerEpoch
	lastReg types.BrokerEpoch
	workers []worker
	letters []letter
	ordered bool // a switchover was ordered to promote
	left    budget
	broken  string
	path    *path
}

// path is how a state came about.
type path struct {
	before *path
	step   string // with the verbs of args
	args   []any
}

func (p *path) String() string {
	var steps []string
	for ; p != nil; p = p.before {
		steps = append(steps, fmt.Sprintf(p.step, p.args...))
	}
	slices.Reverse(steps)
	return strings.Join(steps, "\n  ")
}

func opening(left budget) *drama {
	return &drama{
		mirror: meta.MirrorRecord{Name: "m", Want: meta.WantRunning, StartID: "s"},
		source: meta.PartitionRecord{Writable: true, LeaderEpoch: 1, Timelines: timeline.List{{ID: "root"}}},
		regs:   [2]types.BrokerEpoch{1, 2}, lastReg: 2, left: left,
	}
}

// then is a copy in which something has happened.
func (d *drama) then(step string, args ...any) *drama {
	out := *d
	out.workers, out.letters = slices.Clone(d.workers), slices.Clone(d.letters)
	out.path = &path{d.path, step, args}
	return &out
}

func (d *drama) breaks(format string, args ...any) {
	if d.broken == "" {
		d.broken = fmt.Sprintf(format, args...)
	}
}

// key tells states apart.
func (d *drama) key() string {
	b := make([]byte, 0, 160)
	b = append(b, d.mirror.Want...)
	if s := d.mirror.Switch; s != nil {
		b = appendNumbers(append(b, s.State...), s.Attempt.Number, int64(s.Broker), int64(s.BrokerEpoch))
	}
	b = appendNumbers(b, int64(d.rev), int64(d.end), int64(d.regs[0]), int64(d.regs[1]), attemptOf(d.source.Fence), attemptOf(d.source.Returned))
	b = append(b, bits(d.source.Writable, d.ordered))
	l := d.left
	b = appendNumbers(b, int64(l.begins), int64(l.deaths), int64(l.lapses), int64(l.writes), int64(l.failovers), int64(l.retries), int64(l.returns))
	for _, w := range d.workers {
		b = appendNumbers(b, int64(w.node), w.attempt.Number, int64(w.phase), int64(w.end), int64(bits(w.closed)))
	}
	lines := make([]string, len(d.letters))
	for i, l := range d.letters {
		lines[i] = string(appendNumbers([]byte(l.kind), l.fence.Attempt.Number, int64(l.by.Broker), int64(l.by.Epoch), int64(l.rev), int64(l.end), int64(bits(l.stopped))))
	}
	slices.Sort(lines)
	return string(append(b, strings.Join(lines, "|")...))
}

// attemptOf is a fence's number, 0 if there is none.
func attemptOf(f *meta.Fence) int64 {
	if f == nil {
		return 0
	}
	return f.Attempt.Number
}

func (d *drama) me(node types.BrokerID) Holder { return Holder{node, d.regs[node]} }

func (d *drama) alive(h Holder) bool { return h.Epoch != 0 && d.regs[h.Broker] == h.Epoch }

func (d *drama) commit(rec meta.MirrorRecord) {
	d.mirror = rec
	d.rev++
}

// next lists everything that can happen.
func (d *drama) next(p protocol) []*drama {
	out := d.world(p)
	for i := range d.workers {
		out = append(out, d.works(p, i)...)
	}
	for i := range d.letters {
		out = append(out, d.delivers(p, i)...)
	}
	for _, n := range out {
		if n.ordered && n.source.Writable {
			n.breaks("two writers: the mirror is promoted, and clients write to its source")
		}
	}
	return out
}

// world is what needs no worker: orders, faults, clients, and nodes that look at the record.
func (d *drama) world(p protocol) (out []*drama) {
	for node := range types.BrokerID(2) {
		me, registered := d.me(node), d.regs[node] != 0
		if rec, err := BeginSwitchover(&d.mirror, me, "", 0); registered && d.left.begins > 0 && err == nil {
			n := d.then("node %d begins attempt %d", node, rec.Switch.Attempt.Number)
			n.left.begins--
			n.commit(rec)
			n.workers = append(n.workers, worker{node: node, attempt: rec.Switch.Attempt})
			n.letters = append(n.letters, letter{kind: "fence", fence: n.fence(rec.Switch.Attempt)})
			out = append(out, n)
		}
		isHere := func(w worker) bool { return w.node == node }
		if d.left.deaths > 0 && slices.ContainsFunc(d.workers, isHere) {
			n := d.then("node %d's process dies", node)
			n.left.deaths--
			n.workers = slices.DeleteFunc(n.workers, isHere)
			out = append(out, n)
		}
		switch {
		case registered && d.left.lapses > 0:
			n := d.then("node %d's registration ends", node)
			n.left.lapses--
			n.regs[node] = 0
			out = append(out, n)
		case !registered:
			n := d.then("node %d registers again", node)
			n.lastReg++
			n.regs[node] = n.lastReg
			out = append(out, n)
		}
		if n := d.looks(p, node); n != nil && d.left.returns > 0 {
			n.left.returns--
			out = append(out, n)
		}
	}
	if d.source.Writable && d.left.writes > 0 {
		n := d.then("a client writes to the source")
		n.left.writes--
		n.end++
		out = append(out, n)
	}
	if d.mirror.Want == meta.WantRunning && d.left.failovers > 0 {
		n := d.then("an operator fails the mirror over")
		n.left.failovers--
		rec := n.mirror
		rec.Want = meta.WantStopped
		n.commit(rec)
		out = append(out, n)
	}
	return out
}

func (d *drama) fence(a meta.Attempt) meta.Fence {
	return meta.Fence{ClusterID: "standby", StartID: d.mirror.StartID, Attempt: a}
}

// looks is a node that takes up what nobody works at, nil if there is nothing.
func (d *drama) looks(p protocol, node types.BrokerID) *drama {
	s := d.mirror.Switch
	if s == nil || d.regs[node] == 0 {
		return nil
	}
	atWork := slices.ContainsFunc(d.workers, func(w worker) bool { return w.node == node && w.attempt == s.Attempt })
	me := d.me(node)
	if holderOf(s) == me && atWork || slices.ContainsFunc(d.workers, func(w worker) bool { return w.node == node && w.phase == returns }) {
		return nil
	}
	n := d.then("node %d takes up the way back of attempt %d", node, s.Attempt.Number)
	rec, err := p.giveUp(&d.mirror, me, "", d.alive)
	switch {
	case p.undecided && !d.alive(holderOf(s)) && s.State == meta.SwitchWorking:
	case err != nil:
		return nil
	default:
		n.commit(rec)
	}
	n.workers = append(n.workers, worker{node: node, attempt: s.Attempt, phase: returns})
	n.sendTakeBack(s.Attempt, d.mirror.Want == meta.WantStopped)
	return n
}

func (d *drama) sendTakeBack(a meta.Attempt, stopped bool) {
	d.letters = append(d.letters, letter{kind: "take back", fence: d.fence(a), stopped: stopped})
}

// works is what one worker may do next.
func (d *drama) works(p protocol, i int) (out []*drama) {
	w := d.workers[i]
	me := d.me(w.node)
	inFlight := func(kind string) bool {
		return slices.ContainsFunc(d.letters, func(l letter) bool { return l.kind == kind && l.fence.Attempt == w.attempt })
	}
	gone := func(n *drama) *drama { n.workers = slices.Delete(n.workers, i, i+1); return n }
	if w.phase == returns {
		if d.left.retries > 0 && !inFlight("take back") {
			n := d.then("node %d asks to take attempt %d back once more", w.node, w.attempt.Number)
			n.left.retries--
			n.sendTakeBack(w.attempt, !MayTakeBack(&d.mirror, w.attempt, me) && d.mirror.Want == meta.WantStopped)
			out = append(out, n)
		}
		return out
	}
	if d.regs[w.node] == 0 {
		return nil // it can write nothing into the metadata
	}
	if rec, err := p.order(&d.mirror, w.attempt, me); w.phase == drains && w.closed && err == nil {
		n := d.then("node %d orders attempt %d", w.node, w.attempt.Number)
		if rec.Want != d.mirror.Want {
			n.workers[i].phase = orders
			n.letters = append(n.letters, letter{kind: "order", fence: n.fence(w.attempt), by: me, rev: d.rev, record: &rec, end: w.end})
		} else {
			gone(n)
		}
		out = append(out, n)
	}
	if w.phase == orders && d.left.retries > 0 {
		n := d.then("node %d makes its order anew", w.node)
		n.left.retries--
		n.workers[i].phase = drains
		out = append(out, n)
	}
	n := d.then("node %d gives attempt %d up", w.node, w.attempt.Number)
	rec, err := p.giveUp(&d.mirror, me, "", func(Holder) bool { return true })
	switch s := d.mirror.Switch; {
	case p.undecided:
		n.workers[i].phase = returns
		n.sendTakeBack(w.attempt, d.mirror.Want == meta.WantStopped)
	case err != nil || s.Attempt != w.attempt:
		gone(n) // it is ordered, or another's by now
	default:
		n.workers[i].phase = returns
		n.commit(rec)
		n.sendTakeBack(w.attempt, d.mirror.Want == meta.WantStopped)
	}
	return append(out, n)
}

// delivers is what a letter brings about, with its answer and without.
func (d *drama) delivers(p protocol, i int) (out []*drama) {
	l := d.letters[i]
	for _, answered := range []bool{true, false} {
		n := d.then("the %s of attempt %d comes, answered: %v", l.kind, l.fence.Attempt.Number, answered)
		n.letters = slices.Delete(n.letters, i, i+1)
		at := slices.IndexFunc(n.workers, func(w worker) bool { return w.attempt == l.fence.Attempt })
		switch l.kind {
		case "fence":
			n.fenced(p, l, at, answered)
		case "take back":
			n.takenBack(p, l, at, answered)
		case "order":
			n.orders(p, l, at, answered)
		}
		out = append(out, n)
	}
	return out
}

func (d *drama) fenced(p protocol, l letter, at int, answered bool) {
	rec, err := p.fence(&d.source, l.fence)
	if err != nil {
		return
	}
	d.source = rec
	if at >= 0 && d.workers[at].phase == drains && answered {
		d.workers[at].closed, d.workers[at].end = true, d.end
	}
}

func (d *drama) takenBack(p protocol, l letter, at int, answered bool) {
	rec, err := p.takeBack(&d.source, l.fence)
	if err == nil {
		if l.stopped && rec.Writable && !d.source.Writable {
			d.breaks("the source is opened by a take-back that began after the mirror was failed over")
		}
		d.source = rec
	}
	if at < 0 || d.workers[at].phase != returns || !answered {
		return
	}
	if end, err := EndReturn(&d.mirror, l.fence.Attempt, d.me(d.workers[at].node)); err == nil {
		d.commit(end)
	}
	d.workers = slices.Delete(d.workers, at, at+1)
}

func (d *drama) orders(p protocol, l letter, at int, answered bool) {
	if !p.uncompared && (l.rev != d.rev || !d.alive(l.by)) {
		return
	}
	d.commit(*l.record)
	d.ordered = true
	if f := d.source.Fence; f == nil || f.Attempt != l.fence.Attempt || d.end != l.end {
		d.breaks("attempt %d is ordered, drained up to %d, and the source is at %d behind fence %+v", l.fence.Attempt.Number, l.end, d.end, f)
	}
	if at >= 0 && answered {
		d.workers = slices.Delete(d.workers, at, at+1)
	}
}

// returnsByItself plays the end: all processes of the mirror's side have died, what was on
// its way comes, late fences after everything else or before, and a node starts again.
func (d *drama) returnsByItself(p protocol, fencesLast bool) *drama {
	n := d.then("everything at the mirror's side dies, and node 0 starts again (late fences last: %v)", fencesLast)
	n.workers, n.regs = nil, [2]types.BrokerEpoch{}
	deliver := func(fences bool) {
		for i := 0; i < len(n.letters); i++ {
			if isFence := n.letters[i].kind == "fence"; isFence == fences {
				n = n.delivers(p, i)[0]
				i--
			}
		}
	}
	if !fencesLast {
		deliver(true)
	}
	deliver(false)
	n.lastReg++
	n.regs[0] = n.lastReg
	if next := n.looks(p, 0); next != nil {
		n = next
		deliver(false)
	}
	deliver(true)
	switch {
	case n.mirror.Want == meta.WantRunning && !n.source.Writable && !p.muted:
		n.breaks("nothing was promoted, and the source stays closed")
	case n.ordered && n.source.Writable:
		n.breaks("two writers in the end")
	}
	return n
}

// walk visits every state and gives the first that is broken, and how many there are.
func walk(p protocol, left budget) (*drama, int) {
	first := opening(left)
	seen, queue := map[string]bool{first.key(): true}, []*drama{first}
	for len(queue) > 0 {
		d := queue[0]
		queue = queue[1:]
		for _, fencesLast := range []bool{false, true} {
			if n := d.returnsByItself(p, fencesLast); n.broken != "" {
				return n, len(seen)
			}
		}
		for _, n := range d.next(p) {
			if n.broken != "" {
				return n, len(seen)
			}
			if k := n.key(); !seen[k] {
				seen[k] = true
				queue = append(queue, n)
			}
		}
	}
	return nil, len(seen)
}

// The walks are of what may happen beside each other; all of it together holds too, in 1,203,620 states.
var (
	faults   = budget{begins: 2, lapses: 1, writes: 1, returns: 1}
	deaths   = budget{begins: 1, deaths: 1, lapses: 1, writes: 1, retries: 1, returns: 2}
	turns    = budget{begins: 2, failovers: 1, retries: 1, returns: 1}
	allWalks = []budget{turns, deaths, faults} // the small ones first
)

// TestOneWriterThroughASwitchover walks every order of two attempts on two nodes: nodes
// that die or freeze and come back with another registration, orders, fences and take-backs
// that come late, answers that are lost, an operator's failover in between. The source
// never takes writes once a switchover was ordered, which finds it closed and drained; and from
// every state it opens by itself where none was.
func TestOneWriterThroughASwitchover(t *testing.T) {
	for _, left := range allWalks {
		broken, states := walk(production(), left)
		if broken != nil {
			t.Fatalf("%s:\n  %v", broken.broken, broken.path)
		}
		t.Logf("%+v: %d states", left, states)
	}
}

// TestTheWalkFinds: each rule is needed.
func TestTheWalkFinds(t *testing.T) {
	f := func(rule string, change func(p *protocol)) {
		t.Helper()
		p := production()
		change(&p)
		for _, left := range allWalks {
			if broken, states := walk(p, left); broken != nil {
				t.Logf("%s: %s, in state %d:\n  %v", rule, broken.broken, states, broken.path)
				return
			}
		}
		t.Errorf("%s: not found", rule)
	}
	withAttempt := func(f meta.Fence, a meta.Attempt) meta.Fence { f.Attempt = a; return f }
	f("a take-back compares the start alone", func(p *protocol) {
		p.muted = true
		p.takeBack = func(rec *meta.PartitionRecord, f meta.Fence) (meta.PartitionRecord, error) {
			if rec.Fence != nil {
				f = withAttempt(f, rec.Fence.Attempt)
			}
			return TakeBack(rec, f)
		}
	})
	f("a later attempt leaves the fence as it is", func(p *protocol) {
		p.fence = func(rec *meta.PartitionRecord, f meta.Fence) (meta.PartitionRecord, error) {
			if rec.Fence != nil {
				return *rec, nil
			}
			return CloseForSwitchover(rec, f)
		}
	})
	f("a late fence takes the place of a later attempt's", func(p *protocol) {
		p.fence = func(rec *meta.PartitionRecord, f meta.Fence) (meta.PartitionRecord, error) {
			if rec.Fence != nil {
				out := rec.Clone()
				out.Fence = &f
				out.LeaderEpoch++
				return out, nil
			}
			return CloseForSwitchover(rec, f)
		}
	})
	f("a fence of an attempt that was taken back closes again", func(p *protocol) {
		p.takeBack = func(rec *meta.PartitionRecord, f meta.Fence) (meta.PartitionRecord, error) {
			out, err := TakeBack(rec, f)
			out.Returned = nil
			return out, err
		}
	})
	anyAttempt := func(rec *meta.MirrorRecord, _ meta.Attempt, by Holder) (meta.MirrorRecord, error) {
		r := *rec
		r.Switch = withState(rec.Switch, meta.SwitchWorking, by)
		return OrderSwitchover(&r, r.Switch.Attempt, by)
	}
	f("an order doesn't compare its attempt", func(p *protocol) { p.order = anyAttempt })
	f("an order is committed whatever the record is by then", func(p *protocol) { p.uncompared = true })
	f("a take-back is sent of what isn't given up", func(p *protocol) { p.undecided = true })
	f("a mirror that was failed over takes back", func(p *protocol) {
		p.giveUp = func(rec *meta.MirrorRecord, by Holder, restore string, alive func(Holder) bool) (meta.MirrorRecord, error) {
			r := *rec
			r.Want = meta.WantRunning
			out, err := GiveUpSwitchover(&r, by, restore, alive)
			out.Want = rec.Want
			return out, err
		}
	})
	f("an attempt that was ordered is given up", func(p *protocol) {
		p.giveUp = func(rec *meta.MirrorRecord, by Holder, restore string, alive func(Holder) bool) (meta.MirrorRecord, error) {
			r := *rec
			if rec.Switch != nil && rec.Switch.State == meta.SwitchOrdered {
				r.Want, r.Switch = meta.WantRunning, withState(rec.Switch, meta.SwitchWorking, holderOf(rec.Switch))
			}
			out, err := GiveUpSwitchover(&r, by, restore, alive)
			out.Want = rec.Want
			return out, err
		}
	})
	f("nobody takes back for a node that died", func(p *protocol) {
		p.giveUp = func(rec *meta.MirrorRecord, by Holder, restore string, alive func(Holder) bool) (meta.MirrorRecord, error) {
			if rec.Switch != nil && holderOf(rec.Switch) != by {
				return meta.MirrorRecord{}, &Refusal{TooLate, "it is another's"}
			}
			return GiveUpSwitchover(rec, by, restore, alive)
		}
	})
}
