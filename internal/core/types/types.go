// Package types holds the quantities that every other package speaks in.
//
// It owns no behaviour beyond parsing and printing and imports nothing but the
// standard library's pure parts. Names are Kafka's terms. Two quantities of
// different kinds are different Go types, so that an offset can't be passed
// where an epoch is meant.
package types

import (
	"encoding/base64"
	"errors"
	"fmt"
)

// Offset is the position of a record in a partition, counted from 0. Ranges
// are end-exclusive where a name ends in End and inclusive where it ends in
// Last. NoOffset stands for "undefined" on the wire only.
type Offset int64

// NoOffset is Kafka's "undefined offset" on the wire (-1).
const NoOffset Offset = -1

// LeaderEpoch is a leader generation of one partition (KIP-101), 0 or more.
type LeaderEpoch int32

// NoLeaderEpoch is Kafka's "undefined leader epoch" on the wire (-1).
const NoLeaderEpoch LeaderEpoch = -1

// BrokerID is a node id, 0 or more. NoBroker (-1) means "none".
type BrokerID int32

// NoBroker is Kafka's "no broker" (-1): a leader that doesn't exist, a fetch that is a consumer's.
const NoBroker BrokerID = -1

// BrokerEpoch identifies one registration of a broker (KIP-903): the create
// revision of its registration key. NoBrokerEpoch (-1) means "not said".
type BrokerEpoch int64

// NoBrokerEpoch is a broker epoch that the sender didn't name.
const NoBrokerEpoch BrokerEpoch = -1

// ProducerID identifies an idempotent or transactional producer (KIP-98); -1 means none.
type ProducerID int64

// NoProducer marks a batch that is neither idempotent nor transactional.
const NoProducer ProducerID = -1

// Millis is a time stamp in milliseconds since the Unix epoch, or a duration in milliseconds.
type Millis int64

// NoTimestamp is Kafka's "no timestamp" (-1).
const NoTimestamp Millis = -1

// Position is a place in a file in bytes from its start.
type Position int64

// TopicPartition names one partition of a topic by the topic's name.
type TopicPartition struct {
	Topic     string
	Partition int32
}

// String gives Kafka's folder name of the partition: topic-partition.
func (tp TopicPartition) String() string { return fmt.Sprintf("%s-%d", tp.Topic, tp.Partition) }

// TopicID is a topic's unique id (KIP-516). The zero value means "no id".
type TopicID [16]byte

// String prints the id as Kafka does: URL-safe base64 without padding, 22 characters.
func (id TopicID) String() string { return base64.RawURLEncoding.EncodeToString(id[:]) }

// IsZero reports whether the id is absent.
func (id TopicID) IsZero() bool { return id == TopicID{} }

// ErrTopicID is returned by ParseTopicID for text that is not a topic id.
var ErrTopicID = errors.New("not a topic id (22 characters of URL-safe base64)")

// ParseTopicID reads the text form of String.
func ParseTopicID(s string) (TopicID, error) {
	var id TopicID
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil || len(b) != len(id) {
		return id, fmt.Errorf("%q: %w", s, ErrTopicID)
	}
	copy(id[:], b)
	return id, nil
}

// MarshalText makes a topic id a string in JSON.
func (id TopicID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText is the inverse of MarshalText.
func (id *TopicID) UnmarshalText(b []byte) error {
	v, err := ParseTopicID(string(b))
	if err != nil {
		return err
	}
	*id = v
	return nil
}
