package sim

import (
	"errors"
	"fmt"
	"time"

	"tidemark/internal/batch"
	"tidemark/internal/broker/api"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	src "tidemark/internal/source"
	"tidemark/internal/wire"
)

// lane is one producer's writing to one partition.
type lane struct {
	producing
	c     *cluster
	acks  int16
	topic types.TopicID // that the producer id is for
}

func newLane(c *cluster, number, partition int, acks int16) *lane {
	l := &lane{producing: newProducing(c.k, number, partition), c: c, acks: acks}
	l.producing.renew, l.producing.send = l.renew, l.send
	return l
}

func (l *lane) renew(always bool) {
	if always || l.topic != l.c.wantTopic || l.pid == 0 {
		l.c.pids++
		l.pid, l.seq, l.topic = l.c.pids, 0, l.c.wantTopic
	}
}

// leader finds who may lead, as metadata requests tell; what is told of a topic
// of the same name and another id counts for nothing (KIP-516).
func (c *cluster) leader(topic types.TopicID, partition int, d dice, before types.BrokerID) (types.BrokerID, types.LeaderEpoch) {
	if image := c.image(d); image != nil {
		if t, ok := image.TopicByName(clusterTopic); ok && t.ID == topic {
			if r, _ := image.Partition(t.ID, int32(partition)); r != nil && r.Leader != types.NoBroker {
				return r.Leader, r.LeaderEpoch
			}
		}
	}
	if before != 0 {
		return before, types.NoLeaderEpoch
	}
	return types.BrokerID(d.IntN(len(c.machines)) + 1), types.NoLeaderEpoch
}

const clientTimeout = 1500 * time.Millisecond

// send makes one attempt.
func (l *lane) send() {
	d := l.k.dice("clients " + l.who())
	if l.believes == 0 || d.chance(0.1) {
		l.believes, _ = l.c.leader(l.c.wantTopic, int(l.partition), d, l.believes)
	}
	m, topic := l.c.machine(l.believes), l.c.wantTopic
	l.attempt(l.c.net, m, func(raw []byte) (types.Offset, error) { return m.produce(topic, l.partition, raw, l.acks) }, l.answered)
}

// errHungUp is what becomes of the answer of a broker that has stopped meanwhile.
var errHungUp = errors.New("the broker hung up")

// produce is a Produce request at a broker; it runs as a task there.
func (m *machine) produce(topic types.TopicID, number int32, raw []byte, acks int16) (types.Offset, error) {
	part, err := m.node.Partitions().Get(topic, number)
	if err != nil {
		return 0, err
	}
	sent := append([]byte(nil), raw...)
	res, err := part.Append(m.node.Context(), raw, api.AppendRequest{Acks: acks, Timeout: time.Second, LeaderEpoch: types.NoLeaderEpoch, RequestVersion: 11})
	if err == nil && m.node.HasHungUp() {
		err = errHungUp
	}
	if err != nil {
		return 0, err
	}
	if acks == -1 {
		m.c.eye().acked(m, meta.PartitionID{Topic: topic, Number: number}, res.BaseOffset, sent)
	}
	return res.BaseOffset, nil
}

func (l *lane) answered(err error) {
	l.sent++
	if err == nil {
		l.acknowledged()
		l.next()
		return
	}
	d := l.k.dice("clients " + l.who())
	switch code := api.CodeOf(err); code {
	case wire.ErrOutOfOrderSequenceNumber, wire.ErrUnknownProducerID, wire.ErrInvalidProducerEpoch, wire.ErrUnknownTopicID, wire.ErrUnknownTopicOrPartition:
		l.anew()
	case wire.ErrNotLeaderOrFollower:
		l.believes = 0
	case wire.ErrRequestTimedOut:
		l.k.probe("producer: timed out")
		l.believes = 0
	default:
		l.k.probe("producer: " + code.Error())
	}
	l.k.after(d.between(20*time.Millisecond, 300*time.Millisecond), "produce again", l.send)
}

// reader is a consumer of one partition.
type reader struct {
	c         *cluster
	k         *kernel
	number    int
	partition int
	topic     types.TopicID
	at        types.Offset
	last      types.LeaderEpoch // of the last record read
	epoch     types.LeaderEpoch // the newest that metadata told
	leader    types.BrokerID    // in that epoch
	busy      bool
	sent      int
	read      int
	since     time.Duration // of its last answer
	sessions  map[types.BrokerID]*src.Session
	end       types.Offset // high watermark of the last answer
}

func newReader(c *cluster, number, partition int) *reader {
	return &reader{c: c, k: c.k, number: number, partition: partition, last: types.NoLeaderEpoch, since: -1}
}

func (r *reader) who() string { return fmt.Sprintf("consumer %d-%d", r.number, r.partition) }

// behind says what the consumer lacks after the faults.
func (r *reader) behind() string {
	if r.topic != r.c.topic || r.since < r.c.healedAt || r.at < r.end {
		return fmt.Sprintf("%s is at %d, the end is %d", r.who(), r.at, r.end)
	}
	return ""
}

// poll fetches once.
func (r *reader) poll() {
	if r.busy {
		return
	}
	if r.topic != r.c.wantTopic {
		r.topic, r.at, r.last, r.end = r.c.wantTopic, 0, types.NoLeaderEpoch, 0
		r.epoch, r.leader = types.NoLeaderEpoch, 0
	}
	r.busy = true
	r.sent++
	d := r.k.dice("clients " + r.who())
	if id, e := r.c.leader(r.topic, r.partition, d, r.leader); e >= r.epoch || r.leader == 0 {
		r.leader, r.epoch = id, e
	}
	attempt, m := r.sent, r.c.machine(r.leader)
	if r.c.clients != nil {
		r.pollWire(m)
		return
	}
	topic, at, last, epoch := r.topic, r.at, r.last, r.epoch
	r.c.net.call(r.who(), m.name, "consume", clientTimeout, func(reply func(func())) {
		if !m.serves() {
			return
		}
		m.p.do(func() {
			out, raw, err := m.consume(topic, int32(r.partition), at, last, epoch)
			reply(func() {
				if r.closes(attempt) {
					r.answered(m, out, raw, err)
				}
			})
		})
	}, func() {
		if r.closes(attempt) {
			r.busy = false
		}
	})
}

// closes ends an attempt and reports whether it was the one under way. What comes
// for it later, or twice, counts for nothing: the position has moved, so that an old
// answer of OFFSET_OUT_OF_RANGE would be judged at an offset that nobody asked for.
func (r *reader) closes(attempt int) bool {
	if attempt != r.sent {
		return false
	}
	r.sent++
	return true
}

// consume is a Fetch request of a consumer at a broker.
func (m *machine) consume(topic types.TopicID, number int32, at types.Offset, last, epoch types.LeaderEpoch) (api.ReadResult, []byte, error) {
	var out api.ReadResult
	part, err := m.node.Partitions().Get(topic, number)
	if err != nil {
		return out, nil, err
	}
	err = part.Read(at, api.ReadRequest{CurrentLeaderEpoch: epoch, LastFetchedEpoch: last, MaxBytes: 4000, MinOne: true, Replica: types.NoBroker}, &out)
	if err != nil {
		return out, nil, err
	}
	raw, err := bytesOf(&out)
	m.c.check.leased(m, "answers a consumer")
	return out, raw, err
}

// answered takes an answer: what a consumer has read stays read, unless an
// unclean election came between.
func (r *reader) answered(m *machine, out api.ReadResult, raw []byte, err error) {
	r.busy = false
	l := r.c.check.ledger(meta.PartitionID{Topic: r.topic, Number: int32(r.partition)})
	if r.topic != r.c.wantTopic || l.deleted {
		return
	}
	switch {
	case out.HasDiverging || isOutOfRange(err):
		if l.unclean < 0 && !r.c.o.Compacted && r.at >= l.starts.legal {
			r.c.check.fail("ConsumerSeesStable", "%s at %d (last epoch %d) is told by %s that its log differs (%v, %v), and no unclean election came", r.who(), r.at, r.last, m.name, out.Diverging, err)
		}
		r.k.probe("consumer: truncated")
		r.at, r.last, r.end = r.c.earliest(m, l.id), types.NoLeaderEpoch, 0
		return
	case err != nil:
		return
	}
	r.since, r.end = r.k.now, out.HighWatermark
	for it := batch.Iterate(raw); it.Next(); {
		h := &it.Header
		if h.NextOffset() <= r.at {
			continue
		}
		r.read++
		r.at, r.last = h.NextOffset(), h.PartitionLeaderEpoch
	}
	if r.at < r.end && len(raw) > 0 {
		r.poll()
	}
}
