package coordinator

import (
	"context"

	"tidemark/internal/clock"
	"tidemark/internal/core/group"
	"tidemark/internal/core/meta"
)

// The offsets of a deleted topic are removed when the deletion is heard of. What a
// crash, an election or a failed write leaves of that is found by the ids that the
// records keep: after each load, and with every sweep.

// lookForDeleted begins to look for offsets of topics that are there no more. The
// image may lag behind a topic that another coordinator has seen: where one
// seems gone, the look waits for an image that knows all that was written until now.
func (l *loop) lookForDeleted(ctx context.Context) {
	if l.looking {
		return
	}
	committed := l.table.CommittedTopics()
	if len(deletedOf(l.c.o.Image(), committed)) == 0 {
		return
	}
	l.looking = true
	clock.Go(ctx, &l.looks, func() {
		image, err := l.c.o.Fresh(ctx)
		if err != nil {
			l.Logger.Warn("whether topics of committed offsets were deleted can't be told yet", "err", err)
		}
		gone := deletedOf(image, committed)
		for _, d := range gone {
			l.Logger.Info("offsets of a deleted topic are removed", "deleted", d.Name, "id", d.ID.String())
		}
		l.inbox.Post(ctx, func(group.RequestID) {
			l.looking = false
			l.step(group.ForgetTopics{Topics: gone})
		})
	})
}

// deletedOf gives those of the topics that an image doesn't have; none of a nil image. In
// metadata that came from a backup, topics are missing that nobody has deleted: their
// offsets stay, unless another topic has the name now.
func deletedOf(image *meta.Image, committed []group.DeletedTopic) []group.DeletedTopic {
	if image == nil {
		return nil
	}
	cluster, ok := image.Cluster()
	restored := ok && cluster.Record.RestoreID() != ""
	var gone []group.DeletedTopic
	for _, d := range committed {
		t, named := image.TopicByName(d.Name)
		switch {
		case named && (d.ID.IsZero() || d.ID == t.Record.ID), !named && restored:
			continue
		}
		d.Said = named
		gone = append(gone, d)
	}
	return gone
}
