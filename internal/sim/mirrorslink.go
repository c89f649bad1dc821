package sim

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"tidemark/internal/broker/mirror"
	"tidemark/internal/core/types"
	src "tidemark/internal/source"
)

// farCluster is a cluster as its clients meet it: what its brokers answer. The
// methods run at the broker that is named, which is up.
type farCluster interface {
	clusterID() string
	brokers() []types.BrokerID
	// nameOf is a broker's name in the network.
	nameOf(id types.BrokerID) string
	// at runs f at a broker, if it answers requests.
	at(id types.BrokerID, f func())
	metadata(id types.BrokerID, topics []string) *src.Metadata
	listOffset(id types.BrokerID, q src.OffsetQuery) src.OffsetAnswer
	epochEnd(id types.BrokerID, q src.EpochQuery) src.EpochAnswer
	// lineage is nil for a cluster that is no Tidemark.
	lineage(id types.BrokerID, list []src.LineageQuery) map[types.TopicPartition]src.Lineage
	// fetch answers now, or with wait once there is something to say.
	fetch(id types.BrokerID, asked []src.FetchPartition, wait time.Duration, done func([]src.FetchedPartition))
	topicConfigs(id types.BrokerID, topics []string) map[string]src.TopicConfigs
	// groups and offsets answer when they can.
	groups(id types.BrokerID, done func([]src.GroupListing, error))
	offsets(id types.BrokerID, group string, done func(src.GroupOffsets, error))
	verb(id types.BrokerID, verb string, body []byte, done func([]byte, error))
}

// link is a mirror's client of its source (mirror.Source), over the network between clusters.
type link struct {
	w      *mirrors
	m      *machine // the mirror's
	p      *process
	cfg    *src.Config
	far    farCluster
	pinned string
	closed bool
}

var _ mirror.Source = (*link)(nil)

// connect makes the client of the cluster that the bootstrap addresses name.
func (w *mirrors) connect(m *machine, p *process, cfg *src.Config) mirror.Source {
	return &link{w: w, m: m, p: p, cfg: cfg, far: w.farAt(cfg.Bootstrap)}
}

// farAt finds a cluster by the address of one of its brokers.
func (w *mirrors) farAt(bootstrap []string) farCluster {
	for _, f := range w.fars {
		if strings.HasPrefix(bootstrap[0], f.clusterID()+"-") {
			return f
		}
	}
	panic("sim: no cluster at " + bootstrap[0])
}

// Config implements mirror.Source.
func (l *link) Config() *src.Config { return l.cfg }

// Pin implements mirror.Source.
func (l *link) Pin(clusterID string) { l.pinned = clusterID }

// Close implements mirror.Source.
func (l *link) Close() { l.closed = true }

const linkTimeout = 3 * time.Second

// ask has one broker of the source answer.
func (l *link) ask(ctx context.Context, broker types.BrokerID, what string, patience time.Duration, serve func(reply func(arrived func()))) error {
	switch {
	case l.closed:
		return &src.Error{Kind: src.ErrClosed, Sentence: "the client is closed"}
	case !slices.Contains(l.far.brokers(), broker):
		return &src.Error{Kind: src.ErrUnreachable, Sentence: "the source's broker is not known"}
	}
	other := false
	err := l.w.exchange(ctx, l.p, l.m.name, l.far.nameOf(broker), what, patience, func(reply func(func())) {
		if l.pinned != "" && l.pinned != l.far.clusterID() {
			reply(func() { other = true })
			return
		}
		l.far.at(broker, func() { serve(reply) })
	})
	if other {
		return &src.Error{Kind: src.ErrOtherCluster, ClusterID: l.far.clusterID(), Sentence: "another cluster answers"}
	}
	return err
}

// anywhere has some broker answer: one after the other is tried.
func (l *link) anywhere(ctx context.Context, what string, serve func(id types.BrokerID, reply func(arrived func()))) error {
	ids := l.far.brokers()
	first := l.w.k.dice("links " + l.m.name).IntN(len(ids))
	var err error
	for i := range min(2, len(ids)) {
		id := ids[(first+i)%len(ids)]
		if err = l.ask(ctx, id, what, linkTimeout, func(reply func(func())) { serve(id, reply) }); err == nil || ctx.Err() != nil {
			return err
		}
	}
	return err
}

// Metadata implements mirror.Source.
func (l *link) Metadata(ctx context.Context, topics []string) (*src.Metadata, error) {
	var out *src.Metadata
	err := l.anywhere(ctx, "metadata", func(id types.BrokerID, reply func(func())) {
		m := l.far.metadata(id, topics)
		reply(func() { out = m })
	})
	return out, err
}

// TopicConfigs implements mirror.Source.
func (l *link) TopicConfigs(ctx context.Context, topics []string) (map[string]src.TopicConfigs, error) {
	var out map[string]src.TopicConfigs
	err := l.anywhere(ctx, "configs", func(id types.BrokerID, reply func(func())) {
		m := l.far.topicConfigs(id, topics)
		reply(func() { out = m })
	})
	return out, err
}

// ListOffsets implements mirror.Source.
func (l *link) ListOffsets(ctx context.Context, broker types.BrokerID, queries []src.OffsetQuery) (map[types.TopicPartition]src.OffsetAnswer, error) {
	out := map[types.TopicPartition]src.OffsetAnswer{}
	err := l.ask(ctx, broker, "list offsets", linkTimeout, func(reply func(func())) {
		a := map[types.TopicPartition]src.OffsetAnswer{}
		for _, q := range queries {
			a[q.TopicPartition] = l.far.listOffset(broker, q)
		}
		reply(func() { out = a })
	})
	return out, err
}

// EpochEnds implements mirror.Source.
func (l *link) EpochEnds(ctx context.Context, broker types.BrokerID, queries []src.EpochQuery) (map[types.TopicPartition]src.EpochAnswer, error) {
	out := map[types.TopicPartition]src.EpochAnswer{}
	err := l.ask(ctx, broker, "epoch ends", linkTimeout, func(reply func(func())) {
		a := map[types.TopicPartition]src.EpochAnswer{}
		for _, q := range queries {
			a[q.TopicPartition] = l.far.epochEnd(broker, q)
		}
		reply(func() { out = a })
	})
	return out, err
}

// Lineage implements mirror.Source.
func (l *link) Lineage(ctx context.Context, broker types.BrokerID, queries []src.LineageQuery) (map[types.TopicPartition]src.Lineage, error) {
	var out map[types.TopicPartition]src.Lineage
	err := l.ask(ctx, broker, "lineage", linkTimeout, func(reply func(func())) {
		a := l.far.lineage(broker, queries)
		reply(func() { out = a })
	})
	return out, err
}

// Mirrored implements mirror.Source.
func (l *link) Mirrored(ctx context.Context, broker types.BrokerID, ours string, queries []src.MirroredQuery) (map[types.TopicPartition]src.Mirrored, error) {
	return l.w.mirrored(ctx, l, broker, ours, queries)
}

// Producers implements mirror.Source: nobody says who writes.
func (l *link) Producers(context.Context, types.BrokerID, []types.TopicPartition) (map[types.TopicPartition][]src.Producer, error) {
	return nil, nil
}

// FetchAt implements mirror.Source.
func (l *link) FetchAt(ctx context.Context, broker types.BrokerID, p src.FetchPartition) (*src.FetchedPartition, *src.FetchAnswer, error) {
	a, err := l.fetch(ctx, broker, []src.FetchPartition{p}, 0)
	if err != nil {
		return nil, nil, err
	}
	return &a.Partitions[0], a, nil
}

func (l *link) fetch(ctx context.Context, broker types.BrokerID, asked []src.FetchPartition, wait time.Duration) (*src.FetchAnswer, error) {
	const version = 13
	out := &src.FetchAnswer{Version: version}
	err := l.ask(ctx, broker, "fetch from the source", linkTimeout+wait, func(reply func(func())) {
		l.far.fetch(broker, asked, wait, func(list []src.FetchedPartition) { reply(func() { out.Partitions = list }) })
	})
	return out, err
}

// Groups implements mirror.Source.
func (l *link) Groups(ctx context.Context) ([]src.GroupListing, error) {
	var out []src.GroupListing
	for _, id := range l.far.brokers() {
		var fault error
		err := l.ask(ctx, id, "groups", linkTimeout, func(reply func(func())) {
			l.far.groups(id, func(list []src.GroupListing, err error) {
				reply(func() { out, fault = append(out, list...), err })
			})
		})
		if err = cmp.Or(err, fault); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(out, func(a, b src.GroupListing) int { return cmp.Compare(a.ID, b.ID) })
	return slices.CompactFunc(out, func(a, b src.GroupListing) bool { return a.ID == b.ID }), nil
}

// GroupOffsets implements mirror.Source: whoever coordinates a group answers for it.
func (l *link) GroupOffsets(ctx context.Context, groups []string) map[string]src.GroupOffsets {
	out := map[string]src.GroupOffsets{}
	for _, g := range groups {
		answer := src.GroupOffsets{Err: &src.Error{Kind: src.ErrAnswer, Code: src.CodeNotCoordinator, Sentence: "nobody coordinates the group"}}
		for _, id := range l.far.brokers() {
			var got src.GroupOffsets
			var fault error
			err := l.ask(ctx, id, "group offsets", linkTimeout, func(reply func(func())) {
				l.far.offsets(id, g, func(o src.GroupOffsets, err error) { reply(func() { got, fault = o, err }) })
			})
			if cmp.Or(err, fault) == nil {
				answer = got
				break
			}
		}
		out[g] = answer
	}
	return out
}

// Verb implements mirror.Source.
func (l *link) Verb(ctx context.Context, broker types.BrokerID, verb string, body []byte, patience time.Duration) ([]byte, error) {
	var out []byte
	var fault error
	err := l.ask(ctx, broker, "verb "+verb, patience, func(reply func(func())) {
		l.far.verb(broker, verb, body, func(raw []byte, err error) { reply(func() { out, fault = raw, err }) })
	})
	return out, cmp.Or(err, fault)
}

// NewSession implements mirror.Source.
func (l *link) NewSession(broker types.BrokerID, _ src.SessionOptions) mirror.Session {
	return &linkSession{l: l, broker: broker, wanted: map[types.TopicPartition]src.FetchPartition{}}
}

// linkSession is a fetch session with one broker of the source.
type linkSession struct {
	l      *link
	broker types.BrokerID
	wanted map[types.TopicPartition]src.FetchPartition
	last   *src.FetchAnswer // an earlier answer, for the mutation of R13
}

// Set implements mirror.Session.
func (s *linkSession) Set(p src.FetchPartition) { s.wanted[p.TopicPartition] = p }

// Remove implements mirror.Session.
func (s *linkSession) Remove(tp types.TopicPartition) { delete(s.wanted, tp) }

// Fetch implements mirror.Session.
func (s *linkSession) Fetch(ctx context.Context, lim src.FetchLimits) (*src.FetchAnswer, error) {
	asked := slices.SortedFunc(maps.Values(s.wanted), func(a, b src.FetchPartition) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	a, err := s.l.fetch(ctx, s.broker, asked, lim.MaxWait)
	if err == nil {
		for _, p := range a.Partitions {
			a.RecordBytes += int64(len(p.Records))
		}
	}
	return a, err
}
