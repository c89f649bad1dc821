package batch_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"runtime"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"

	"tidemark/internal/batch"
	"tidemark/internal/core/types"
)

// Places of header fields, from the format and not from the code under test.
const (
	atLength     = 8
	atMagic      = 16
	atAttributes = 21
	atLastDelta  = 23
	atProducerID = 43
	atBaseSeq    = 53
	atCount      = 57
	atRecords    = 61
)

func put32(at int, v int32) func([]byte) {
	return func(b []byte) { binary.BigEndian.PutUint32(b[at:], uint32(v)) }
}

// rebuilt is a valid batch with a change and a checksum to match: what a client
// that lies, and not a wire that damages, sends.
func rebuilt(t testing.TB, change func([]byte)) []byte {
	t.Helper()
	raw := build(t, batch.BuilderOptions{}, 3, 20)
	change(raw)
	batch.SetChecksum(raw)
	return raw
}

var lax = batch.ProduceRules{BeforeMax: -1, AfterMax: -1}

func TestLyingHeaders(t *testing.T) {
	f := func(name string, raw []byte, want error) {
		t.Helper()
		if _, err := batch.ValidateForProduce(raw, lax, nil); !errors.Is(err, want) {
			t.Errorf("%s: %v, expected %v", name, err, want)
		}
	}
	f("untouched", rebuilt(t, func([]byte) {}), nil)
	f("magic 0", rebuilt(t, func(b []byte) { b[atMagic] = 0 }), batch.ErrMagic)
	f("magic 1", rebuilt(t, func(b []byte) { b[atMagic] = 1 }), batch.ErrMagic)
	f("magic 3", rebuilt(t, func(b []byte) { b[atMagic] = 3 }), batch.ErrMagic)
	f("negative length", rebuilt(t, put32(atLength, -5)), batch.ErrLength)
	f("length below the header", rebuilt(t, put32(atLength, 48)), batch.ErrLength)
	f("length beyond the bytes", rebuilt(t, put32(atLength, 5000)), batch.ErrShort)
	f("largest length", rebuilt(t, put32(atLength, math.MaxInt32)), batch.ErrLength)
	f("count above the records", rebuilt(t, func(b []byte) { put32(atCount, 4)(b); put32(atLastDelta, 3)(b) }), batch.ErrInvalidRecord)
	f("count below the records", rebuilt(t, func(b []byte) { put32(atCount, 2)(b); put32(atLastDelta, 1)(b) }), batch.ErrInvalidRecord)
	f("huge count", rebuilt(t, func(b []byte) { put32(atCount, math.MaxInt32)(b); put32(atLastDelta, math.MaxInt32-1)(b) }), batch.ErrInvalidRecord)
	f("negative count", rebuilt(t, put32(atCount, -1)), batch.ErrCorrupt)
	f("negative offset delta", rebuilt(t, put32(atLastDelta, -1)), batch.ErrCorrupt)
	f("offset span above the count", rebuilt(t, put32(atLastDelta, 9)), batch.ErrInvalidRecord)
	f("base offset not 0", rebuilt(t, func(b []byte) { b[7] = 1 }), batch.ErrInvalidRecord)
	f("negative base offset", rebuilt(t, func(b []byte) { b[0] = 0x80 }), batch.ErrCorrupt)
	f("control", rebuilt(t, func(b []byte) { b[atAttributes+1] |= 0x20 }), batch.ErrInvalidRecord)
	f("transactional without a producer", rebuilt(t, func(b []byte) { b[atAttributes+1] |= 0x10 }), batch.ErrInvalidRecord)
	f("producer without a sequence", rebuilt(t, func(b []byte) { binary.BigEndian.PutUint64(b[atProducerID:], 5) }), batch.ErrInvalidRecord)
	f("codec 7", rebuilt(t, func(b []byte) { b[atAttributes+1] |= 7 }), batch.ErrInvalidRecord)
	f("log append time from a client", rebuilt(t, func(b []byte) { b[atAttributes+1] |= 8 }), batch.ErrInvalidTimestamp)
	f("gzip that isn't", rebuilt(t, func(b []byte) { b[atAttributes+1] |= 1 }), batch.ErrCorrupt)
	f("a byte behind", append(rebuilt(t, func([]byte) {}), 0), batch.ErrInvalidRecord)
	f("nothing", nil, batch.ErrShort)
	flipped := rebuilt(t, func([]byte) {})
	flipped[len(flipped)-1] ^= 1
	f("flipped bit", flipped, batch.ErrCRC)
}

// rawBatch wraps hand-made records.
func rawBatch(t testing.TB, c batch.Codec, count int32, records []byte) []byte {
	t.Helper()
	raw := append(rebuilt(t, func([]byte) {})[:atRecords:atRecords], records...)
	put32(atLength, int32(len(raw)-12))(raw)
	put32(atCount, count)(raw)
	put32(atLastDelta, count-1)(raw)
	raw[atAttributes+1] = byte(c)
	batch.SetChecksum(raw)
	return raw
}

func TestLyingRecords(t *testing.T) {
	f := func(name string, records ...byte) {
		t.Helper()
		if _, err := batch.ValidateForProduce(rawBatch(t, batch.None, 1, records), lax, nil); !errors.Is(err, batch.ErrInvalidRecord) {
			t.Errorf("%s: %v", name, err)
		}
	}
	good := []byte{14, 0, 0, 0, 1, 2, 'a', 0} // length 7: attributes, time, offset, null key, value of 1 byte, no headers
	if _, err := batch.ValidateForProduce(rawBatch(t, batch.None, 1, good), lax, nil); err != nil {
		t.Fatal(err)
	}
	f("no bytes")
	f("empty record", 0)
	f("negative length", 13, 0, 0, 0, 1, 2, 'a', 0)
	f("length beyond the batch", 200, 1, 0, 0, 0, 1, 2, 'a', 0)
	f("length without end", 0xff, 0xff, 0xff, 0xff, 0xff, 0xff)
	f("length below the record", 12, 0, 0, 0, 1, 2, 'a', 0)
	f("attributes only", 2, 0)
	f("no offset", 4, 0, 0)
	f("no key", 6, 0, 0, 0)
	f("no value", 8, 0, 0, 0, 1)
	f("no header count", 12, 0, 0, 0, 1, 2, 'a')
	f("key length -2", 14, 0, 0, 0, 3, 2, 'a', 0)
	f("key beyond the record", 14, 0, 0, 0, 100, 2, 'a', 0)
	f("value beyond the record", 14, 0, 0, 0, 1, 100, 'a', 0)
	f("offset delta 1 first", 14, 0, 0, 2, 1, 2, 'a', 0)
	f("offset delta -1", 14, 0, 0, 1, 1, 2, 'a', 0)
	f("negative header count", 14, 0, 0, 0, 1, 2, 'a', 1)
	f("headers that aren't there", 14, 0, 0, 0, 1, 2, 'a', 40)
	f("null header key", 18, 0, 0, 0, 1, 2, 'a', 2, 1, 1)
	f("bytes behind the headers", 16, 0, 0, 0, 1, 2, 'a', 0, 9)
	f("timestamp delta without end", 26, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff)
}

func TestProduceRules(t *testing.T) {
	f := func(name string, o batch.BuilderOptions, fill func(*batch.Builder), rules batch.ProduceRules, want error, indexes ...int) {
		t.Helper()
		b := batch.NewBuilder(o)
		fill(b)
		raw, err := b.Build()
		if err != nil {
			t.Fatal(err)
		}
		_, err = batch.ValidateForProduce(raw, rules, nil)
		if !errors.Is(err, want) || (want == nil) != (err == nil) {
			t.Errorf("%s: %v, expected %v", name, err, want)
			return
		}
		var records *batch.RecordsError
		if errors.As(err, &records) != (len(indexes) > 0) {
			t.Errorf("%s: %v", name, err)
			return
		}
		for i, index := range indexes {
			if records.Records[i].Index != index {
				t.Errorf("%s: %v, expected records %v", name, err, indexes)
			}
		}
	}
	keyed := func(b *batch.Builder) { b.Append(now, []byte("k"), nil); b.Append(now+50, []byte("k"), nil) }
	unkeyed := func(b *batch.Builder) { b.Append(now, []byte("k"), nil); b.Append(now, nil, []byte("v")) }
	timeless := func(b *batch.Builder) { b.Append(types.NoTimestamp, nil, nil) }
	for _, c := range codecs {
		o := batch.BuilderOptions{Codec: c}
		f("keys", o, keyed, batch.ProduceRules{Compacted: true, BeforeMax: -1, AfterMax: -1}, nil)
		f("no key", o, unkeyed, batch.ProduceRules{Compacted: true, BeforeMax: -1, AfterMax: -1}, batch.ErrInvalidRecord, 1)
		f("no key, shallow", o, unkeyed, batch.ProduceRules{Compacted: true, Shallow: true, BeforeMax: -1, AfterMax: -1}, batch.ErrInvalidRecord, 1)
		f("no key, not compacted", o, unkeyed, lax, nil)
		f("in time", o, keyed, batch.ProduceRules{Now: now + 50, BeforeMax: 50, AfterMax: 0}, nil)
		f("too old", o, keyed, batch.ProduceRules{Now: now + 100, BeforeMax: 99, AfterMax: -1}, batch.ErrInvalidTimestamp, 0)
		f("too new", o, keyed, batch.ProduceRules{Now: now, BeforeMax: -1, AfterMax: 10}, batch.ErrInvalidTimestamp, 1)
		f("the broker's time", o, keyed, batch.ProduceRules{Now: now, AfterMax: 10, LogAppendTime: true}, nil)
		f("no time", o, timeless, batch.ProduceRules{Now: now}, nil)
	}
	f("zstd", batch.BuilderOptions{Codec: batch.Zstd}, keyed, batch.ProduceRules{RefuseZstd: true, BeforeMax: -1, AfterMax: -1}, batch.ErrUnsupportedCompression)
	f("size", batch.BuilderOptions{}, keyed, batch.ProduceRules{MaxBytes: 70, BeforeMax: -1, AfterMax: -1}, batch.ErrTooLarge)
	many := func(b *batch.Builder) {
		for range 1000 {
			b.Append(now, nil, nil)
		}
	}
	f("all refused", batch.BuilderOptions{}, many, batch.ProduceRules{Compacted: true, BeforeMax: -1, AfterMax: -1}, batch.ErrInvalidRecord, 0, 1, 2)
}

// TestMaxTimestampIsFoundInTheRecords: some clients state none or another one.
func TestMaxTimestampIsFoundInTheRecords(t *testing.T) {
	raw := build(t, batch.BuilderOptions{}, 3, 5)
	batch.SetMaxTimestamp(raw, 0)
	p, err := batch.ValidateForProduce(raw, lax, nil)
	if err != nil || p.MaxTimestamp != now+2 || !p.MaxTimestampDiffers() {
		t.Fatalf("%+v %v", p, err)
	}
	batch.SetMaxTimestamp(raw, p.MaxTimestamp)
	if p, err = batch.ValidateForProduce(raw, lax, nil); err != nil || p.MaxTimestampDiffers() {
		t.Fatalf("%+v %v", p, err)
	}
}

// pack compresses with the codecs' own libraries, for batches that the Builder would not make.
func pack(t testing.TB, c batch.Codec, data []byte, framed bool) []byte {
	t.Helper()
	var out bytes.Buffer
	switch c {
	case batch.Gzip:
		w := gzip.NewWriter(&out)
		_, _ = w.Write(data)
		_ = w.Close()
	case batch.Snappy:
		if !framed {
			return s2.EncodeSnappy(nil, data)
		}
		out.Write([]byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0, 0, 0, 0, 1, 0, 0, 0, 1})
		for len(data) > 0 {
			n := min(len(data), 1000)
			block := s2.EncodeSnappy(nil, data[:n])
			out.Write(binary.BigEndian.AppendUint32(nil, uint32(len(block))))
			out.Write(block)
			data = data[n:]
		}
	case batch.LZ4:
		w := lz4.NewWriter(&out)
		_, _ = w.Write(data)
		_ = w.Close()
	case batch.Zstd:
		w, err := zstd.NewWriter(&out) // a stream doesn't state its size
		if err != nil {
			t.Fatal(err)
		}
		_, _ = w.Write(data)
		_ = w.Close()
	}
	return out.Bytes()
}

// TestBombs: a small batch that unpacks to gigabytes costs no more than the limit.
func TestBombs(t *testing.T) {
	const limit = 1 << 20
	bomb := make([]byte, 64<<20)
	for _, c := range codecs[1:] {
		packed := pack(t, c, bomb, true)
		raw := rawBatch(t, c, 1, packed)
		var before, after runtime.MemStats
		scratch := &batch.Scratch{MaxDecoded: limit}
		_, _ = tryDecode(raw, scratch) // pools and tables exist from here on
		runtime.ReadMemStats(&before)
		_, err := tryDecode(raw, scratch)
		runtime.ReadMemStats(&after)
		if !errors.Is(err, batch.ErrTooLarge) {
			t.Errorf("%s: %v", c, err)
		}
		if used := after.TotalAlloc - before.TotalAlloc; used > 20*limit {
			t.Errorf("%s: %d bytes allocated to refuse a bomb of %d bytes", c, used, len(packed))
		}
	}
	lie := binary.AppendUvarint(nil, 1<<30) // a raw snappy block that claims a gigabyte
	if _, err := tryDecode(rawBatch(t, batch.Snappy, 1, append(lie, 1, 2, 3)), &batch.Scratch{MaxDecoded: 2 << 30}); !errors.Is(err, batch.ErrCorrupt) {
		t.Error(err)
	}
}

// TestLimitIsExact: what fits exactly is decoded, one byte more is refused.
func TestLimitIsExact(t *testing.T) {
	plain := build(t, batch.BuilderOptions{}, 20, 400)
	size := len(plain) - batch.HeaderSize
	for _, c := range codecs[1:] {
		for _, framed := range []bool{true, false} {
			raw := rawBatch(t, c, 20, pack(t, c, plain[batch.HeaderSize:], framed))
			if got, err := tryDecode(raw, &batch.Scratch{MaxDecoded: size}); err != nil || len(got) != 20 {
				t.Errorf("%s: %d records, %v", c, len(got), err)
			}
			if _, err := tryDecode(raw, &batch.Scratch{MaxDecoded: size - 1}); !errors.Is(err, batch.ErrTooLarge) {
				t.Errorf("%s: %v", c, err)
			}
		}
	}
}

// TestDamagedCompression: every truncation and many flipped bytes give an error
// or records, never a panic, and truncation is never taken for the end.
func TestDamagedCompression(t *testing.T) {
	for _, c := range codecs[1:] {
		raw := build(t, batch.BuilderOptions{Codec: c}, 5, 50)
		scratch := &batch.Scratch{}
		for cut := batch.HeaderSize; cut < len(raw); cut++ {
			short := bytes.Clone(raw[:cut])
			put32(atLength, int32(cut-12))(short)
			got, err := tryDecode(short, scratch)
			if err == nil {
				t.Errorf("%s cut at %d of %d: %d records without an error", c, cut, len(raw), len(got))
			}
		}
		for at := batch.HeaderSize; at < len(raw); at++ {
			for _, bit := range []byte{1, 0x80, 0xff} {
				bad := bytes.Clone(raw)
				bad[at] ^= bit
				_, _ = tryDecode(bad, scratch)
			}
		}
	}
}

func TestAcceptStops(t *testing.T) {
	at := func(offset types.Offset, e types.LeaderEpoch) []byte {
		return build(t, batch.BuilderOptions{BaseOffset: offset, LeaderEpoch: e}, 2, 10)
	}
	join := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	from := batch.Chain{LogEnd: 100, LastEpoch: 5}
	f := func(name string, b []byte, batches int, end types.Offset, want error) {
		t.Helper()
		a := batch.Accept(b, from, 7, nil)
		if a.Batches != batches || a.Chain.LogEnd != end || !errors.Is(a.Stopped, want) || (want == nil) != (a.Stopped == nil) {
			t.Errorf("%s: %+v", name, a)
		}
	}
	f("nothing", nil, 0, 100, nil)
	f("two", join(at(100, 5), at(102, 7)), 2, 104, nil)
	f("gap", join(at(150, 5), at(300, 6)), 2, 302, nil)
	f("offset falls", join(at(100, 5), at(101, 5)), 1, 102, batch.ErrOffsetFalls)
	f("below the log end", at(99, 5), 0, 100, batch.ErrOffsetFalls)
	f("epoch falls", join(at(100, 6), at(102, 5)), 1, 102, batch.ErrEpochFalls)
	f("epoch below the log's", at(100, 4), 0, 100, batch.ErrEpochFalls)
	f("epoch ahead", join(at(100, 7), at(102, 8)), 1, 102, batch.ErrEpochAhead)
	f("no epoch", at(100, types.NoLeaderEpoch), 0, 100, batch.ErrCorrupt)
	f("partial", join(at(100, 5), at(102, 5)[:70]), 1, 102, batch.ErrShort)
	bad := join(at(100, 5), at(102, 5))
	bad[len(bad)-1] ^= 1
	f("checksum", bad, 1, 102, batch.ErrCRC)
	stop := errors.New("stop")
	a := batch.Accept(join(at(100, 5), at(102, 6)), from, 7, func(h *batch.Header, raw []byte, before batch.Chain) error {
		if h.BaseOffset == 102 {
			if before != (batch.Chain{LogEnd: 102, LastEpoch: 5}) {
				t.Error(before)
			}
			return stop
		}
		return nil
	})
	if a.Batches != 1 || !errors.Is(a.Stopped, stop) {
		t.Errorf("%+v", a)
	}
}
