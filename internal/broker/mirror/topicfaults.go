package mirror

import (
	"errors"
	"fmt"
	"strings"

	"tidemark/internal/core/meta"
)

// topicFault is why one topic was not taken at the last look at the source.
type topicFault struct {
	topic string
	err   error
}

// topicRefusal says that a topic that is here is in a mirror's way. It holds as long as
// the topic's records say so.
type topicRefusal struct{ words string }

// Error gives the sentence.
func (e *topicRefusal) Error() string { return e.words }

// refusal judges a topic that is here by its records; nil if it is this mirror's, or was until its failover.
func (r *run) refusal(image *meta.Image, here *meta.Topic) error {
	follows, promoted := r.follows(image, here.ID)
	switch {
	case promoted && r.isEarlier(image, here.ID):
		return &topicRefusal{fmt.Sprintf("the topic was failed over before and is writable here; `mirror failback %s` makes it a mirror again, --exclude leaves it out", r.name)}
	case promoted || follows:
		return nil
	}
	return &topicRefusal{fmt.Sprintf("a topic of this name exists here and is no mirror of this one; `mirror failback %s` shows what making it one would cut, --exclude leaves it out", r.name)}
}

// topicsTrouble says what is in the way of the mirror's topics, as an image has them: a
// failback ends a refusal at once, and the next look at the source is seconds away. Empty if nothing is.
func (r *run) topicsTrouble(image *meta.Image) string {
	list := r.topicFaults.Load()
	if list == nil {
		return ""
	}
	var words []string
	for _, f := range *list {
		err := f.err
		var refused *topicRefusal
		if errors.As(err, &refused) {
			here, found := image.TopicByName(f.topic)
			if !found {
				continue // it is made at the next look
			}
			err = r.refusal(image, here)
		}
		if err != nil {
			words = append(words, f.topic+": "+err.Error())
		}
	}
	return strings.Join(words, "; ")
}

// syncs gives the health of each sync by name, as an image has it.
func (r *run) syncs(image *meta.Image) []SyncHealth {
	list := r.health.list()
	for i := range list {
		if list[i].Name == syncTopics && list[i].Error != "" {
			list[i].Error = r.topicsTrouble(image)
		}
	}
	return list
}
