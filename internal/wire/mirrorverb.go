package wire

import (
	"encoding/binary"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Bounds of MirrorVerb (docs/format/mirror-verb-api.md). A message beyond them is malformed.
const (
	// VerbBytesMax bounds a verb's name.
	VerbBytesMax = 64
	// VerbBodyBytesMax bounds a body, of a request or an answer.
	VerbBodyBytesMax = 32 << 20
	// VerbMessageBytesMax bounds the sentence of a refusal.
	VerbMessageBytesMax = 32 << 10
)

// MirrorVerbRequest asks a broker to do its part of a mirror's verb (key 32001).
type MirrorVerbRequest struct {
	Version int16
	Verb    string
	// Body is JSON; what it holds is the verb's business (internal/broker/mirror).
	Body []byte
}

// MirrorVerbResponse answers a MirrorVerbRequest.
type MirrorVerbResponse struct {
	Version int16
	// ErrorCode refuses the request; Message says why in a sentence.
	ErrorCode ErrCode
	Message   string
	Body      []byte
}

var (
	_ kmsg.Request  = (*MirrorVerbRequest)(nil)
	_ kmsg.Response = (*MirrorVerbResponse)(nil)
)

// Key implements kmsg.Request.
func (r *MirrorVerbRequest) Key() int16 { return int16(KeyMirrorVerb) }

// MaxVersion implements kmsg.Request.
func (r *MirrorVerbRequest) MaxVersion() int16 { return 0 }

// SetVersion implements kmsg.Request.
func (r *MirrorVerbRequest) SetVersion(v int16) { r.Version = v }

// GetVersion implements kmsg.Request.
func (r *MirrorVerbRequest) GetVersion() int16 { return r.Version }

// IsFlexible implements kmsg.Request.
func (r *MirrorVerbRequest) IsFlexible() bool { return true }

// ResponseKind implements kmsg.Request.
func (r *MirrorVerbRequest) ResponseKind() kmsg.Response {
	return &MirrorVerbResponse{Version: r.Version}
}

// Key implements kmsg.Response.
func (r *MirrorVerbResponse) Key() int16 { return int16(KeyMirrorVerb) }

// MaxVersion implements kmsg.Response.
func (r *MirrorVerbResponse) MaxVersion() int16 { return 0 }

// SetVersion implements kmsg.Response.
func (r *MirrorVerbResponse) SetVersion(v int16) { r.Version = v }

// GetVersion implements kmsg.Response.
func (r *MirrorVerbResponse) GetVersion() int16 { return r.Version }

// IsFlexible implements kmsg.Response.
func (r *MirrorVerbResponse) IsFlexible() bool { return true }

// RequestKind implements kmsg.Response.
func (r *MirrorVerbResponse) RequestKind() kmsg.Request {
	return &MirrorVerbRequest{Version: r.Version}
}

// AppendTo implements kmsg.Request.
func (r *MirrorVerbRequest) AppendTo(b []byte) []byte {
	b = appendString(b, r.Verb)
	b = append(appendCount(b, len(r.Body)), r.Body...)
	return append(b, noTags)
}

// ReadFrom implements kmsg.Request.
func (r *MirrorVerbRequest) ReadFrom(b []byte) error {
	in := reader{rest: b}
	verb := in.string(VerbBytesMax)
	body := in.take(in.length(VerbBodyBytesMax, "a body"), "a body")
	in.tags()
	if err := in.done(); err != nil {
		return err
	}
	r.Verb, r.Body = verb, body
	return nil
}

// AppendTo implements kmsg.Response.
func (r *MirrorVerbResponse) AppendTo(b []byte) []byte {
	b = binary.BigEndian.AppendUint16(b, uint16(r.ErrorCode))
	b = appendString(b, r.Message[:min(len(r.Message), VerbMessageBytesMax)])
	b = append(appendCount(b, len(r.Body)), r.Body...)
	return append(b, noTags)
}

// ReadFrom implements kmsg.Response.
func (r *MirrorVerbResponse) ReadFrom(b []byte) error {
	in := reader{rest: b}
	code := ErrCode(in.int16())
	message := in.string(VerbMessageBytesMax)
	body := in.take(in.length(VerbBodyBytesMax, "a body"), "a body")
	in.tags()
	if err := in.done(); err != nil {
		return err
	}
	r.ErrorCode, r.Message, r.Body = code, message, body
	return nil
}
