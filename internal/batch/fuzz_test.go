package batch_test

import (
	"bytes"
	"errors"
	"math"
	"testing"

	"tidemark/internal/batch"
	"tidemark/internal/core/types"
)

// known are the errors that damage may give.
var known = []error{batch.ErrShort, batch.ErrMagic, batch.ErrLength, batch.ErrCRC, batch.ErrCorrupt, batch.ErrInvalidRecord, batch.ErrTooLarge,
	batch.ErrUnsupportedCompression, batch.ErrInvalidTimestamp, batch.ErrOffsetFalls, batch.ErrEpochFalls, batch.ErrEpochAhead}

func isKnown(err error) bool {
	for _, k := range known {
		if errors.Is(err, k) {
			return true
		}
	}
	return err == nil
}

func addSeeds(f *testing.F) {
	f.Add([]byte{})
	f.Add(make([]byte, 100))
	for _, c := range codecs {
		f.Add(build(f, batch.BuilderOptions{Codec: c}, 3, 40))
	}
	f.Add(batch.NewMarker(batch.Commit, 1, 2, 3, 4))
	f.Add(append(build(f, batch.BuilderOptions{}, 2, 5), build(f, batch.BuilderOptions{BaseOffset: 2}, 2, 5)[:80]...))
}

// FuzzBatch: any bytes give known errors and views inside the bytes. The checksum
// is repaired first, so that the fuzzer gets past it.
func FuzzBatch(f *testing.F) {
	addSeeds(f)
	scratch := &batch.Scratch{MaxDecoded: 1 << 20}
	f.Fuzz(func(t *testing.T, data []byte) {
		walked := 0
		it := batch.Iterate(data)
		for it.Next() {
			if len(it.Raw) != it.Header.Size() || it.Header.NextOffset() <= it.Header.BaseOffset {
				t.Fatalf("%+v over %d bytes", it.Header, len(it.Raw))
			}
			walked += len(it.Raw)
		}
		if !isKnown(it.Err()) || walked+len(it.Rest()) != len(data) || (it.Err() == nil) != (walked == len(data)) {
			t.Fatal(it.Err(), walked, len(it.Rest()))
		}
		a := batch.Accept(data, batch.Chain{LastEpoch: types.NoLeaderEpoch}, math.MaxInt32, nil)
		if !isKnown(a.Stopped) || a.Bytes > walked || (a.Stopped == nil) != (a.Bytes == len(data)) {
			t.Fatalf("%+v of %d", a, walked)
		}
		if len(data) < batch.HeaderSize {
			return
		}
		batch.SetChecksum(data)
		p, err := batch.ValidateForProduce(data, lax, scratch)
		if !isKnown(err) {
			t.Fatal(err)
		}
		got, decodeErr := tryDecode(data, scratch)
		if !isKnown(decodeErr) || (err == nil && (decodeErr != nil || len(got) != int(p.Header.RecordsCount))) {
			t.Fatal(err, decodeErr, len(got))
		}
		if _, err := batch.ParseMarker(data); !isKnown(err) {
			t.Fatal(err)
		}
		if err == nil {
			rebuild(t, data, &p.Header)
		}
	})
}

// rebuild makes the batch anew from its records: they must come out the same.
func rebuild(t *testing.T, raw []byte, h *batch.Header) {
	for _, c := range codecs {
		b := batch.NewBuilder(batch.BuilderOptions{Codec: c, BaseOffset: h.BaseOffset})
		for it := batch.Records(raw, nil); it.Next(); {
			b.AppendRecord(&it.Record)
		}
		again, err := b.Build()
		if err != nil {
			t.Fatal(c, err)
		}
		want, err1 := tryDecode(raw, nil)
		got, err2 := tryDecode(again, nil)
		if err1 != nil || err2 != nil || len(got) != len(want) {
			t.Fatal(c, err1, err2)
		}
		for i := range got {
			if fields(got[i]) != fields(want[i]) {
				t.Fatalf("%s record %d: %+v, expected %+v", c, i, got[i], want[i])
			}
		}
	}
}

// FuzzRecords: the fuzzer writes the uncompressed records themselves.
func FuzzRecords(f *testing.F) {
	f.Add(int32(1), []byte{14, 0, 0, 0, 1, 2, 'a', 0})
	f.Add(int32(2), build(f, batch.BuilderOptions{}, 2, 10)[batch.HeaderSize:])
	f.Fuzz(func(t *testing.T, count int32, records []byte) {
		if count < 0 || len(records) > 1<<20 {
			return
		}
		raw := rawBatch(t, batch.None, count, bytes.Clone(records))
		got, err := tryDecode(raw, nil)
		if !isKnown(err) || (err == nil && len(got) != int(count)) {
			t.Fatal(err, len(got))
		}
	})
}
