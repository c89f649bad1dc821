package wire

import (
	"encoding/binary"
	"io"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// File is what a piece of an answer needs of a file: vfs.File has it.
type File interface {
	io.ReaderAt
	// Fd gives the descriptor for sendfile; ok is false for files that have none.
	Fd() (fd uintptr, ok bool)
}

// Piece is a part of an answer: bytes in memory, or a range of a file.
type Piece struct {
	Mem  []byte
	File File
	// Off and Len, in bytes, say which part of File; unused for Mem.
	Off, Len int64
}

// Size is the piece's length in bytes.
func (p Piece) Size() int64 {
	if p.File != nil {
		return p.Len
	}
	return int64(len(p.Mem))
}

// Response is one framed answer: the size, the header and the body as pieces
// in the order in which they are sent. A nil *Response means that the request
// gets no answer (Produce with acks=0).
type Response struct {
	pieces []Piece
	size   int64
	done   []func()
	last   bool
}

// Pieces gives the answer's parts in order.
func (r *Response) Pieces() []Piece { return r.pieces }

// Size is the sum of the pieces in bytes, the frame's own size field included.
func (r *Response) Size() int64 { return r.size }

// OnDone adds f to what Done calls: the release of files and buffers.
func (r *Response) OnDone(f func()) { r.done = append(r.done, f) }

// EndConnection has the connection closed when the answer is written and the client has had a moment to do so.
func (r *Response) EndConnection() { r.last = true }

// EndsConnection reports whether nothing is to follow the answer on its connection.
func (r *Response) EndsConnection() bool { return r.last }

// Done releases what the answer holds. Whoever writes the answer calls it
// once, whether or not the write succeeded.
func (r *Response) Done() {
	done := r.done
	r.done = r.done[:0]
	for _, f := range done {
		f()
	}
}

func (r *Response) add(p Piece) {
	if n := p.Size(); n > 0 {
		r.pieces = append(r.pieces, p)
		r.size += n
	}
}

// Encode frames msg as the answer to req.
func Encode(req *Request, msg kmsg.Response) *Response {
	msg.SetVersion(req.Version)
	b := appendHeader(make([]byte, 4, 256), req, msg.IsFlexible())
	b = msg.AppendTo(b)
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	r := &Response{}
	r.add(Piece{Mem: b})
	return r
}

// appendHeader writes response header v0 or v1. ApiVersions' answer has header
// v0 in every version, as the client can't know yet what we speak (KIP-511).
func appendHeader(b []byte, req *Request, flexible bool) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(req.CorrelationID))
	if flexible && req.Key != KeyApiVersions {
		b = append(b, 0)
	}
	return b
}

// NewResponse makes an answer of pieces that are framed already.
func NewResponse(pieces ...Piece) *Response {
	r := &Response{}
	for _, p := range pieces {
		r.add(p)
	}
	return r
}
