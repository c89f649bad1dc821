package mirror

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"tidemark/internal/broker/coordinator/transactions"
	"tidemark/internal/core/meta"
	core "tidemark/internal/core/mirror"
	"tidemark/internal/core/types"
	"tidemark/internal/wire"
)

// The source's side of a switchover: its fences, as another cluster's mirror asks for
// them, and as an operator here takes them back.

// holdsFence reports whether a partition is closed for who asks.
func (q *asked) holdsFence(rec *meta.PartitionRecord) bool {
	return rec != nil && rec.Fence != nil && rec.Fence.IsOfStart(meta.Fence{ClusterID: q.ClusterID, StartID: q.StartID}) &&
		(rec.Fence.Attempt.IsZero() || rec.Fence.Attempt == q.Attempt)
}

// forMirror answers what another cluster's mirror asks of its source.
func (m *Mirrors) forMirror(ctx context.Context, what string, body []byte) ([]byte, error) {
	var q asked
	if err := json.Unmarshal(body, &q); err != nil || q.ClusterID == "" || q.StartID == "" || len(q.Topics) == 0 {
		return nil, wire.Errorf(wire.ErrInvalidRequest, "the body of %s can't be read", what)
	}
	switch what {
	case askReverse:
		return nil, m.takeReverse(ctx, &q)
	case askReverseLook:
		return nil, m.lookReverse(ctx, &q)
	case askSettle:
		return m.settleSource(ctx, &q)
	}
	image := m.o.Node.Image()
	_, hasTxns := image.TopicByName(transactions.StateTopic)
	f := meta.Fence{ClusterID: q.ClusterID, StartID: q.StartID, At: m.o.Node.Now()}
	if image.FeatureLevel(meta.FeatureMetadata) >= meta.LevelAttempts {
		f.Attempt = q.Attempt
	}
	change := fenceChange(what, f)
	var out []fenced
	for _, t := range q.Topics {
		for _, n := range t.Partitions {
			f := fenced{TopicPartition: types.TopicPartition{Topic: t.Name, Partition: n}, LogEnd: types.NoOffset, LeaderEpoch: types.NoLeaderEpoch, Transactions: hasTxns}
			if err := m.changeFence(ctx, meta.PartitionID{Topic: t.ID, Number: n}, &f, change); err != nil {
				f.Fault = err.Error()
			}
			out = append(out, f)
		}
	}
	m.tellFences(out, fmt.Sprintf("start %s of cluster %s, switchover %d", q.StartID, q.ClusterID, q.Attempt.Number))
	return json.Marshal(out)
}

// fenceChange is what a mirror's question makes of a partition's record.
func fenceChange(what string, f meta.Fence) func(*meta.PartitionRecord) (meta.PartitionRecord, error) {
	return func(rec *meta.PartitionRecord) (meta.PartitionRecord, error) {
		switch {
		case what == askFence:
			return core.CloseForSwitchover(rec, f)
		case what == askReopen && (f.Attempt.IsZero() || rec.Fence != nil && rec.Fence.Attempt.IsZero()):
			return core.Reopen(rec, f.StartID)
		}
		return core.TakeBack(rec, f)
	}
}

// changeFence writes one partition's fence and gives the log end in the new epoch,
// once that is committed: no client's write follows it.
func (m *Mirrors) changeFence(ctx context.Context, id meta.PartitionID, f *fenced, change func(*meta.PartitionRecord) (meta.PartitionRecord, error)) error {
	for try := 1; ; try++ {
		p, held := m.o.Node.Partition(id.Topic, id.Number)
		if !held {
			return errors.New("this broker doesn't hold the partition")
		}
		_, rec, rev, err := snapshot(ctx, p)
		if err != nil {
			return err
		}
		next, err := change(rec)
		if err != nil {
			return err
		}
		if string(next.Encode()) != string(rec.Encode()) {
			refused, err := m.writeAll(ctx, []*awaited{newAwaited(id, rev, next)})
			if err != nil {
				return err
			}
			switch {
			case refused > 0 && try < commitTries:
				continue
			case refused > 0:
				return fmt.Errorf("others wrote its record each of the %d times that its fence was to change; try again", try)
			}
			f.Opened, f.closed = rec.Fence != nil && next.Fence == nil, f.closed || rec.Fence == nil && next.Fence != nil
		}
		if err := awaitServing(ctx, p, next.LeaderEpoch); err != nil {
			return err
		}
		err = p.Do(ctx, func(o Owned) error {
			if rec, _ = o.Record(); rec == nil || o.Log() == nil || !o.Leading() {
				return errors.New("this broker doesn't lead the partition")
			}
			if next.Fence != nil && (rec.Fence == nil || *rec.Fence != *next.Fence) {
				return errors.New("its fence was taken back meanwhile")
			}
			// Together: where nothing is open, the end is final.
			f.LeaderEpoch, f.LogEnd, f.Open = rec.LeaderEpoch, o.Log().View().LogEnd, openOf(o.Log())
			return nil
		})
		if err == nil && f.LeaderEpoch != next.LeaderEpoch && try < commitTries {
			continue // an election in between: what the fence said holds in that epoch too
		}
		return err
	}
}

// Reopen opens what a switchover closed here and did not take back, by an
// operator's word. Whoever opens a source whose mirror was promoted has two primaries.
func (m *Mirrors) Reopen(ctx context.Context, topics []string) ([]string, error) {
	list, err := m.everywhere(ctx, partReopen, part{Topics: topics}, peerPatience)
	var words []string
	for _, o := range list {
		if o.Reason != "" {
			err = errors.Join(err, errors.New(o.sentence()))
		} else {
			words = append(words, o.String()+": clients may write again")
		}
	}
	left := m.closedOf(topics, list)
	for _, tp := range left {
		err = errors.Join(err, fmt.Errorf("%s is still closed for a switchover: no leader of it has answered; try again once it has one: %w", tp, ErrState))
	}
	if len(list)+len(left) == 0 && err == nil {
		err = fmt.Errorf("no partition is closed for a switchover: %w", ErrState)
	}
	return words, err
}

// closedOf lists the partitions that are closed for a switchover, and that no leader spoke for.
func (m *Mirrors) closedOf(topics []string, spoken []outcome) []types.TopicPartition {
	image, p := m.o.Node.Image(), part{Topics: topics}
	var left []types.TopicPartition
	for t := range image.TopicsByName() {
		for e := range image.PartitionsOf(t.ID) {
			tp := types.TopicPartition{Topic: t.Record.Name, Partition: e.ID.Number}
			if e.Record != nil && e.Record.Fence != nil && p.names(t.Record.Name) &&
				!slices.ContainsFunc(spoken, func(o outcome) bool { return o.TopicPartition == tp }) {
				left = append(left, tp)
			}
		}
	}
	return left
}

func (m *Mirrors) reopenHere(ctx context.Context, p part) ([]outcome, error) {
	list := m.ledHere(m.o.Node.Image(), func(t *meta.Topic, e *meta.Partition) bool { return e.Record.Fence != nil && p.names(t.Record.Name) })
	out, fences := make([]outcome, len(list)), make([]fenced, len(list))
	for i, l := range list {
		out[i].TopicPartition, fences[i].TopicPartition = l.tp, l.tp
		err := m.changeFence(ctx, l.id, &fences[i], func(rec *meta.PartitionRecord) (meta.PartitionRecord, error) { return core.Reopen(rec, "") })
		if err != nil {
			out[i] = refusedOutcome(l.tp, err)
		}
	}
	m.tellFences(fences, "an operator's order to reopen")
	return out, nil
}
