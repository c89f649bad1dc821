package sim

import (
	"context"

	"tidemark/internal/core/meta"
	"tidemark/internal/core/timeline"
	"tidemark/internal/core/types"
	src "tidemark/internal/source"
)

// Clusters that speak KIP-1279 to each other (MirrorsOptions.KIP1279, docs/adr/0016): none
// tells its timelines or takes another's verbs, each says what it mirrored last. Both
// ends are production code, frame by frame: the look-up (source.MirroredOver) and
// the broker's API. Checkers know what the derived entries of a list stand for.

// mirrored asks a broker of the source what it mirrored of cluster ours.
func (w *mirrors) mirrored(ctx context.Context, l *link, broker types.BrokerID, ours string, queries []src.MirroredQuery) (map[types.TopicPartition]src.Mirrored, error) {
	f, ok := l.far.(tideFar)
	if !ok || !w.o.KIP1279 {
		return nil, nil
	}
	var image *meta.Image
	told, err := src.MirroredOver(ctx, func(ctx context.Context, request []byte) (answer []byte, err error) {
		err = l.ask(ctx, broker, "KIP-1279 frame", linkTimeout, func(reply func(func())) {
			at := f.c.machine(broker)
			at.task(func() {
				shown := at.node.Image()
				raw, fault := at.node.Answer(at.node.Context(), append([]byte(nil), request...))
				if fault == nil && raw != nil {
					reply(func() { answer, image = raw, shown })
				}
			})
		})
		return answer, err
	}, ours, queries)
	if err == nil {
		for _, q := range queries {
			w.check.derive(f.c.id, image, q, told[q.TopicPartition])
		}
	}
	return told, err
}

// derivedEntry is an entry of a partition's list. Ids follow from cluster and topic,
// so that partitions share them.
type derivedEntry struct {
	part meta.PartitionID
	id   string
}

// derive takes note of what an entry that follows from a KIP-1279 answer stands for:
// the entries of the source's own list from there on, as the broker that answered knew it.
func (a *arbiter) derive(sourceID string, image *meta.Image, q src.MirroredQuery, m src.Mirrored) {
	part := meta.PartitionID{Topic: q.TopicID, Number: q.Partition}
	rec, _ := image.Partition(part.Topic, part.Number)
	if rec == nil {
		return
	}
	a.w.k.probe("kip1279: " + m.State)
	e := timeline.Root(sourceID, q.TopicID)
	if m.LastEpoch >= 0 {
		a.w.k.probe("kip1279: a last mirrored epoch")
		e = timeline.TakenOver(sourceID, q.TopicID, timeline.LastMirrored{Epoch: m.LastEpoch, End: m.LastOffset}, m.LastOffset)
	}
	var meant timeline.List
	for _, own := range rec.Timelines {
		whole := a.derived[derivedEntry{part, own.ID}]
		if len(whole) == 0 {
			whole = timeline.List{own}
		}
		for _, real := range whole {
			if real.FirstEpoch > m.LastEpoch {
				meant = append(meant, real)
			}
		}
	}
	a.derived[derivedEntry{part, e.ID}] = meant
}

// owner is the entry of a list that names an epoch's timeline, -1 if none does.
func owner(l timeline.List, epoch types.LeaderEpoch) int {
	at := -1
	for i, e := range l {
		if e.FirstEpoch <= epoch {
			at = i
		}
	}
	return at
}

// survives reports whether a list names the grain's timeline for its epoch, and
// begins nothing else at or below it (R17, R19).
func (a *arbiter) survives(g *grain, l timeline.List) bool {
	i := a.owner(g, l)
	return i >= 0 && (i+1 == len(l) || g.next <= l[i+1].FirstOffset)
}

// isOf is survives for what lies in a log. An entry that follows from a KIP-1279 answer begins
// where what was mirrored was committed, and the history that it stands for not before the
// source's promotion: what lies between was cut, and came back from the source.
func (a *arbiter) isOf(g *grain, l timeline.List) bool {
	i := a.owner(g, l)
	if i < 0 || i+1 == len(l) {
		return i >= 0
	}
	bound := l[i+1].FirstOffset
	if meant := a.derived[derivedEntry{g.part, l[i+1].ID}]; len(meant) > 0 {
		bound = max(bound, meant[0].FirstOffset)
	}
	return g.next <= bound
}

// owner is the entry that names the grain's timeline for its epoch, -1 if another is named.
func (a *arbiter) owner(g *grain, l timeline.List) int {
	i := owner(l, g.epoch)
	if i < 0 || l[i].ID == g.timeline {
		return i
	}
	meant := a.derived[derivedEntry{g.part, l[i].ID}]
	if n := owner(meant, g.epoch); n >= 0 && meant[n].ID == g.timeline {
		return i
	}
	return -1
}
