package broker

import "encoding/binary"

// random31 is 31 random bits.
func (b *Broker) random31() uint32 {
	var r [4]byte
	b.fresh(r[:])
	return binary.BigEndian.Uint32(r[:]) >> 1
}
