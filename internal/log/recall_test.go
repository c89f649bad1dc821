package log

import (
	"errors"
	"testing"

	"tidemark/internal/core/txn"
	"tidemark/internal/core/types"
	"tidemark/internal/vfs"
)

// TestRetriesAreRecognised: a client has five batches on their way, all are in the
// log, and it hears of none of them before the log is opened anew or cut. It sends the
// first one again, which is a repetition, though a snapshot names the last one alone.
func TestRetriesAreRecognised(t *testing.T) {
	const pid = 7
	write := func(l *Log, ts types.Millis) {
		for i := range int32(5) {
			lead(t, l, spec{epoch: 3, n: 2, pid: pid, seq: 10 + 2*i, ts: ts, size: 200}) // several segments
		}
	}
	retry := func(name string, l *Log, repetition bool) {
		t.Helper()
		if err := l.AssignEpoch(4); err != nil {
			t.Fatal(err)
		}
		end := l.View().LogEnd
		a, err := tryLead(t, l, spec{n: 2, pid: pid, seq: 10, size: 200})
		if repetition && (err != nil || !a.Duplicate || a.First != 0 || l.View().LogEnd != end) {
			t.Errorf("%s: the first of five batches: %+v, %v", name, a, err)
		}
		if !repetition && !errors.Is(err, txn.ErrOutOfOrderSequence) {
			t.Errorf("%s: %+v, %v", name, a, err)
		}
	}

	mem := memFS(t)
	l, _ := mustOpen(t, options(mem))
	write(l, 0)
	if err := errors.Join(l.Roll(), l.Flush()); err != nil {
		t.Fatal(err)
	}
	o := options(mem.CrashClone(vfs.CrashConfig{}))
	o.RecoveryPoint = l.RecoveryPoint()
	crashed, r := mustOpen(t, o)
	if r.ProducersReplayed > 1 || crashed.View().LogEnd != 10 {
		t.Fatalf("a snapshot at the end is what this is about: %+v", r)
	}
	retry("after a crash", crashed, true)

	lead(t, l, spec{n: 1})
	if _, err := l.Cut(10, CutReason{Cause: CauseDivergence}); err != nil {
		t.Fatal(err)
	}
	retry("after a cut", l, true)

	for name, at := range map[string]types.Millis{"after a clean restart": 999_000, "long after": 1000} {
		mem := memFS(t)
		l, _ := mustOpen(t, options(mem))
		write(l, at)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		o := options(mem)
		o.CleanShutdown, o.RecoveryPoint = true, 10
		again, r := mustOpen(t, o)
		if !r.Clean {
			t.Fatalf("%s: %+v", name, r)
		}
		retry(name, again, at > 1000)
	}
}
