package batch

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// compress appends src, compressed, to dst. The results are what Kafka's own
// clients can read: snappy in xerial framing, lz4 frames of independent 64 KiB
// blocks without checksums.
func compress(dst []byte, c Codec, src []byte) ([]byte, error) {
	switch c {
	case None:
		return append(dst, src...), nil
	case Gzip:
		return compressStream(dst, src, &gzipWriters)
	case Snappy:
		return compressSnappy(dst, src), nil
	case LZ4:
		return compressStream(dst, src, &lz4Writers)
	case Zstd:
		e := zstdEncoders.Get().(*zstd.Encoder)
		defer zstdEncoders.Put(e)
		return e.EncodeAll(src, dst), nil
	}
	return nil, fmt.Errorf("%w: %s", ErrUnsupportedCompression, c)
}

type resetWriter interface {
	io.WriteCloser
	Reset(w io.Writer)
}

var gzipWriters = sync.Pool{New: func() any { return gzip.NewWriter(nil) }}

var lz4Writers = sync.Pool{New: func() any {
	w := lz4.NewWriter(nil)
	if err := w.Apply(lz4.BlockSizeOption(lz4.Block64Kb), lz4.ChecksumOption(false)); err != nil {
		panic(err) // the options are constants
	}
	return w
}}

var zstdEncoders = sync.Pool{New: func() any {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		panic(err) // the options are constants
	}
	return e
}}

func compressStream(dst, src []byte, writers *sync.Pool) ([]byte, error) {
	out := bytes.NewBuffer(dst)
	w := writers.Get().(resetWriter)
	defer writers.Put(w)
	w.Reset(out)
	if _, err := w.Write(src); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

func compressSnappy(dst, src []byte) []byte {
	dst = append(dst, xerialMagic...)
	dst = binary.BigEndian.AppendUint32(dst, 1)
	dst = binary.BigEndian.AppendUint32(dst, 1)
	for len(src) > 0 {
		block := src[:min(len(src), xerialBlock)]
		src = src[len(block):]
		packed := s2.EncodeSnappy(nil, block)
		dst = binary.BigEndian.AppendUint32(dst, uint32(len(packed)))
		dst = append(dst, packed...)
	}
	return dst
}
