package wire

import (
	"testing"

	"tidemark/internal/core/types"
)

func TestFetchTail(t *testing.T) {
	tail := types.Tail{Base: 90, Next: 97, Epoch: 5, Sum: 0xfedcba98, EpochStart: 12, Known: true}
	b := FormatFetchTail(tail)
	if got := ParseFetchTail(b, 97); got != tail {
		t.Errorf("%+v, want %+v", got, tail)
	}
	if got := ParseFetchTail(append(b, 1), 97); got != tail {
		t.Errorf("with what a later program adds: %+v", got)
	}
	tail.EpochStart = types.NoOffset
	if got := ParseFetchTail(FormatFetchTail(tail), 97); got != tail {
		t.Errorf("%+v, want %+v", got, tail)
	}
	f := func(b []byte, next types.Offset) {
		t.Helper()
		if got := ParseFetchTail(b, next); got != (types.Tail{}) {
			t.Errorf("%x is taken for %+v", b, got)
		}
	}
	f(nil, 97)
	f(b[:23], 97)
	f(b, 90) // it would end before it begins
	for _, bad := range []types.Tail{{Base: -1}, {Base: 4, Epoch: -1}, {Base: 4, EpochStart: 5}, {Base: 4, EpochStart: -2}} {
		f(FormatFetchTail(bad), 97)
	}
}

func FuzzParseFetchTail(f *testing.F) {
	f.Add(FormatFetchTail(types.Tail{Base: 90, Epoch: 5, Sum: 7, EpochStart: 12}), int64(97))
	f.Fuzz(func(t *testing.T, b []byte, next int64) {
		if tail := ParseFetchTail(b, types.Offset(next)); tail.Known && ParseFetchTail(FormatFetchTail(tail), tail.Next) != tail {
			t.Errorf("%+v", tail)
		}
	})
}
