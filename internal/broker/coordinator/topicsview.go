package coordinator

import (
	"iter"

	"tidemark/internal/core/group/consumer"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
)

// topicsView is what an image says of topics, for groups of the new protocol.
type topicsView struct {
	image   *meta.Image
	version int64
}

var _ consumer.Topics = (*topicsView)(nil)

// topicsView gives the newest image's topics. The version rises when they change, and
// not with what else the metadata tells, so that groups needn't look at each election.
func (c *Coordinator) topicsView() *topicsView {
	for {
		old, image := c.topics.Load(), c.o.Image()
		if old != nil && old.image.SameTopics(image) {
			return old
		}
		v := &topicsView{image: image, version: 1}
		if old != nil {
			if old.image.Revision() > image.Revision() {
				return old // another loop has looked at a newer one meanwhile
			}
			v.version = old.version + 1
		}
		if c.topics.CompareAndSwap(old, v) {
			return v
		}
	}
}

// Version implements consumer.Topics.
func (v *topicsView) Version() int64 { return v.version }

// ByName implements consumer.Topics.
func (v *topicsView) ByName(name string) (consumer.Topic, bool) {
	t, ok := v.image.TopicByName(name)
	if !ok {
		return consumer.Topic{}, false
	}
	return topicOf(t), true
}

// ByID implements consumer.Topics.
func (v *topicsView) ByID(id types.TopicID) (consumer.Topic, bool) {
	t, ok := v.image.Topic(id)
	if !ok {
		return consumer.Topic{}, false
	}
	return topicOf(t), true
}

// All implements consumer.Topics.
func (v *topicsView) All() iter.Seq[consumer.Topic] {
	return func(yield func(consumer.Topic) bool) {
		for t := range v.image.TopicsByName() {
			if !yield(topicOf(t)) {
				return
			}
		}
	}
}

func topicOf(t *meta.Topic) consumer.Topic {
	return consumer.Topic{Name: t.Record.Name, ID: t.Record.ID, Partitions: t.Record.Partitions}
}
