package broker

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"

	"tidemark/internal/assert"
	"tidemark/internal/broker/api"
	"tidemark/internal/clock"
	"tidemark/internal/config"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/replica"
	"tidemark/internal/core/timeline"
	"tidemark/internal/core/types"
	"tidemark/internal/log"
	"tidemark/internal/telemetry"
	"tidemark/internal/wire"
)

// environment is what partitions need of their node, the same for all of them.
type environment struct {
	nodeID    types.BrokerID
	now       func() types.Millis
	logger    *slog.Logger
	metrics   *telemetry.Metrics
	keeper    log.Keeper   // the vault; nil drops what cuts remove (tests only)
	oneDisk   bool         // the node has one log dir
	flushAcks bool         // log.flush.acks
	rules     VirtualRules // switched off by the simulator alone
	firstCut  *timeline.Rules
	// ticks is a clock in milliseconds that no step of the wall clock moves:
	// who is in sync is judged by it (KAFKA-20609).
	ticks  func() types.Millis
	lagMax types.Millis // replica.lag.time.max.ms
	// lapsed says that this node's registration may be over, and ended the same of
	// the one that a leadership belongs to (R10); nil: never.
	lapsed func() bool
	ended  func(types.BrokerEpoch) bool
	// leaderThrottle and followerThrottle hold replicas back that are being moved (KIP-73).
	leaderThrottle, followerThrottle *throttle
	// readFromRack is set by replica.selector.class (KIP-392).
	readFromRack bool
	// fetching fetches for those who follow; nil follows nobody.
	fetching Fetching
	// peer is what the metadata says of another broker.
	peer func(types.BrokerID) replica.BrokerView
	// changeISR commits a leader's proposal, and returns once the outcome is
	// known or can't be; nil proposes nothing.
	changeISR func(ctx context.Context, id types.TopicID, number int32, from meta.Revision, isr []meta.ISRMember) error
	// background counts the goroutines that partitions start; ctx ends when the
	// node closes.
	background *sync.WaitGroup
	ctx        context.Context
}

// Partition is one replica on this node. Its exported methods may be called
// from any goroutine; what changes it runs on its shard.
//
// The object outlives its leadership: whoever holds it after the loss gets
// NOT_LEADER_OR_FOLLOWER, after the topic's deletion UNKNOWN_TOPIC_OR_PARTITION.
type Partition struct {
	env   *environment
	shard *shard
	id    types.TopicID
	tp    types.TopicPartition

	// serving is what readers and writers look at first: whether this node may
	// answer now, and as what. The owner replaces it as a whole.
	serving atomic.Pointer[serving]
	moved   progress

	// flush.ms of the topic, and when unsynced records were first seen (Unix
	// milliseconds, 0: there are none).
	flushMs, unsyncedSince atomic.Int64
	compacts               atomic.Bool // cleanup.policy has compact
	// asks is the attention that the clock owes the partition (attention).
	asks atomic.Int32
	// behind is what a follower lacks of its leader's committed records, 0 on others.
	behind atomic.Int64
	// throttled is nil where no throttle is about the partition.
	throttled atomic.Pointer[throttled]
	fetches   fetchNotes
	down      atomic.Bool // offline, for the clock
	lost      atomic.Bool // offline, and its records are gone

	// The rest belongs to the shard.

	dir        *logDir
	log        *log.Log
	showAgain  func() // what the image said last of a partition whose log waits for room to be opened
	topic      config.Topic
	record     *meta.PartitionRecord
	revision   meta.Revision
	leading    bool  // R10: the image says leader = me, in my present registration
	assigned   int32 // leader epoch that R3 was done for, -1: none
	entered    int32 // leader epoch that this process has begun to do R3 for, -1: none
	held       bool  // Owned.Hold
	offline    error
	unread     *unread // offline because a file could not be read; nil for another cause
	deleted    bool
	waiting    []*appendOp // acks=all appends that wait for the high watermark, by offset
	deletes    []*deleteOp // deletions that wait for the in-sync replicas
	commitDue  bool        // in the shard's dirty list
	flush      *flushing   // the sync under way
	flushAgain bool        // records came that need another one
	view       log.View    // as last published
	guards     guards      // of transactions' first batches
	checkpoint *appliedCheckpoint
	leader     replica.Leader                   // counts followers while this node leads
	readers    atomic.Pointer[[]replica.Reader] // of leader, as last counted; any goroutine

	// What follows a leader of this cluster.
	follower    replica.Follower
	generation  uint64         // of its sessions
	followed    types.BrokerID // whom the fetcher was asked to fetch from
	agreed      uint64         // the session in which the leader's answer was accepted last
	followFault bool           // following could not begin: the clock tries again
	toldFault   string
	full        bool // the disk was full at the last append here, and the log was told
	trail       cutTrail
	holed       bool // opening found records missing inside the log: it is copied anew
}

// serving is what this node may do for a partition right now. It never changes.
type serving struct {
	// err is what every request gets; nil if this node serves the partition as its leader.
	err error
	// readErr is what a consumer gets that may read from any replica (KIP-392): nil
	// also on a follower whose log was found to agree with its leader's.
	readErr error
	log     *log.Log // nil before the log was opened
	epoch   types.LeaderEpoch
	leader  types.BrokerID // as the record names it
	// registration is this node's, in which it leads; NoBrokerEpoch if it doesn't.
	registration types.BrokerEpoch
	// mirror names the mirror that alone may write; "" if clients may.
	mirror string
	// readOnly: not writable though no mirror is named; fenced: for a switchover.
	readOnly, fenced bool
	minISR           bool // the ISR has its minimum: acks=all is taken
	// epochStart is where the leader epoch began: before the high watermark has
	// reached it, latest offsets aren't told (KIP-207).
	epochStart types.Offset
	deletes    bool // cleanup.policy has delete
}

func errNotLeader(why string) error {
	return wire.Errorf(wire.ErrNotLeaderOrFollower, "%s", why)
}

func newPartition(env *environment, s *shard, id types.TopicID, tp types.TopicPartition, dir *logDir) *Partition {
	p := &Partition{env: env, shard: s, id: id, tp: tp, dir: dir, assigned: -1, entered: -1, followed: types.NoBroker}
	p.follower.Rules, p.leader.Rules = env.rules.Follower, env.rules.Leader
	opening := errNotLeader("the partition is being opened")
	p.serving.Store(&serving{err: opening, readErr: opening, epoch: types.NoLeaderEpoch, leader: types.NoBroker})
	return p
}

// TopicID implements api.Partition.
func (p *Partition) TopicID() types.TopicID { return p.id }

// Name implements api.Partition.
func (p *Partition) Name() types.TopicPartition { return p.tp }

// OnProgress implements api.Partition.
func (p *Partition) OnProgress(f func()) (cancel func()) { return p.moved.subscribe(f) }

// View gives the log as it is now; false if it isn't open.
func (p *Partition) View() (log.View, bool) {
	s := p.serving.Load()
	if s.log == nil {
		return log.View{}, false
	}
	return s.log.View(), true
}

// agreedEnd is the log end of a leader, or of a follower whose log was found to agree
// with its leader's; false of any other.
func (p *Partition) agreedEnd() (types.Offset, bool) {
	s := p.serving.Load()
	if s.log == nil || s.readErr != nil {
		return 0, false
	}
	return s.log.View().LogEnd, true
}

// LeaderEpoch gives the epoch in which this node serves the partition, and why
// it doesn't if it doesn't.
func (p *Partition) LeaderEpoch() (types.LeaderEpoch, error) {
	s := p.serving.Load()
	if s.err == nil && p.env.ended != nil && p.env.ended(s.registration) {
		return s.epoch, errLapsed
	}
	return s.epoch, s.err
}

// Leader implements api.Partition.
func (p *Partition) Leader() (types.BrokerID, types.LeaderEpoch) {
	s := p.serving.Load()
	return s.leader, s.epoch
}

// Log gives the open log for reading (methods marked R); nil if it isn't open.
func (p *Partition) Log() *log.Log { return p.serving.Load().log }

// errNoOutcome marks an event that was lost to the shutdown.
var errNoOutcome = errors.Join(errStopped, errors.New("the event may or may not have run"))

// Do runs f on the shard that owns the partition and waits for it. f must not
// block on anything but the partition's own disk: every other partition of the shard waits for it.
// After a context's end f may still run.
//
// When f has returned, whatever it did to the log or to the hold is looked at:
// the high watermark moves (R14), waiting appends and fetches are told.
// An error of f is passed on.
func (p *Partition) Do(ctx context.Context, f func(o *Owned) error) error {
	done := make(chan struct{})
	result := errors.New("the partition failed while it ran") // until done is closed the shard's
	err := p.shard.send(ctx, event{p: p, f: func() {
		err := result
		defer func() { result = err; close(done) }()
		p.endFlush()
		if p.deleted {
			err = wire.Errorf(wire.ErrUnknownTopicOrPartition, "%s was deleted", p.tp)
			return
		}
		if p.offline != nil {
			err = p.offline
			return
		}
		if p.log == nil {
			err = p.serving.Load().err // it waits for room on the disk to be opened
			return
		}
		err = f(&Owned{p: p})
		p.refresh()
	}})
	if err != nil {
		return err
	}
	if !p.shard.inline || p.shard.turns != nil {
		_, err = p.shard.wait(ctx, clock.Forever, done)
	}
	switch {
	case errors.Is(err, errStopped):
		return errNoOutcome
	case err != nil:
		return err
	}
	return result
}

// Owned is a partition in the hands of its owner: valid only inside the function
// that Do runs, and only on its goroutine.
type Owned struct{ p *Partition }

// Log is the partition's log; its methods marked W may be called. It is nil if
// the log could not be opened (then Do fails before f runs).
func (o *Owned) Log() *log.Log { return o.p.log }

// Record is the partition record that the image showed last, and its mod
// revision; the record must not be changed.
func (o *Owned) Record() (*meta.PartitionRecord, meta.Revision) { return o.p.record, o.p.revision }

// Leading reports R10 without R19: the record names this node, in its present
// registration, as the leader.
func (o *Owned) Leading() bool { return o.p.leading }

// Serving reports whether clients are answered (R10 and R19, no hold).
func (o *Owned) Serving() bool { return o.p.serving.Load().err == nil }

// Topic is the topic's effective configuration.
func (o *Owned) Topic() config.Topic { return o.p.topic }

// Hold stops (true) or allows (false) answering clients, beside R10, R19 and what
// CutOwed says. A mirror holds the partition before it proposes R20's transaction and lets go
// after the cut: in the new epoch nobody may read what the cut will take.
func (o *Owned) Hold(held bool) { o.p.held = held }

// AllFetched reports whether every in-sync replica has fetched in the record's
// leader epoch, so that each has made its first cut (DESIGN §6.2).
func (o *Owned) AllFetched() bool { return o.p.leads() && o.p.leader.HasFetchedAll() }

// CutMade says that the mirror's driver has cut the log.
func (o *Owned) CutMade() { o.p.trail.cut(o.p.log.View().LogEnd) }

// CutOwed reports that committed offsets of groups may lie beyond end, where the log
// was cut or began in this process. A mirror's leader answers nobody before
// CutFollowed has quoted made.
func (o *Owned) CutOwed() (end types.Offset, made uint64, owed bool) {
	return o.p.trail.at, o.p.trail.made, o.p.trail.owed
}

// CutFollowed says that no committed offset lies beyond what CutOwed gave with made.
func (o *Owned) CutFollowed(made uint64) { o.p.trail.follow(made) }

// Refresh does at once what Do does after f has returned.
func (o *Owned) Refresh() { o.p.refresh() }

// goOffline ends the partition's service on this node (DESIGN §3); it comes back with
// a restart, or where a file could not be read, by reopen.
func (p *Partition) goOffline(cause error) {
	if p.offline != nil || p.deleted {
		return
	}
	p.offline = wire.Errorf(wire.ErrKafkaStorageError, "%s is offline: %v", p.tp, cause)
	p.lost.Store(errors.Is(cause, errForkLost))
	p.down.Store(true)
	p.publish()
	p.unfollow()
	var broken *assert.Error
	if p.dir != nil && !errors.As(cause, &broken) && errors.Is(cause, log.ErrOffline) {
		p.blame(cause)
	}
}

// interface checks: the handlers see partitions through these.
var _ api.Partition = (*Partition)(nil)
