package batch_test

import (
	"testing"

	"tidemark/internal/batch"
	"tidemark/internal/core/types"
)

// sixteenKiB is a batch of about 16 KiB, a producer's default batch.size.
func sixteenKiB(b *testing.B, c batch.Codec) []byte {
	return build(b, batch.BuilderOptions{Codec: c}, 48, 300)
}

func BenchmarkStamp(b *testing.B) {
	raw := sixteenKiB(b, batch.None)
	b.SetBytes(int64(len(raw)))
	b.ReportAllocs()
	for b.Loop() {
		batch.Stamp(raw, 1, 2)
	}
}

func BenchmarkCRC(b *testing.B) {
	raw := sixteenKiB(b, batch.None)
	b.SetBytes(int64(len(raw)))
	b.ReportAllocs()
	for b.Loop() {
		if err := batch.VerifyCRC(raw); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkValidateForProduce is the whole cost of a produced batch before it is written.
func BenchmarkValidateForProduce(b *testing.B) {
	for _, c := range codecs {
		b.Run(c.String(), func(b *testing.B) {
			raw, scratch := sixteenKiB(b, c), &batch.Scratch{}
			b.SetBytes(int64(len(raw)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := batch.ValidateForProduce(raw, lax, scratch); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkAccept is the cost of a follower's megabyte before it is written.
func BenchmarkAccept(b *testing.B) {
	var raw []byte
	for range 64 {
		raw = append(raw, sixteenKiB(b, batch.None)...)
	}
	end := types.Offset(0)
	for it := batch.Iterate(raw); it.Next(); end += 48 {
		batch.Stamp(it.Raw, end, 1)
	}
	b.SetBytes(int64(len(raw)))
	b.ReportAllocs()
	for b.Loop() {
		if a := batch.Accept(raw, batch.Chain{}, 1, nil); a.Batches != 64 || a.Stopped != nil {
			b.Fatal(a)
		}
	}
}
