package broker

import (
	"crypto/rand"
	"encoding/binary"
)

// random31 is 31 random bits.
func random31() uint32 {
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	return binary.BigEndian.Uint32(b[:]) >> 1
}
