package coordinator

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"tidemark/internal/await"
	"tidemark/internal/core/group"
	"tidemark/internal/core/types"
)

// commitOf commits for a topic id; a zero one stands for a record of an older form.
func commitOf(t *testing.T, ctx context.Context, c *Coordinator, g string, id types.TopicID) {
	t.Helper()
	ev := commit(g, "", -1, 5)
	ev.Offsets[0].TopicID = id
	mustCommit(t, ctx, c, ev)
}

// TestDeletedWhileNobodyCoordinated: a topic is deleted, and perhaps made again, and the
// coordinator ends before its offsets are removed. The next one removes what belongs to no topic.
func TestDeletedWhileNobodyCoordinated(t *testing.T) {
	again := types.TopicID{15: 9}
	for _, c := range []struct {
		name     string
		now      types.TopicID // of the topic at the next load
		restored bool
		said, un types.Offset // what is left of an offset that says its topic's id, and of one that doesn't
	}{
		{"it is still there", dataTopicID, false, 5, 5},
		{"deleted", types.TopicID{}, false, -1, -1},
		{"made again", again, false, -1, 5},
		{"missing in a backup", types.TopicID{}, true, 5, 5},
		{"another one in a backup", again, true, -1, 5},
	} {
		t.Run(c.name, func(t *testing.T) {
			n, ctx := newFakeNode(1), testContext(t)
			first := n.start(t)
			n.lead(t, first)
			commitOf(t, ctx, first, "said", dataTopicID)
			commitOf(t, ctx, first, "unsaid", types.TopicID{})
			commitOf(t, ctx, first, "next", c.now) // of the topic that is there at the next load
			first.Close()
			n.dataID, n.restored = c.now, c.restored
			second := n.start(t)
			n.lead(t, second)
			await.True(t, "what belongs to no topic is gone", func() bool {
				return committed(t, ctx, second, "said") == c.said && committed(t, ctx, second, "unsaid") == c.un
			})
			if got := committed(t, ctx, second, "next"); !c.now.IsZero() && got != 5 {
				t.Errorf("the offset of the topic that is there is %d", got)
			}
			second.Close()
			third := n.start(t) // and it is gone from the log
			n.lead(t, third)
			if a, b := committed(t, ctx, third, "said"), committed(t, ctx, third, "unsaid"); a != c.said || b != c.un {
				t.Errorf("after another load %d and %d, want %d and %d", a, b, c.said, c.un)
			}
		})
	}
}

// TestALateImageDeletesNothing: the coordinator's image lags behind a topic that was
// committed for elsewhere. Nothing is removed before the image knows all that was written; while the store can't be reached it isn't.
func TestALateImageDeletesNothing(t *testing.T) {
	n, ctx := newFakeNode(1), testContext(t)
	first := n.start(t)
	n.lead(t, first)
	commitOf(t, ctx, first, "g", dataTopicID)
	first.Close()

	n.dataID = types.TopicID{} // the image of before
	n.cfg.RetentionCheck = 1   // a sweep each millisecond
	var asked atomic.Int32
	n.fresh = func() error {
		if asked.Add(1) < 3 {
			return errors.New("the store can't be reached")
		}
		n.mu.Lock()
		defer n.mu.Unlock()
		n.dataID = dataTopicID
		n.setTopics(true)
		return nil
	}
	second := n.start(t)
	n.lead(t, second)
	await.True(t, "the image is a fresh one", func() bool {
		image := n.image.Load()
		_, known := image.TopicByName("data")
		return known
	})
	if got := committed(t, ctx, second, "g"); got != 5 {
		t.Errorf("the offset is %d", got)
	}
	if asked.Load() != 3 {
		t.Errorf("asked for a fresh image %d times", asked.Load())
	}
}

// TestARemovalThatFailedIsMadeAgain: the write of a deleted topic's removals fails; the next sweep writes them.
func TestARemovalThatFailedIsMadeAgain(t *testing.T) {
	n, ctx := newFakeNode(1), testContext(t)
	n.cfg.RetentionCheck = 1
	c := n.start(t)
	n.lead(t, c)
	commitOf(t, ctx, c, "g", dataTopicID)
	var refused atomic.Int32
	n.parts[0].setOnAppend(func(context.Context, []byte) error {
		if refused.Add(1) <= 2 {
			return errors.New("not enough replicas")
		}
		return nil
	})
	n.dataID = types.TopicID{}
	n.setTopics(true)
	c.TopicsDeleted(ctx, []group.DeletedTopic{{Name: "data", ID: dataTopicID}})
	await.True(t, "the offset is gone", func() bool { return committed(t, ctx, c, "g") == types.NoOffset })
}
