// Package ids makes the random ids of a node: clusters, folders, starts of
// mirrors, timelines, topics.
//
// It owns their form, Kafka's 22 characters. Where the randomness comes from is
// given: the system's for a node, the seed's for one that is simulated (I-161).
// It keeps no list: 128 random bits don't repeat.
//
// Tests: ids_test.go.
package ids

import (
	"crypto/rand"
	"encoding/base64"

	"tidemark/internal/core/types"
)

// Source fills a slice with random bytes. Whatever a node names comes from the
// one that it was given.
type Source func(b []byte)

// System is the operating system's randomness.
func System(b []byte) { _, _ = rand.Read(b) } // never fails (crypto/rand)

// Fresh is 128 random bits as Kafka prints ids: 22 characters that don't begin
// with a dash (a dash would be taken for a flag on a command line).
func (s Source) Fresh() string {
	for {
		var b [16]byte
		s(b[:])
		if id := base64.RawURLEncoding.EncodeToString(b[:]); id[0] != '-' {
			return id
		}
	}
}

// Fresh is Source.Fresh of the system's randomness.
func Fresh() string { return Source(System).Fresh() }

// FreshTopic is a random topic id; never one of Kafka's reserved ids (0 and 1).
func (s Source) FreshTopic() types.TopicID {
	var id types.TopicID
	for id.IsZero() || id == (types.TopicID{15: 1}) || id.String()[0] == '-' {
		s(id[:])
	}
	return id
}
