package vault

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"

	"tidemark/internal/batch"
	"tidemark/internal/core/types"
	"tidemark/internal/log"
)

// fingerprint tells one batch from another without its bytes.
type fingerprint struct {
	base  types.Offset
	epoch types.LeaderEpoch
	crc   uint32
	size  int32
}

// summary is what the headers of a removal's batches say.
type summary struct {
	batches            []fingerprint
	records            int64
	belowHighWatermark int64
	bytes              int64
	damaged            int64 // bytes that are no whole batch
	minTimestamp       types.Millis
	maxTimestamp       types.Millis
	epochs             []EpochStart
	first              types.Offset // base of the first batch that is counted, -1 for none
}

// survey reads the headers of what a cut removes. Bytes that are no batches are
// counted and kept all the same.
func survey(r log.Removal) (*summary, error) {
	s := &summary{first: types.NoOffset, minTimestamp: types.NoTimestamp, maxTimestamp: types.NoTimestamp, epochs: []EpochStart{}}
	for i := range r.Ranges {
		g := &r.Ranges[i]
		damaged, err := walkHeaders(g.File, g.Pos, g.Len, func(h *batch.Header) {
			if h.NextOffset() > r.From { // a segment's batches below the log start go with it, uncounted
				s.count(h, r.HighWatermark)
				if s.first < 0 {
					s.first = h.BaseOffset
				}
			}
			s.batches = append(s.batches, fingerprintOf(h))
		})
		if err != nil {
			return nil, err
		}
		s.damaged += damaged
		s.bytes += g.Len
	}
	return s, nil
}

// count adds one batch to the numbers.
func (s *summary) count(h *batch.Header, highWatermark types.Offset) {
	records := int64(h.RecordsCount)
	s.records += records
	if below := highWatermark - h.BaseOffset; below > 0 {
		s.belowHighWatermark += min(records, int64(below))
	}
	if !h.HasDeleteHorizon() && h.BaseTimestamp >= 0 && (s.minTimestamp < 0 || h.BaseTimestamp < s.minTimestamp) {
		s.minTimestamp = h.BaseTimestamp
	}
	s.maxTimestamp = max(s.maxTimestamp, h.MaxTimestamp)
	if n := len(s.epochs); n == 0 || s.epochs[n-1].Epoch != h.PartitionLeaderEpoch {
		s.epochs = append(s.epochs, EpochStart{Epoch: h.PartitionLeaderEpoch, Start: h.BaseOffset})
	}
}

// digest is a name for the content: 12 hex digits over partition and batches.
func (s *summary) digest(r *log.Removal) string {
	hash := sha256.New()
	hash.Write(r.TopicID[:])
	hash.Write([]byte(r.TopicPartition.String()))
	hash.Write([]byte{0})
	hash.Write([]byte(r.Cause))
	var b [20]byte
	binary.BigEndian.PutUint64(b[0:], uint64(s.damaged))
	hash.Write(b[:8])
	for _, f := range s.batches {
		binary.BigEndian.PutUint64(b[0:], uint64(f.base))
		binary.BigEndian.PutUint32(b[8:], uint32(f.epoch))
		binary.BigEndian.PutUint32(b[12:], f.crc)
		binary.BigEndian.PutUint32(b[16:], uint32(f.size))
		hash.Write(b[:])
	}
	return hex.EncodeToString(hash.Sum(nil)[:6])
}

func fingerprintOf(h *batch.Header) fingerprint {
	return fingerprint{base: h.BaseOffset, epoch: h.PartitionLeaderEpoch, crc: h.CRC, size: h.Length}
}

// walk visits the fingerprints of the whole batches in [pos, pos+n).
func walk(f io.ReaderAt, pos, n int64, visit func(fingerprint)) (damaged int64, err error) {
	return walkHeaders(f, pos, n, func(h *batch.Header) { visit(fingerprintOf(h)) })
}

// walkHeaders visits the headers of the whole batches in [pos, pos+n) and gives
// the number of bytes from the first that is damaged or cut short on.
func walkHeaders(f io.ReaderAt, pos, n int64, visit func(*batch.Header)) (damaged int64, err error) {
	var buf [batch.HeaderSize]byte
	end := pos + n
	for pos < end {
		if end-pos < batch.HeaderSize {
			return end - pos, nil
		}
		if got, err := f.ReadAt(buf[:], pos); err != nil && !(errors.Is(err, io.EOF) && got == len(buf)) {
			if errors.Is(err, io.EOF) {
				return end - pos, nil
			}
			return 0, err
		}
		h, err := batch.ParseHeader(buf[:])
		if err != nil || int64(h.Size()) > end-pos {
			return end - pos, nil
		}
		visit(&h)
		pos += int64(h.Size())
	}
	return 0, nil
}
