package sim

import (
	"fmt"
	"time"

	"tidemark/internal/broker/api"
	"tidemark/internal/core/group"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/internal/wire"
)

// pen is one producer of one partition, which writes wherever the partition may be
// written, to another cluster too. It is at home at one site, and nothing tells it that
// another was promoted.
type pen struct {
	producing
	w    *mirrors
	home int
	at   int // the site that it writes to
	// unled counts answers in a row that nobody leads there.
	unled int
}

// unledMost is how often a producer is told that nobody leads before it goes elsewhere,
// once the faults are over: a mirror that has failed before it took over any history
// answers nobody, and may stay so.
const unledMost = 50

func newPen(w *mirrors, number, partition int) *pen {
	home := number % w.o.Sites
	l := &pen{producing: newProducing(w.k, number, partition), w: w, home: home, at: home}
	l.producing.renew, l.producing.send = l.renew, l.send
	return l
}

func (l *pen) renew(always bool) {
	if always || l.pid == 0 {
		l.w.pids++
		l.pid, l.seq = l.w.pids, 0
	}
}

// behind says what the producer lacks after the faults.
func (l *pen) behind() string {
	if l.ackedSince >= l.w.healedAt {
		return ""
	}
	for _, c := range l.w.sites {
		if r := c.record(meta.PartitionID{Topic: c.topicID(), Number: l.partition}); r != nil && r.Writable {
			return l.who() + " has no record acknowledged since the faults ended"
		}
	}
	return ""
}

// leaderAt finds who may lead a partition of a site, as metadata requests tell.
func (c *cluster) leaderAt(d dice, number int32, before types.BrokerID) types.BrokerID {
	if image := c.image(d); image != nil {
		if t, ok := image.TopicByName(clusterTopic); ok {
			if r, _ := image.Partition(t.ID, number); r != nil && r.Leader != types.NoBroker {
				return r.Leader
			}
		}
	}
	if before != 0 {
		return before
	}
	return types.BrokerID(d.IntN(len(c.machines)) + 1)
}

// send makes one attempt.
func (l *pen) send() {
	d := l.k.dice("clients " + l.who())
	c := l.w.sites[l.at]
	if l.believes == 0 || d.chance(0.1) {
		l.believes = c.leaderAt(d, l.partition, l.believes)
	}
	m := c.machine(l.believes)
	l.attempt(l.w.net, m, func(raw []byte) (types.Offset, error) {
		t, ok := m.node.Image().TopicByName(clusterTopic)
		if !ok {
			return 0, wire.ErrUnknownTopicOrPartition
		}
		l.w.check.attempted(m, meta.PartitionID{Topic: t.ID, Number: l.partition}, raw)
		return m.produce(t.ID, l.partition, raw, -1)
	}, l.answered)
}

func (l *pen) answered(err error) {
	l.sent++
	if err == nil {
		l.unled = 0
		l.acknowledged()
		l.w.check.writes++
		l.next()
		return
	}
	d := l.k.dice("clients " + l.who())
	wait := d.between(20*time.Millisecond, 300*time.Millisecond)
	switch code := api.CodeOf(err); code {
	case wire.ErrOutOfOrderSequenceNumber, wire.ErrUnknownProducerID, wire.ErrInvalidProducerEpoch:
		l.anew()
	case wire.ErrNotLeaderOrFollower:
		l.believes = 0
		if l.unled++; l.w.healed && l.unled%unledMost == 0 {
			l.at = (l.at + 1) % l.w.o.Sites
		}
	case wire.ErrRequestTimedOut:
		l.k.probe("producer: timed out")
		l.believes = 0
	default:
		// Read-only, or not here: its operator points it elsewhere in time.
		l.k.probe("producer: " + code.Error())
		l.believes = 0
		wait += d.around(400 * time.Millisecond)
		if !d.chance(l.w.o.Loyal) || l.w.healed {
			l.at = (l.at + 1 + d.IntN(l.w.o.Sites)) % l.w.o.Sites
		}
	}
	l.k.after(wait, "produce again", l.send)
}

// groupsAt are the groups whose consumers are at a site; mirrors bring their offsets elsewhere.
func groupsAt(number int) []string {
	return []string{"readers-" + siteNames[number:number+1], "billing-" + siteNames[number:number+1]}
}

// commit is a consumer that reads at a site up to what it may, and commits it.
func (w *mirrors) commit(d dice) string {
	c := w.sites[d.IntN(len(w.sites))]
	name, number := pick(d, groupsAt(c.number)...), int32(d.IntN(w.o.Partitions))
	m := c.anyMachine(d)
	if !m.serves() {
		return ""
	}
	return w.commitAs(d, m, name, number, types.Offset(d.IntN(3)))
}

// commitAs is a consumer of a group that commits so much less than it may read.
func (w *mirrors) commitAs(d dice, m *machine, name string, number int32, back types.Offset) string {
	c := m.c
	lead := c.machine(c.leaderAt(d, number, 0))
	if lead == nil || !lead.serves() {
		return ""
	}
	t, ok := lead.node.Image().TopicByName(clusterTopic)
	if !ok {
		return ""
	}
	part, err := lead.node.Partitions().Get(t.ID, number)
	if err != nil {
		return ""
	}
	a, err := part.ListOffset(api.OffsetQuery{Timestamp: api.TimestampLatest, CurrentLeaderEpoch: types.NoLeaderEpoch, Replica: types.NoBroker})
	if err != nil {
		return ""
	}
	at := max(a.Offset-back, 0)
	w.check.committed[name] = w.k.now
	m.task(func() {
		g := m.node.Groups()
		ctx := m.node.Context()
		id, err := g.FindCoordinator(ctx, name)
		if err != nil {
			return
		}
		if to := c.machine(id); to != nil && to.serves() {
			to.task(func() {
				_ = to.node.Groups().Commit(to.node.Context(), group.Commit{Group: name, Generation: -1, Offsets: []group.CommitOffset{{
					Topic: clusterTopic, TopicID: t.ID, Partition: number, Offset: at, LeaderEpoch: types.NoLeaderEpoch, Retention: -1,
				}}})
			})
		}
	})
	return fmt.Sprintf("%sgroup %s commits %d of partition %d", c.prefix, name, at, number)
}
