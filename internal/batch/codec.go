package batch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// decompress gives the records' bytes. None returns src itself; the others write
// into the scratch's buffer and never beyond its limit.
func (s *Scratch) decompress(c Codec, src []byte) ([]byte, error) {
	var err error
	switch c {
	case None:
		return src, nil
	case Gzip:
		s.decoded, err = gunzip(s.decoded[:0], src, s.limit())
	case Snappy:
		s.decoded, err = unsnappy(s.decoded[:0], src, s.limit())
	case LZ4:
		s.decoded, err = unlz4(s.decoded[:0], src, s.limit())
	case Zstd:
		s.decoded, err = unzstd(s.decoded[:0], src, s.limit())
	default:
		return nil, fmt.Errorf("%w: %s", ErrInvalidRecord, c)
	}
	if err != nil {
		if !errors.Is(err, ErrTooLarge) {
			err = fmt.Errorf("%w: %s: %w", ErrCorrupt, c, err)
		}
		return nil, err
	}
	return s.decoded, nil
}

func errDecodedTooLarge(limit int) error {
	return fmt.Errorf("%w: more than %d bytes decompressed", ErrTooLarge, limit)
}

// readBounded appends all of r to dst, at most limit bytes.
func readBounded(dst []byte, r io.Reader, limit int) ([]byte, error) {
	for {
		if len(dst) == cap(dst) {
			if len(dst) >= limit {
				return dst, probeEnd(r, limit)
			}
			dst = grow(dst, min(limit, max(4096, 2*cap(dst))))
		}
		n, err := r.Read(dst[len(dst):min(cap(dst), limit)])
		dst = dst[:len(dst)+n]
		if errors.Is(err, io.EOF) {
			return dst, nil
		}
		if err != nil {
			return dst, err
		}
		if len(dst) >= limit {
			return dst, probeEnd(r, limit)
		}
	}
}

// probeEnd tells whether r ends exactly at the limit.
func probeEnd(r io.Reader, limit int) error {
	var one [1]byte
	n, err := io.ReadFull(r, one[:])
	switch {
	case n > 0:
		return errDecodedTooLarge(limit)
	case errors.Is(err, io.EOF):
		return nil
	}
	return err
}

func grow(dst []byte, size int) []byte {
	b := make([]byte, len(dst), size)
	copy(b, dst)
	return b
}

var gzipReaders = sync.Pool{New: func() any { return new(gzip.Reader) }}

func gunzip(dst, src []byte, limit int) ([]byte, error) {
	r := gzipReaders.Get().(*gzip.Reader)
	defer gzipReaders.Put(r)
	if err := r.Reset(bytes.NewReader(src)); err != nil {
		return dst, err
	}
	return readBounded(dst, r, limit)
}

var lz4Readers = sync.Pool{New: func() any { return lz4.NewReader(nil) }}

func unlz4(dst, src []byte, limit int) ([]byte, error) {
	r := lz4Readers.Get().(*lz4.Reader)
	defer lz4Readers.Put(r)
	r.Reset(bytes.NewReader(src))
	return readBounded(dst, r, limit)
}

// xerialMagic begins the framing of snappy-java, which Kafka's own clients write;
// others write one raw snappy block. After the magic: version and lowest
// compatible version (4 bytes each), then blocks of length (4 bytes) and data.
var xerialMagic = []byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0}

const (
	xerialHeader    = 16
	xerialBlock     = 32 << 10 // snappy-java's default block
	snappyRatioMost = 64       // a snappy copy element yields at most 64 bytes from 2 or more
)

func unsnappy(dst, src []byte, limit int) ([]byte, error) {
	if len(src) < xerialHeader || !bytes.HasPrefix(src, xerialMagic) {
		return unsnappyBlock(dst, src, limit)
	}
	src = src[xerialHeader:]
	for len(src) > 0 {
		if len(src) < 4 {
			return dst, errors.New("block length cut short")
		}
		n := binary.BigEndian.Uint32(src)
		src = src[4:]
		if uint64(n) > uint64(len(src)) {
			return dst, fmt.Errorf("block of %d bytes, %d left", n, len(src))
		}
		var err error
		if dst, err = unsnappyBlock(dst, src[:n], limit); err != nil {
			return dst, err
		}
		src = src[n:]
	}
	return dst, nil
}

// unsnappyBlock appends one decoded block. The stated length is checked before memory is spent on it.
func unsnappyBlock(dst, src []byte, limit int) ([]byte, error) {
	n, err := s2.DecodedLen(src)
	if err != nil {
		return dst, err
	}
	if n > limit-len(dst) {
		return dst, errDecodedTooLarge(limit)
	}
	if n > snappyRatioMost*len(src) {
		return dst, fmt.Errorf("%d bytes can't come from %d", n, len(src))
	}
	if need := len(dst) + n; need > cap(dst) {
		dst = grow(dst, min(limit, max(need, 2*cap(dst))))
	}
	if _, err := s2.Decode(dst[len(dst):len(dst)+n], src); err != nil {
		return dst, err
	}
	return dst[:len(dst)+n], nil
}

// zstdDecoders holds one decoder per limit, which callers share. Decoding whole
// inputs needs no window of its own, and room for a stated size is bounded by
// what the input could decode to.
var zstdDecoders sync.Map // limit in bytes → *zstd.Decoder

func zstdDecoder(limit int) *zstd.Decoder {
	if d, ok := zstdDecoders.Load(limit); ok {
		return d.(*zstd.Decoder)
	}
	d, err := zstd.NewReader(nil, zstd.WithDecoderMaxMemory(uint64(limit)), zstd.WithDecoderLowmem(true))
	if err != nil {
		panic(err) // the options are constants, the limit is above 0
	}
	shared, _ := zstdDecoders.LoadOrStore(limit, d)
	return shared.(*zstd.Decoder)
}

func unzstd(dst, src []byte, limit int) ([]byte, error) {
	out, err := zstdDecoder(limit).DecodeAll(src, dst)
	if errors.Is(err, zstd.ErrDecoderSizeExceeded) || errors.Is(err, zstd.ErrWindowSizeExceeded) {
		return dst, errDecodedTooLarge(limit)
	}
	if err != nil {
		return dst, err
	}
	return out, nil
}
