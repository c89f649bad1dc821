package exhaust

import (
	"tidemark/internal/core/control"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/mirror"
	"tidemark/internal/core/modellog"
	"tidemark/internal/core/replica"
	"tidemark/internal/core/timeline"
	"tidemark/internal/core/types"
)

// shown is the shard's answer to a new record (broker/serve.go): lead or follow
// what it says, then the mirror's machine.
func (x *step) shown(c, i int) {
	k := &x.s.c[c]
	n := x.node(c, i)
	rec := k.rec
	leading := rec.Leader == n.id && rec.LeaderBrokerEpoch == n.epoch
	if n.rec == nil || n.rec.LeaderEpoch != rec.LeaderEpoch || n.leading != leading {
		n.assigned = types.NoLeaderEpoch
	}
	n.rec, n.rev, n.leading = rec, k.rev, leading
	if !leading {
		n.served, n.servedIn = 0, 0
	}
	if leading {
		n.unfollow()
		x.prepare(c, i)
	}
	if x.isDown(c, i) || x.problem != nil {
		return
	}
	x.lead(c, i)
	if !leading {
		x.follow(c, i)
		if x.isDown(c, i) {
			return
		}
	}
	x.refresh(c, i)
	x.showMachine(c, i, nil)
}

func (n *node) unfollow() {
	n.follower.End()
	if !n.follower.Rules.TakeLate {
		n.answer = nil // it would be dropped
	}
}

// prepare does what must come before the first answer in a leader epoch.
func (x *step) prepare(c, i int) {
	n := x.node(c, i)
	if n.assigned == n.rec.LeaderEpoch {
		return
	}
	if !n.rec.Writable {
		n.becomeFollower(x.w.rules.keepTrailing)
		n.assigned = n.rec.LeaderEpoch
		return
	}
	if !x.firstCut(c, i) {
		return
	}
	if x.w.rules.noElection {
		n.assigned = n.rec.LeaderEpoch
		return
	}
	if _, err := n.log.History.Assign(n.rec.LeaderEpoch, n.log.End); err != nil {
		panic(err)
	}
	n.assigned = n.rec.LeaderEpoch
}

func (n *node) becomeFollower(keepTrailing bool) {
	if !keepTrailing {
		n.log.History.BecomeFollower(n.log.End)
	}
}

// firstCut is R19, for whoever leads a writable partition or follows (broker/firstcut.go).
func (x *step) firstCut(c, i int) bool {
	n := x.node(c, i)
	if x.w.rules.skipsFirstCut(n) {
		n.point, n.hasPoint = timeline.Checkpoint{List: n.rec.Timelines, LeaderEpoch: n.rec.LeaderEpoch}, true
		return true
	}
	owed := timeline.FirstCutUnder(x.w.rules.mirror.FirstCut, timeline.Replica{
		Applied: n.point, HasApplied: n.hasPoint, History: &n.log.History, LogStart: n.log.Start, LogEnd: n.log.End,
	}, n.rec.Timelines, n.rec.LeaderEpoch)
	point := mirror.SetCheckpoint{Checkpoint: timeline.Checkpoint{List: n.rec.Timelines, LeaderEpoch: n.rec.LeaderEpoch}}
	switch owed.Kind {
	case timeline.CutRefused:
		return false
	case timeline.CutEverything:
		if n.leading {
			return false // nobody else is known to have what would go
		}
		x.cut(c, i, cutting{at: 0, restart: true, cause: mirror.CauseTimeline, checkpoint: &point})
	case timeline.CutAt:
		x.cut(c, i, cutting{at: owed.At, cause: mirror.CauseTimeline, checkpoint: &point})
	default:
		if owed.WriteCheckpoint {
			n.point, n.hasPoint = point.Checkpoint, true
		}
	}
	return !x.isDown(c, i)
}

// lead shows the record to the leader's count, or ends it (broker/lead.go).
func (x *step) lead(c, i int) {
	n := x.node(c, i)
	if !n.leading || n.assigned != n.rec.LeaderEpoch {
		n.leader = nil
		return
	}
	if n.leader == nil {
		x.newLeader(c, i)
	}
	l := x.leaderOf(c, i)
	l.Lead(n.id, replica.LeaderState{
		Revision: int64(n.rev), LeaderEpoch: n.rec.LeaderEpoch, Replicas: n.rec.Replicas, ISR: n.rec.ISR,
		MinISR: n.rec.MinISR, LogStart: n.log.Start, LogEnd: n.log.End, HighWatermark: n.log.HighWatermark, Now: now, LagMax: 0,
	})
	x.setBrokers(c, i)
}

// setBrokers tells a leader what the metadata says of its follower's broker.
func (x *step) setBrokers(c, i int) {
	l := x.leaderOf(c, i)
	for j, n := range x.s.c[c].nodes {
		if j == i {
			continue
		}
		view := replica.BrokerView{Barred: !n.up, Epoch: types.NoBrokerEpoch}
		if n.up {
			view.Epoch = n.epoch
		}
		l.SetBroker(n.id, view)
	}
}

// follow begins a session with the leader that the record names (broker/following.go).
func (x *step) follow(c, i int) {
	n := x.node(c, i)
	n.owesCut = false
	if n.rec.Leader == types.NoBroker || n.rec.Leader == n.id {
		n.unfollow()
		return
	}
	if s, following := n.follower.Session(); following && s.LeaderEpoch == n.rec.LeaderEpoch {
		return
	}
	n.unfollow()
	if !x.firstCut(c, i) {
		n.owesCut = true
		return
	}
	n.becomeFollower(x.w.rules.keepTrailing)
	n.gen++
	n.follower.Rules = x.w.rules.follower
	n.follower.Begin(replica.Session{Generation: n.gen, LeaderEpoch: n.rec.LeaderEpoch, LocalEpoch: n.rec.LeaderEpoch})
}

// refresh moves the high watermark (R14), and says what clients have seen since.
func (x *step) refresh(c, i int) {
	n := x.node(c, i)
	if n.leads() {
		l := x.leaderOf(c, i)
		l.Started(n.log.Start)
		switch {
		case n.log.End < l.LogEnd():
			l.Cut(n.log.End)
		case n.log.End > l.LogEnd():
			l.Appended(n.log.End)
		}
		n.log.HighWatermark = max(n.log.HighWatermark, l.HighWatermark())
	}
	x.seen(c, i)
}

// write appends a client's record to a leader.
func (x *step) write1(c, i int) {
	n := x.node(c, i)
	last, _ := n.rec.Timelines.Last()
	r := modellog.Record{Offset: n.log.End, Epoch: n.rec.LeaderEpoch, Tag: last.ID}
	r.Tag = x.checkWrite(c, i, r)
	n.log.Write(r.Epoch, r.Tag)
	x.note("%s takes %s", name(c, i), printed([]modellog.Record{r}))
	x.refresh(c, i)
}

// ask has a follower ask its leader; the leader counts and answers (R5, R14).
func (x *step) askLeader(c, i int) bool {
	k := &x.s.c[c]
	f := k.nodes[i]
	s, following := f.follower.Session()
	j := 1 - i
	l := k.nodes[j]
	if !f.up || !following || !l.serves() || l.rec.LeaderEpoch != s.LeaderEpoch && x.w.rules.fences() {
		return false
	}
	own := f.view()
	req := f.follower.Next(&own)
	theirs := l.view()
	a := x.w.rules.answer(&theirs, l.rec.LeaderEpoch, req)
	reply := replica.Reply{To: req, Kind: a.Kind, Diverging: a.Diverging, LogStart: l.log.Start, HighWatermark: l.log.HighWatermark, Vouch: replica.VouchNo}
	if a.Vouched {
		reply.Vouch = replica.VouchYes
	}
	var sent []modellog.Record
	if a.Kind == replica.AnswerData {
		sent, reply.Batches = batchesOf(l.log.Records[l.log.Index(req.Offset):])
		count := x.leaderOf(c, j)
		_, change, _ := count.Fetched(replica.FollowerFetch{Replica: f.id, BrokerEpoch: f.epoch, Offset: req.Offset, LogStart: f.log.Start, LeaderEpoch: l.rec.LeaderEpoch, Now: now})
		x.refresh(c, j)
		if change != nil {
			x.changeISR(c, j, change)
		}
		reply.HighWatermark = k.nodes[j].log.HighWatermark
	}
	if x.isDown(c, i) || x.problem != nil {
		return false
	}
	from := k.nodes[j].log
	x.node(c, i).answer = &answer{reply, sent, &from}
	x.showAllFetched(c, j)
	return true
}

// batchMost is how many records an answer holds.
const batchMost = 3

func batchesOf(records []modellog.Record) ([]modellog.Record, []replica.Batch) {
	records = records[:min(len(records), batchMost)]
	list := make([]replica.Batch, len(records))
	for i, r := range records {
		list[i] = replica.Batch{Base: r.Offset, Next: r.Offset + 1, Epoch: r.Epoch}
	}
	return records, list
}

// changeISR writes what the leader proposes (R15): at once, or late.
func (x *step) changeISR(c, i int, change *replica.ISRChange) {
	k := &x.s.c[c]
	n := k.nodes[i]
	plan, err := control.ChangeISR(k.image(c), topicID, 0, n.rev, change.ISR, n.me())
	if err != nil {
		x.leaderOf(c, i).ISRRefused()
		x.refresh(c, i)
		return
	}
	rec, err := meta.DecodePartition(partitionKeys[c], plan.Then[0].Value)
	if err != nil {
		panic(err)
	}
	t := &txn{plan: x.w.rules.compares(c, plan.If), record: rec, node: i, epoch: n.epoch, kind: forISR}
	if x.hold(c, t) {
		return
	}
	if !x.commit(c, t, x.lagOf(c)) {
		x.finish(c, t, false)
	}
}

// receive delivers a follower's answer (R13).
func (x *step) receive(c, i int) {
	n := x.node(c, i)
	a := n.answer
	n.answer = nil
	if s, following := n.follower.Session(); !following || s.Generation != a.reply.To.Generation && !n.follower.Rules.TakeLate {
		return
	}
	own := n.view()
	v := n.follower.Receive(&own, a.reply)
	x.note("%s: %s", name(c, i), v.Kind)
	switch v.Kind {
	case replica.VerdictAccept:
		x.take(c, i, v, a)
	case replica.VerdictCut:
		x.cut(c, i, cutting{at: v.At, cause: mirror.CauseDivergence})
	case replica.VerdictRestart:
		x.cut(c, i, cutting{at: v.At, restart: true, cause: mirror.CauseRestart})
	}
	if !x.isDown(c, i) {
		x.refresh(c, i)
	}
}

// take carries an accepted answer out.
func (x *step) take(c, i int, v replica.Verdict, a *answer) {
	n := x.node(c, i)
	if v.HasRebase {
		x.cut(c, i, cutting{at: v.Rebase, restart: true, cause: mirror.CauseRestart})
		if x.isDown(c, i) {
			return
		}
	}
	x.raiseStart(c, i, v.RaiseLogStart, v.Vouched)
	x.appendCopied(c, i, a.sent[:v.Append])
	if hw := min(v.HighWatermark, n.log.End); hw > n.log.HighWatermark {
		n.log.HighWatermark = hw
	}
	x.checkCopied(c, i, a.leader)
	if l := x.s.c[c].nodes[1-i]; l.serves() && l.rec.LeaderEpoch == n.rec.LeaderEpoch {
		x.checkCopied(c, i, &l.log)
	}
}

// raiseStart moves a copy's log start up (R28).
func (x *step) raiseStart(c, i int, to types.Offset, vouched bool) {
	n := x.node(c, i)
	if to <= n.log.Start {
		return
	}
	start := n.log.Start
	gone := n.log.RaiseStart(to, false)
	if !vouched && len(gone) > 0 {
		n.vault = append(n.vault, kept{start, to, gone})
	}
	n.synced = max(n.synced, n.log.Start)
	x.passed(gone, vouched)
}

// appendCopied appends records as they came (R4).
func (x *step) appendCopied(c, i int, list []modellog.Record) {
	n := x.node(c, i)
	for _, r := range list {
		end := n.log.End
		last, _ := n.log.History.Latest()
		n.log.Append(r)
		if x.w.rules.epochAtBatch && r.Epoch > last.Epoch {
			n.log.History.TruncateFromEnd(end)
			if _, err := n.log.History.Assign(r.Epoch, r.Offset); err != nil {
				panic(err)
			}
		}
		x.checkAppended(c, i, r, end)
	}
	if len(list) > 0 {
		x.note("%s copies %s", name(c, i), printed(list))
	}
}

// replicate has a follower fetch until it lacks nothing and its leader knows. It
// reports whether it could fetch at all.
func (x *step) replicate(c, i int) bool {
	for n := range 12 {
		before := x.s.c[c].nodes[i]
		start, end, hw, rev := before.log.Start, before.log.End, before.log.HighWatermark, x.s.c[c].rev
		if before.answer == nil && !x.askLeader(c, i) {
			return n > 0
		}
		if x.isDown(c, i) || x.problem != nil {
			return true
		}
		if x.s.c[c].nodes[i].answer != nil {
			x.receive(c, i)
		}
		if x.isDown(c, i) || x.problem != nil {
			return true
		}
		f, l := x.s.c[c].nodes[i], x.s.c[c].nodes[1-i]
		if f.log.Start == start && f.log.End == end && f.log.HighWatermark == hw && x.s.c[c].rev == rev && f.log.End == l.log.End && f.log.HighWatermark == l.log.HighWatermark {
			return true
		}
	}
	x.problemf("Convergence", "%s fetches without end", name(c, i))
	return true
}
