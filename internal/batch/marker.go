package batch

import (
	"encoding/binary"
	"fmt"

	"tidemark/internal/core/types"
)

// MarkerKind is the type field of a control record's key.
type MarkerKind int16

// Kinds of control records. Others (KRaft's) are kept as they are and parse
// with their own number.
const (
	Abort    MarkerKind = 0 // of a transaction (KIP-98)
	Commit   MarkerKind = 1
	PIDReset MarkerKind = 7 // MIRROR_PID_RESET of KIP-1279: forget all producer state from below; understood, never written (R30)
)

// String names the kind.
func (k MarkerKind) String() string {
	switch k {
	case Abort:
		return "ABORT"
	case Commit:
		return "COMMIT"
	case PIDReset:
		return "MIRROR_PID_RESET"
	}
	return fmt.Sprintf("CONTROL(%d)", int16(k))
}

// Marker is a decoded control record.
type Marker struct {
	Kind             MarkerKind
	ProducerID       types.ProducerID
	ProducerEpoch    int16
	CoordinatorEpoch int32 // -1 if the control record is not a transaction marker
}

// NewMarker makes the batch that ends a transaction, to be stamped by the log:
// key (version 0, kind), value (version 0, coordinator epoch).
func NewMarker(kind MarkerKind, producer types.ProducerID, producerEpoch int16, coordinatorEpoch int32, ts types.Millis) []byte {
	b := NewBuilder(BuilderOptions{
		LeaderEpoch:   types.NoLeaderEpoch,
		Producer:      &Producer{ID: producer, Epoch: producerEpoch, BaseSequence: -1},
		Transactional: true,
		Control:       true,
	})
	key := binary.BigEndian.AppendUint16([]byte{0, 0}, uint16(kind))
	value := binary.BigEndian.AppendUint32([]byte{0, 0}, uint32(coordinatorEpoch))
	b.Append(ts, key, value)
	raw, err := b.Build()
	if err != nil {
		panic(err) // one small uncompressed record always builds
	}
	return raw
}

// ParseMarker reads a control batch. It returns ErrInvalidRecord if raw isn't a
// control batch of one record with a readable key.
func ParseMarker(raw []byte) (Marker, error) {
	it := Records(raw, nil)
	if !it.Next() {
		if err := it.Err(); err != nil {
			return Marker{}, err
		}
		return Marker{}, fmt.Errorf("%w: control batch without a record", ErrInvalidRecord)
	}
	if !it.header.IsControl() {
		return Marker{}, fmt.Errorf("%w: not a control batch", ErrInvalidRecord)
	}
	key, value := it.Record.Key, it.Record.Value
	if len(key) < 4 {
		return Marker{}, fmt.Errorf("%w: control key of %d bytes", ErrInvalidRecord, len(key))
	}
	m := Marker{
		Kind:             MarkerKind(be16(key, 2)),
		ProducerID:       it.header.ProducerID,
		ProducerEpoch:    it.header.ProducerEpoch,
		CoordinatorEpoch: -1,
	}
	if m.Kind == Abort || m.Kind == Commit {
		if len(value) < 6 {
			return Marker{}, fmt.Errorf("%w: %s marker with a value of %d bytes", ErrInvalidRecord, m.Kind, len(value))
		}
		m.CoordinatorEpoch = be32(value, 2)
	}
	return m, nil
}
