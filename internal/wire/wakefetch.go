package wire

import (
	"encoding/binary"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// WakeFetchRequest asks for the answer of a Fetch that waits (key 32010): a
// follower has more to ask in that session. It holds the session's id and the epoch
// that the waiting request carries. Both messages end with tagged fields.
type WakeFetchRequest struct {
	Version      int16
	SessionID    int32
	SessionEpoch int32
}

// WakeFetchResponse answers a WakeFetchRequest; a session that isn't known is no error.
type WakeFetchResponse struct {
	Version   int16
	ErrorCode ErrCode
}

var (
	_ kmsg.Request  = (*WakeFetchRequest)(nil)
	_ kmsg.Response = (*WakeFetchResponse)(nil)
)

// Key implements kmsg.Request.
func (r *WakeFetchRequest) Key() int16 { return int16(KeyWakeFetch) }

// MaxVersion implements kmsg.Request.
func (r *WakeFetchRequest) MaxVersion() int16 { return 0 }

// SetVersion implements kmsg.Request.
func (r *WakeFetchRequest) SetVersion(v int16) { r.Version = v }

// GetVersion implements kmsg.Request.
func (r *WakeFetchRequest) GetVersion() int16 { return r.Version }

// IsFlexible implements kmsg.Request.
func (r *WakeFetchRequest) IsFlexible() bool { return true }

// ResponseKind implements kmsg.Request.
func (r *WakeFetchRequest) ResponseKind() kmsg.Response {
	return &WakeFetchResponse{Version: r.Version}
}

// AppendTo implements kmsg.Request.
func (r *WakeFetchRequest) AppendTo(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(r.SessionID))
	return append(binary.BigEndian.AppendUint32(b, uint32(r.SessionEpoch)), noTags)
}

// ReadFrom implements kmsg.Request.
func (r *WakeFetchRequest) ReadFrom(b []byte) error {
	in := reader{rest: b}
	r.SessionID, r.SessionEpoch = in.int32(), in.int32()
	in.tags()
	return in.done()
}

// Key implements kmsg.Response.
func (r *WakeFetchResponse) Key() int16 { return int16(KeyWakeFetch) }

// MaxVersion implements kmsg.Response.
func (r *WakeFetchResponse) MaxVersion() int16 { return 0 }

// SetVersion implements kmsg.Response.
func (r *WakeFetchResponse) SetVersion(v int16) { r.Version = v }

// GetVersion implements kmsg.Response.
func (r *WakeFetchResponse) GetVersion() int16 { return r.Version }

// IsFlexible implements kmsg.Response.
func (r *WakeFetchResponse) IsFlexible() bool { return true }

// RequestKind implements kmsg.Response.
func (r *WakeFetchResponse) RequestKind() kmsg.Request { return &WakeFetchRequest{Version: r.Version} }

// AppendTo implements kmsg.Response.
func (r *WakeFetchResponse) AppendTo(b []byte) []byte {
	return append(binary.BigEndian.AppendUint16(b, uint16(r.ErrorCode)), noTags)
}

// ReadFrom implements kmsg.Response.
func (r *WakeFetchResponse) ReadFrom(b []byte) error {
	in := reader{rest: b}
	r.ErrorCode = ErrCode(in.int16())
	in.tags()
	return in.done()
}
