package mirror

import (
	"bytes"
	"sync/atomic"
	"time"

	"tidemark/internal/config"
	"tidemark/internal/core/meta"
	core "tidemark/internal/core/mirror"
	"tidemark/internal/core/replica"
	"tidemark/internal/core/timeline"
	"tidemark/internal/core/types"
	"tidemark/internal/log"
)

// copier is one mirrored partition on this node: the core machine, stepped on
// the partition's shard, and what the driver knows beside it.
type copier struct {
	run  *run
	id   meta.PartitionID
	tp   types.TopicPartition
	part Partition

	// leader is the source broker of the present session and its leader epoch,
	// set by the look-up before the event that tells of it.
	leader atomic.Pointer[sourceLeader]
	status atomic.Pointer[shown]
	// fetcher is where the copier's wishes go; seen what it last showed.
	fetcher atomic.Pointer[fetcher]
	seen    atomic.Pointer[seenRange]
	// halted: a failover has taken over; events are dropped.
	halted atomic.Bool
	// looking: a look for what the followers have fetched is due.
	looking atomic.Bool
	// attached is the fetcher in whose session the copier's partition is; sighted
	// when it left one, in wall clock ms: until then the source was seen unchanged.
	attached atomic.Pointer[fetcher]
	sighted  atomic.Int64
	// sights are what answers said of the source's high watermark, over time; joined
	// is since when the partition is in the session of attached, in wall clock ms.
	sights sights
	joined atomic.Int64
	// showing, refreshing and ticking pass on what only the newest of counts: a copier whose
	// shard doesn't get on, as with a disk that hangs, has one of each waiting, and not all of them.
	showing, refreshing, ticking duty
	refreshed                    atomic.Pointer[core.Source]
	// gone counts the looks at the source in a row that did not show the topic; the look-up's alone.
	gone int

	// The rest belongs to the shard.

	machine    *core.Partition
	policy     core.Policy
	revision   meta.Revision // of the record last shown to the machine
	leading    bool
	allFetched bool
	seq        uint64 // counts the steps
	effects    core.Effects
	deferred   []core.Effect // for outside the shard, in order
	data       []byte        // records of the reply being answered
	checkpoint parsedCheckpoint
	// What clients may not read at the moment: from the proposal of R20's
	// transaction to the end of the cut, also if the first tries fail (owing).
	holding, realigning, owing bool
	realignTicket              core.Ticket // of R20's transaction proposed last

	asked uint64 // the cut that committed offsets were last asked to follow
	rules Rules  // switched off by the simulator alone
}

// sourceLeader is who led the source partition at the last look.
type sourceLeader struct {
	broker types.BrokerID
	epoch  types.LeaderEpoch
	topic  types.TopicID // zero for a source without topic ids
	// isMirror: the source said that it is a mirror itself.
	isMirror bool
}

// seenRange is the source's log start and end as the last fetch showed them.
type seenRange struct{ start, end types.Offset }

// saw keeps what a fetch's answer said of the source's range.
func (c *copier) saw(start, end types.Offset) {
	if end >= 0 {
		c.seen.Store(&seenRange{start, end})
	}
}

// sightedAt is when the source's range was last known to be what the last answer
// said: an incremental fetch answers only for partitions that have changed.
// NoTimestamp if never.
func (c *copier) sightedAt() types.Millis {
	at := c.sighted.Load()
	if f := c.attached.Load(); f != nil && c.seen.Load() != nil {
		at = max(at, f.seenAt.Load())
	}
	if at <= 0 {
		return types.NoTimestamp
	}
	return types.Millis(at)
}

// noteStill takes what the session's last answer said of the partition by leaving it out.
func (c *copier) noteStill() {
	if f := c.attached.Load(); f != nil {
		if sent := f.answeredTo.Load(); sent > c.joined.Load() {
			c.sights.still(types.Millis(sent))
		}
	}
}

// missingMs is the age of the oldest record that the source was seen to have
// beyond end, 0 if there is none or that is not known.
func (c *copier) missingMs(end types.Offset) types.Millis {
	s := c.status.Load()
	if s == nil || s.Facts.End <= end || s.Lag.Records == 0 {
		return 0
	}
	return s.Lag.Millis + c.now() - s.at
}

// sourceTopicID is the topic's id at the source, zero if it has none.
func (c *copier) sourceTopicID() types.TopicID {
	if l := c.leader.Load(); l != nil {
		return l.topic
	}
	return types.TopicID{}
}

// shown is what the machine said of itself last.
type shown struct {
	core.Status
	at      types.Millis
	offline string // the partition can't be worked on here, in words
}

// parsedCheckpoint remembers the parsed timeline checkpoint beside its text.
type parsedCheckpoint struct {
	text       []byte
	checkpoint timeline.Checkpoint
	ok         bool
}

func newCopier(r *run, id meta.PartitionID, part Partition) *copier {
	return &copier{run: r, id: id, tp: part.Name(), part: part, rules: r.m.o.Rules}
}

// show has the machine look at the record again.
func (c *copier) show() { c.showing.ask(c.run.spawn, func() { c.step(nil, nil) }) }

// refresh passes on what a look at the source for many partitions showed.
func (c *copier) refresh(s core.Source) {
	c.refreshed.Store(&s)
	c.refreshing.ask(c.run.spawn, func() {
		if s := c.refreshed.Swap(nil); s != nil {
			c.step(core.Refreshed{Source: *s}, nil)
		}
	})
}

// tick passes time.
func (c *copier) tick() { c.ticking.ask(c.run.spawn, func() { c.step(core.Tick{}, nil) }) }

// send hands an event over from a goroutine that must not wait.
func (c *copier) send(ev core.Event) { c.run.spawn(func() { c.step(ev, nil) }) }

// step applies an event on the shard and carries the outcome out. data are the
// records that belong to a Fetched; they aren't touched once step has returned.
//
// Invariant I-141: once halted is set, no step changes the log: the flag is looked
// at on the shard, so that a promotion computed there sees the final log end.
func (c *copier) step(ev core.Event, data []byte) {
	if c.halted.Load() {
		return
	}
	st, err := c.stepOnShard(ev, data)
	if err != nil {
		c.status.Store(&shown{at: c.now(), offline: err.Error()})
		return
	}
	if st.lower {
		c.run.groups.owe(c, st.cut)
	}
	for _, e := range st.out {
		c.dispatch(e, st.seq)
	}
}

// stepped is what one step leaves to be done outside the shard.
type stepped struct {
	out   []core.Effect
	seq   uint64
	lower bool // committed offsets are to follow cut
	cut   owedCut
}

// owedCut is a cut that committed offsets are to follow, and its number.
type owedCut struct {
	end  types.Offset
	made uint64
}

// stepOnShard applies an event and carries the log effects out.
func (c *copier) stepOnShard(ev core.Event, data []byte) (stepped, error) {
	var st stepped
	err := c.part.Do(c.run.alone(), func(o Owned) error {
		st.out = c.onShard(o, ev, data)
		c.seq++
		st.seq, c.data = c.seq, nil
		if end, made, owed := o.CutOwed(); owed && made != c.asked && c.leading && !c.halted.Load() {
			st.lower, st.cut, c.asked = true, owedCut{end, made}, made
		}
		return nil
	})
	return st, err
}

// cutFollowed lets clients read again after a cut that the committed offsets have
// followed (DESIGN §6.3).
func (c *copier) cutFollowed(made uint64) {
	_ = c.part.Do(c.run.alone(), func(o Owned) error { // a partition that is gone needs no release
		o.CutFollowed(made)
		return nil
	})
}

// release lets clients read again once nothing is in the way.
func (c *copier) release(o Owned) {
	if c.holding && !c.realigning && !c.owing {
		c.holding = false
		o.Hold(false)
	}
}

func (c *copier) hold(o Owned) {
	c.holding = true
	o.Hold(true)
}

func (c *copier) now() types.Millis { return c.run.m.o.Node.Now() }

// onShard shows the machine the record if it has changed, then the event, and
// gives the effects that are for outside.
func (c *copier) onShard(o Owned, ev core.Event, data []byte) []core.Effect {
	c.deferred = nil
	rec, rev := o.Record()
	if rec == nil || o.Log() == nil || c.halted.Load() {
		return nil
	}
	if c.machine == nil {
		o.Hold(false) // whatever an earlier copier was about to do, this one begins anew
	}
	c.setPolicy(o.Topic())
	if all := o.AllFetched(); c.revision != rev || c.leading != o.Leading() || c.allFetched != all {
		c.revision, c.leading, c.allFetched = rev, o.Leading(), all
		c.feed(o, core.RecordShown{Record: rec, Leading: c.leading, AllFetched: all || len(rec.ISR) == 1})
	}
	if c.leading && !c.allFetched && len(rec.ISR) > 1 && c.run.ctx != nil && c.looking.CompareAndSwap(false, true) {
		c.run.after(fetchedLook, func() { c.looking.Store(false); c.step(nil, nil) })
	}
	if ev != nil {
		if p, ok := ev.(core.Proposed); ok && p.Ticket == c.realignTicket { // not an earlier one's, come late
			c.owing = c.owing || c.realigning && p.Applied
			c.realigning = false // the machine asks again if it must
		}
		c.data = data
		c.feed(o, ev)
	}
	c.release(o)
	own := c.own(o)
	c.status.Store(&shown{Status: c.machine.Status(c.now(), &own), at: c.now()})
	return c.deferred
}

// fetchedLook is how often a leader whose in-sync replicas have not all fetched
// looks for it: LOG_ALIGNMENT waits for them (DESIGN §6.2).
const fetchedLook = 100 * time.Millisecond

// setPolicy tells the machine what has changed in the mirror's settings or the topic's configs.
func (c *copier) setPolicy(topic config.Topic) {
	s := c.run.settings.Load()
	me := c.run.m.o.Node.Me()
	p := core.Policy{
		ClusterID: c.run.m.o.Node.ClusterID(), TopicID: c.id.Topic, Me: me.ID, BrokerEpoch: me.Epoch,
		EpochHeadroom: s.EpochHeadroom, ContinueOverGaps: s.GapPolicy == "continue",
		Compacted: topic.Compact, DeleteRetention: topic.DeleteRetentionMs, SeenEvery: seenEvery,
		Rules: c.rules.Core,
	}
	switch {
	case c.machine == nil:
		c.machine = core.New(p)
	case p != c.policy:
		c.machine.Step(c.now(), nil, core.PolicyChanged{Policy: p}, &c.effects)
	}
	c.policy = p
}

// seenEvery is how often what was seen of the source is written down, at the most.
const seenEvery = types.Millis(60_000)

// own is the log as it is now, for the machine.
func (c *copier) own(o Owned) core.Own {
	own := core.Own{Log: replicaLog(o.Log().View()), Cleaned: o.Log().Cleaned()}
	if text, ok := o.Log().TimelineCheckpoint(); ok {
		if p := &c.checkpoint; p.text == nil || !bytes.Equal(p.text, text) {
			cp, err := timeline.ParseCheckpoint(text)
			*p = parsedCheckpoint{text: bytes.Clone(text), checkpoint: cp, ok: err == nil}
		}
		own.Checkpoint, own.HasCheckpoint = c.checkpoint.checkpoint, c.checkpoint.ok
	}
	return own
}

func replicaLog(v log.View) replica.Log {
	r := replica.Log{LogStart: v.LogStart, LogEnd: v.LogEnd, HighWatermark: v.HighWatermark}
	if v.History != nil {
		r.History = *v.History
	}
	return r
}

// feed steps the machine and carries its log effects out, until none are left.
func (c *copier) feed(o Owned, ev core.Event) {
	for ev != nil {
		own := c.own(o)
		c.effects.Reset()
		c.machine.Step(c.now(), &own, ev, &c.effects)
		ev = c.carry(o, c.effects.List)
	}
}
