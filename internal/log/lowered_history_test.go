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

// TestDeletedRecordsDontCutTheLog: Kafka leaves deleted records in their segment when
// it cuts a log to its log start. What came then, of an older epoch, from the leader of
// an unclean election, is there when we open such a folder.
func TestDeletedRecordsDontCutTheLog(t *testing.T) {
	for _, c := range []struct {
		name  string
		start types.Offset // as it is known at the start
		end   types.Offset
	}{
		{"deleted", 5, 7},
		{"not deleted", 4, 5}, // an epoch that falls ends a log
	} {
		t.Run(c.name, func(t *testing.T) {
			o := options(memFS(t))
			l, _ := mustOpen(t, o)
			l.CloseUnclean()
			var segment []byte
			for _, s := range []spec{{base: 0, n: 5, epoch: 3}, {base: 5, epoch: 2}, {base: 6, epoch: 4}} {
				segment = append(segment, s.build(t)...)
			}
			put(t, o.FS, join(testDir, FileName(0, logSuffix)), segment)

			o.LogStart, o.RecoveryPoint = c.start, 5
			l, r := mustOpen(t, o)
			if v := l.View(); v.LogStart != c.start || v.LogEnd != c.end {
				t.Errorf("the log is [%d, %d), expected [%d, %d): %s", v.LogStart, v.LogEnd, c.start, c.end, r.TruncatedBecause)
			}
			if h := l.View().History.String(); c.end == 7 && h != "[2@5 4@6]" {
				t.Errorf("history %s", h)
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
