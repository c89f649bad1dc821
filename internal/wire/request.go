package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Request is one request of a client: the header, and the body's bytes.
type Request struct {
	Key           Key
	Version       int16
	CorrelationID int32
	// ClientID is the client's own name; "" also stands for null.
	ClientID string
	// Body is what follows the header: a part of the frame's buffer, which is
	// used again once the request's answer is written. Whoever keeps a part of
	// it, or of what Decode gives, beyond that copies it.
	Body []byte

	// Listener names the listener that the request came in by; Metadata
	// answers with the addresses that brokers advertise for it.
	Listener string
	// Remote and Local are the connection's addresses; nil in tests.
	Remote, Local net.Addr
	// Principal is who the connection belongs to: "User:ANONYMOUS" where
	// nobody has to say.
	Principal string
	// Secure is true on TLS connections.
	Secure bool
	// Login is the connection's log-in; nil on listeners without SASL.
	Login Login
}

// Errors of ParseRequest and Decode: what is left is to close the connection.
var (
	// ErrUnknownAPI is returned for a key that the table doesn't have.
	ErrUnknownAPI = errors.New("unknown API key")
	// ErrUnknownVersion is returned for a version outside the API's range.
	ErrUnknownVersion = errors.New("unsupported API version")
	// ErrMalformed is returned for a header or body that doesn't follow the schema.
	ErrMalformed = errors.New("malformed request")
)

// ParseRequest reads the header of the request in frame (without the frame's
// size) and leaves the body in Body, undecoded.
//
// For a key or a version that isn't in the table it gives ErrUnknownAPI or
// ErrUnknownVersion together with a Request that has key, version and
// correlation id (these have one place in all versions): an ApiVersions
// request of an unknown version must be answered nevertheless (KIP-511).
func ParseRequest(frame []byte) (*Request, error) {
	if len(frame) < 8 {
		return nil, fmt.Errorf("%w: header of %d bytes", ErrMalformed, len(frame))
	}
	r := &Request{
		Key:           Key(int16(binary.BigEndian.Uint16(frame))),
		Version:       int16(binary.BigEndian.Uint16(frame[2:])),
		CorrelationID: int32(binary.BigEndian.Uint32(frame[4:])),
	}
	api, ok := LookupAPI(r.Key)
	if !ok {
		return r, fmt.Errorf("%w %d", ErrUnknownAPI, int16(r.Key))
	}
	if !api.HasVersion(r.Version) {
		return r, fmt.Errorf("%w: %s %d", ErrUnknownVersion, api.Name, r.Version)
	}
	rest := frame[8:]
	// The client id is a plain nullable string even in the flexible header v2.
	id, rest, err := nullableString(rest)
	if err != nil {
		return r, fmt.Errorf("%w: client id", ErrMalformed)
	}
	r.ClientID = id
	if api.IsFlexible(r.Version) {
		if rest, err = skipTags(rest); err != nil {
			return r, fmt.Errorf("%w: header tags", ErrMalformed)
		}
	}
	r.Body = rest
	return r, nil
}

// Decode reads the body by the request's key and version. Byte slices of the
// result are parts of Body; strings are copies. Bytes left over after the body
// are ignored, as in Kafka.
func (r *Request) Decode() (kmsg.Request, error) {
	msg := NewRequest(r.Key)
	if msg == nil {
		return nil, fmt.Errorf("%w %d", ErrUnknownAPI, int16(r.Key))
	}
	msg.SetVersion(r.Version)
	if err := msg.ReadFrom(r.Body); err != nil {
		return nil, fmt.Errorf("%w: %s %d: %w", ErrMalformed, r.Key, r.Version, err)
	}
	return msg, nil
}

func nullableString(b []byte) (string, []byte, error) {
	if len(b) < 2 {
		return "", nil, ErrMalformed
	}
	n := int(int16(binary.BigEndian.Uint16(b)))
	b = b[2:]
	if n == -1 {
		return "", b, nil
	}
	if n < 0 || n > len(b) {
		return "", nil, ErrMalformed
	}
	return string(b[:n]), b[n:], nil
}

// skipTags passes over a section of tagged fields (KIP-482), known or not.
func skipTags(b []byte) ([]byte, error) {
	count, n := binary.Uvarint(b)
	if n <= 0 || count > uint64(len(b)) {
		return nil, ErrMalformed
	}
	b = b[n:]
	for range count {
		if _, n = binary.Uvarint(b); n <= 0 {
			return nil, ErrMalformed
		}
		b = b[n:]
		size, n := binary.Uvarint(b)
		if n <= 0 || size > uint64(len(b)-n) {
			return nil, ErrMalformed
		}
		b = b[n+int(size):]
	}
	return b, nil
}
