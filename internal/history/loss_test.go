package history

import (
	"fmt"
	"testing"

	"tidemark/internal/core/types"
)

// at gives the entries of a history their moments: sends and polls from a number on.
func sentAt(at int64, s ...Send) []Send {
	for i := range s {
		s[i].Began, s[i].At = at-1, at
	}
	return s
}

func polledAt(at int64, p ...Poll) []Poll {
	for i := range p {
		p[i].At = at
	}
	return p
}

func demand(t *testing.T, name string, h History, want ...Rule) {
	t.Helper()
	var got []Rule
	for _, f := range h.Check() {
		got = append(got, f.Rule)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s: %v, want %v", name, h.Check(), want)
	}
}

// TestLoss: a loss excuses that the end of a log is gone and its offsets are given anew, and nothing else.
func TestLoss(t *testing.T) {
	loss := []Loss{{At: 10}}
	old := func() []Send { return sentAt(5, sends("a", "b", "c")...) }
	fresh := func(value string, offset types.Offset) Send {
		return Send{Producer: "p", Partition: p0, Value: value, Outcome: Acked, Offset: offset, Began: 14, At: 15}
	}
	seen := polledAt(6, polls("c", 1, "0a", "1b", "2c")...)
	final := func(s ...string) []Poll { return polledAt(20, polls("final", 1, s...)...) }

	demand(t, "nothing is lost", History{Sends: old(), Polls: join(seen, final("0a", "1b", "2c")), Losses: loss, Final: true})
	demand(t, "the end is lost", History{Sends: old(), Polls: join(seen, final("0a")), Losses: loss, Final: true})
	demand(t, "everything is lost", History{Sends: old(), Polls: seen, Losses: loss, Final: true})
	demand(t, "offsets are given anew", History{Sends: append(old(), fresh("x", 1), fresh("y", 2)), Polls: join(seen, final("0a", "1x", "2y")), Losses: loss, Final: true})
	demand(t, "written once more by a retry", History{Sends: append(old(), fresh("x", 1)), Polls: join(seen, final("0a", "1x", "2b")), Losses: loss, Final: true})
	straddling := fresh("x", 1)
	straddling.Began = 9
	demand(t, "under way during the loss, and twice after it", History{Sends: append(old(), straddling), Polls: join(seen, final("0a", "1x", "2x")), Losses: loss, Final: true})
	slow := Send{Producer: "p", Partition: p0, Value: "x", Outcome: Acked, Offset: 3, Began: 8, At: 15}
	demand(t, "acknowledged before the loss to a client that noticed after it", History{Sends: append(old(), slow, fresh("y", 3)),
		Polls: join(seen, polledAt(9, polls("c", 1, "3x")...), final("0a", "1b", "2c", "3y")), Losses: loss, Final: true})
	later := fresh("z", 4)
	later.At = 17
	demand(t, "the same below what was sent after the loss", History{Sends: append(old(), slow, later),
		Polls: final("0a", "1b", "2c", "4z"), Losses: []Loss{{At: 10}, {At: 19}}, Final: true})
	demand(t, "under way during the loss, read after it and gone", History{Sends: append(old(), slow, fresh("y", 3)),
		Polls: join(seen, polledAt(16, polls("c", 1, "3x")...), final("0a", "1b", "2c", "3y")), Losses: loss, Final: true}, InconsistentOffset)
	demand(t, "sent after the loss, and twice", History{Sends: append(old(), fresh("x", 1)), Polls: join(seen, final("0a", "1x", "2x")), Losses: loss, Final: true}, Duplicate)
	demand(t, "without a loss it is a breach", History{Sends: old(), Polls: join(seen[:1], final("0a")), Final: true}, Unseen, Unseen)
	demand(t, "a hole", History{Sends: old(), Polls: join(seen, final("0a", "2c")), Losses: loss, Final: true}, HoleAfterLoss)
	demand(t, "a hole that retention made", History{Sends: old(), Polls: join(seen, final("2c")), Losses: loss, Starts: []Start{{p0, 2}}, Final: true})
	later = fresh("z", 2)
	later.Began, later.At = 24, 25
	demand(t, "what came after one loss survives the next", History{Sends: append(old(), fresh("x", 1), later), Polls: join(seen, polledAt(30, polls("final", 1, "0a", "1x", "2z")...)),
		Losses: []Loss{{At: 10}, {At: 20}}, Final: true})
	demand(t, "acknowledged after the loss and gone", History{Sends: append(old(), fresh("x", 1)), Polls: join(seen, final("0a")), Losses: loss, Final: true}, Unseen)
	demand(t, "two values after the loss", History{Sends: append(old(), fresh("x", 1)), Polls: join(seen, final("0a", "1b")), Losses: loss, Final: true}, InconsistentOffset)
	demand(t, "two values before it", History{Sends: append(old(), sentAt(6, Send{Producer: "q", Partition: p0, Value: "x", Outcome: Acked, Offset: 1})...), Polls: final("0a"), Losses: loss, Final: true}, InconsistentOffset)
	demand(t, "a consumer starts over", History{Sends: old(), Polls: join(seen, polledAt(12, polls("c", 1, "0a")...), final("0a")), Losses: loss, Final: true})
	back := []Commit{listed(3, 11, 12), listed(1, 13, 14)}
	demand(t, "a group is set back to the log's end", History{Sends: old(), Polls: join(seen, final("0a")), Commits: back, Losses: loss, Final: true})
	demand(t, "a group goes back before the loss", History{Sends: old(), Polls: join(seen, final("0a")), Commits: []Commit{listed(3, 1, 2), listed(1, 3, 4)}, Losses: loss, Final: true}, CommitFalls)
	demand(t, "a value of nobody", History{Sends: old(), Polls: join(seen, final("0?")), Losses: loss, Final: true}, PhantomRead)
}

// TestWeak: acks=1 binds nobody, but what readers saw stays seen.
func TestWeak(t *testing.T) {
	weak := func(value string, offset types.Offset) Send {
		return Send{Producer: "w", Partition: p0, Value: value, Outcome: Acked, Offset: offset, Weak: true}
	}
	demand(t, "lost", History{Sends: []Send{weak("x", 0)}, Final: true})
	demand(t, "lost, and its offset is another's", History{Sends: append(sends("a"), weak("x", 0)), Polls: polls("c", 1, "0a"), Final: true})
	demand(t, "twice", History{Sends: []Send{weak("x", 0)}, Polls: polls("c", 1, "0x", "1x"), Final: true})
	demand(t, "out of order", History{Sends: []Send{weak("x", 1), weak("y", 0)}, Polls: polls("c", 1, "0y", "1x"), Final: true})
	demand(t, "seen and replaced", History{Sends: append(sends("a"), weak("x", 0)), Polls: polls("c", 1, "0x"), Final: true}, InconsistentOffset)
	demand(t, "seen in two places by two", History{Sends: []Send{weak("x", 0), weak("y", 0)}, Polls: join(polls("c", 1, "0x"), polls("d", 1, "0y")), Final: true}, InconsistentOffset)
}

// TestGroups: a group that committed past a record was given it.
func TestGroups(t *testing.T) {
	member := func(p []Poll) []Poll {
		for i := range p {
			p[i].Group = "g"
		}
		return p
	}
	demand(t, "all given, by two members", History{Sends: sends("a", "b"), Polls: join(member(polls("c", 1, "0a")), member(polls("d", 1, "1b"))), Commits: []Commit{acked(2, 1, 2)}})
	demand(t, "committed up to what was given", History{Sends: sends("a", "b"), Polls: member(polls("c", 1, "0a")), Commits: []Commit{acked(1, 1, 2)}})
	demand(t, "skipped across assignments", History{Sends: sends("a", "b", "c"),
		Polls: join(member(polls("c", 1, "0a")), member(polls("c", 2, "2c")), polls("final", 1, "0a", "1b", "2c")), Commits: []Commit{acked(3, 1, 2)}}, GroupSkip)
	demand(t, "shown past what was given", History{Sends: sends("a", "b"), Polls: join(member(polls("c", 1, "0a")), polls("final", 1, "0a", "1b")), Commits: []Commit{listed(2, 1, 2)}}, GroupSkip)
	demand(t, "another group's commit", History{Sends: sends("a", "b"), Polls: join(member(polls("c", 1, "0a")), polls("final", 1, "0a", "1b")), Commits: []Commit{{Group: "h", Partition: p0, Offset: 2, Began: 1, Ended: 2}}})
	demand(t, "a gap where nothing is known", History{Sends: []Send{sends("a")[0], {Producer: "p", Partition: p0, Value: "c", Outcome: Acked, Offset: 2}},
		Polls: member(polls("c", 1, "0a", "2c")), Commits: []Commit{acked(3, 1, 2)}})
}

// TestTransactions: visible as a whole or not at all, and not before the end was asked for.
func TestTransactions(t *testing.T) {
	in := func(o Outcome, values ...string) (out []Send) {
		for i, s := range sends(values...) {
			s.Txn, s.Outcome = "t", o
			if o != Acked {
				s.Offset = types.NoOffset
			}
			s.At = int64(i)
			out = append(out, s)
		}
		return out
	}
	asked := []Txn{{Name: "t", EndBegan: 5}}
	demand(t, "committed and visible", History{Sends: in(Acked, "a", "b"), Txns: asked, Polls: polledAt(6, polls("c", 1, "0a", "1b")...), Final: true})
	demand(t, "unknown and visible", History{Sends: in(Unknown, "a", "b"), Txns: asked, Polls: polledAt(6, polls("c", 1, "0a", "1b")...), Final: true})
	demand(t, "unknown and invisible", History{Sends: in(Unknown, "a", "b"), Txns: asked, Final: true})
	demand(t, "torn", History{Sends: in(Unknown, "a", "b"), Txns: asked, Polls: polledAt(6, polls("c", 1, "0a")...), Final: true}, TornTransaction)
	demand(t, "torn, but not read to the end yet", History{Sends: in(Unknown, "a", "b"), Txns: asked, Polls: polledAt(6, polls("c", 1, "0a")...)})
	demand(t, "half of a committed one is lost", History{Sends: in(Acked, "a", "b"), Txns: asked, Polls: polledAt(6, polls("c", 1, "0a")...), Final: true}, Unseen)
	demand(t, "aborted and visible", History{Sends: in(Failed, "a"), Txns: asked, Polls: polledAt(6, polls("c", 1, "0a")...), Final: true}, AbortedRead)
	demand(t, "visible before the end was asked for", History{Sends: in(Acked, "a"), Txns: asked, Polls: polledAt(4, polls("c", 1, "0a")...), Final: true}, PrecommittedRead)
	demand(t, "visible, and the end was never asked for", History{Sends: in(Unknown, "a"), Polls: polledAt(4, polls("c", 1, "0a")...), Final: true}, PrecommittedRead)
}

// TestTransactionsAndLosses: what a loss excuses of transactions, and what not.
func TestTransactionsAndLosses(t *testing.T) {
	loss, asked := []Loss{{At: 10}}, []Txn{{Name: "t", EndBegan: 5}}
	in := func(o Outcome, at int64, values ...string) []Send {
		out := sentAt(at, sends(values...)...)
		for i := range out {
			out[i].Txn, out[i].Outcome = "t", o
		}
		return out
	}
	final := func(s ...string) []Poll { return polledAt(20, polls("final", 1, s...)...) }
	demand(t, "committed before it, and gone", History{Sends: in(Acked, 5, "a", "b"), Txns: asked, Losses: loss, Final: true})
	demand(t, "committed before it, and the lower half is gone", History{Sends: in(Acked, 5, "a", "b"), Txns: asked, Polls: final("1b"), Losses: loss, Final: true})
	demand(t, "committed after it, below one that stays open", History{Sends: in(Acked, 15, "a"), Txns: asked, Losses: loss, Final: true})
	demand(t, "aborted before it, and committed with a later one", History{Sends: in(Failed, 5, "a"), Txns: asked, Polls: final("0a"), Losses: loss, Final: true})
	demand(t, "aborted before it, and read before it", History{Sends: in(Failed, 5, "a"), Txns: asked, Polls: polledAt(6, polls("c", 1, "0a")...), Losses: loss, Final: true}, AbortedRead)
	demand(t, "aborted after it, and read", History{Sends: in(Failed, 15, "a"), Txns: asked, Polls: final("0a"), Losses: loss, Final: true}, AbortedRead)
	demand(t, "two values at one offset", History{Sends: in(Unknown, 15, "a", "b"), Txns: asked, Polls: join(final("0a"), polledAt(21, polls("c", 1, "0b")...)), Losses: loss, Final: true}, InconsistentOffset)
}
