package batch_test

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/batch"
	"tidemark/internal/core/types"
)

// oracle makes a batch with another implementation: kmsg's encoding and kgo's compressors.
func oracle(t testing.TB, c batch.Codec, records []kmsg.Record) []byte {
	t.Helper()
	var body []byte
	for i := range records {
		r := &records[i]
		r.Length = 0
		withoutLength := r.AppendTo(nil)[1:]
		r.Length = int32(len(withoutLength))
		body = r.AppendTo(body)
	}
	if c != batch.None {
		body = compressor(t, c).encode(body)
	}
	b := kmsg.RecordBatch{
		Length: int32(49 + len(body)), PartitionLeaderEpoch: 3, Magic: 2, Attributes: int16(c),
		LastOffsetDelta: int32(len(records) - 1), FirstTimestamp: int64(now), MaxTimestamp: int64(now) + int64(len(records)-1),
		ProducerID: 12, ProducerEpoch: 4, FirstSequence: 9, NumRecords: int32(len(records)), Records: body,
	}
	raw := b.AppendTo(nil)
	binary.BigEndian.PutUint32(raw[17:], crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli)))
	return raw
}

type codecOracle struct {
	encode func([]byte) []byte
	decode func([]byte) []byte
}

func compressor(t testing.TB, c batch.Codec) codecOracle {
	t.Helper()
	by := map[batch.Codec]kgo.CompressionCodec{batch.Gzip: kgo.GzipCompression(), batch.Snappy: kgo.SnappyCompression(), batch.LZ4: kgo.Lz4Compression(), batch.Zstd: kgo.ZstdCompression()}
	pack, err := kgo.DefaultCompressor(by[c])
	if err != nil {
		t.Fatal(err)
	}
	unpack := kgo.DefaultDecompressor()
	return codecOracle{
		encode: func(b []byte) []byte {
			out, _ := pack.Compress(new(bytes.Buffer), b)
			return append([]byte(nil), out...)
		},
		decode: func(b []byte) []byte {
			out, err := unpack.Decompress(b, kgo.CompressionCodecType(c))
			if err != nil {
				t.Fatal(err)
			}
			return out
		},
	}
}

func kmsgRecords(n int) []kmsg.Record {
	out := make([]kmsg.Record, n)
	for i := range out {
		out[i] = kmsg.Record{TimestampDelta64: int64(i), OffsetDelta: int32(i), Key: []byte{byte(i)}, Value: make([]byte, 3*i), Headers: []kmsg.Header{{Key: "a", Value: []byte("b")}, {Key: "n"}}}
		if i%3 == 0 {
			out[i].Key, out[i].Headers = nil, nil
		}
	}
	return out
}

// TestReadsWhatOthersWrite: batches of another encoder and other compressors.
func TestReadsWhatOthersWrite(t *testing.T) {
	for _, c := range codecs {
		records := kmsgRecords(40)
		raw := oracle(t, c, records)
		p, err := batch.ValidateForProduce(raw, lax, nil)
		if err != nil || p.MaxTimestampDiffers() {
			t.Fatal(c, p, err)
		}
		i := 0
		for it := batch.Records(raw, nil); it.Next(); i++ {
			r, want := &it.Record, &records[i]
			if string(r.Key) != string(want.Key) || (r.Key == nil) != (want.Key == nil) || string(r.Value) != string(want.Value) ||
				r.Offset != types.Offset(i) || r.Timestamp != now+types.Millis(i) || r.HeaderCount() != len(want.Headers) {
				t.Fatalf("%s record %d: %+v, expected %+v", c, i, r, want)
			}
			for k, h := range r.Headers() {
				if h.Key != want.Headers[k].Key || string(h.Value) != string(want.Headers[k].Value) || (h.Value == nil) != (want.Headers[k].Value == nil) {
					t.Fatalf("%s record %d header %d: %+v", c, i, k, h)
				}
			}
		}
		if i != len(records) {
			t.Fatal(c, i)
		}
	}
}

// TestOthersReadWhatWeWrite: the Builder's batches through another decoder.
func TestOthersReadWhatWeWrite(t *testing.T) {
	for _, c := range codecs {
		raw := build(t, batch.BuilderOptions{Codec: c, BaseOffset: 1000, LeaderEpoch: 8, Transactional: true, Producer: &batch.Producer{ID: 77, Epoch: 2, BaseSequence: 5}}, 30, 100)
		var b kmsg.RecordBatch
		if err := b.ReadFrom(raw); err != nil {
			t.Fatal(c, err)
		}
		h, err := batch.ParseHeader(raw)
		if err != nil {
			t.Fatal(err)
		}
		ours := kmsg.RecordBatch{FirstOffset: int64(h.BaseOffset), Length: h.Length, PartitionLeaderEpoch: int32(h.PartitionLeaderEpoch), Magic: h.Magic, CRC: int32(h.CRC),
			Attributes: h.Attributes, LastOffsetDelta: h.LastOffsetDelta, FirstTimestamp: int64(h.BaseTimestamp), MaxTimestamp: int64(h.MaxTimestamp),
			ProducerID: int64(h.ProducerID), ProducerEpoch: h.ProducerEpoch, FirstSequence: h.BaseSequence, NumRecords: h.RecordsCount, Records: b.Records}
		if diff := cmp.Diff(b, ours); diff != "" {
			t.Fatal(c, diff)
		}
		body := b.Records
		if c != batch.None {
			body = compressor(t, c).decode(body)
		}
		for i, want := range decode(t, raw) {
			var r kmsg.Record
			_, n := binary.Varint(body)
			length, _ := binary.Varint(body)
			if err := r.ReadFrom(body[:n+int(length)]); err != nil {
				t.Fatal(c, i, err)
			}
			body = body[n+int(length):]
			if string(r.Key) != want.Key || string(r.Value) != want.Value || r.OffsetDelta != int32(i) || len(r.Headers) != 2 || r.TimestampDelta64 != int64(i) {
				t.Fatalf("%s record %d: %+v", c, i, r)
			}
		}
		if len(body) != 0 {
			t.Fatal(c, len(body), "bytes left")
		}
	}
}
