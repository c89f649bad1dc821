package log

import (
	"errors"
	"testing"

	"tidemark/internal/core/txn"
	"tidemark/internal/vfs"
)

// TestAProducerBeginsAtZero (KAFKA-15591): two batches of a producer are on their
// way, the first is refused for a reason that passes, the second arrives. Taken, it
// would have the first refused as out of order whenever it came again, for ever. So it
// waits for the first, unless the log may have forgotten a producer (KIP-360).
func TestAProducerBeginsAtZero(t *testing.T) {
	produce := func(l *Log, seq int32) error {
		_, err := l.AppendAsLeader(spec{pid: 7, seq: seq}.build(t), 3, LeaderAppend{RefuseGaps: true})
		return err
	}
	opened := func(o Options) *Log {
		l, _ := mustOpen(t, o)
		if err := l.AssignEpoch(3); err != nil {
			t.Fatal(err)
		}
		return l
	}
	mem := memFS(t)
	l := opened(options(mem))
	lead(t, l, spec{pid: 8, n: 2}) // the log isn't empty, and knows all the same that 7 is new
	f := func(seq int32, want error) {
		t.Helper()
		if err := produce(l, seq); !errors.Is(err, want) {
			t.Errorf("sequence %d: %v, want %v", seq, err, want)
		}
	}
	f(1, txn.ErrOutOfOrderSequence)
	f(0, nil)
	f(1, nil)
	f(3, txn.ErrOutOfOrderSequence)
	if _, err := l.Cut(2, CutReason{Cause: CauseDivergence}); err != nil {
		t.Fatal(err)
	}
	f(1, txn.ErrOutOfOrderSequence) // both are gone, as in the log of a leader that never had them
	f(0, nil)
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	crashed := options(mem.CrashClone(vfs.CrashConfig{}))
	l = opened(crashed)
	f(2, txn.ErrOutOfOrderSequence)
	f(1, nil)

	behindGap, _ := mustOpen(t, options(memFS(t)))
	follow(t, behindGap, spec{base: 0, epoch: 3}, spec{base: 5, epoch: 3}) // compaction may have taken all that 7 wrote
	if err := errors.Join(behindGap.AssignEpoch(3), produce(behindGap, 4)); err != nil {
		t.Errorf("behind a gap: %v", err)
	}

	c := l.Config()
	c.Delete, c.ProducerIDExpirationMs = false, 1000
	l.UpdateConfig(c)
	if r, err := l.EnforceRetention(1_000_000); err != nil || r.Producers != 2 {
		t.Fatalf("%+v, %v: both producers should have expired", r, err)
	}
	f(5, nil)
}
