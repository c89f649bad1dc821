package broker

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"tidemark/internal/assert"
	"tidemark/internal/batch"
	"tidemark/internal/broker/follow"
	"tidemark/internal/config"
	"tidemark/internal/core/replica"
	"tidemark/internal/core/types"
	"tidemark/internal/log"
	"tidemark/internal/source"
)

// Fetching fetches for partitions that follow a leader of this cluster. Neither
// method may block.
type Fetching interface {
	Want(follow.Want)
	Stop(leader types.BrokerID, tp types.TopicPartition)
}

// mayFollow reports whether the record names this node as a replica and another broker as the leader.
func (p *Partition) mayFollow() bool {
	r := p.record
	return r != nil && !p.deleted && p.offline == nil && p.env.fetching != nil &&
		r.Leader != types.NoBroker && r.Leader != p.env.nodeID && slices.Contains(r.Replicas, p.env.nodeID)
}

// follow begins a session with the leader that the record names, unless it has
// one in this leader epoch: first cut (R19), then the history without an own
// election's entry (R3), then the first fetch. It runs on the shard.
func (p *Partition) follow() {
	p.followFault = false
	if !p.mayFollow() {
		p.unfollow()
		return
	}
	s, following := p.follower.Session()
	if following && s.LeaderEpoch == p.record.LeaderEpoch {
		return
	}
	p.unfollow()
	err := p.firstCut()
	if err == nil {
		if err = p.log.BecomeFollower(); err != nil {
			err = p.storageFault(err)
		}
	}
	if err != nil {
		p.followFault = p.offline == nil
		p.tellFollowFault(err)
		return
	}
	// Invariant I-214: nobody follows and leads at once.
	assert.That(!p.leading, "I-214: %s follows broker %d and is led here", p.tp, p.record.Leader)
	p.generation++
	p.follower.Begin(replica.Session{Generation: p.generation, LeaderEpoch: p.record.LeaderEpoch, LocalEpoch: p.record.LeaderEpoch})
	p.followed = p.record.Leader
	p.want(false)
}

// unfollow ends the session; an answer on its way is stale then.
func (p *Partition) unfollow() {
	if _, following := p.follower.Session(); !following {
		return
	}
	p.follower.End()
	p.behind.Store(0)
	p.env.fetching.Stop(p.followed, p.tp)
	p.followed = types.NoBroker
}

// want asks for what comes after the log as it is now; later: not at once.
func (p *Partition) want(later bool) {
	if _, following := p.follower.Session(); !following || p.offline != nil || p.deleted {
		return
	}
	v := p.log.View()
	own := p.followerLog(v)
	p.env.fetching.Want(follow.Want{
		TopicPartition: p.tp, TopicID: p.id, Leader: p.followed, Request: p.follower.Next(&own), LogStart: v.LogStart, Tail: p.ownTail(v), Later: later, Taker: p,
		Throttle: p.followThrottle(),
	})
}

// isHoled reports whether this log is to be copied anew since opening found records
// missing inside it: following at its end would never bring them back. An in-sync
// replica keeps what is left, since its leader counts on it.
func (p *Partition) isHoled() bool { return p.holed && !p.record.InISR(p.env.nodeID) }

// followerLog is the log as its follower tells of it. One that is to be copied anew
// counts as empty: the leader doesn't take it for caught up, and once it has answered
// the log begins anew.
func (p *Partition) followerLog(v log.View) replica.Log {
	if p.isHoled() {
		return replica.Log{LogStart: v.LogStart, LogEnd: v.LogStart, HighWatermark: v.LogStart}
	}
	return replicaLog(v)
}

// ownTail is the end of this log for the leader to compare with its own, until the session
// has had its first answer that agrees; from then on it is the leader's records that come.
func (p *Partition) ownTail(v log.View) types.Tail {
	s, _ := p.follower.Session()
	if p.agreed == s.Generation || !p.record.Writable || p.isHoled() || p.compacts.Load() || p.env.rules.TrustEpochs {
		return types.Tail{}
	}
	t, err := p.log.Tail(v.LogEnd)
	if err != nil {
		p.env.logger.Warn("the last batch can't be read, and isn't compared with the leader's", "partition", p.tp.String(), "err", err)
		return types.Tail{}
	}
	if len(p.record.Promotions) > 0 {
		t.EpochStart = types.NoOffset // mirrored epochs may begin in a gap, which a recovery doesn't see (R4)
	}
	return t
}

// followThrottle says whether this replica's fetches are counted, or also held back.
func (p *Partition) followThrottle() follow.ThrottleKind {
	s := p.throttled.Load()
	switch {
	case s == nil || !s.asFollower:
		return follow.Unthrottled
	case slices.Contains(s.inSync, p.env.nodeID):
		return follow.Counted
	}
	return follow.HeldBack
}

// Take implements follow.Taker. The only partition of an answer is looked at on the
// fetcher's goroutine, unless a second disk would have to wait with it for the first.
func (p *Partition) Take(a follow.Answer, done func()) {
	give := p.shard.send
	if a.Alone && p.env.oneDisk {
		give = p.shard.sendOrRun
	}
	err := give(p.env.ctx, event{p: p, f: func() {
		defer done()
		p.received(a)
	}})
	if err != nil {
		done()
	}
}

// received judges one answer and carries the verdict out (R13). A failure puts
// the next fetch off: this replica falls behind, and leaves the ISR in time (R29).
func (p *Partition) received(a follow.Answer) {
	s, following := p.follower.Session()
	late := s.Generation != a.Reply.To.Generation && !p.follower.Rules.TakeLate
	if !following || late || p.offline != nil || p.deleted {
		return // a newer session has its own wish
	}
	own := p.followerLog(p.log.View())
	v := p.follower.Receive(&own, a.Reply)
	later := false
	var err error
	switch v.Kind {
	case replica.VerdictStale:
	case replica.VerdictAccept:
		if start := p.log.View().LogStart; p.lacksCompacted(own.LogEnd) {
			p.agreed = 0
			err = p.restartAt(start, "a crash interrupted a cut below its own compaction")
			break
		}
		if p.isHoled() {
			p.agreed = 0
			err = p.restartAt(a.Reply.LogStart, "records are missing inside the log")
			break
		}
		if err = p.accept(a, v); err == nil {
			p.agreed = s.Generation
		}
	case replica.VerdictCut:
		p.agreed = 0
		err = p.cutTo(a, v.At)
	case replica.VerdictRestart:
		p.agreed = 0
		err = p.restartAt(v.At, "the leader's range begins there")
	case replica.VerdictEnd:
		later = true // the record of the leader's epoch, or ours, is on its way
	case replica.VerdictBroken:
		err = fmt.Errorf("broker %d's answer: %s", p.followed, v.Why)
	default:
		// Invariant I-215: a session within the cluster needs no other transaction and no other question.
		assert.That(false, "I-215: %s: verdict %v", p.tp, v.Kind)
	}
	if err != nil {
		later = true
		p.tellFollowFault(err)
	}
	p.refresh()
	p.want(later)
}

// accept carries an accepted answer out in the order that replica.Verdict demands.
func (p *Partition) accept(a follow.Answer, v replica.Verdict) error {
	p.trail.settle()
	start := p.log.View().LogStart
	if v.HasRebase {
		if err := p.restartAt(v.Rebase, "the leader's log start lies within a batch"); err != nil {
			return err
		}
	}
	// The verdict's log start is the one before a rebase, which the next answer raises
	// again: raised now, the empty log would begin above the batch that is to come.
	if v.RaiseLogStart > start {
		p.endFlush()
		reason := log.CutReason{Cause: log.CauseLogStart, Order: log.OrderedByLeader, Note: "the leader's log start", LeaderHighWatermark: types.NoOffset}
		if _, err := p.log.RaiseLogStart(v.RaiseLogStart, v.Vouched, reason); err != nil {
			return p.storageFault(err)
		}
	}
	err := p.copyBatches(a, v)
	p.behind.Store(max(0, int64(v.HighWatermark-p.log.View().LogEnd)))
	// The high watermark is the leader's, as far as the log reaches (R13).
	if now := p.log.View(); min(v.HighWatermark, now.LogEnd) > now.HighWatermark {
		p.log.SetHighWatermark(min(v.HighWatermark, now.LogEnd))
	}
	return err
}

// copyBatches appends the first batches of an answer as they came.
func (p *Partition) copyBatches(a follow.Answer, v replica.Verdict) error {
	if v.Append == 0 {
		return a.Fault
	}
	size := 0
	for range v.Append {
		h, err := batch.ParseHeader(a.Records[size:])
		if err != nil {
			return err
		}
		size += h.Size()
	}
	done, err := p.log.AppendAsFollower(a.Records[:size], v.MaxEpoch)
	if err != nil {
		return p.storageFault(err)
	}
	if done.StoppedBy != nil {
		return fmt.Errorf("the batch at offset %d: %w", done.NextOffset, done.StoppedBy)
	}
	p.env.metrics.Replication.BytesIn.Add(float64(size))
	p.flushByCount(p.log.View())
	return nil
}

// cutTo cuts where the leader's history departs. The answer moves nothing else:
// no high watermark comes from a divergence (KAFKA-14704).
//
// A log that may lack older records of their keys is copied anew, whole.
func (p *Partition) cutTo(a follow.Answer, at types.Offset) error {
	p.endFlush()
	before := p.log.View()
	if p.lacksCompacted(at) {
		at = min(at, before.LogStart)
	}
	d := a.Reply.Diverging
	r, err := p.log.Cut(at, log.CutReason{
		Cause: log.CauseDivergence, Order: log.OrderedByLeader, LeaderHighWatermark: a.Reply.HighWatermark,
		Note: fmt.Sprintf("broker %d: epoch %d ends at %d", p.followed, d.Epoch, d.End),
	})
	p.tellCut(r, log.CauseDivergence, log.OrderedByLeader, before) // also one that lacks room for its last steps: it isn't made twice
	if err != nil {
		return p.storageFault(err)
	}
	after := p.log.View()
	// Invariant I-216: a divergence lowers marks or leaves them, never raises them (R13).
	assert.That(after.HighWatermark <= before.HighWatermark && after.LogEnd <= before.LogEnd,
		"I-216: %s: a cut at %d moved the marks from %d, %d to %d, %d", p.tp, at, before.HighWatermark, before.LogEnd, after.HighWatermark, after.LogEnd)
	return nil
}

// lacksCompacted reports whether this log, cut at an offset, may lack records that a
// leader still has: its own compaction removed them below in favour of newer ones of
// their keys, and these go (docs/adr/0027).
func (p *Partition) lacksCompacted(at types.Offset) bool {
	return !p.env.rules.Mirrors.Mirror.Core.KeepsCompacted && at < p.log.Cleaned() && at > p.log.View().LogStart
}

// restartAt empties the log, through the vault (R13).
func (p *Partition) restartAt(at types.Offset, why string) error {
	p.endFlush()
	before := p.log.View()
	r, err := p.log.Restart(at, log.CutReason{Cause: log.CauseRestart, Order: log.OrderedByLeader, Note: why, LeaderHighWatermark: types.NoOffset})
	p.tellCut(r, log.CauseRestart, log.OrderedByLeader, before)
	if err != nil {
		return p.storageFault(err)
	}
	p.holed = false
	return nil
}

// tellCut says what a cut of a follower took. Below its own high watermark it
// took what was committed once: an unclean election's price (KAFKA-7414).
func (p *Partition) tellCut(r log.CutResult, cause log.Cause, order log.Order, before log.View) {
	if r.From >= r.To {
		return
	}
	p.trail.cut(r.LogEnd)
	p.env.metrics.Log.CutRecords.WithLabelValues(string(cause), string(order)).Add(float64(r.To - r.From))
	level := p.env.logger.Info
	if r.From < before.HighWatermark {
		level = p.env.logger.Warn
	}
	level("log cut to the leader's", "partition", p.tp.String(), "cause", string(cause), "orderedBy", string(order), "from", r.From, "to", r.To,
		"highWatermark", before.HighWatermark, "vault", r.KeptID)
}

// tellFollowFault says why a replica doesn't follow, once for each different reason.
func (p *Partition) tellFollowFault(err error) {
	if p.offline != nil {
		return // told already
	}
	if text := err.Error(); text != p.toldFault {
		p.toldFault = text
		p.env.logger.Error("partition can't follow its leader; trying again", "partition", p.tp.String(), "leader", p.record.Leader, "err", err)
	}
}

// peers is this node as its fetchers see it.
type peers struct{ *Broker }

var _ follow.Node = peers{}

// BrokerEpoch implements follow.Node. Before this process has registered there is
// none: a registration that the image may still show was an earlier process's (KIP-903).
func (n peers) BrokerEpoch() (types.BrokerEpoch, bool) {
	if !n.registered.Load() {
		return types.NoBrokerEpoch, false
	}
	return n.Broker.BrokerEpoch()
}

// Peer implements follow.Node.
func (n peers) Peer(id types.BrokerID) (source.Broker, bool) {
	e, ok := n.Image().Broker(id)
	if !ok {
		return source.Broker{}, false
	}
	for _, at := range e.Record.Endpoints {
		if at.Listener == n.interBroker {
			return source.Broker{ID: id, Host: at.Host, Port: at.Port, Rack: e.Record.Rack}, true
		}
	}
	return source.Broker{}, false
}

// addTLS gives the client's properties for TLS between brokers: the listener's own
// certificate, and the authorities that clients must come from.
func addTLS(props map[string]string, c *config.Broker) error {
	if !strings.HasSuffix(props["security.protocol"], "SSL") {
		return nil
	}
	if c.SSLTruststoreLocation != "" {
		props["ssl.truststore.location"], props["ssl.truststore.type"] = c.SSLTruststoreLocation, "PEM"
	}
	chain, err := os.ReadFile(c.SSLKeystoreLocation)
	key := chain
	if err == nil && c.SSLKeyLocation != "" {
		key, err = os.ReadFile(c.SSLKeyLocation)
	}
	props["ssl.keystore.type"], props["ssl.keystore.certificate.chain"], props["ssl.keystore.key"] = "PEM", string(chain), string(key)
	return err
}

// startFollowing makes the fetchers; nothing is fetched before this node has registered.
func (b *Broker) startFollowing() error {
	c := b.cfg
	b.interBroker = listenerBetweenBrokers(c)
	props := map[string]string{"client.id": fmt.Sprintf("broker-%d-follower", c.NodeID), "security.protocol": c.Protocol(b.interBroker)}
	if err := addTLS(props, c); err != nil {
		return err
	}
	mayDial := b.addLogIn(props)
	// The client asks no bootstrap address: every broker comes from the metadata.
	cfg, err := source.NewConfig([]string{"127.0.0.1:1"}, props)
	if err != nil {
		return errors.Join(fmt.Errorf("connections between brokers on listener %s", b.interBroker), err)
	}
	if err := b.securePeers(cfg); err != nil {
		return err
	}
	cfg.Dial = b.opts.DialPeer
	if !mayDial {
		cfg.Dial = b.refuseToDial
	}
	cfg.RequestTimeout = time.Duration(c.Replica.SocketTimeoutMs) * time.Millisecond
	limits := source.FetchLimits{
		MaxWait: time.Duration(c.Replica.FetchWaitMaxMs) * time.Millisecond, MinBytes: c.Replica.FetchMinBytes, MaxBytes: c.Replica.FetchResponseMaxBytes,
	}
	b.peerClient = source.Open(cfg, source.Options{Logger: b.logger, SoftwareVersion: b.opts.Version, ClusterID: b.clusterID})
	b.fetchers = follow.New(follow.Options{
		Node: peers{b}, Client: follow.Connect(b.peerClient),
		Logger: b.logger, Limits: limits, PartitionBytes: c.Replica.FetchMaxBytes, BackoffMax: time.Duration(c.Replica.FetchBackoffMs) * time.Millisecond,
		Throttle: b.env.followerThrottle,
	})
	b.env.fetching, b.env.changeISR = b.fetchers, newISRWriter(b).change
	return nil
}
