// Package ids makes the random ids of a node: clusters, folders, starts of
// mirrors, timelines, topics.
//
// It owns their form, Kafka's 22 characters, and reads nothing but the system's
// randomness. It keeps no list: 128 random bits don't repeat.
//
// Tests: ids_test.go.
package ids

import (
	"crypto/rand"
	"encoding/base64"

	"tidemark/internal/core/types"
)

// Fresh is 128 random bits as Kafka prints ids: 22 characters that don't begin
// with a dash (a dash would be taken for a flag on a command line).
func Fresh() string {
	for {
		var b [16]byte
		_, _ = rand.Read(b[:]) // never fails (crypto/rand)
		if s := base64.RawURLEncoding.EncodeToString(b[:]); s[0] != '-' {
			return s
		}
	}
}

// FreshTopic is a random topic id; never one of Kafka's reserved ids (0 and 1).
func FreshTopic() types.TopicID {
	var id types.TopicID
	for id.IsZero() || id == (types.TopicID{15: 1}) || id.String()[0] == '-' {
		_, _ = rand.Read(id[:]) // never fails (crypto/rand)
	}
	return id
}
