package exhaust

import (
	"encoding/binary"
	"math/bits"
	"sync"
)

// fingerprintOf is a 64-bit fingerprint of a text: the same in every run.
func fingerprintOf(b []byte) uint64 {
	const k0, k1 = 0xa0761d6478bd642f, 0xe7037ed1a0b428db
	mix := func(a, b uint64) uint64 {
		hi, lo := bits.Mul64(a, b)
		return hi ^ lo
	}
	h := uint64(len(b)) ^ k0
	for ; len(b) >= 8; b = b[8:] {
		h = mix(h^binary.LittleEndian.Uint64(b), k1)
	}
	var tail [8]byte
	copy(tail[:], b)
	h = mix(h^binary.LittleEndian.Uint64(tail[:]), k0)
	return mix(h^k1, k0)
}

// visited is the set of fingerprints seen so far, safe for several goroutines.
// A table grows when it is three quarters full: 11 to 21 bytes a state.
type visited struct {
	shards [shardCount]shard
}

const shardCount = 64

type shard struct {
	mu    sync.Mutex
	table []uint64 // guarded by mu, as n is; 0 is free
	n     int
	_     [24]byte
}

// add reports whether the fingerprint is new.
func (v *visited) add(f uint64) bool {
	if f == 0 {
		f = 1
	}
	s := &v.shards[f>>58]
	s.mu.Lock()
	defer s.mu.Unlock()
	if 4*(s.n+1) > 3*len(s.table) {
		s.grow()
	}
	if !put(s.table, f) {
		return false
	}
	s.n++
	return true
}

func (s *shard) grow() {
	old := s.table
	s.table = make([]uint64, max(64, 2*len(old)))
	for _, f := range old {
		if f != 0 {
			put(s.table, f)
		}
	}
}

// put adds f to a table that has room; false if it is there.
func put(table []uint64, f uint64) bool {
	mask := uint64(len(table) - 1)
	for i := f & mask; ; i = (i + 1) & mask {
		switch table[i] {
		case 0:
			table[i] = f
			return true
		case f:
			return false
		}
	}
}

// bytes is the memory of the tables.
func (v *visited) bytes() (n int64) {
	for i := range v.shards {
		s := &v.shards[i]
		s.mu.Lock()
		n += 8 * int64(len(s.table))
		s.mu.Unlock()
	}
	return n
}
