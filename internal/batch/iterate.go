package batch

import (
	"errors"
	"fmt"
)

// Iterator walks the whole batches at the beginning of a byte slice:
//
//	for it := batch.Iterate(b); it.Next(); {
//		use(it.Header, it.Raw)
//	}
//
// It checks headers, not checksums. After the last Next, Err says why it
// stopped: nil at the end of the bytes, ErrShort when a batch is cut short
// (Rest is the partial one), another error at a header that can't be.
type Iterator struct {
	Header Header // of the present batch
	Raw    []byte // the present batch, a sub-slice

	rest []byte
	err  error
}

// Iterate starts a walk over b.
func Iterate(b []byte) Iterator { return Iterator{rest: b} }

// Next moves on to the next whole batch; false at the end or at the first that isn't whole.
func (it *Iterator) Next() bool {
	if it.err != nil || len(it.rest) == 0 {
		return false
	}
	h, err := ParseHeader(it.rest)
	if err != nil {
		it.err = err
		return false
	}
	if h.Size() > len(it.rest) {
		it.err = fmt.Errorf("%w: %d of %d bytes", ErrShort, len(it.rest), h.Size())
		return false
	}
	it.Header, it.Raw, it.rest = h, it.rest[:h.Size():h.Size()], it.rest[h.Size():]
	return true
}

// Err is nil if the walk reached the end of the bytes.
func (it *Iterator) Err() error { return it.err }

// Rest is what has not been walked: the partial or damaged batch and all after it.
func (it *Iterator) Rest() []byte { return it.rest }

// Whole gives the whole batches at the head of b, calls each with their headers in order,
// and says what is wrong with the batch after them unless it is only cut short, as the
// last one of a fetch may be.
func Whole(b []byte, each func(Header)) (whole []byte, err error) {
	it := Iterate(b)
	for it.Next() {
		each(it.Header)
	}
	if err = it.Err(); errors.Is(err, ErrShort) {
		err = nil
	}
	return b[:len(b)-len(it.Rest())], err
}
