package replica

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"tidemark/internal/core/modellog"
	"tidemark/internal/core/types"
)

// node is one replica of the model cluster.
type node struct {
	modellog.Log
	id       types.BrokerID
	up       bool
	follower Follower
	gen      uint64
	// ghosts are records of this log's past that compaction took, here or before
	// they were copied: what an observer knows and no replica does.
	ghosts map[types.Offset]modellog.Record
}

// cluster is one partition on a few brokers, and the messages between them. What
// a broker believes of the leadership is what the last election told it.
type cluster struct {
	nodes   []*node
	leader  *node // nil if there is none
	epoch   types.LeaderEpoch
	tags    int
	batch   int // records per fetch
	rules   clusterRules
	script  strings.Builder
	flight  []answerOnItsWay
	problem error
}

// clusterRules are the rules that lie around the follower.
type clusterRules struct {
	Rules
	KeepTrailing bool // R3: becoming follower keeps a trailing entry
	NoElection   bool // R3: an election makes no entry
	AtBase       bool // R4: a copied batch that raises the epoch starts its entry at its base offset
	KafkaAnswer  bool // R5: above the last entry: out of range
}

type answerOnItsWay struct {
	to     *node
	reply  Reply
	sent   []modellog.Record
	leader modellog.Log // as it was when it answered
	ghosts map[types.Offset]modellog.Record
}

func newCluster(n int, rules clusterRules) *cluster {
	c := &cluster{batch: 3, rules: rules}
	for i := range n {
		nd := &node{id: types.BrokerID(i + 1), up: true, ghosts: map[types.Offset]modellog.Record{}}
		nd.follower.Rules = rules.Rules
		c.nodes = append(c.nodes, nd)
	}
	return c
}

// compact takes one record away, as the cleaner does.
func (n *node) compact(i int) {
	n.ghosts[n.Records[i].Offset] = n.Records[i]
	n.Records = slices.Delete(slices.Clone(n.Records), i, i+1)
}

// dropGhosts forgets ghosts at or above o.
func (n *node) dropGhosts(o types.Offset) {
	maps.DeleteFunc(n.ghosts, func(at types.Offset, _ modellog.Record) bool { return at >= o })
}

func (n *node) view() Log {
	return Log{LogStart: n.Start, LogEnd: n.End, HighWatermark: n.HighWatermark, History: n.History.Clone()}
}

// elect makes a replica the leader of the next epoch; everyone who is up learns of it.
func (c *cluster) elect(n *node, e types.LeaderEpoch) {
	c.leader, c.epoch = n, e
	n.follower.End()
	if !c.rules.NoElection {
		n.Lead(e)
	}
	for _, f := range c.nodes {
		if f != n && f.up {
			c.follow(f)
		}
	}
}

// follow begins a session with the present leader.
func (c *cluster) follow(f *node) {
	if c.leader == nil || f == c.leader {
		return
	}
	if !c.rules.KeepTrailing {
		f.History.BecomeFollower(f.End)
	}
	f.gen++
	f.follower.Begin(Session{Generation: f.gen, LeaderEpoch: c.epoch, LocalEpoch: c.epoch})
}

// crash stops a replica and takes its last records, which were not synced.
func (c *cluster) crash(n *node, lose int) {
	n.up = false
	n.follower.End()
	n.Cut(max(n.End-types.Offset(lose), n.Start))
	n.dropGhosts(n.End)
	if c.leader == n {
		c.leader = nil
	}
}

func (c *cluster) start(n *node) {
	n.up = true
	n.History.Reconcile(n.Start, n.End)
	c.follow(n)
}

func (c *cluster) produce(count int, tag string) {
	for range count {
		c.leader.Write(c.epoch, tag)
	}
}

// ask sends one follower's fetch to the leader; the answer is on its way.
func (c *cluster) ask(f *node) {
	if _, following := f.follower.Session(); !following || c.leader == nil {
		return
	}
	own, leader := f.view(), c.leader.view()
	r := f.follower.Next(&own)
	a := c.answer(&leader, r)
	reply := Reply{To: r, Kind: a.Kind, Diverging: a.Diverging, LogStart: leader.LogStart, HighWatermark: leader.HighWatermark}
	if a.Kind == AnswerData {
		reply.Vouch = VouchNo
		if a.Vouched {
			reply.Vouch = VouchYes
		}
	}
	var sent []modellog.Record
	if a.Kind == AnswerData || a.Kind == AnswerDiverging && f.follower.Rules.IgnoreDivergence {
		i := c.leader.Index(r.Offset)
		sent = slices.Clone(c.leader.Records[i:min(i+c.batch, len(c.leader.Records))])
		for _, x := range sent {
			reply.Batches = append(reply.Batches, Batch{Base: x.Offset, Next: x.Offset + 1, Epoch: x.Epoch})
		}
	}
	c.flight = append(c.flight, answerOnItsWay{f, reply, sent, c.leader.Clone(), maps.Clone(c.leader.ghosts)})
}

func (c *cluster) answer(leader *Log, r Request) Answer {
	a := AnswerRequest(leader, c.epoch, r)
	if last, ok := leader.History.Latest(); c.rules.KafkaAnswer && a.Kind == AnswerDiverging && ok && r.LastEpoch > last.Epoch {
		return Answer{Kind: AnswerOutOfRange}
	}
	return a
}

// deliver hands over an answer and carries the verdict out.
func (c *cluster) deliver(a answerOnItsWay) Verdict {
	f := a.to
	own := f.view()
	v := f.follower.Receive(&own, a.reply)
	switch v.Kind {
	case VerdictCut:
		f.Cut(v.At)
		f.dropGhosts(v.At)
	case VerdictRestart:
		f.Restart(v.At)
		f.dropGhosts(0)
	case VerdictAccept:
		c.accept(f, a, v)
	}
	return v
}

func (c *cluster) accept(f *node, a answerOnItsWay, v Verdict) {
	if v.HasRebase {
		f.Restart(v.Rebase)
	}
	if v.RaiseLogStart > f.Start {
		f.RaiseStart(v.RaiseLogStart, false)
	}
	for _, r := range a.sent[:v.Append] {
		if r.Offset < f.End {
			c.fail("record %d appended at %d", r.Offset, f.End)
			return
		}
		if last, ok := f.History.Latest(); c.rules.KeepTrailing && ok && last.Epoch != r.Epoch {
			f.History.Assign(r.Epoch, f.End) // as if every batch assigned
		}
		for o, g := range a.ghosts {
			if o >= f.End && o < r.Offset {
				f.ghosts[o] = g
			}
		}
		f.appendAs(r, c.rules.AtBase)
	}
	f.HighWatermark = v.HighWatermark
}

// appendAs appends also what a broken rule lets through.
func (n *node) appendAs(r modellog.Record, atBase bool) {
	at := n.End
	if atBase {
		at = r.Offset
	}
	if _, err := n.History.AppendedBatch(r.Epoch, at); err != nil {
		n.History.Assign(r.Epoch, at)
	}
	n.Records = append(n.Records, r)
	n.End = r.Offset + 1
}

func (c *cluster) fail(format string, args ...any) {
	if c.problem == nil {
		c.problem = fmt.Errorf(format, args...)
	}
}

// round is one fetch of a follower, answered at once; it reports whether it
// changed anything.
func (c *cluster) round(f *node) (Verdict, bool) {
	before := f.End
	entries := f.History.Len()
	c.ask(f)
	if len(c.flight) == 0 {
		return Verdict{}, false
	}
	a := c.flight[len(c.flight)-1]
	c.flight = c.flight[:len(c.flight)-1]
	fmt.Fprintf(&c.script, "r%d fetches %d, last epoch %d: %s", f.id, a.reply.To.Offset, a.reply.To.LastEpoch, a.reply.Kind)
	if a.reply.Kind == AnswerDiverging {
		fmt.Fprintf(&c.script, " (%d, %d)", a.reply.Diverging.Epoch, a.reply.Diverging.End)
	}
	v := c.deliver(a)
	fmt.Fprintf(&c.script, " -> %s", v.Kind)
	switch v.Kind {
	case VerdictCut, VerdictRestart:
		fmt.Fprintf(&c.script, " at %d", v.At)
	case VerdictAccept:
		fmt.Fprintf(&c.script, " %d", v.Append)
	}
	c.script.WriteString("\n")
	return v, f.End != before || f.History.Len() != entries || v.Kind == VerdictCut || v.Kind == VerdictRestart
}

// replicate fetches until nothing changes; false if that takes too long.
func (c *cluster) replicate(f *node) bool {
	for range 100 {
		if _, changed := c.round(f); !changed {
			return true
		}
	}
	return false
}
