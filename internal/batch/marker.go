package batch

import "tidemark/internal/core/types"

// MarkerKind is the type field of a control record's key.
type MarkerKind int16

// The transaction markers (KIP-98). Other control records (KRaft's, KIP-1279's
// producer reset) are kept as they are and parse with their own number.
const (
	Abort  MarkerKind = 0
	Commit MarkerKind = 1
)

// Marker is a decoded control record.
type Marker struct {
	Kind             MarkerKind
	ProducerID       types.ProducerID
	ProducerEpoch    int16
	CoordinatorEpoch int32 // -1 if the value has none
}
