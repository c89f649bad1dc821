package sim

import (
	"fmt"
	"testing"

	"tidemark/internal/batch"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
)

// What compaction must leave of transactions: the newest committed record of a key, and
// the marker behind what is left of one.
func TestWhatCompactionLeavesIsJudged(t *testing.T) {
	f := func(name, breaks string, end batch.MarkerKind, left ...int) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			j, run := aTxnJudge(t)
			j.w.c.o.Compacted = true
			id := meta.PartitionID{Topic: j.w.c.topic}
			l := j.w.c.check.ledger(id)
			keyed := func(producer *batch.Producer, transactional bool, value string) []byte {
				b := batch.NewBuilder(batch.BuilderOptions{Transactional: transactional, Producer: producer, BaseOffset: types.Offset(len(l.committed))})
				b.Append(1, []byte("key"), []byte(value))
				raw, err := b.Build()
				if err != nil {
					t.Fatal(err)
				}
				return raw
			}
			readableBatch(j, 0, keyed(&batch.Producer{ID: 9}, false, "plain"))
			readableBatch(j, 0, keyed(&batch.Producer{ID: 5, Epoch: 1}, true, fmt.Sprintf("%s%d of a test", txnMark, run.number)))
			readableBatch(j, 0, markerOf(end))
			h := &held{id: id, shadowLog: &shadowLog{}}
			for _, i := range left {
				h.batches = append(h.batches, l.committed[types.Offset(i)].shadowBatch)
			}
			j.w.c.machines[0].parts = []*held{h}
			j.keptWhole()
			j.wantFound(t, breaks)
		})
	}
	f("committed", "", batch.Commit, 1, 2)
	f("committed, and the older record is left", "", batch.Commit, 0, 1, 2)
	f("committed, and gone", "TxnWhole", batch.Commit, 0, 2)
	f("committed, and its marker is gone", "TxnWhole", batch.Commit, 0, 1)
	f("aborted", "", batch.Abort, 0, 2)
	f("aborted, without its marker", "", batch.Abort, 0)
	f("aborted, and counted as the newest", "TxnWhole", batch.Abort, 2)
	f("aborted, and its marker is gone", "TxnWhole", batch.Abort, 0, 1)
}
