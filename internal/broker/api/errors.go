package api

import "tidemark/internal/wire"

// ErrReadOnly is the answer to a write on a topic that is a mirror.
//
// KIP-1279 gives it a code of its own, READ_ONLY_TOPIC 134, which no released
// client knows and which Apache Kafka 4.4 has since used for another error
// (GROUP_DELETION_FAILED). POLICY_VIOLATION is known to every client, isn't
// retried, and carries the sentence (Produce v8 and later).
func ErrReadOnly(topic, mirror string) error {
	return wire.Errorf(wire.ErrPolicyViolation,
		"Topic %s is a read-only mirror (mirror %q); fail the mirror over to make it writable.", topic, mirror)
}

// CodeOf maps an error of the interfaces in deps.go to its code on the wire.
func CodeOf(err error) wire.ErrCode { return wire.CodeOf(err) }
