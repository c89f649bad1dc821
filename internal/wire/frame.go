package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// PrefixSize is the number of bytes that are read before memory is taken for a
// frame: size, API key, API version and correlation id.
const PrefixSize = 12

// minFrame is the smallest frame that can hold a request header.
const minFrame = PrefixSize - 4

// ErrFrameSize is returned for a frame whose size is negative, too small for a
// header, or above the limit: the connection is closed (reference: Kafka's
// InvalidReceiveException).
var ErrFrameSize = errors.New("invalid frame size")

// Limits bound a frame's size in bytes, its size field excluded.
type Limits struct {
	// Frame is socket.request.max.bytes: the limit for Produce.
	Frame int32
	// Control is the limit for every other API. It is lower, because a decoded
	// array takes up to ControlCost times the memory of its bytes.
	Control int32
}

// ControlCost is how many times its own size a request other than Produce is
// charged with: the worst case among decoded bodies, roughly (a topic of
// Metadata takes 2 bytes on the wire and 48 in memory), halved because the
// worst case is never the usual one.
const ControlCost = 12

// Prefix is what stands at the front of a frame.
type Prefix struct {
	// Size is the frame's size in bytes without the size field.
	Size    int32
	Key     Key
	Version int16
}

// Cost is the memory in bytes that the request will take, for the budget.
func (p Prefix) Cost() int64 {
	if p.Key == KeyProduce {
		return int64(p.Size)
	}
	return int64(p.Size) * ControlCost
}

// IsAwaited reports whether handlers, here or on another broker, wait for requests of this
// kind: the fetches by which replicas get what a produce request wrote, with what those
// begin with, and what the brokers ask of each other over transactions.
func (p Prefix) IsAwaited() bool {
	switch p.Key {
	case KeyFetch, KeyWakeFetch, KeyOffsetForLeaderEpoch, KeyListOffsets,
		KeyAddPartitionsToTxn, KeyWriteTxnMarkers, KeyApiVersions, KeySaslHandshake, KeySaslAuthenticate:
		return true
	}
	return false
}

// ParsePrefix reads the first PrefixSize bytes of a frame and judges its size
// before any memory is taken. b must have PrefixSize bytes.
//
// An unknown key or version isn't judged here (ParseRequest does); but its
// frame gets the lower limit.
func ParsePrefix(b []byte, lim Limits) (Prefix, error) {
	p := Prefix{
		Size:    int32(binary.BigEndian.Uint32(b)),
		Key:     Key(int16(binary.BigEndian.Uint16(b[4:]))),
		Version: int16(binary.BigEndian.Uint16(b[6:])),
	}
	limit := lim.Control
	if p.Key == KeyProduce {
		limit = lim.Frame
	}
	switch {
	case p.Size < minFrame:
		return p, fmt.Errorf("%w: %d bytes", ErrFrameSize, p.Size)
	case p.Size > limit:
		return p, fmt.Errorf("%w: %d bytes for %s, the limit is %d", ErrFrameSize, p.Size, p.Key, limit)
	}
	return p, nil
}
