package log

import (
	"errors"
	"fmt"
	"sync"

	"tidemark/internal/batch"
	"tidemark/internal/core/types"
	"tidemark/internal/vfs"
)

// scanBuffer is how many bytes a walk over batches reads at once.
const scanBuffer = 64 << 10

// seekBuffer is the same for a look-up, which spans an index interval or two.
const seekBuffer = 8 << 10

var scanBuffers = sync.Pool{New: func() any { b := make([]byte, scanBuffer); return &b }}

// walker walks the batch headers of a file within [pos, end), reading in blocks
// and leaping over the bodies of large batches.
//
//	for w.next() { use(w.h, w.at) }
//	w.err: nil at end, else why the bytes at w.pos are no batch, or an I/O error
type walker struct {
	f   vfs.File
	pos int64 // where the next batch begins
	end int64
	h   batch.Header
	at  int64 // where h begins
	err error

	chunk int // bytes read at once
	buf   *[]byte
	start int64 // position of buf[0]
	fill  int   // bytes in buf
}

func walk(f vfs.File, pos, end int64) walker {
	return walker{f: f, pos: pos, end: end, chunk: scanBuffer, buf: scanBuffers.Get().(*[]byte)}
}

// seek is a walk of few batches: a look-up from an index entry on.
func seek(f vfs.File, pos, end int64) walker {
	w := walk(f, pos, end)
	w.chunk = seekBuffer
	return w
}

// done gives the buffer back. It may be called more than once.
func (w *walker) done() {
	if w.buf != nil {
		scanBuffers.Put(w.buf)
		w.buf = nil
	}
}

// errTail says that the bytes left are fewer than a batch needs.
var errTail = errors.New("file ends inside a batch")

// next moves to the next header. It checks what the header says against the
// bounds, not the checksum.
func (w *walker) next() bool {
	if w.err != nil || w.pos >= w.end {
		return false
	}
	if w.end-w.pos < batch.HeaderSize {
		w.err = fmt.Errorf("%w: %d bytes left", errTail, w.end-w.pos)
		return false
	}
	if w.err = w.load(batch.HeaderSize); w.err != nil {
		return false
	}
	h, err := batch.ParseHeader((*w.buf)[w.pos-w.start : w.fill])
	if err != nil {
		w.err = err
		return false
	}
	if int64(h.Size()) > w.end-w.pos {
		w.err = fmt.Errorf("%w: batch of %d bytes, %d left", errTail, h.Size(), w.end-w.pos)
		return false
	}
	w.h, w.at = h, w.pos
	w.pos += int64(h.Size())
	return true
}

// load makes the n bytes at pos part of the buffer.
func (w *walker) load(n int) error {
	if w.fill > 0 && w.pos >= w.start && w.pos+int64(n) <= w.start+int64(w.fill) {
		return nil
	}
	want := int(min(int64(w.chunk), w.end-w.pos))
	if err := readFull(w.f, (*w.buf)[:want], w.pos); err != nil {
		w.fill = 0
		return &readError{w.f.Name(), w.pos, err}
	}
	w.start, w.fill = w.pos, want
	return nil
}

// readError is an I/O error of a read: the disk's fault, not the bytes'.
type readError struct {
	name string
	pos  int64
	err  error
}

func (e *readError) Error() string {
	return fmt.Sprintf("read %s at byte %d: %v", e.name, e.pos, e.err)
}
func (e *readError) Unwrap() error { return e.err }

// isReadError reports whether the walk ended because of the disk, not of the bytes.
func isReadError(err error) bool {
	var r *readError
	return errors.As(err, &r)
}

// raw reads the present batch whole into dst, grown as needed.
func (w *walker) raw(dst []byte) ([]byte, error) {
	n := w.h.Size()
	if cap(dst) < n {
		dst = make([]byte, n, max(n, 2*cap(dst)))
	}
	dst = dst[:n]
	if in := w.at - w.start; in >= 0 && in+int64(n) <= int64(w.fill) {
		copy(dst, (*w.buf)[in:])
		return dst, nil
	}
	if err := readFull(w.f, dst, w.at); err != nil {
		return dst, &readError{w.f.Name(), w.at, err}
	}
	return dst, nil
}

// find walks from pos to the first batch whose last offset is at or above o:
// the batch that holds o, or the first one behind a gap. It gives the end
// of the range if there is none.
func find(f vfs.File, pos, end int64, o types.Offset) (h batch.Header, at int64, ok bool, err error) {
	w := seek(f, pos, end)
	defer w.done()
	for w.next() {
		if w.h.LastOffset() >= o {
			return w.h, w.at, true, nil
		}
	}
	return batch.Header{}, end, false, w.err
}

// boundary walks from pos to the last batch boundary at or below limit, and
// gives pos itself if the first batch is larger.
func boundary(f vfs.File, pos, limit, end int64) (int64, error) {
	if limit >= end {
		return end, nil
	}
	w := seek(f, pos, end)
	defer w.done()
	for w.next() {
		if w.pos > limit {
			return w.at, nil
		}
	}
	return w.pos, w.err
}
