package source

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/core/types"
	"tidemark/internal/wire"
)

// MirroredQuery asks what a source mirrored of a partition, by topic id.
type MirroredQuery struct {
	types.TopicPartition
	TopicID types.TopicID
}

// Mirrored is what a source that speaks KIP-1279 says that it copied of one
// partition from the cluster that asks.
type Mirrored struct {
	// Mirror is the mirror's name there, State the partition's state in it in the
	// proposal's words (MirrorStopped, …); both empty if no mirror of this cluster has it.
	Mirror, State string
	// LastEpoch and LastOffset are the last mirrored epoch (LME) and offset (LMO, the end of
	// what was mirrored), -1 where the source knows none.
	LastEpoch  types.LeaderEpoch
	LastOffset types.Offset
}

// The proposal's names of states that a reader tells apart.
const (
	MirrorStopped = "STOPPED"
	MirrorUnknown = "UNKNOWN"
)

// withoutKIP1279 is the way out of every error of Mirrored.
const withoutKIP1279 = "mirror.kip1279.enable=false mirrors without KIP-1279"

// Mirrored asks a broker by ListClusterMirrors and DescribeClusterMirrors (KIP-1279, keys 98
// and 99 of its prototype) what its cluster mirrored from cluster ours; each partition may be
// named once. A broker that doesn't announce both isn't asked: then the answer is nil.
// Otherwise every query has an answer. What was said and can't be right is ErrProtocol as a whole:
// whoever answers for another cluster, or for what wasn't asked, is believed in nothing.
func (c *Client) Mirrored(ctx context.Context, broker types.BrokerID, ours string, queries []MirroredQuery) (map[types.TopicPartition]Mirrored, error) {
	cn, err := c.brokerConn(ctx, broker, purposeRequests)
	if err != nil {
		return nil, err
	}
	for _, key := range []wire.Key{wire.KeyListClusterMirrors, wire.KeyDescribeClusterMirrors} {
		if _, offered := cn.versions[int16(key)]; !offered {
			return nil, nil
		}
	}
	return mirroredOver(ctx, cn, c.cfg.RequestTimeout, ours, queries)
}

// MirroredOver is Client.Mirrored over something else than a connection: the
// simulator's network. The broker speaks what this program speaks.
func MirroredOver(ctx context.Context, over Exchange, ours string, queries []MirroredQuery) (map[types.TopicPartition]Mirrored, error) {
	return mirroredOver(ctx, over, 0, ours, queries)
}

func mirroredOver(ctx context.Context, over line, timeout time.Duration, ours string, queries []MirroredQuery) (map[types.TopicPartition]Mirrored, error) {
	a := mirroredAnswers{line: over, timeout: timeout, ours: ours, topics: map[string]types.TopicID{}, out: make(map[types.TopicPartition]Mirrored, len(queries))}
	for _, q := range queries {
		a.topics[q.Topic] = q.TopicID
	}
	if err := a.ask(ctx, queries); err != nil {
		return nil, fmt.Errorf("%w; %s", err, withoutKIP1279)
	}
	return a.out, nil
}

// mirroredAnswers gathers what one broker says.
type mirroredAnswers struct {
	line    line
	timeout time.Duration // of one request
	ours    string
	topics  map[string]types.TopicID // asked for
	out     map[types.TopicPartition]Mirrored
}

// request asks once. The answer's memory is left to the garbage collector.
func (a *mirroredAnswers) request(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	version, err := a.line.version(req.Key())
	if err != nil {
		return nil, err
	}
	req.SetVersion(version)
	resp, _, err := a.line.roundTrip(ctx, req, a.timeout, controlBytesMax, nil)
	return resp, err
}

const opDescribeMirrors = "DescribeClusterMirrors"

func (a *mirroredAnswers) ask(ctx context.Context, queries []MirroredQuery) error {
	listed, err := a.list(ctx)
	if err != nil {
		return err
	}
	for chunk := range slices.Chunk(queries, wire.MirrorLookupsMax) {
		asked := make(map[types.TopicPartition]bool, len(chunk))
		req := &wire.DescribeClusterMirrorsRequest{ClusterID: &a.ours}
		grouped(chunk, func(q MirroredQuery) types.TopicPartition { return q.TopicPartition },
			func(name string) { req.Lookups = append(req.Lookups, wire.MirrorLookup{TopicID: a.topics[name]}) },
			func(q MirroredQuery) {
				l := &req.Lookups[len(req.Lookups)-1]
				l.Partitions = append(l.Partitions, q.Partition)
				asked[q.TopicPartition] = true
			})
		mirrors, err := a.describe(ctx, req)
		if err != nil {
			return err
		}
		for _, m := range mirrors {
			if err := a.take(m, func(tp types.TopicPartition) bool { return asked[tp] }); err != nil {
				return err
			}
		}
	}
	if err := a.describeListed(ctx, queries, listed); err != nil {
		return err
	}
	for _, q := range queries {
		if _, ok := a.out[q.TopicPartition]; !ok {
			a.out[q.TopicPartition] = Mirrored{LastEpoch: types.NoLeaderEpoch, LastOffset: types.NoOffset}
		}
	}
	return nil
}

// list gives the mirror of our cluster that each topic asked for is listed under.
func (a *mirroredAnswers) list(ctx context.Context) (map[string]string, error) {
	kr, err := a.request(ctx, &wire.ListClusterMirrorsRequest{TopicNames: true})
	if err != nil {
		return nil, err
	}
	resp := kr.(*wire.ListClusterMirrorsResponse)
	if resp.ErrorCode != 0 {
		return nil, answerError(a.line.name(), "ListClusterMirrors", Code(resp.ErrorCode), textOf(resp.ErrorMessage))
	}
	listed := map[string]string{}
	for _, m := range resp.Mirrors {
		if m.Name == "" {
			return nil, protocolError(a.line.name(), "ListClusterMirrors", "a mirror without a name")
		}
		for _, t := range m.TopicNames {
			if _, ok := a.topics[t]; ok && m.SourceClusterID == a.ours {
				listed[t] = m.Name
			}
		}
	}
	return listed, nil
}

// describe asks for mirrors, and refuses an answer for another cluster than ours.
func (a *mirroredAnswers) describe(ctx context.Context, req *wire.DescribeClusterMirrorsRequest) ([]wire.DescribedClusterMirror, error) {
	kr, err := a.request(ctx, req)
	if err != nil {
		return nil, err
	}
	resp := kr.(*wire.DescribeClusterMirrorsResponse)
	if resp.ErrorCode != 0 {
		return nil, answerError(a.line.name(), opDescribeMirrors, Code(resp.ErrorCode), textOf(resp.ErrorMessage))
	}
	for _, m := range resp.Mirrors {
		switch {
		case m.ErrorCode != 0:
			return nil, answerError(a.line.name(), opDescribeMirrors+" of "+m.Name, Code(m.ErrorCode), textOf(m.ErrorMessage))
		case m.Name == "":
			return nil, protocolError(a.line.name(), opDescribeMirrors, "a mirror without a name")
		case m.SourceClusterID != a.ours:
			return nil, protocolError(a.line.name(), opDescribeMirrors, "mirror %s is of cluster %q; %s was asked for", m.Name, m.SourceClusterID, a.ours)
		}
	}
	return resp.Mirrors, nil
}

func textOf(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// take adds a mirror's partitions. Of two mirrors that had a partition, the one
// that got further counts, but one that isn't stopped goes over one that is.
func (a *mirroredAnswers) take(m wire.DescribedClusterMirror, asked func(types.TopicPartition) bool) error {
	seen := map[types.TopicPartition]bool{}
	for _, t := range m.Topics {
		for _, p := range t.Partitions {
			tp := types.TopicPartition{Topic: t.Name, Partition: p.Partition}
			switch {
			case !asked(tp):
				return protocolError(a.line.name(), opDescribeMirrors, "mirror %s: an answer for %s, which was not asked for", m.Name, tp)
			case seen[tp]:
				return protocolError(a.line.name(), opDescribeMirrors, "mirror %s: two answers for %s", m.Name, tp)
			case p.State == "":
				return protocolError(a.line.name(), opDescribeMirrors, "mirror %s: %s has no state", m.Name, tp)
			case p.LastMirrorEpoch < types.NoLeaderEpoch || p.LastMirrorOffset < types.NoOffset:
				return protocolError(a.line.name(), opDescribeMirrors, "mirror %s: %s was mirrored up to epoch %d, offset %d", m.Name, tp, p.LastMirrorEpoch, p.LastMirrorOffset)
			}
			seen[tp] = true
			a.merge(tp, Mirrored{Mirror: m.Name, State: p.State, LastEpoch: p.LastMirrorEpoch, LastOffset: p.LastMirrorOffset})
		}
	}
	return nil
}

func (a *mirroredAnswers) merge(tp types.TopicPartition, next Mirrored) {
	before, ok := a.out[tp]
	if !ok {
		a.out[tp] = next
		return
	}
	best := before
	if next.LastEpoch > before.LastEpoch || next.LastEpoch == before.LastEpoch && next.LastOffset > before.LastOffset {
		best.LastEpoch, best.LastOffset = next.LastEpoch, next.LastOffset
		if before.State == MirrorStopped {
			best.Mirror, best.State = next.Mirror, next.State
		}
	}
	if before.State == MirrorStopped && next.State != MirrorStopped {
		best.Mirror, best.State = next.Mirror, next.State
	}
	a.out[tp] = best
}

// describeListed asks by name for topics that are listed under a mirror of our
// cluster while the look-up said nothing of a partition: one that is just being started has no last
// epoch to tell. A topic that its mirror doesn't describe at all is UNKNOWN; of a partition that a
// described topic lacks nothing was ever copied.
func (a *mirroredAnswers) describeListed(ctx context.Context, queries []MirroredQuery, listed map[string]string) error {
	missing := map[string][]types.TopicPartition{} // by mirror
	var names []string
	for _, q := range queries {
		name, ok := listed[q.Topic]
		if _, told := a.out[q.TopicPartition]; told || !ok {
			continue
		}
		if missing[name] == nil {
			names = append(names, name)
		}
		missing[name] = append(missing[name], q.TopicPartition)
	}
	if len(names) == 0 {
		return nil
	}
	mirrors, err := a.describe(ctx, &wire.DescribeClusterMirrorsRequest{Names: names, ClusterID: &a.ours})
	if err != nil {
		return err
	}
	described := map[string]bool{}
	for _, m := range mirrors {
		wanted := missing[m.Name]
		if wanted == nil {
			return protocolError(a.line.name(), opDescribeMirrors, "mirror %s was not asked for", m.Name)
		}
		only := m
		only.Topics = nil
		for _, t := range m.Topics {
			described[t.Name] = described[t.Name] || len(t.Partitions) > 0
			part := wire.DescribedMirrorTopic{Name: t.Name}
			for _, p := range t.Partitions {
				if slices.Contains(wanted, types.TopicPartition{Topic: t.Name, Partition: p.Partition}) {
					part.Partitions = append(part.Partitions, p)
				}
			}
			only.Topics = append(only.Topics, part)
		}
		if err := a.take(only, func(types.TopicPartition) bool { return true }); err != nil {
			return err
		}
	}
	for name, list := range missing {
		for _, tp := range list {
			if !described[tp.Topic] {
				a.out[tp] = Mirrored{Mirror: name, State: MirrorUnknown, LastEpoch: types.NoLeaderEpoch, LastOffset: types.NoOffset}
			}
		}
	}
	return nil
}
