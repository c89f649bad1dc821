package source

import (
	"testing"

	"tidemark/internal/batch"
)

// TestOutgrows: a batch that was cut off at its partition's limit is asked for with its own
// size, and nothing else raises a limit.
func TestOutgrows(t *testing.T) {
	b := batch.NewBuilder(batch.BuilderOptions{})
	b.Append(1, []byte("k"), make([]byte, 500))
	raw, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	f := func(name string, p FetchedPartition, limit, want int32) {
		t.Helper()
		if got := p.Outgrows(limit); got != want {
			t.Errorf("%s: %d, want %d", name, got, want)
		}
	}
	size := int32(len(raw))
	f("cut off", FetchedPartition{Records: raw[:200]}, 200, size)
	f("whole, above the limit", FetchedPartition{Records: raw}, 200, 0)
	f("cut off by the answer's limit", FetchedPartition{Records: raw[:200]}, size, 0)
	f("less than a header", FetchedPartition{Records: raw[:batch.HeaderSize-1]}, 20, 0)
	f("an error", FetchedPartition{Records: raw[:200], Code: 6}, 200, 0)
	f("nothing", FetchedPartition{}, 200, 0)
}
