package mirror

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"tidemark/internal/batch"
	"tidemark/internal/clock"
	"tidemark/internal/core/meta"
	core "tidemark/internal/core/mirror"
	"tidemark/internal/core/timeline"
	"tidemark/internal/core/types"
	"tidemark/internal/vault"
)

// Abandon takes a failback that was started back, for partitions that have
// accepted nothing of the new source yet (DESIGN §6.4): the list before the start with an own
// entry, writable. Leaders that have made their first cut read the tail back from their vault first.
func (m *Mirrors) Abandon(ctx context.Context, name string, topics []string) ([]string, error) {
	return m.AbandonOf(ctx, name, topics, "")
}

// AbandonOf is Abandon of one start, as the status tells it: the mirror's, or, of an order for topics, theirs.
func (m *Mirrors) AbandonOf(ctx context.Context, name string, topics []string, start string) ([]string, error) {
	if err := m.presentStart(name, start, topics...); err != nil {
		return nil, err
	}
	if err := topicsFollow(m.o.Node.Image(), name, start, topics); err != nil {
		return nil, err
	}
	// Also an order that names none is for the present one: a broker may hear of it late.
	present := m.startOf(name)
	list, err := m.everywhere(ctx, partAbandon, FailoverOrder{Topics: topics, StartID: start}.part(name, present), peerPatience)
	if err != nil {
		return nil, fmt.Errorf("mirror %s: %w; the same command again goes on", name, err)
	}
	var words, refused []string
	for _, o := range list {
		if o.Reason != "" {
			refused = append(refused, o.sentence())
		} else {
			words = append(words, fmt.Sprintf("%s: %s", o.TopicPartition, o.Detail))
		}
	}
	switch {
	case len(list) == 0 && m.isAbandoned(name, start, topics):
		return []string{fmt.Sprintf("start %s was abandoned already; nothing was changed", start)}, nil
	case len(list) == 0:
		return nil, fmt.Errorf("mirror %s: no start is under way: %w", name, ErrState)
	case len(refused) > 0:
		return words, fmt.Errorf("mirror %s: %d partitions were refused: %s: %w", name, len(refused), refused[0], ErrRefusedParts)
	case len(topics) == 0:
		// Nothing is to be started again behind the operator's back.
		err = m.update(ctx, name, func(rec *meta.MirrorRecord) error {
			if err := isPresent(rec, present); err != nil {
				return err
			}
			rec.Want, rec.Cut = meta.WantStopped, nil
			return nil
		})
	}
	return words, err
}

// abandonHere takes starts of partitions led here back.
func (m *Mirrors) abandonHere(ctx context.Context, p part) ([]outcome, error) {
	list := m.ledHere(m.o.Node.Image(), p.isOf)
	out := make([]outcome, len(list))
	r := m.run(p.Mirror)
	if r != nil {
		// A promotion that isn't known to have happened yet has halted its copiers, and
		// counts on the log end that it was made at: none may go on beside it (I-141).
		if _, err := clock.Wait(ctx, clock.Forever, r.promoting); err != nil {
			return nil, err
		}
		defer func() { r.promoting <- struct{}{} }()
	}
	// A proposal of its copier may come first.
	if _, err := m.settle(ctx, list, out, func(l led) (outcome, *awaited) { return m.abandonOne(ctx, r, l, p) }); err != nil {
		return out, err
	}
	for i, l := range list {
		if r != nil && out[i].Reason != "" {
			r.restart(l.id) // its copier goes on
		}
	}
	return out, nil
}

// abandonOne takes back what the start of an order began; empty: whichever it is. Nobody
// copies beside it until its outcome is certain, as beside a promotion (I-251).
func (m *Mirrors) abandonOne(ctx context.Context, r *run, l led, p part) (out outcome, change *awaited) {
	if m.isUnsettled(l.id) {
		return refusedOutcome(l.tp, &core.Refusal{Reason: core.StaleRequest, Detail: "it isn't known yet whether its promotion has happened; try again"}), nil
	}
	m.beginsPromotion(l.id)
	defer func() {
		if change == nil { // also after a panic
			m.settlesPromotion(l.id)
		}
	}()
	if out, change = m.abandonHalted(ctx, r, l, p); change != nil {
		tell := change.done
		change.done = func(applied bool) { m.settlesPromotion(l.id); tell(applied) }
	}
	return out, change
}

func (m *Mirrors) abandonHalted(ctx context.Context, r *run, l led, p part) (outcome, *awaited) {
	fail := func(err error) (outcome, *awaited) { return refusedOutcome(l.tp, err), nil }
	step := core.DefaultPromotionStep
	if r != nil {
		step = int(r.settings.Load().PromotionStep)
		r.halt(l.id)
	}
	own, rec, rev, err := snapshot(ctx, l.part)
	if err != nil {
		return fail(err)
	}
	if p.StartID != "" && rec.Mirror != nil && rec.Mirror.StartID != p.StartID {
		return fail(&core.Refusal{Reason: core.StaleRequest, Detail: fmt.Sprintf("the order takes start %s back, the partition follows %s", p.StartID, rec.Mirror.StartID)})
	}
	if err := core.OfEarlierStart(rec.Mirror, p.TopicStart); err != nil {
		return fail(err)
	}
	if rec.Mirror != nil && rec.Mirror.State == meta.MirrorStarting {
		next, err := core.GoBack(rec, core.Refusal{Reason: core.StaleRequest, Detail: "the operator took the start back"})
		if err != nil {
			return fail(err)
		}
		return outcome{TopicPartition: l.tp, Detail: "writable again, nothing was cut"}, newAwaited(l.id, rev, next)
	}
	if err := core.Abandonable(rec); err != nil {
		return fail(err)
	}
	back, err := m.readBack(ctx, l, own.LogEnd, rec.Mirror.EndBefore, core.BackTo(rec))
	if err != nil {
		return fail(err)
	}
	follows := core.TopicStart(rec.Mirror)
	if own, rec, rev, err = snapshot(ctx, l.part); err != nil {
		return fail(err)
	}
	if rec.Mirror == nil || core.TopicStart(rec.Mirror) != follows {
		return fail(&core.Refusal{Reason: core.StaleRequest, Detail: "the partition was started anew meanwhile"})
	}
	next, err := core.Abandon(rec, core.AbandonRequest{TimelineID: m.o.IDs.Fresh(), Step: int32(step), Own: &own})
	if err != nil {
		return fail(err)
	}
	words := fmt.Sprintf("abandoned at offset %d in leader epoch %d", own.LogEnd, next.LeaderEpoch)
	if back > 0 {
		words += fmt.Sprintf(", %d batches read back from the vault", back)
	}
	return outcome{TopicPartition: l.tp, Detail: words}, newAwaited(l.id, rev, next)
}

// vaultReader reads what the vault keeps.
type vaultReader interface {
	Batches(id string, visit func(h *batch.Header, raw []byte) error) error
}

// readBack appends what the leader's first cut took, from its vault, batch by
// batch as it was, once the checkpoint says whose records these are. The log must
// reach its end before the start again: an abandon loses nothing.
func (m *Mirrors) readBack(ctx context.Context, l led, from, to types.Offset, before timeline.Checkpoint) (batches int, err error) {
	if from >= to {
		return 0, nil
	}
	kept, ok := m.o.Vault.(vaultReader)
	if !ok {
		return 0, errors.New("there is no vault to read the cut records back from")
	}
	entries, err := m.o.Vault.List()
	if err != nil {
		return 0, err
	}
	entries = slices.DeleteFunc(entries, func(e vault.Entry) bool {
		return e.TopicID != l.id.Topic || e.Partition != l.id.Number || e.Damaged != "" || e.From > from || e.To < to
	})
	if len(entries) == 0 {
		return 0, fmt.Errorf("the vault no longer has what the first cut took of %s (offsets %d to %d): fail over instead, and replay what there is", l.tp, from, to-1)
	}
	if err := l.part.Do(ctx, func(o Owned) error { return o.Log().SetTimelineCheckpoint(before.Format()) }); err != nil {
		return 0, err
	}
	b := backReader{ctx: ctx, part: l.part}
	err = kept.Batches(entries[len(entries)-1].ID, func(h *batch.Header, raw []byte) error {
		if h.BaseOffset < from {
			return nil
		}
		return b.take(h, raw)
	})
	if err == nil {
		err = b.append()
	}
	if err != nil {
		return b.batches, err
	}
	return b.batches, l.part.Do(ctx, func(o Owned) error {
		if err := o.Log().Flush(); err != nil {
			return err
		}
		if end := o.Log().View().LogEnd; end < to {
			return fmt.Errorf("the log of %s ends at %d and not at %d after the vault's records", l.tp, end, to)
		}
		return nil
	})
}

// backBytes is how much of the vault's records is held in memory at a time: a cut may have
// taken more than the node has.
const backBytes = 8 << 20

// backReader appends batches that the vault has kept.
type backReader struct {
	ctx     context.Context
	part    Partition
	raw     []byte
	last    types.LeaderEpoch // of raw's last batch
	batches int
}

func (b *backReader) take(h *batch.Header, raw []byte) error {
	b.raw, b.last, b.batches = append(b.raw, raw...), h.PartitionLeaderEpoch, b.batches+1
	if len(b.raw) < backBytes {
		return nil
	}
	return b.append()
}

func (b *backReader) append() error {
	if len(b.raw) == 0 {
		return nil
	}
	defer func() { b.raw = b.raw[:0] }()
	return b.part.Do(b.ctx, func(o Owned) error {
		a, err := o.Log().AppendAsFollower(b.raw, b.last)
		if err == nil {
			err = a.StoppedBy
		}
		return err
	})
}

// AcceptGap lets partitions that stand at a gap of their source go on behind it, once (R28).
func (m *Mirrors) AcceptGap(ctx context.Context, name string, topics []string) ([]string, error) {
	if _, ok := m.o.Node.Image().Mirror(name); !ok {
		return nil, fmt.Errorf("%w: %s", ErrUnknownMirror, name)
	}
	list, err := m.everywhere(ctx, partGap, part{Mirror: name, Topics: topics}, peerPatience)
	if err != nil {
		return nil, fmt.Errorf("mirror %s: %w; try again", name, err)
	}
	var words []string
	for _, o := range list {
		if o.Reason == "" {
			words = append(words, o.String()+": goes on behind the gap, once; what is held here goes to the vault")
		}
	}
	if len(words) == 0 {
		return nil, fmt.Errorf("mirror %s: no partition stands at a gap: %w", name, ErrState)
	}
	if r := m.run(name); r != nil {
		for _, c := range r.all() {
			c.send(core.RetryNow{})
		}
	}
	return words, nil
}
