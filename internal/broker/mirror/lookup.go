package mirror

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"tidemark/internal/clock"
	core "tidemark/internal/core/mirror"
	"tidemark/internal/core/types"
	"tidemark/internal/source"
)

// lookups answers LookUp for many partitions at once: one Metadata request and
// two ListOffsets requests to each leader serve all that wait, with a
// DescribeLineage request more if the source is Tidemark.
type lookups struct {
	run *run

	mu sync.Mutex
	// guards the following
	waiting map[*copier]core.Ticket
	wake    chan struct{}
}

// partitionsPerListOffsets bounds one ListOffsets request.
const partitionsPerListOffsets = 2000

// goneLooks is how many looks in a row must miss a topic before it counts as
// deleted: a broker that has just started may not know all of them yet.
const goneLooks = 3

func newLookups(r *run) *lookups {
	return &lookups{run: r, waiting: map[*copier]core.Ticket{}, wake: make(chan struct{}, 1)}
}

// ask queues a look; a later one of the same copier replaces an earlier one.
func (l *lookups) ask(c *copier, t core.Ticket) {
	l.mu.Lock()
	if t > l.waiting[c] {
		l.waiting[c] = t
	}
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

func (l *lookups) loop() {
	for {
		if _, err := clock.Wait(l.run.ctx, clock.Forever, l.wake); err != nil {
			return
		}
		l.mu.Lock()
		batch := l.waiting
		l.waiting = map[*copier]core.Ticket{}
		l.mu.Unlock()
		if len(batch) > 0 {
			l.look(l.run.ctx, batch)
		}
	}
}

// look is one look at the source for all that wait.
func (l *lookups) look(ctx context.Context, batch map[*copier]core.Ticket) {
	client, err := l.run.source()
	var m *source.Metadata
	if err == nil {
		m, err = client.Metadata(ctx, topicsOf(batch))
	}
	if err == nil {
		err = otherCluster(l.run.record.Load().SourceClusterID, m.ClusterID)
	}
	if err != nil {
		for _, c := range copiersOf(batch) {
			c.send(failure(batch[c], err))
		}
		return
	}
	topics := make(map[string]*source.Topic, len(m.Topics))
	for i := range m.Topics {
		topics[m.Topics[i].Name] = &m.Topics[i]
	}
	byLeader := map[types.BrokerID][]*looked{}
	for _, c := range copiersOf(batch) {
		t := batch[c]
		k, failed := leaderOf(c, m, topics[c.tp.Topic])
		if failed.Reason != "" {
			failed.Ticket = t
			c.send(failed)
			continue
		}
		k.ticket, k.source.ClusterID = t, m.ClusterID
		byLeader[k.leader.broker] = append(byLeader[k.leader.broker], k)
	}
	var work sync.WaitGroup
	for _, broker := range slices.Sorted(maps.Keys(byLeader)) {
		list := byLeader[broker]
		clock.Go(ctx, &work, func() {
			for chunk := range slices.Chunk(list, partitionsPerListOffsets) {
				l.ends(ctx, client, broker, chunk)
			}
		})
	}
	clock.Join(ctx, &work)
}

func copiersOf(batch map[*copier]core.Ticket) []*copier {
	return inOrder(batch, func(c *copier) types.TopicPartition { return c.tp })
}

func topicsOf(batch map[*copier]core.Ticket) []string {
	names := make([]string, 0, len(batch))
	for c := range batch {
		names = append(names, c.tp.Topic)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// looked is one partition's look under way.
type looked struct {
	c      *copier
	ticket core.Ticket
	leader sourceLeader
	source core.Source
}

// leaderOf finds the partition's leader in the topic's metadata, or says what is in the way.
func leaderOf(c *copier, md *source.Metadata, t *source.Topic) (*looked, core.SourceFailed) {
	fail := func(r core.Reason, format string, args ...any) (*looked, core.SourceFailed) {
		return nil, core.SourceFailed{Reason: r, Detail: fmt.Sprintf(format, args...)}
	}
	if t == nil || t.Code == source.CodeUnknownTopicOrPartition || (t.Code == 0 && int(c.tp.Partition) >= len(t.Partitions)) {
		if c.gone++; c.gone < goneLooks {
			return fail(core.SourceLeaderMoved, "the source does not show the partition")
		}
		return fail(core.SourceTopicGone, "the source no longer has the partition")
	}
	c.gone = 0
	if t.Code != 0 {
		return fail(reasonOfCode(t.Code), "the source answers %s for the topic", t.Code)
	}
	p := t.Partitions[c.tp.Partition]
	if p.Leader == types.NoBroker {
		return nil, leaderless(c.tp, md, &p)
	}
	return &looked{
		c: c, leader: sourceLeader{broker: p.Leader, epoch: p.LeaderEpoch, topic: t.ID},
		source: core.Source{TopicID: t.ID, LeaderEpoch: p.LeaderEpoch, LastEpoch: types.NoLeaderEpoch},
	}, core.SourceFailed{}
}

// ends asks one leader for the log starts and ends, fenced by the epochs of the
// same look, and a Tidemark leader for its timelines (R18).
func (l *lookups) ends(ctx context.Context, client Source, broker types.BrokerID, list []*looked) {
	starts, ends, told, err := rangesOf(ctx, client, broker, list)
	if err == nil && told == nil {
		err = l.run.asksMirrored().ask(ctx, client, broker, list)
	}
	for _, k := range list {
		if err != nil {
			k.c.send(failure(k.ticket, err))
			continue
		}
		start, end := starts[k.c.tp], ends[k.c.tp]
		if code := max(start.Code, end.Code); code != 0 {
			k.c.send(core.SourceFailed{Ticket: k.ticket, Reason: reasonOfCode(code), Detail: "the source answers " + code.String() + " for its offsets"})
			continue
		}
		if told != nil {
			if failed := k.takeLineage(told[k.c.tp]); failed.Reason != "" {
				failed.Ticket = k.ticket
				k.c.send(failed)
				continue
			}
		}
		k.source.LogStart, k.source.LogEnd = start.Offset, max(start.Offset, end.Offset)
		k.c.leader.Store(&k.leader)
		k.c.send(core.SourceShown{Ticket: k.ticket, Source: k.source})
	}
}
