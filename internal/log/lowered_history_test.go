package log

import (
	"errors"
	"testing"

	"tidemark/internal/core/epoch"
	"tidemark/internal/core/types"
)

// TestFirstEntryFallsWithTheLogStart: records are deleted up to within a batch, which takes an
// entry and syncs the history; the power goes before the log start is in its checkpoint. The
// history must reach down to the log start that is found (R2), or a follower that ends within
// the batch in the older epoch is told that its log agrees (R5).
func TestFirstEntryFallsWithTheLogStart(t *testing.T) {
	for _, c := range []struct {
		name          string
		deleted, back types.Offset
		want          string
	}{
		{"within the batch", 3, 2, "[6@2]"},
		{"to an older batch", 3, 0, "[5@0 6@2]"},
		{"not at all", 3, 3, "[6@3]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := options(memFS(t))
			l, _ := mustOpen(t, o)
			follow(t, l, spec{base: 0, n: 2, epoch: 5}, spec{base: 2, n: 3, epoch: 6},
				spec{base: 5, epoch: 6, size: 900}) // in a segment of its own: what is above the recovery point's is read anew
			l.SetHighWatermark(5)
			_, err := l.DeleteRecords(c.deleted)
			if err = errors.Join(err, l.Flush()); err != nil {
				t.Fatal(err)
			}
			l.CloseUnclean()

			o.LogStart, o.RecoveryPoint = c.back, 6
			l, _ = mustOpen(t, o)
			v := l.View()
			if v.LogStart != c.back || v.History.String() != c.want {
				t.Errorf("log start %d, history %v; expected %d, %s", v.LogStart, v.History, c.back, c.want)
			}
			if got := checkpointOf(t, o.FS); !sameEntries(t, got, v.History) {
				t.Errorf("the checkpoint holds %q, the history is %v", got, v.History)
			}
		})
	}
}

func sameEntries(t *testing.T, checkpoint string, h *epoch.History) bool {
	t.Helper()
	entries, err := epoch.ParseCheckpoint([]byte(checkpoint))
	if err != nil {
		t.Fatal(err)
	}
	found, err := epoch.FromEntries(entries)
	if err != nil {
		t.Fatal(err)
	}
	return h.Equal(&found)
}
