package wire

import (
	"encoding/binary"
	"fmt"
)

// noTags is an empty section of tagged fields (KIP-482).
const noTags = 0

// reader takes a message of our own apart, in Kafka's flexible encoding. The
// first error stays, and everything after it reads as zero; no size is believed
// beyond the bytes that are there.
type reader struct {
	rest []byte
	err  error
}

func (r *reader) fail(what string) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: %s", ErrMalformed, what)
	}
	r.rest = nil
}

// take gives the next n bytes, nil after an error.
func (r *reader) take(n int, what string) []byte {
	if r.err == nil && n > len(r.rest) {
		r.fail(what + " is cut short")
	}
	if r.err != nil {
		return nil
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}

func (r *reader) int16() int16 {
	if b := r.take(2, "an int16"); b != nil {
		return int16(binary.BigEndian.Uint16(b))
	}
	return 0
}

func (r *reader) int32() int32 {
	if b := r.take(4, "an int32"); b != nil {
		return int32(binary.BigEndian.Uint32(b))
	}
	return 0
}

func (r *reader) int64() int64 {
	if b := r.take(8, "an int64"); b != nil {
		return int64(binary.BigEndian.Uint64(b))
	}
	return 0
}

// bool takes 0 or 1 and nothing else.
func (r *reader) bool() bool {
	b := r.take(1, "a boolean")
	if b == nil {
		return false
	}
	if b[0] > 1 {
		r.fail("a boolean is neither 0 nor 1")
	}
	return b[0] == 1
}

func (r *reader) uuid() (id [16]byte) {
	copy(id[:], r.take(16, "an id"))
	return id
}

// length reads a compact length: one more than it says, 0 stands for null.
func (r *reader) length(most int, what string) int {
	if r.err != nil {
		return 0
	}
	v, n := binary.Uvarint(r.rest)
	if n <= 0 {
		r.fail(what + " has no length")
		return 0
	}
	r.rest = r.rest[n:]
	if v == 0 || v-1 > uint64(most) {
		r.fail(fmt.Sprintf("%s of length %d, 0 to %d are possible", what, int64(v)-1, most))
		return 0
	}
	return int(v - 1)
}

// count reads the length of an array whose elements take at least size bytes each.
func (r *reader) count(size, most int) int {
	n := r.length(most, "an array")
	if n*size > len(r.rest) {
		r.fail("an array is cut short")
		return 0
	}
	return n
}

func (r *reader) string(most int) string {
	return string(r.take(r.length(most, "a string"), "a string"))
}

// tags passes over tagged fields, which newer versions may add.
func (r *reader) tags() {
	if r.err != nil {
		return
	}
	rest, err := skipTags(r.rest)
	if err != nil {
		r.fail("tagged fields")
		return
	}
	r.rest = rest
}

// done says what was wrong; what is left over is wrong too: additions are tagged fields.
func (r *reader) done() error {
	if r.err == nil && len(r.rest) > 0 {
		r.fail(fmt.Sprintf("%d bytes left over", len(r.rest)))
	}
	return r.err
}

func appendCount(b []byte, n int) []byte { return binary.AppendUvarint(b, uint64(n)+1) }

func appendString(b []byte, s string) []byte { return append(appendCount(b, len(s)), s...) }

func bit(v bool) byte {
	if v {
		return 1
	}
	return 0
}
