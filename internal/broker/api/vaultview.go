package api

import (
	"strings"

	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
)

// The vault of a topic is shown as a topic of its own, __vault.<topic>, that is
// in no metadata: its record, its id and its partitions' leaders follow from the
// topic's. It is internal, so that patterns pass it over and nobody writes to it.

// ViewPrefix begins the names of the topics that show a vault.
const ViewPrefix = "__vault."

// viewMark turns a topic's id into its view's, and back.
var viewMark = types.TopicID{'_', '_', 'v', 'a', 'u', 'l', 't', '.', 0x5e, 0xa1, 0x3c, 0x77, 0x19, 0xd2, 0x64, 0x8b}

// ViewID is the id of the topic that shows a topic's vault; of a view's id it is the topic's.
func ViewID(id types.TopicID) types.TopicID {
	for i := range id {
		id[i] ^= viewMark[i]
	}
	return id
}

// IsView reports whether an id is a view's, and gives the id of the topic that it shows.
func IsView(image *meta.Image, id types.TopicID) (types.TopicID, bool) {
	if _, ok := image.Topic(id); ok {
		return id, false
	}
	_, ok := image.Topic(ViewID(id))
	return ViewID(id), ok
}

// viewRecord is the record of a view that a request names; false if it names none.
func viewRecord(image *meta.Image, r topicRef) (*meta.TopicRecord, bool) {
	var of *meta.Topic
	var ok bool
	if r.useID {
		if r.id.IsZero() {
			return nil, false
		}
		of, ok = image.Topic(ViewID(r.id))
	} else if name, is := strings.CutPrefix(r.name, ViewPrefix); is {
		of, ok = image.TopicByName(name)
	}
	if !ok {
		return nil, false
	}
	return &meta.TopicRecord{ID: ViewID(of.ID), Name: ViewPrefix + of.Record.Name, Partitions: of.Record.Partitions, Internal: true}, true
}

// shownID is the id whose partitions' records a topic has: its own, or of the topic that a view shows.
func shownID(image *meta.Image, t *meta.TopicRecord) types.TopicID {
	if of, is := IsView(image, t.ID); is && strings.HasPrefix(t.Name, ViewPrefix) {
		return of
	}
	return t.ID
}
