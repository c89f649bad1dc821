package mirror

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"tidemark/internal/config"
	"tidemark/internal/core/meta"
	core "tidemark/internal/core/mirror"
	"tidemark/internal/core/replica"
	"tidemark/internal/core/types"
	"tidemark/internal/log"
	"tidemark/internal/source"
)

// looks is what a verb has seen of its source: one look for many partitions,
// with what is needed to ask on.
type looks struct {
	client Source
	asks   mirroredAsker
	at     map[types.TopicPartition]*looked
	faults map[types.TopicPartition]error
}

// clientOf gives a client of its own to a mirror's source, which done closes: the
// run's ends its connections when it learns which cluster they lead to.
func (m *Mirrors) clientOf(rec *meta.MirrorRecord) (client Source, done func(), err error) {
	s, err := settingsOf(m.o.Config.Mirror, rec.Settings)
	if err != nil {
		return nil, nil, err
	}
	cfg, err := clientConfig(rec, s)
	if err != nil {
		return nil, nil, err
	}
	client = m.connect(cfg, rec.SourceClusterID)
	return client, client.Close, nil
}

// lookAll looks at the source's partitions, as a copier's look-up does (R18).
func lookAll(ctx context.Context, client Source, asks mirroredAsker, md *source.Metadata, list []led) *looks {
	topics := make(map[string]*source.Topic, len(md.Topics))
	for i := range md.Topics {
		topics[md.Topics[i].Name] = &md.Topics[i]
	}
	out := &looks{client: client, asks: asks, at: map[types.TopicPartition]*looked{}, faults: map[types.TopicPartition]error{}}
	byLeader := map[types.BrokerID][]*looked{}
	for _, l := range list {
		k, failed := leaderOf(&copier{tp: l.tp, gone: goneLooks}, md, topics[l.tp.Topic])
		if failed.Reason != "" {
			out.faults[l.tp] = &core.Refusal{Reason: failed.Reason, Detail: failed.Detail}
			continue
		}
		k.source.ClusterID = md.ClusterID
		byLeader[k.leader.broker] = append(byLeader[k.leader.broker], k)
	}
	for _, broker := range slices.Sorted(maps.Keys(byLeader)) {
		out.ends(ctx, broker, byLeader[broker])
	}
	return out
}

func (l *looks) ends(ctx context.Context, broker types.BrokerID, list []*looked) {
	starts, ends, told, err := rangesOf(ctx, l.client, broker, list)
	if err == nil && told == nil {
		err = l.asks.ask(ctx, l.client, broker, list)
	}
	for _, k := range list {
		tp := k.c.tp
		switch {
		case err != nil:
			l.faults[tp] = err
			continue
		case starts[tp].Code != 0 || ends[tp].Code != 0:
			code := max(starts[tp].Code, ends[tp].Code)
			l.faults[tp] = &core.Refusal{Reason: reasonOfCode(code), Detail: "the source answers " + code.String() + " for its offsets"}
			continue
		}
		if told != nil {
			if failed := k.takeLineage(told[tp]); failed.Reason != "" {
				l.faults[tp] = &core.Refusal{Reason: failed.Reason, Detail: failed.Detail}
				continue
			}
		}
		k.source.LogStart, k.source.LogEnd = starts[tp].Offset, max(starts[tp].Offset, ends[tp].Offset)
		l.at[tp] = k
	}
}

// rangesOf asks one leader for log starts and ends, fenced by the look's epochs, and for timelines.
func rangesOf(ctx context.Context, client Source, broker types.BrokerID, list []*looked) (starts, ends map[types.TopicPartition]source.OffsetAnswer, told map[types.TopicPartition]source.Lineage, err error) {
	queries := make([]source.OffsetQuery, len(list))
	for i, k := range list {
		queries[i] = source.OffsetQuery{TopicPartition: k.c.tp, CurrentEpoch: k.leader.epoch, Timestamp: source.Earliest}
	}
	if starts, err = client.ListOffsets(ctx, broker, queries); err != nil {
		return nil, nil, nil, err
	}
	for i := range queries {
		queries[i].Timestamp = source.Latest
	}
	if ends, err = client.ListOffsets(ctx, broker, queries); err != nil {
		return nil, nil, nil, err
	}
	told, err = lineages(ctx, client, broker, list)
	return starts, ends, told, err
}

// asker asks the source's leader of one partition whether the logs agree, without taking records.
func (l *looks) asker(ctx context.Context, k *looked) core.Ask {
	return func(r replica.Request) (replica.Reply, error) {
		reply := replica.Reply{To: r, LogStart: types.NoOffset, HighWatermark: types.NoOffset}
		p, a, err := l.client.FetchAt(ctx, k.leader.broker, source.FetchPartition{
			TopicPartition: k.c.tp, TopicID: k.leader.topic, Offset: r.Offset, CurrentEpoch: r.LeaderEpoch, LastEpoch: r.LastEpoch, MaxBytes: 1,
		})
		if err != nil {
			return reply, err
		}
		version := a.Version
		reply.LogStart, reply.HighWatermark = p.LogStart, p.HighWatermark
		code, diverging, fault := p.Code, p.Diverging, p.Err
		a.Release()
		switch {
		case fault != nil:
			return reply, fault
		case code == source.CodeOffsetOutOfRange:
			reply.Kind, reply.LogStart = replica.AnswerOutOfRange, types.NoOffset
		case code == source.CodeFencedLeaderEpoch:
			reply.Kind = replica.AnswerFenced
		case code == source.CodeUnknownLeaderEpoch:
			reply.Kind = replica.AnswerUnknownEpoch
		case code != 0:
			return reply, &core.Refusal{Reason: reasonOfCode(code), Detail: "the source answers " + code.String()}
		case diverging != nil:
			reply.Kind, reply.Diverging = replica.AnswerDiverging, replica.EpochEnd{Epoch: diverging.Epoch, End: diverging.End}
		case version < 12 && r.LastEpoch >= 0:
			return l.byEpochEnd(ctx, k, reply)
		}
		if reply.Kind == replica.AnswerData && reply.LogStart >= r.Offset {
			yes, err := l.vouches(ctx, k, r.LastEpoch, r.Offset)
			if err != nil {
				return reply, err
			}
			reply.Vouch = replica.VouchNo
			if yes {
				reply.Vouch = replica.VouchYes
			}
		}
		return reply, nil
	}
}

// byEpochEnd asks what a Fetch below v12 doesn't say.
func (l *looks) byEpochEnd(ctx context.Context, k *looked, reply replica.Reply) (replica.Reply, error) {
	r := reply.To
	answers, err := l.client.EpochEnds(ctx, k.leader.broker, []source.EpochQuery{{TopicPartition: k.c.tp, CurrentEpoch: r.LeaderEpoch, Epoch: r.LastEpoch}})
	if err != nil {
		return reply, err
	}
	a := answers[k.c.tp]
	if a.Code == 0 && a.End >= 0 && (a.Epoch < r.LastEpoch || a.End < r.Offset) {
		reply.Kind, reply.Diverging = replica.AnswerDiverging, replica.EpochEnd{Epoch: a.Epoch, End: a.End}
	}
	return reply, nil
}

// vouches asks whether the source's history reaches down to an epoch (R28).
func (l *looks) vouches(ctx context.Context, k *looked, epoch types.LeaderEpoch, offset types.Offset) (bool, error) {
	return vouched(ctx, l.client, k.c.tp, &k.leader, epoch, offset)
}

// vouched is the question of core.AskVouch.
func vouched(ctx context.Context, client Source, tp types.TopicPartition, leader *sourceLeader, epoch types.LeaderEpoch, offset types.Offset) (bool, error) {
	if epoch == leader.epoch && !leader.isMirror {
		// A leader that clients write to has its own epoch in its history (R3). Asked,
		// it answers with its log end, as for an epoch that it does not know.
		return true, nil
	}
	ask := func(e types.LeaderEpoch) (source.EpochAnswer, error) {
		answers, err := client.EpochEnds(ctx, leader.broker, []source.EpochQuery{{TopicPartition: tp, CurrentEpoch: leader.epoch, Epoch: e}})
		return answers[tp], err
	}
	a, err := ask(epoch)
	if err != nil || a.Code == 0 && a.Epoch == epoch && a.End > offset {
		return err == nil, err
	}
	a, err = ask(epoch + 1)
	return err == nil && a.Code == 0 && a.Epoch == epoch, err
}

// snapshot is a partition's log and record at one moment, and the base of the batch that holds an offset.
func snapshot(ctx context.Context, p Partition) (own core.Own, rec *meta.PartitionRecord, rev meta.Revision, err error) {
	err = p.Do(ctx, func(o Owned) error {
		rec, rev = o.Record()
		if rec == nil || o.Log() == nil {
			return errors.New("the partition can't be read here")
		}
		if !o.Leading() {
			return errors.New("this node does not lead the partition at the moment")
		}
		own = (&copier{}).own(o)
		return nil
	})
	return own, rec, rev, err
}

// batchBase gives the base of the batch that holds an offset, the offset itself
// where none does: a cut within a batch takes it whole.
func batchBase(l *log.Log) func(types.Offset) types.Offset {
	return func(o types.Offset) types.Offset {
		raw, h, err := batchAt(l, o)
		if err != nil || raw == nil || h.BaseOffset > o || h.LastOffset() < o {
			return o
		}
		return h.BaseOffset
	}
}

// dryRun plays a start at one partition.
func (m *Mirrors) dryRun(ctx context.Context, seen *looks, l led, pol core.Policy) (plan core.Plan, own core.Own, rec *meta.PartitionRecord, rev meta.Revision, err error) {
	if err = seen.faults[l.tp]; err != nil {
		return plan, own, nil, 0, err
	}
	k := seen.at[l.tp]
	if k == nil {
		return plan, own, nil, 0, fmt.Errorf("%s was not looked at", l.tp)
	}
	if own, rec, rev, err = snapshot(ctx, l.part); err != nil {
		return plan, own, rec, rev, err
	}
	plan, err = core.DryRun(rec, pol, k.source, &own, batchBase(l.part.Log()), seen.asker(ctx, k))
	return plan, own, rec, rev, err
}

// policyOf is what core/mirror must know of a partition for a start.
func (m *Mirrors) policyOf(l led, s *config.Mirror) core.Policy {
	me := m.o.Node.Me()
	return core.Policy{
		ClusterID: m.o.Node.ClusterID(), TopicID: l.id.Topic, Me: me.ID, BrokerEpoch: me.Epoch,
		EpochHeadroom: s.EpochHeadroom, ContinueOverGaps: s.GapPolicy == "continue", Rules: m.o.Rules.Core,
	}
}
