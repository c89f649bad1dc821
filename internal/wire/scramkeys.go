package wire

import (
	"encoding/binary"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// KeyDescribeScramKeys gives a mirror the credentials of its source's users.
const KeyDescribeScramKeys Key = 32002

// Bounds of DescribeScramKeys (docs/format/scram-keys-api.md).
const (
	// ScramUserBytesMax bounds a user's name, ScramKeyBytesMax a salt or a key.
	ScramUserBytesMax = 1024
	ScramKeyBytesMax  = 1024
	// ScramKeysPerAnswer is how many credentials one answer holds at most.
	ScramKeysPerAnswer   = 5000
	scramMessageBytesMax = 4096
)

// ScramKeysRequest asks for users' SCRAM credentials (key 32002), in order of user
// and mechanism, behind those given.
type ScramKeysRequest struct {
	Version                   int16
	AfterUser, AfterMechanism string
}

// ScramKeysResponse answers a ScramKeysRequest.
type ScramKeysResponse struct {
	Version   int16
	ErrorCode ErrCode
	// Message says why it is refused.
	Message     string
	Credentials []ScramCredential
	// More: there are others behind the last one.
	More bool
}

// ScramCredential is what a cluster keeps of a user's password for one mechanism.
type ScramCredential struct {
	User, Mechanism            string
	Salt, StoredKey, ServerKey []byte
	Iterations                 int32
}

var (
	_ kmsg.Request  = (*ScramKeysRequest)(nil)
	_ kmsg.Response = (*ScramKeysResponse)(nil)
)

// Key implements kmsg.Request.
func (r *ScramKeysRequest) Key() int16 { return int16(KeyDescribeScramKeys) }

// MaxVersion implements kmsg.Request.
func (r *ScramKeysRequest) MaxVersion() int16 { return 0 }

// SetVersion implements kmsg.Request.
func (r *ScramKeysRequest) SetVersion(v int16) { r.Version = v }

// GetVersion implements kmsg.Request.
func (r *ScramKeysRequest) GetVersion() int16 { return r.Version }

// IsFlexible implements kmsg.Request.
func (r *ScramKeysRequest) IsFlexible() bool { return true }

// ResponseKind implements kmsg.Request.
func (r *ScramKeysRequest) ResponseKind() kmsg.Response {
	return &ScramKeysResponse{Version: r.Version}
}

// AppendTo implements kmsg.Request.
func (r *ScramKeysRequest) AppendTo(b []byte) []byte {
	return append(appendString(appendString(b, r.AfterUser), r.AfterMechanism), noTags)
}

// ReadFrom implements kmsg.Request.
func (r *ScramKeysRequest) ReadFrom(b []byte) error {
	in := reader{rest: b}
	r.AfterUser, r.AfterMechanism = in.string(ScramUserBytesMax), in.string(ScramUserBytesMax)
	in.tags()
	return in.done()
}

// Key implements kmsg.Response.
func (r *ScramKeysResponse) Key() int16 { return int16(KeyDescribeScramKeys) }

// MaxVersion implements kmsg.Response.
func (r *ScramKeysResponse) MaxVersion() int16 { return 0 }

// SetVersion implements kmsg.Response.
func (r *ScramKeysResponse) SetVersion(v int16) { r.Version = v }

// GetVersion implements kmsg.Response.
func (r *ScramKeysResponse) GetVersion() int16 { return r.Version }

// IsFlexible implements kmsg.Response.
func (r *ScramKeysResponse) IsFlexible() bool { return true }

// RequestKind implements kmsg.Response.
func (r *ScramKeysResponse) RequestKind() kmsg.Request { return &ScramKeysRequest{Version: r.Version} }

// AppendTo implements kmsg.Response.
func (r *ScramKeysResponse) AppendTo(b []byte) []byte {
	b = binary.BigEndian.AppendUint16(b, uint16(r.ErrorCode))
	b = appendString(b, r.Message[:min(len(r.Message), scramMessageBytesMax)])
	b = appendCount(b, len(r.Credentials))
	for _, c := range r.Credentials {
		b = appendString(appendString(b, c.User), c.Mechanism)
		for _, key := range [][]byte{c.Salt, c.StoredKey, c.ServerKey} {
			b = append(appendCount(b, len(key)), key...)
		}
		b = append(binary.BigEndian.AppendUint32(b, uint32(c.Iterations)), noTags)
	}
	return append(b, bit(r.More), noTags)
}

// ReadFrom implements kmsg.Response.
func (r *ScramKeysResponse) ReadFrom(b []byte) error {
	in := reader{rest: b}
	out := ScramKeysResponse{Version: r.Version, ErrorCode: ErrCode(in.int16()), Message: in.string(scramMessageBytesMax)}
	const leastBytes = 10 // of a credential
	for range in.count(leastBytes, ScramKeysPerAnswer) {
		c := ScramCredential{User: in.string(ScramUserBytesMax), Mechanism: in.string(ScramUserBytesMax)}
		for _, key := range []*[]byte{&c.Salt, &c.StoredKey, &c.ServerKey} {
			*key = append([]byte(nil), in.take(in.length(ScramKeyBytesMax, "a key"), "a key")...)
		}
		c.Iterations = in.int32()
		in.tags()
		out.Credentials = append(out.Credentials, c)
	}
	out.More = in.bool()
	in.tags()
	if err := in.done(); err != nil {
		return err
	}
	*r = out
	return nil
}
