package mirror

import (
	"crypto/rand"
	"encoding/base64"

	"tidemark/internal/core/types"
)

// freshID is 128 random bits as Kafka prints ids; it doesn't begin with a dash,
// which a command line would take for a flag.
func freshID() string {
	for {
		var b [16]byte
		_, _ = rand.Read(b[:]) // never fails (crypto/rand)
		if s := base64.RawURLEncoding.EncodeToString(b[:]); s[0] != '-' {
			return s
		}
	}
}

// freshTopicID is an id for a topic whose source has none.
func freshTopicID() types.TopicID {
	var id types.TopicID
	for id.IsZero() || id == (types.TopicID{15: 1}) || id.String()[0] == '-' {
		_, _ = rand.Read(id[:]) // never fails (crypto/rand)
	}
	return id
}
