package control

import (
	"fmt"
	"strings"

	"tidemark/internal/core/meta"
)

// topicNameBytesMax is Kafka's limit: a folder's name, less "-" and a partition number.
const topicNameBytesMax = 249

// ValidTopicName refuses what Kafka refuses as a topic's name, with ErrInvalidTopic.
func ValidTopicName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%w: it is empty", ErrInvalidTopic)
	case name == "." || name == "..":
		return fmt.Errorf("%w: it can't be %q", ErrInvalidTopic, name)
	case len(name) > topicNameBytesMax:
		return fmt.Errorf("%w: %d characters, %d are allowed", ErrInvalidTopic, len(name), topicNameBytesMax)
	}
	if i := strings.IndexFunc(name, func(r rune) bool { return !topicNameRune(r) }); i >= 0 {
		return fmt.Errorf("%w: %q holds characters other than letters, digits, '.', '_' and '-'", ErrInvalidTopic, name)
	}
	return nil
}

func topicNameRune(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '_' || r == '-'
}

// nameIsFree refuses a name that is taken, or that metrics could not tell from a taken one.
func nameIsFree(image *meta.Image, name string) error {
	if n, taken := image.NameEntry(name); taken {
		if n.Record != nil {
			if t, ok := image.TopicEntry(n.Record.ID); ok && t.Record != nil && image.IsDropped(name) {
				return fmt.Errorf("topic %s: %w: it is part of drill %s, which is being made or deleted", name, ErrTopicExists, t.Record.Drill.Name)
			}
		}
		return fmt.Errorf("topic %s: %w", name, ErrTopicExists)
	}
	if other, collides := image.NameCollision(name); collides {
		return fmt.Errorf("%w: %s differs from the topic %s only in '.' and '_'", ErrInvalidTopic, name, other)
	}
	return nil
}
