package broker

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"

	"tidemark/internal/core/types"
)

// freshID is 128 random bits as Kafka prints ids: 22 characters that don't
// begin with a dash (a dash would be taken for a flag on a command line).
func freshID() string {
	for {
		var b [16]byte
		_, _ = rand.Read(b[:]) // never fails (crypto/rand)
		if s := base64.RawURLEncoding.EncodeToString(b[:]); s[0] != '-' {
			return s
		}
	}
}

// freshTopicID is a random topic id; never one of Kafka's reserved ids (0 and 1).
func freshTopicID() types.TopicID {
	var id types.TopicID
	for id.IsZero() || id == (types.TopicID{15: 1}) || id.String()[0] == '-' {
		_, _ = rand.Read(id[:]) // never fails (crypto/rand)
	}
	return id
}

// random31 is 31 random bits.
func random31() uint32 {
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	return binary.BigEndian.Uint32(b[:]) >> 1
}
