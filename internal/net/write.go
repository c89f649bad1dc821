package net

import (
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"tidemark/internal/wire"
)

// writer puts answers on a socket. One goroutine uses it.
type writer interface {
	write(r *wire.Response) error
}

// newWriter picks the way for nc: sendfile on plain TCP where the system has
// it, else copying.
func newWriter(nc net.Conn, stall time.Duration) writer {
	if tcp, ok := nc.(*net.TCPConn); ok {
		if w, ok := newSendfileWriter(tcp, stall); ok {
			return w
		}
	}
	return &copyWriter{nc: nc, stall: stall}
}

// copyWriter copies an answer through a pooled buffer: for TLS, for files in
// memory, and for systems without sendfile.
type copyWriter struct {
	nc    net.Conn
	stall time.Duration
}

// copyBufferSize is sixteen TLS records; larger ones gained nothing in BenchmarkWrite.
const copyBufferSize = 256 << 10

var copyBuffers = sync.Pool{New: func() any { return new([copyBufferSize]byte) }}

func (w *copyWriter) write(r *wire.Response) error {
	pieces := r.Pieces()
	if len(pieces) == 1 && pieces[0].File == nil {
		return w.flush(pieces[0].Mem)
	}
	pooled := copyBuffers.Get().(*[copyBufferSize]byte)
	defer copyBuffers.Put(pooled)
	buf := pooled[:0]
	for _, p := range pieces {
		for off := int64(0); off < p.Size(); {
			if len(buf) == cap(buf) {
				if err := w.flush(buf); err != nil {
					return err
				}
				buf = buf[:0]
			}
			n, err := appendPiece(&buf, p, off)
			if err != nil {
				return err
			}
			off += n
		}
	}
	return w.flush(buf)
}

// appendPiece copies as much of p from off on as buf has room for.
func appendPiece(buf *[]byte, p wire.Piece, off int64) (int64, error) {
	b := *buf
	free := b[len(b):min(int64(cap(b)), int64(len(b))+p.Size()-off)]
	if p.File == nil {
		copy(free, p.Mem[off:])
	} else if n, err := p.File.ReadAt(free, p.Off+off); n < len(free) {
		if err == nil || err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return 0, fmt.Errorf("read records at %d: %w", p.Off+off, err)
	}
	*buf = b[:len(b)+len(free)]
	return int64(len(free)), nil
}

// flush writes b in parts, each within the stall time.
func (w *copyWriter) flush(b []byte) error {
	for len(b) > 0 {
		part := b[:min(len(b), copyBufferSize)]
		if err := w.nc.SetWriteDeadline(time.Now().Add(w.stall)); err != nil {
			return err
		}
		n, err := w.nc.Write(part)
		b = b[n:]
		if err != nil {
			return err
		}
	}
	return nil
}
