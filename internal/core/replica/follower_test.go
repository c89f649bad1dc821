package replica

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"tidemark/internal/core/types"
)

// follower gives one in its first session and a log of epochs 1 and 3 that ends at 8.
func follower(t *testing.T, s Session) (*Follower, *Log) {
	t.Helper()
	s.Generation = 1
	f := &Follower{}
	f.Begin(s)
	return f, &Log{LogEnd: 8, HighWatermark: 6, History: history(t, [][2]int64{{1, 0}, {3, 5}})}
}

func TestReceiveDropsWhatIsNotOfThisFetch(t *testing.T) {
	f := func(name string, change func(*Follower, *Log, *Reply)) {
		t.Helper()
		fo, own := follower(t, Session{LeaderEpoch: 5, LocalEpoch: 5})
		r := Reply{To: fo.Next(own), Batches: []Batch{{8, 9, 3}}}
		change(fo, own, &r)
		if v := fo.Receive(own, r); v.Kind != VerdictStale || v.Why == "" {
			t.Errorf("%s: %v", name, v)
		}
	}
	f("another session", func(fo *Follower, _ *Log, _ *Reply) { fo.Begin(Session{Generation: 2, LeaderEpoch: 5, LocalEpoch: 5}) })
	f("no session", func(fo *Follower, _ *Log, _ *Reply) { fo.End() })
	f("another leader epoch", func(_ *Follower, _ *Log, r *Reply) { r.To.LeaderEpoch = 4 })
	f("the log has grown", func(_ *Follower, own *Log, _ *Reply) { own.LogEnd = 9 })
	f("the log was cut and grew to the same end", func(_ *Follower, own *Log, _ *Reply) { own.History = history(t, [][2]int64{{1, 0}, {2, 5}}) })
}

func TestReceiveData(t *testing.T) {
	f := func(name string, s Session, r Reply, want Verdict) {
		t.Helper()
		fo, own := follower(t, s)
		r.To = fo.Next(own)
		got := fo.Receive(own, r)
		if want.Why != "" {
			want.Why = got.Why
			if got.Why == "" {
				t.Errorf("%s: no reason is given", name)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: -want +got\n%s", name, diff)
		}
	}
	at5 := Session{LeaderEpoch: 5, LocalEpoch: 5}
	accept := func(n int, hw types.Offset) Verdict {
		return Verdict{Kind: VerdictAccept, Vouched: true, Append: n, MaxEpoch: 5, HighWatermark: hw}
	}
	raised := func(v Verdict, to types.Offset, vouched bool) Verdict {
		v.RaiseLogStart, v.Vouched = to, vouched
		return v
	}
	f("nothing new", at5, Reply{HighWatermark: 8}, accept(0, 8))
	f("a mark that lags behind ours", at5, Reply{HighWatermark: 2}, accept(0, 6))
	f("the mark is bounded by what is appended", at5, Reply{HighWatermark: 99, Batches: []Batch{{8, 9, 3}, {12, 14, 5}}}, accept(2, 14))
	f("epochs fall: the good ones", at5, Reply{Batches: []Batch{{8, 9, 5}, {9, 10, 4}}}, accept(1, 6))
	f("an epoch above the leader's: the good ones", at5, Reply{Batches: []Batch{{8, 9, 5}, {9, 10, 6}}}, accept(1, 6))
	f("the first epoch falls", at5, Reply{Batches: []Batch{{8, 9, 2}}}, Verdict{Kind: VerdictBroken, Why: "?"})
	f("the first is above the leader's epoch", at5, Reply{Batches: []Batch{{8, 9, 6}}}, Verdict{Kind: VerdictBroken, Why: "?"})
	f("it overlaps", at5, Reply{Batches: []Batch{{7, 9, 3}}}, Verdict{Kind: VerdictBroken, Why: "?"})
	f("it ends before it begins", at5, Reply{Batches: []Batch{{8, 8, 3}}}, Verdict{Kind: VerdictBroken, Why: "?"})
	f("a raise is due (R21), to the highest of the answer", Session{LeaderEpoch: 9, LocalEpoch: 3}, Reply{Batches: []Batch{{8, 9, 4}, {9, 10, 7}}},
		Verdict{Kind: VerdictRaise, Epoch: 7, MaxEpoch: 3, Vouched: true})
	f("the leader's cluster doesn't say its epoch", Session{LeaderEpoch: -1, LocalEpoch: 7}, Reply{Batches: []Batch{{8, 9, 7}}},
		Verdict{Kind: VerdictAccept, Vouched: true, Append: 1, MaxEpoch: 7, HighWatermark: 6})
	f("log start within our log", at5, Reply{LogStart: 4}, raised(accept(0, 6), 4, true))
	f("log start at our end, unknown", at5, Reply{LogStart: 8}, Verdict{Kind: VerdictVouch, Epoch: 3})
	f("log start at our end, our epoch goes on", at5, Reply{LogStart: 8, Batches: []Batch{{8, 9, 3}}}, raised(accept(1, 6), 8, true))
	f("log start at our end, vouched", at5, Reply{LogStart: 8, Vouch: VouchYes}, raised(accept(0, 6), 8, true))
	f("log start at our end, and our epoch goes on, whatever it says", at5, Reply{LogStart: 8, Vouch: VouchNo, Batches: []Batch{{8, 9, 3}}}, raised(accept(1, 6), 8, true))
	f("log start at our end, not vouched", at5, Reply{LogStart: 8, Vouch: VouchNo}, raised(accept(0, 6), 8, false))
	f("out of range, start unknown", at5, Reply{Kind: AnswerOutOfRange, LogStart: -1}, Verdict{Kind: VerdictEnd, Why: "?"})
	f("out of range", at5, Reply{Kind: AnswerOutOfRange, LogStart: 20}, Verdict{Kind: VerdictRestart, At: 20})
	f("fenced", at5, Reply{Kind: AnswerFenced}, Verdict{Kind: VerdictEnd, Why: "?"})
}

// TestReceiveRebase: the leader's log start lies within a batch, which an empty log takes whole.
func TestReceiveRebase(t *testing.T) {
	fo, _ := follower(t, Session{LeaderEpoch: 5, LocalEpoch: 5})
	own := &Log{LogStart: 10, LogEnd: 10, HighWatermark: 10}
	r := Reply{To: fo.Next(own), LogStart: 10, Batches: []Batch{{8, 12, 2}}}
	want := Verdict{Kind: VerdictAccept, HasRebase: true, Rebase: 8, RaiseLogStart: 10, Vouched: true, Append: 1, MaxEpoch: 5, HighWatermark: 10}
	if diff := cmp.Diff(want, fo.Receive(own, r)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// TestReceiveBeginsWithin: deleted records end within a batch with which the leader's epoch
// began. Its history begins at the log start then, which is what a divergence is answered
// with, and the log ends there, within the batch, with a record of its own below.
func TestReceiveBeginsWithin(t *testing.T) {
	f := func(logEnd, logStart types.Offset, base, next types.Offset, want Verdict) {
		t.Helper()
		fo, own := follower(t, Session{LeaderEpoch: 5, LocalEpoch: 5})
		*own = own.CutTo(logEnd)
		v := fo.Receive(own, Reply{To: fo.Next(own), LogStart: logStart, Vouch: VouchYes, Batches: []Batch{{base, next, 5}}})
		if v.Kind != want.Kind || v.At != want.At || v.Append != want.Append {
			t.Errorf("a log to %d, the leader's from %d, its batch %d-%d: %v at %d, appends %d; want %v", logEnd, logStart, base, next, v.Kind, v.At, v.Append, want.Kind)
		}
	}
	restart := func(at types.Offset) Verdict { return Verdict{Kind: VerdictRestart, At: at} }
	f(7, 7, 6, 9, restart(7))
	f(7, 8, 6, 9, restart(8))
	f(7, 9, 6, 9, Verdict{Kind: VerdictBroken}) // nothing of the batch is there any more
	f(7, 6, 6, 9, Verdict{Kind: VerdictBroken}) // what we hold there was compared
	f(7, 7, 7, 9, Verdict{Kind: VerdictAccept, Append: 1})
	f(7, 8, 7, 9, Verdict{Kind: VerdictAccept, Append: 1})
}

// TestReceiveRealign: R20's transaction comes before the first cut of a session,
// covers its further rounds, and is due again after an accepted fetch.
func TestReceiveRealign(t *testing.T) {
	fo, own := follower(t, Session{LeaderEpoch: 5, LocalEpoch: 5, RealignBeforeCut: true})
	diverging := func(e types.LeaderEpoch, end types.Offset) Verdict {
		return fo.Receive(own, Reply{To: fo.Next(own), Kind: AnswerDiverging, Diverging: EpochEnd{e, end}})
	}
	if v := diverging(3, 7); v.Kind != VerdictRealign {
		t.Fatalf("first: %v", v)
	}
	fo.SetRealigned()
	for _, want := range []types.Offset{7, 5} {
		v := diverging(map[types.Offset]types.LeaderEpoch{7: 3, 5: 2}[want], want)
		if v.Kind != VerdictCut || v.At != want {
			t.Fatalf("covered: %v, want a cut at %d", v, want)
		}
		*own = own.CutTo(v.At)
	}
	if v := fo.Receive(own, Reply{To: fo.Next(own)}); v.Kind != VerdictAccept {
		t.Fatalf("accepted: %v", v)
	}
	if v := diverging(1, 3); v.Kind != VerdictRealign {
		t.Errorf("after an accepted fetch: %v", v)
	}
	if v := fo.Receive(own, Reply{To: fo.Next(own), Kind: AnswerOutOfRange, LogStart: 9}); v.Kind != VerdictRealign {
		t.Errorf("a restart: %v", v)
	}
}
