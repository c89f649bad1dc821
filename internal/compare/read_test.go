package compare

import (
	"context"
	"errors"
	"slices"
	"testing"

	"tidemark/internal/batch"
	"tidemark/internal/core/types"
)

func TestRead(t *testing.T) {
	side := fake(t, "x", "y", "z")
	tp := types.TopicPartition{Topic: "t"}
	f := func(from types.Offset, wantStart types.Offset, want ...string) {
		t.Helper()
		var got []string
		start, end, err := Read(context.Background(), side, tp, from, func(raw []byte) error {
			for it := batch.Records(raw, nil); it.Next(); {
				got = append(got, string(it.Record.Value))
			}
			return nil
		})
		if err != nil || start != wantStart || end != 3 || !slices.Equal(got, want) {
			t.Errorf("from %d: %v from %d to %d, %v; want %v from %d to 3", from, got, start, end, err, want, wantStart)
		}
	}
	f(0, 0, "x", "y", "z")
	f(2, 2, "z")
	f(3, 3)
	mine := errors.New("mine")
	if _, _, err := Read(context.Background(), side, tp, 0, func([]byte) error { return mine }); !errors.Is(err, mine) {
		t.Errorf("the visitor's error: %v", err)
	}
	if _, _, err := Read(context.Background(), side, types.TopicPartition{Topic: "t", Partition: 7}, 0, nil); err == nil {
		t.Error("a partition that isn't there was read")
	}
}
