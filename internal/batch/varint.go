package batch

// Records carry zigzag variable-length integers, as Protocol Buffers' sint32 and sint64.

// uvarint reads an unsigned variable-length integer of at most maxBytes bytes.
// n is the number of bytes read; 0 if b is cut short or the number too long.
func uvarint(b []byte, maxBytes int) (v uint64, n int) {
	for i := 0; i < len(b) && i < maxBytes; i++ {
		c := b[i]
		v |= uint64(c&0x7f) << (7 * i)
		if c < 0x80 {
			if i == 9 && c > 1 {
				return 0, 0 // beyond 64 bits
			}
			return v, i + 1
		}
	}
	return 0, 0
}

// varint reads a 32-bit zigzag integer; n is 0 on damage. The bits of a fifth
// byte beyond the 32nd are dropped, as Kafka's reader does.
func varint(b []byte) (v int32, n int) {
	if len(b) > 0 && b[0] < 0x80 { // most lengths and deltas fit one byte
		return int32(b[0]>>1) ^ -int32(b[0]&1), 1
	}
	u, n := uvarint(b, 5)
	u32 := uint32(u)
	return int32(u32>>1) ^ -int32(u32&1), n
}

// varlong reads a 64-bit zigzag integer; n is 0 on damage.
func varlong(b []byte) (v int64, n int) {
	u, n := uvarint(b, 10)
	return int64(u>>1) ^ -int64(u&1), n
}

func appendVarint(b []byte, v int32) []byte {
	return appendUvarint(b, uint64(uint32(v<<1)^uint32(v>>31)))
}

func appendVarlong(b []byte, v int64) []byte { return appendUvarint(b, uint64(v<<1)^uint64(v>>63)) }

func appendUvarint(b []byte, u uint64) []byte {
	for u >= 0x80 {
		b = append(b, byte(u)|0x80)
		u >>= 7
	}
	return append(b, byte(u))
}

// varintSize is the number of bytes appendVarint writes.
func varintSize(v int32) int { return uvarintSize(uint64(uint32(v<<1) ^ uint32(v>>31))) }

// varlongSize is the number of bytes appendVarlong writes.
func varlongSize(v int64) int { return uvarintSize(uint64(v<<1) ^ uint64(v>>63)) }

func uvarintSize(u uint64) int {
	n := 1
	for u >= 0x80 {
		n++
		u >>= 7
	}
	return n
}
