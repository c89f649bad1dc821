package group

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"tidemark/internal/core/errcode"
	"tidemark/internal/core/types"
)

// TestRandomWalk takes a table through random events and looks, after each
// step, at what must always hold: the invariants of groups, that no request is
// answered twice, that offsets are what a model of the log says, and, at the
// end, that nothing is left unanswered.
func TestRandomWalk(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWalk(t)
		for range rapid.IntRange(1, 120).Draw(t, "steps") {
			w.any()
			w.check()
		}
		w.drain()
	})
}

type walk struct {
	t       *rapid.T
	table   *Table
	now     types.Millis
	request RequestID
	awaited map[RequestID]Event
	held    []Append
	model   map[string]modelOffset // durable offsets, by group and partition
	logEnd  map[types.TopicPartition]types.Offset
	// clampedAt is the newest append when a clamp was asked for.
	clampedAt map[RequestID]Token
	fresh     int
	fx        Effects
}

type modelOffset struct {
	offset types.Offset
	token  Token
}

func newWalk(t *rapid.T) *walk {
	return &walk{
		t: t, now: 1000, awaited: map[RequestID]Event{}, model: map[string]modelOffset{}, clampedAt: map[RequestID]Token{},
		logEnd: map[types.TopicPartition]types.Offset{},
		table: NewTable(Config{
			InitialRebalanceDelay: rapid.SampledFrom([]types.Millis{0, 500}).Draw(t, "delay"),
			MinSessionTimeout:     1, MaxSessionTimeout: 1 << 40, MaxSize: 4, OffsetMetadataMaxBytes: 10, OffsetsRetention: 20000,
		}),
	}
}

func (w *walk) pick(label string, of ...string) string {
	return rapid.SampledFrom(of).Draw(w.t, label)
}

func (w *walk) any() {
	g := w.pick("group", "g", "h")
	instance := w.pick("instance", "", "", "", "i1", "i2")
	d := w.table.Describe(g)
	member := "nobody"
	if len(d.Members) > 0 && rapid.IntRange(0, 9).Draw(w.t, "known") > 0 {
		m := rapid.SampledFrom(d.Members).Draw(w.t, "member")
		member, instance = m.MemberID, m.InstanceID
	}
	generation := int32(0)
	if gr := w.table.groups[g]; gr != nil {
		generation = gr.generation - int32(rapid.SampledFrom([]int{0, 0, 0, 0, 1}).Draw(w.t, "stale"))
	}
	w.request++
	switch rapid.IntRange(0, 15).Draw(w.t, "event") {
	case 0, 1:
		w.fresh++
		w.ask(w.joinEvent(g, "", w.pick("newInstance", "", "", "i1", "i2")))
	case 2, 3:
		w.ask(w.joinEvent(g, member, instance))
	case 4, 5, 6:
		ev := Sync{Request: w.request, Group: g, MemberID: member, InstanceID: instance, Generation: generation}
		for _, m := range d.Members {
			ev.Assignments = append(ev.Assignments, Assignment{MemberID: m.MemberID, Data: []byte(m.MemberID)})
		}
		w.ask(ev)
	case 7:
		w.ask(Heartbeat{Request: w.request, Group: g, MemberID: member, InstanceID: instance, Generation: generation})
	case 8:
		w.ask(Leave{Request: w.request, Group: g, Members: []LeavingMember{{MemberID: member, InstanceID: instance}}})
	case 9:
		w.ask(w.commitEvent(g, member, instance, generation))
	case 10:
		w.ask(w.mirrorEvent(g))
	case 11:
		w.cut()
	case 12:
		w.ask(DeleteGroup{Request: w.request, Group: g})
	case 13:
		w.now += types.Millis(rapid.IntRange(1, 4000).Draw(w.t, "pass"))
		w.ask(Tick{})
		w.ask(SweepOffsets{})
	default:
		w.completeOne(rapid.IntRange(0, 5).Draw(w.t, "fails") == 0)
	}
}

func (w *walk) joinEvent(g, member, instance string) Join {
	protocols := []Protocol{{Name: "range", Metadata: subscription(w.pick("topics", "t", "t", "t+u"))}}
	if rapid.Bool().Draw(w.t, "two") {
		protocols = append(protocols, Protocol{Name: "sticky"})
	}
	return Join{
		Request: w.request, Group: g, MemberID: member, InstanceID: instance, FreshMemberID: fmt.Sprintf("m%d", w.fresh),
		SessionTimeout: 5000, RebalanceTimeout: 3000, ProtocolType: "consumer", Protocols: protocols,
		RequireKnownMember: rapid.Bool().Draw(w.t, "requireKnown"), CanSkipAssignment: rapid.Bool().Draw(w.t, "canSkip"),
	}
}

func (w *walk) commitEvent(g, member, instance string, generation int32) Commit {
	if rapid.Bool().Draw(w.t, "simple") {
		member, instance, generation = "", "", -1
	}
	return Commit{
		Request: w.request, Group: g, MemberID: member, InstanceID: instance, Generation: generation,
		Offsets: []CommitOffset{{Topic: "t", Partition: w.partition(), Offset: types.Offset(rapid.IntRange(0, 20).Draw(w.t, "offset")), Retention: -1}},
	}
}

func (w *walk) partition() int32 { return int32(rapid.IntRange(0, 1).Draw(w.t, "partition")) }

func (w *walk) mirrorEvent(g string) MirrorOffsets {
	tp := types.TopicPartition{Topic: "t", Partition: w.partition()}
	w.logEnd[tp] += types.Offset(rapid.IntRange(0, 5).Draw(w.t, "grown"))
	return MirrorOffsets{Request: w.request, Group: g, Offsets: []MirrorOffset{{
		Topic: tp.Topic, Partition: tp.Partition, Offset: types.Offset(rapid.IntRange(0, 20).Draw(w.t, "offset")), LogEnd: w.logEnd[tp],
	}}}
}

// cut shortens a partition and clamps, as a mirror does.
func (w *walk) cut() {
	tp := types.TopicPartition{Topic: "t", Partition: w.partition()}
	w.logEnd[tp] = types.Offset(rapid.IntRange(0, int(w.logEnd[tp])).Draw(w.t, "cut"))
	w.ask(Clamp{Request: w.request, Cuts: []Cut{{TopicPartition: tp, Offset: w.logEnd[tp]}}})
}

func (w *walk) completeOne(fails bool) {
	if len(w.held) == 0 {
		return
	}
	a := w.held[0]
	w.held = w.held[1:]
	code := errcode.None
	if fails {
		code = errcode.CoordinatorNotAvailable
	} else {
		for _, r := range a.Records {
			w.apply(a.Token, r)
		}
	}
	w.ask(Appended{Token: a.Token, Code: code})
}

func (w *walk) apply(token Token, r Record) {
	o, ok := r.(OffsetRecord)
	if !ok {
		return
	}
	key := o.Group + "/" + o.TopicPartition.String()
	if o.Value == nil {
		delete(w.model, key)
		return
	}
	w.model[key] = modelOffset{offset: o.Value.Offset, token: token}
}

func (w *walk) ask(ev Event) {
	switch ev := ev.(type) {
	case Join:
		w.awaited[ev.Request] = ev
	case Sync:
		w.awaited[ev.Request] = ev
	case Heartbeat:
		w.awaited[ev.Request] = ev
	case Leave:
		w.awaited[ev.Request] = ev
	case Commit:
		w.awaited[ev.Request] = ev
	case MirrorOffsets:
		w.awaited[ev.Request] = ev
	case Clamp:
		w.awaited[ev.Request] = ev
		w.clampedAt[ev.Request] = w.table.lastToken
	case DeleteGroup:
		w.awaited[ev.Request] = ev
	}
	w.fx.Reset()
	w.table.Step(w.now, ev, &w.fx)
	for _, r := range w.fx.Replies {
		if _, ok := w.awaited[r.Request]; !ok {
			w.t.Fatalf("request %d was answered twice, or never asked: %#v", r.Request, r.Response)
		}
		w.judge(w.awaited[r.Request], r.Response)
		delete(w.awaited, r.Request)
	}
	w.held = append(w.held, w.fx.Appends...)
}

// judge holds I-75 against the log: a clamp that succeeded has left nothing
// above its cuts of what was asked for before it.
func (w *walk) judge(ev Event, r Response) {
	clamp, ok := ev.(Clamp)
	if !ok || r.(ClampResponse).Code != errcode.None {
		return
	}
	for key, v := range w.model {
		for _, c := range clamp.Cuts {
			if strings.HasSuffix(key, "/"+c.TopicPartition.String()) && v.token <= w.clampedAt[clamp.Request] && v.offset > c.Offset {
				w.t.Fatalf("I-75: %s stands at %d above the cut at %d", key, v.offset, c.Offset)
			}
		}
	}
}

func (w *walk) check() {
	seen := 0
	for id, g := range w.table.groups {
		w.checkGroup(id, g)
		for _, o := range w.table.Offsets(id) {
			seen++
			if want, ok := w.model[id+"/"+o.TopicPartition.String()]; !ok || want.offset != o.Offset {
				w.t.Fatalf("group %s has %v at %d, the log says %d (%v)", id, o.TopicPartition, o.Offset, want.offset, ok)
			}
		}
	}
	if seen != len(w.model) {
		w.t.Fatalf("%d offsets in the table, %d in the log: %v", seen, len(w.model), w.model)
	}
}

// checkGroup holds I-72 and I-73 in full, and that every deadline wakes the table.
func (w *walk) checkGroup(id string, g *group) {
	g.check()
	static := 0
	for mid, m := range g.members {
		if m.id != mid {
			w.t.Fatalf("group %s files member %s under %s", id, m.id, mid)
		}
		if m.instance != "" {
			static++
			if g.static[m.instance] != mid {
				w.t.Fatalf("I-73: instance %s of %s names %q", m.instance, mid, g.static[m.instance])
			}
		}
	}
	if static != len(g.static) {
		w.t.Fatalf("I-73: %d static members, %d instances", static, len(g.static))
	}
	if why := endless(g); why != "" {
		w.t.Fatalf("I-76: group %s: %s", id, why)
	}
	w.checkTimers(id, g)
}

// endless says who or what in a group would wait for ever (I-76), "" if nothing does.
func endless(g *group) string {
	for mid, m := range g.members {
		if g.state == Stable && (m.joining != NoRequest || m.syncing != NoRequest) {
			return "member " + mid + " of a stable group has a parked request"
		}
		if m.deadline == 0 && m.joining == NoRequest && m.syncing == NoRequest {
			return "member " + mid + " has neither a session nor a parked request"
		}
	}
	if g.state == PreparingRebalance && g.joinDeadline == 0 {
		return "it prepares a rebalance without an end"
	}
	return ""
}

// TestEndlessIsFound: what I-76 rules out is seen.
func TestEndlessIsFound(t *testing.T) {
	f := func(wrong bool, g *group) {
		t.Helper()
		if why := endless(g); wrong != (why != "") {
			t.Errorf("%q", why)
		}
	}
	with := func(s State, m member) *group {
		return &group{state: s, members: map[string]*member{"m": &m}, joinDeadline: 1}
	}
	f(false, with(Stable, member{deadline: 1}))
	f(false, with(PreparingRebalance, member{joining: 3}))
	f(true, with(Stable, member{}))
	f(true, with(Stable, member{deadline: 1, joining: 3}))
	f(true, with(Stable, member{deadline: 1, syncing: 3}))
	f(true, &group{state: PreparingRebalance})
}

// checkTimers holds that no deadline of a group is missed.
func (w *walk) checkTimers(id string, g *group) {
	deadlines := []types.Millis{g.joinDeadline, g.syncDeadline}
	for _, at := range g.pendingJoin {
		deadlines = append(deadlines, at)
	}
	for _, m := range g.members {
		deadlines = append(deadlines, m.deadline)
	}
	for _, at := range deadlines {
		if at != 0 && (g.wake == 0 || g.wake > at) {
			w.t.Fatalf("group %s wakes at %d, it has a deadline at %d", id, g.wake, at)
		}
	}
	if g.wake != 0 && !slices.ContainsFunc(w.table.timers, func(e timer) bool { return e.g == g && e.at == g.wake }) {
		w.t.Fatalf("group %s wakes at %d, the timers don't know", id, g.wake)
	}
	for i, e := range w.table.timers {
		if parent := w.table.timers[max(i-1, 0)/2]; parent.at > e.at {
			w.t.Fatalf("timers out of order: %d above %d", parent.at, e.at)
		}
	}
}

// drain completes all writes and lets time pass until everything is answered.
func (w *walk) drain() {
	for range 1000 {
		for len(w.held) > 0 {
			w.completeOne(false)
		}
		at, ok := w.table.Deadline()
		if !ok {
			break
		}
		w.now = max(w.now, at)
		w.ask(Tick{})
		w.check()
	}
	if len(w.awaited) > 0 {
		w.t.Fatalf("%d requests were never answered: %#v", len(w.awaited), w.awaited)
	}
}
