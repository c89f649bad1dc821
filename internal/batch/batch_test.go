package batch_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tidemark/internal/assert"
	"tidemark/internal/batch"
	"tidemark/internal/core/types"
)

func fields(v any) string { return fmt.Sprintf("%+v", v) }

var codecs = []batch.Codec{batch.None, batch.Gzip, batch.Snappy, batch.LZ4, batch.Zstd}

const now types.Millis = 1_700_000_000_000

// build makes a batch of n records of about size bytes each.
func build(t testing.TB, o batch.BuilderOptions, n, size int) []byte {
	t.Helper()
	b := batch.NewBuilder(o)
	for i := range n {
		value := bytes.Repeat([]byte{byte('a' + i%26)}, size)
		b.Append(now+types.Millis(i), fmt.Appendf(nil, "key-%d", i), value, batch.RecordHeader{Key: "h", Value: []byte("v")}, batch.RecordHeader{Key: "null"})
	}
	raw, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

type decoded struct {
	Offset     types.Offset
	Timestamp  types.Millis
	Key, Value string
	Headers    []batch.RecordHeader
}

func decode(t testing.TB, raw []byte) []decoded {
	t.Helper()
	out, err := tryDecode(raw, nil)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func tryDecode(raw []byte, s *batch.Scratch) ([]decoded, error) {
	var out []decoded
	it := batch.Records(raw, s)
	for it.Next() {
		r := &it.Record
		out = append(out, decoded{r.Offset, r.Timestamp, string(r.Key), string(r.Value), r.Headers()})
	}
	return out, it.Err()
}

func TestEveryCodecRoundTrips(t *testing.T) {
	for _, c := range codecs {
		for _, n := range []int{1, 3, 500} {
			raw := build(t, batch.BuilderOptions{Codec: c, BaseOffset: 77, LeaderEpoch: 5}, n, 300)
			if c != batch.None && n == 500 && len(raw) > 50_000 {
				t.Errorf("%s made %d bytes", c, len(raw))
			}
			if err := batch.VerifyCRC(raw); err != nil {
				t.Fatal(c, err)
			}
			got := decode(t, raw)
			want := decode(t, build(t, batch.BuilderOptions{BaseOffset: 77, LeaderEpoch: 5}, n, 300))
			if diff := cmp.Diff(want, got); diff != "" || len(got) != n {
				t.Fatalf("%s, %d records: %s", c, n, diff)
			}
			if got[0].Offset != 77 || got[0].Timestamp != now || got[0].Headers[0].Key != "h" || got[0].Headers[1].Value != nil {
				t.Fatalf("%+v", got[0])
			}
		}
	}
}

func TestNullsAndEmpties(t *testing.T) {
	b := batch.NewBuilder(batch.BuilderOptions{})
	b.Append(now, nil, nil)
	b.Append(now, []byte{}, []byte{})
	raw, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	it := batch.Records(raw, nil)
	it.Next()
	if it.Record.Key != nil || it.Record.Value != nil || it.Record.Headers() != nil {
		t.Fatal("null became something")
	}
	it.Next()
	if it.Record.Key == nil || it.Record.Value == nil {
		t.Fatal("empty became null")
	}
}

// TestStampTouchesTwoFields: nothing but base offset and leader epoch changes, and nothing is allocated.
func TestStampTouchesTwoFields(t *testing.T) {
	raw := build(t, batch.BuilderOptions{}, 10, 100)
	before := bytes.Clone(raw)
	batch.Stamp(raw, 1<<40, 9)
	h, err := batch.ParseHeader(raw)
	if err != nil || h.BaseOffset != 1<<40 || h.PartitionLeaderEpoch != 9 {
		t.Fatal(h, err)
	}
	if !bytes.Equal(raw[8:12], before[8:12]) || !bytes.Equal(raw[16:], before[16:]) {
		t.Fatal("other bytes changed")
	}
	if err := batch.VerifyCRC(raw); err != nil {
		t.Fatal(err)
	}
}

func TestHotPathsDoNotAllocate(t *testing.T) {
	if underRace {
		t.Skip("allocations are counted without the race detector")
	}
	raw := build(t, batch.BuilderOptions{}, 50, 300)
	packed := build(t, batch.BuilderOptions{Codec: batch.Zstd}, 50, 300)
	two := append(bytes.Clone(raw), raw...)
	scratch := &batch.Scratch{}
	f := func(name string, most float64, do func()) {
		t.Helper()
		if got := testing.AllocsPerRun(50, do); got > most {
			t.Errorf("%s: %v allocations", name, got)
		}
	}
	f("stamp", 0, func() { batch.Stamp(raw, 5, 5) })
	f("header", 0, func() { _, _ = batch.ParseHeader(raw) })
	f("checksum", 0, func() { _ = batch.VerifyCRC(raw) })
	f("log append time", 0, func() { batch.SetLogAppendTime(two[:len(raw)], 5) })
	f("iterate", 0, func() {
		for it := batch.Iterate(two); it.Next(); {
			_ = it.Header.NextOffset()
		}
	})
	f("records", 0, func() {
		for it := batch.Records(raw, scratch); it.Next(); {
			_ = it.Record.Key
		}
	})
	f("packed records", 0, func() {
		for it := batch.Records(packed, scratch); it.Next(); {
			_ = it.Record.Key
		}
	})
	batch.Stamp(packed, 0, 0)
	f("validate packed", 0, func() {
		if _, err := batch.ValidateForProduce(packed, lax, nil); err != nil {
			t.Fatal(err)
		}
	})
	batch.Stamp(raw, 0, 0)
	f("validate", 0, func() {
		if _, err := batch.ValidateForProduce(raw, batch.ProduceRules{Now: now, BeforeMax: -1, AfterMax: 3600_000}, scratch); err != nil {
			t.Fatal(err)
		}
	})
}

func TestLogAppendTime(t *testing.T) {
	raw := build(t, batch.BuilderOptions{}, 3, 10)
	batch.SetLogAppendTime(raw, now+5000)
	if err := batch.VerifyCRC(raw); err != nil {
		t.Fatal(err)
	}
	for _, r := range decode(t, raw) {
		if r.Timestamp != now+5000 {
			t.Fatalf("%+v", r)
		}
	}
	ts := now + 7000
	built := build(t, batch.BuilderOptions{LogAppendTime: &ts}, 2, 10)
	if got := decode(t, built); got[0].Timestamp != ts || got[1].Timestamp != ts {
		t.Fatalf("%+v", got)
	}
}

func TestSequencesWrap(t *testing.T) {
	f := func(seq, n, want int32) {
		t.Helper()
		if got := batch.AddSequence(seq, n); got != want {
			t.Fatalf("%d + %d = %d, expected %d", seq, n, got, want)
		}
	}
	f(0, 5, 5)
	f(math.MaxInt32, 0, math.MaxInt32)
	f(math.MaxInt32, 1, 0)
	f(math.MaxInt32-2, 5, 2)
	h := batch.Header{BaseSequence: math.MaxInt32 - 1, LastOffsetDelta: 3}
	if h.LastSequence() != 1 {
		t.Fatal(h.LastSequence())
	}
	h.BaseSequence = -1
	if h.LastSequence() != -1 {
		t.Fatal(h.LastSequence())
	}
}

func TestIterate(t *testing.T) {
	one, two := build(t, batch.BuilderOptions{BaseOffset: 5}, 2, 10), build(t, batch.BuilderOptions{BaseOffset: 9}, 1, 20)
	both := append(bytes.Clone(one), two...)
	f := func(name string, b []byte, batches, rest int, want error) {
		t.Helper()
		n := 0
		it := batch.Iterate(b)
		for it.Next() {
			n++
		}
		if n != batches || len(it.Rest()) != rest || !errors.Is(it.Err(), want) || (want == nil) != (it.Err() == nil) {
			t.Fatalf("%s: %d batches, %d left, %v", name, n, len(it.Rest()), it.Err())
		}
		if it.Next() {
			t.Fatal("went on after the end")
		}
		n = 0
		whole, err := batch.Whole(b, func(batch.Header) { n++ })
		if cut := errors.Is(want, batch.ErrShort); n != batches || len(whole) != len(b)-rest || (err == nil) != (cut || want == nil) {
			t.Fatalf("%s: %d whole batches in %d bytes, %v", name, n, len(whole), err)
		}
	}
	f("nothing", nil, 0, 0, nil)
	f("two", both, 2, 0, nil)
	f("cut in the header", both[:len(one)+30], 1, 30, batch.ErrShort)
	f("cut in the records", both[:len(both)-1], 1, len(two)-1, batch.ErrShort)
	f("zeros behind", append(bytes.Clone(both), make([]byte, 100)...), 2, 100, batch.ErrMagic)
	old := bytes.Clone(both)
	old[len(one)+16] = 1
	f("old format", old, 1, len(two), batch.ErrMagic)
}

func TestMarkers(t *testing.T) {
	for _, kind := range []batch.MarkerKind{batch.Abort, batch.Commit} {
		raw := batch.NewMarker(kind, 9001, 3, 12, now)
		h, err := batch.ParseHeader(raw)
		if err != nil || !h.IsControl() || !h.IsTransactional() || h.BaseSequence != -1 || h.RecordsCount != 1 || h.MaxTimestamp != now {
			t.Fatalf("%+v %v", h, err)
		}
		m, err := batch.ParseMarker(raw)
		if err != nil || m != (batch.Marker{Kind: kind, ProducerID: 9001, ProducerEpoch: 3, CoordinatorEpoch: 12}) {
			t.Fatalf("%+v %v", m, err)
		}
	}
	f := func(name string, key, value []byte, want batch.MarkerKind, ok bool) {
		t.Helper()
		b := batch.NewBuilder(batch.BuilderOptions{Control: true, Producer: &batch.Producer{ID: 7, Epoch: 1, BaseSequence: -1}})
		b.Append(now, key, value)
		raw, err := b.Build()
		if err != nil {
			t.Fatal(err)
		}
		m, err := batch.ParseMarker(raw)
		if (err == nil) != ok || (ok && m.Kind != want) || (!ok && !errors.Is(err, batch.ErrInvalidRecord)) {
			t.Fatalf("%s: %+v %v", name, m, err)
		}
	}
	f("producer reset of KIP-1279", []byte{0, 0, 0, 7}, []byte{0, 0}, batch.PIDReset, true)
	f("unknown kind", []byte{0, 0, 0, 42}, nil, 42, true)
	f("no key", nil, []byte{0, 0, 0, 0, 0, 0}, 0, false)
	f("short key", []byte{0, 0, 0}, []byte{0, 0, 0, 0, 0, 0}, 0, false)
	f("short value", []byte{0, 0, 0, 1}, []byte{0, 0, 0}, 0, false)
	if _, err := batch.ParseMarker(build(t, batch.BuilderOptions{}, 1, 1)); !errors.Is(err, batch.ErrInvalidRecord) {
		t.Fatal(err)
	}
}

func TestBuilderKeepsWhatCompactionNeeds(t *testing.T) {
	source := build(t, batch.BuilderOptions{BaseOffset: 100, LeaderEpoch: 4, Producer: &batch.Producer{ID: 5, Epoch: 1, BaseSequence: 10}}, 10, 50)
	h, err := batch.ParseHeader(source)
	if err != nil {
		t.Fatal(err)
	}
	last, horizon := h.LastOffset(), now+86_400_000
	b := batch.NewBuilder(batch.BuilderOptions{Codec: batch.LZ4, BaseOffset: 100, LeaderEpoch: 4, LastOffset: &last, DeleteHorizon: &horizon,
		Producer: &batch.Producer{ID: 5, Epoch: 1, BaseSequence: 10}})
	for it := batch.Records(source, nil); it.Next(); {
		if it.Record.OffsetDelta%3 == 0 {
			b.AppendRecord(&it.Record)
		}
	}
	raw, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	got, err := batch.ParseHeader(raw)
	if err != nil || got.RecordsCount != 4 || got.LastOffset() != last || !got.HasDeleteHorizon() || got.BaseTimestamp != horizon || got.MaxTimestamp != now+9 || got.BaseSequence != 10 {
		t.Fatalf("%+v %v", got, err)
	}
	all := decode(t, source)
	if diff := cmp.Diff([]decoded{all[0], all[3], all[6], all[9]}, decode(t, raw)); diff != "" {
		t.Fatal(diff)
	}
	b.Reset(batch.BuilderOptions{Codec: batch.Gzip, BaseOffset: 100, LastOffset: &last})
	empty, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	if h, err := batch.ParseHeader(empty); err != nil || h.RecordsCount != 0 || h.Size() != batch.HeaderSize || h.LastOffset() != last || h.Compression() != batch.None {
		t.Fatalf("%+v %v", h, err)
	}
	if len(decode(t, empty)) != 0 {
		t.Fatal("records in an empty batch")
	}
	if _, err := batch.NewBuilder(batch.BuilderOptions{}).Build(); !errors.Is(err, batch.ErrInvalidRecord) {
		t.Fatal("an empty batch without offsets:", err)
	}
}

func TestCodecNames(t *testing.T) {
	for _, c := range codecs {
		if got, ok := batch.ParseCodec(c.String()); !ok || got != c {
			t.Fatal(c, got, ok)
		}
	}
	if c, ok := batch.ParseCodec("uncompressed"); !ok || c != batch.None {
		t.Fatal(c, ok)
	}
	if _, ok := batch.ParseCodec("producer"); ok {
		t.Fatal("producer is no codec")
	}
	if batch.Codec(6).Valid() || !strings.Contains(batch.Codec(6).String(), "6") {
		t.Fatal("codec 6")
	}
}

// TestBuilderRefusesFallingOffsets watches I-02: a caller that renumbers is stopped.
func TestBuilderRefusesFallingOffsets(t *testing.T) {
	f := func(base types.Offset, offsets ...types.Offset) {
		t.Helper()
		defer func() {
			if _, ok := recover().(*assert.Error); !ok {
				t.Fatal("not refused")
			}
		}()
		b := batch.NewBuilder(batch.BuilderOptions{BaseOffset: base})
		for _, o := range offsets {
			b.AppendAt(o, now, nil, nil)
		}
	}
	f(10, 9)
	f(10, 11, 11)
	f(10, 12, 11)
	f(10, 10+math.MaxInt32+1)
}
