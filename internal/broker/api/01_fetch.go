package api

import (
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/clock"
	"tidemark/internal/core/replica"
	"tidemark/internal/core/types"
	"tidemark/internal/wire"
)

// Fetch (key 1): records of some partitions, waiting for them if need be.
//
// Behaviour
//   - Waits up to max wait until min bytes are there over all partitions. Any
//     error or divergence ends the wait, as do the end of the connection and a
//     shutdown. The high watermark (or last stable offset) moving is what wakes
//     it, not the append.
//   - The first batch of the first partition that has one comes whole even if
//     it is larger than every limit; after it limits hold.
//   - Below the log start or beyond the log end is OFFSET_OUT_OF_RANGE, with -1
//     for all offsets.
//   - A last fetched epoch (12+) that isn't a prefix of ours gets the diverging
//     epoch and no records (R5).
//   - read_committed stops at the last stable offset and lists aborted transactions.
//   - Records go from file to socket: the answer holds pieces of segment files.
//   - Fetch sessions (KIP-227): see fetch_session.go. In a session only what
//     changed is looked at and answered.
//   - A follower's session is answered soon when a high watermark or a log start
//     moves, too, and at once when the follower says so (WakeFetch).
//   - A replica reads up to the log end; its fetch, unless answered with an error or
//     a divergence, proves its position (R14).
//   - No records are ever given to a replica that isn't assigned to the partition.
//   - A consumer that names its rack is told of an in-sync follower there instead
//     of being given records, if replica.selector.class asks for it (KIP-392). From
//     version 11 on followers answer consumers, up to their own high watermark.
//
// Versions
//   - 4: isolation level. 5: log start. 7: sessions. 9: current leader epoch.
//     11: rack, preferred read replica. 12: flexible, last
//     fetched epoch, diverging epoch. 13: topic ids. 15: replica state.
//     16: leader hints with addresses (KIP-951). 17, 18: fields of replicas.
func fetch(c *Call, m kmsg.Request) (*wire.Response, error) {
	in := m.(*kmsg.FetchRequest)
	f, code := c.openFetch(in)
	if code != wire.None {
		return wire.NewFetchEncoder(c.Req, code, 0, 0).Response(nil), nil
	}
	defer f.close()
	f.poll()
	return f.answer(), nil
}

// fetchCall is one Fetch request at work on its partitions.
type fetchCall struct {
	*Call
	in      *kmsg.FetchRequest
	session *fetchSession // nil without one
	// id is the session id of the answer.
	id int32
	// full: every partition is answered, not only what changed.
	full  bool
	parts []*fetchPart // what is answered if full
	queue *fetchQueue

	replica      types.BrokerID
	replicaEpoch types.BrokerEpoch
	anyReplica   bool   // a consumer that followers may answer
	rack         string // of a consumer that may be sent to a follower, else ""
	committed    bool
	maxBytes     int
	minBytes     int
	deadline     time.Time

	// touched are the partitions looked at in this request.
	touched []*fetchPart
	bytes   int
	urgent  bool // an error or a divergence: answer now
	news    bool // a follower's session has something to say beside records: answer soon
}

func (c *Call) newFetch(in *kmsg.FetchRequest) *fetchCall {
	f := &fetchCall{Call: c, in: in, committed: in.IsolationLevel == 1}
	f.replica, f.replicaEpoch = types.BrokerID(in.ReplicaID), types.NoBrokerEpoch
	if in.Version >= 15 {
		f.replica, f.replicaEpoch = types.BrokerID(in.ReplicaState.ID), types.BrokerEpoch(in.ReplicaState.Epoch)
	}
	if f.replica < 0 {
		f.replica = types.NoBroker // -2 is a debugging consumer
	}
	if f.replica == types.NoBroker && in.Version >= 11 {
		f.anyReplica = true
		if c.Settings().ReadFromRack {
			f.rack = in.Rack
		}
	}
	f.maxBytes = min(int(in.MaxBytes), c.Settings().FetchMaxBytes)
	f.minBytes = min(int(in.MinBytes), f.maxBytes)
	if in.MaxWaitMillis > 0 {
		f.deadline = clock.Now(c.Ctx).Add(time.Duration(in.MaxWaitMillis) * time.Millisecond)
	}
	return f
}

// close gives back what the request holds and the answer hasn't taken.
func (f *fetchCall) close() {
	for _, p := range f.touched {
		p.drop()
		p.touched = false
	}
	if f.session != nil {
		f.session.release()
		return
	}
	for _, p := range f.parts {
		p.unsubscribe()
	}
}

// look reads one partition within what the limits leave.
func (f *fetchCall) look(p *fetchPart) {
	if !p.touched {
		p.touched = true
		f.touched = append(f.touched, p)
	}
	p.asked = false
	f.bytes -= p.res.Bytes
	p.drop()
	room := f.maxBytes - f.bytes
	req := ReadRequest{
		CurrentLeaderEpoch: p.currentEpoch, LastFetchedEpoch: p.lastEpoch,
		MaxBytes: min(int(p.maxBytes), room), MinOne: f.bytes == 0,
		Committed: f.committed, Replica: f.replica, ReplicaEpoch: f.replicaEpoch, ReplicaStart: p.logStart, ReplicaTail: p.tail, AnyReplica: f.anyReplica,
	}
	if req.MinOne {
		req.MaxBytes = max(req.MaxBytes, 1)
	}
	p.err = f.read(p, req)
	p.code = wire.None
	if p.err != nil {
		p.res = ReadResult{Records: p.res.Records[:0], Aborted: p.res.Aborted[:0]}
		p.code = f.failed(wire.KeyFetch, p.err)
		f.urgent = true
	}
	if p.res.HasDiverging || p.preferred != types.NoBroker {
		f.urgent = true
	}
	f.news = f.news || f.replica != types.NoBroker && f.session != nil && f.changed(p)
	f.bytes += p.res.Bytes
}

// read reads from the partition, finding it first if it is new or was lost. A
// partition that isn't led any more is looked up once again: it may have been
// made anew under the same name.
func (f *fetchCall) read(p *fetchPart, req ReadRequest) error {
	p.preferred, p.hint = types.NoBroker, noHint
	if err := f.mayFetch(p.ref); err != nil {
		return err
	}
	for again := p.part != nil; ; again = false {
		if p.part == nil {
			if err := f.attach(p); err != nil {
				return err
			}
		}
		if f.rack != "" {
			if p.preferred = f.nearest(p); p.preferred != types.NoBroker {
				req.MaxBytes, req.MinOne = 0, false // checked all the same
			}
		}
		err := p.part.Read(p.offset, req, &p.res)
		if err != nil {
			p.hint = hintOf(p.part)
		}
		if code := CodeOf(err); code != wire.ErrNotLeaderOrFollower && code != wire.ErrUnknownTopicOrPartition {
			return err
		}
		p.unsubscribe()
		p.part, p.preferred = nil, types.NoBroker
		if !again {
			return err
		}
	}
}

func (f *fetchCall) attach(p *fetchPart) error {
	get := f.Partitions.Get
	if f.anyReplica {
		get = f.Partitions.GetReplica
	}
	part, err := f.partitionBy(get, f.Image, p.ref, p.index)
	if err != nil {
		return err
	}
	if f.replica != types.NoBroker {
		rec, _ := f.Image.Partition(part.TopicID(), p.index)
		if rec == nil || !slices.Contains(rec.Replicas, f.replica) || f.replica == f.NodeID {
			return wire.Errorf(wire.ErrNotLeaderOrFollower, "broker %d follows no replica of %s", f.replica, part.Name())
		}
	}
	p.part = part
	// In a session the subscription outlives the request. It comes before the
	// first read, so that no move in between is lost.
	if f.session != nil {
		p.subscribe(f.queue)
	}
	return nil
}

// nearest gives the follower that a consumer is to read from in place of this
// leader: one of its own rack, unless this broker stands there too; NoBroker for none.
func (f *fetchCall) nearest(p *fetchPart) types.BrokerID {
	own, ok := f.Image.Broker(f.NodeID)
	if ok && own.Record.Rack == f.rack {
		return types.NoBroker
	}
	var near []replica.Reader
	for _, r := range p.part.Readers() {
		if node, ok := f.node(f.Image, r.ID); ok && node.Rack == f.rack {
			near = append(near, r)
		}
	}
	best, ok := replica.Nearest(near, p.offset)
	if !ok {
		return types.NoBroker
	}
	return best.ID
}

// answer lays the answer out. In a session it holds what changed.
func (f *fetchCall) answer() *wire.Response {
	chosen := f.parts
	if !f.full {
		chosen = slices.DeleteFunc(slices.Clone(f.touched), func(p *fetchPart) bool { return !f.changed(p) })
		// Partitions of a topic stand together: some clients keep the last entry of a topic only.
		slices.SortStableFunc(chosen, func(a, b *fetchPart) int { return a.topic - b.topic })
	}
	e := wire.NewFetchEncoder(f.Req, wire.None, f.id, countTopics(chosen))
	if f.session != nil {
		f.queueAgain()
	}
	h := hints{call: f.Call, image: f.Image}
	for i, p := range chosen {
		if i == 0 || chosen[i-1].topic != p.topic {
			e.Topic(p.ref.name, p.ref.id, topicRun(chosen[i:]))
		}
		f.part(e, p, &h)
		if i == len(chosen)-1 || chosen[i+1].topic != p.topic {
			e.EndTopic()
		}
	}
	if f.replica != types.NoBroker {
		h.nodes = nil // replicas know where brokers are (Kafka parity)
	}
	return e.Response(h.nodes)
}

// queueAgain sees to it that a session's next request looks again at what has
// more to say. Partitions that got nothing this time go first.
func (f *fetchCall) queueAgain() {
	for _, served := range []bool{false, true} {
		for _, p := range f.touched {
			if p.res.Bytes > 0 == served && p.again(f.committed) {
				f.queue.add(p)
			}
		}
	}
}

// changed reports whether an incremental answer must hold the partition.
func (f *fetchCall) changed(p *fetchPart) bool {
	return p.changed() && !(f.SessionRules.NoNews && p.isNews())
}

func countTopics(parts []*fetchPart) int {
	n := 0
	for i, p := range parts {
		if i == 0 || parts[i-1].topic != p.topic {
			n++
		}
	}
	return n
}

// topicRun counts the partitions at the front that are of one topic.
func topicRun(parts []*fetchPart) int {
	n := 0
	for n < len(parts) && parts[n].topic == parts[0].topic {
		n++
	}
	return n
}

func (f *fetchCall) part(e *wire.FetchEncoder, p *fetchPart, h *hints) {
	w := wire.FetchPartition{
		Partition: p.index, Code: p.code,
		HighWatermark: p.res.HighWatermark, LastStable: p.res.LastStable, LogStart: p.res.LogStart,
		Committed: f.committed, Aborted: p.res.Aborted, Records: p.res.Records,
		Preferred: p.preferred, DivergingEpoch: types.NoLeaderEpoch, Leader: types.NoBroker, LeaderEpoch: types.NoLeaderEpoch,
	}
	if p.code != wire.None {
		w.Preferred = types.NoBroker
		w.HighWatermark, w.LastStable, w.LogStart = types.NoOffset, types.NoOffset, types.NoOffset
		if f.Req.Version >= 16 {
			if t, err := p.ref.find(f.Image); err == nil {
				w.Leader, w.LeaderEpoch = h.leader(t.ID, p.index, p.code, p.hint)
			}
		}
	}
	if p.res.HasDiverging {
		w.DivergingEpoch, w.DivergingEnd = p.res.Diverging.Epoch, p.res.Diverging.End
	}
	e.Partition(&w)
	if p.res.Release != nil {
		e.OnDone(p.res.Release)
		p.res.Release = nil
	}
	if f.Metrics != nil && p.res.Bytes > 0 {
		if f.replica != types.NoBroker {
			f.Metrics.Replicated(p.res.Bytes)
		} else {
			f.Metrics.Fetched(p.part.Name().Topic, p.res.Bytes)
		}
	}
	p.sent = sentState{}
	if p.code == wire.None {
		p.sent = p.state()
	}
}
