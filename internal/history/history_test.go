package history

import (
	"strings"
	"testing"

	"tidemark/internal/core/types"
)

var (
	p0 = types.TopicPartition{Topic: "orders", Partition: 0}
	p1 = types.TopicPartition{Topic: "orders", Partition: 1}
)

// sends makes acknowledged sends of one producer: the first value lies at offset 0, and so on.
func sends(values ...string) (out []Send) {
	for i, v := range values {
		out = append(out, Send{Producer: "p", Partition: p0, Value: v, Outcome: Acked, Offset: types.Offset(i)})
	}
	return out
}

// polls makes the polls of one consumer: pairs of offset and value as "0a".
func polls(consumer string, assignment int, seen ...string) (out []Poll) {
	for _, s := range seen {
		out = append(out, Poll{Consumer: consumer, Assignment: assignment, Partition: p0, Offset: types.Offset(s[0] - '0'), Value: s[1:]})
	}
	return out
}

func listed(at types.Offset, began, ended int64) Commit {
	return Commit{Group: "g", Partition: p0, Offset: at, Listed: true, Began: began, Ended: ended}
}

func acked(at types.Offset, began, ended int64) Commit {
	m := listed(at, began, ended)
	m.Listed = false
	return m
}

func join[T any](parts ...[]T) (all []T) {
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

func with(s Send, change func(*Send)) []Send {
	change(&s)
	return []Send{s}
}

// TestEachRule: each violating history breaks its rule and no other.
func TestEachRule(t *testing.T) {
	unsure := func(value string, o Outcome) Send {
		return Send{Producer: "q", Partition: p0, Value: value, Outcome: o}
	}
	f := func(name string, h History, want ...Rule) {
		t.Helper()
		var got []Rule
		for _, finding := range h.Check() {
			got = append(got, finding.Rule)
			if finding.String() == "" || finding.Partition.Topic == "" {
				t.Errorf("%s: a finding that says nothing: %+v", name, finding)
			}
		}
		if len(got) != len(want) {
			t.Errorf("%s: %v, want %v: %v", name, got, want, h.Check())
			return
		}
		for i := range want {
			if got[i] != want[i] {
				t.Errorf("%s: %v, want %v", name, got, want)
			}
		}
	}
	f("empty", History{Final: true})
	f("clean", History{Sends: sends("a", "b", "c"), Polls: polls("c", 1, "0a", "1b", "2c"), Final: true})
	f("clean: a gap where nothing is known to be, as markers leave", History{Sends: []Send{sends("a")[0], {Producer: "p", Partition: p0, Value: "c", Outcome: Acked, Offset: 2}},
		Polls: polls("c", 1, "0a", "2c"), Final: true})
	f("clean: an unknown outcome that was written", History{Sends: append(sends("a"), unsure("x", Unknown)), Polls: polls("c", 1, "0a", "1x"), Final: true})
	f("clean: an unknown outcome that was not", History{Sends: append(sends("a"), unsure("x", Unknown)), Polls: polls("c", 1, "0a"), Final: true})
	f("clean: a failed write that nobody saw", History{Sends: append(sends("a"), unsure("x", Failed)), Polls: polls("c", 1, "0a"), Final: true})
	f("clean: read again after a rebalance", History{Sends: sends("a", "b"), Polls: join(polls("c", 1, "0a", "1b"), polls("c", 2, "0a", "1b"))})
	f("clean: not yet polled, before the final phase", History{Sends: sends("a", "b"), Polls: polls("c", 1, "0a")})
	f("clean: two consumers see the same", History{Sends: sends("a"), Polls: join(polls("c", 1, "0a"), polls("d", 1, "0a"))})
	f("clean: a skipped offset that another consumer saw, across assignments", History{Sends: sends("a", "b", "c"),
		Polls: join(polls("c", 1, "0a"), polls("d", 1, "1b"), polls("c", 2, "2c"))})

	f("two sends acknowledged at one offset", History{Sends: append(sends("a"), Send{Producer: "q", Partition: p0, Value: "x", Outcome: Acked, Offset: 0})}, InconsistentOffset)
	f("a poll sees another value than was acknowledged", History{Sends: append(sends("a"), unsure("x", Unknown)), Polls: polls("c", 1, "0x")}, InconsistentOffset)
	f("two polls see two values", History{Sends: []Send{unsure("x", Unknown), unsure("y", Unknown)}, Polls: join(polls("c", 1, "0x"), polls("d", 1, "0y"))}, InconsistentOffset)
	f("the same offset of two partitions is no conflict", History{Sends: append(sends("a"), Send{Producer: "p", Partition: p1, Value: "x", Outcome: Acked, Offset: 0})})
	f("one value at two offsets", History{Sends: sends("a", "b"), Polls: polls("c", 1, "0a", "1b", "2a")}, Duplicate)
	f("a retry that was written twice", History{Sends: []Send{unsure("x", Unknown)}, Polls: polls("c", 1, "0x", "1x")}, Duplicate)
	f("one value in two partitions", History{Sends: sends("a"), Polls: []Poll{{Consumer: "c", Partition: p1, Offset: 0, Value: "a"}}}, Duplicate, PhantomRead)
	f("acknowledged and gone", History{Sends: sends("a", "b", "c"), Polls: join(polls("c", 1, "0a"), polls("c", 2, "2c")), Final: true}, LostWrite)
	f("acknowledged and gone, and other values took its place", History{Sends: append(sends("a", "b"), unsure("x", Unknown)),
		Polls: polls("c", 1, "0a", "1x"), Final: true}, InconsistentOffset)
	f("acknowledged at the end and gone", History{Sends: sends("a", "b"), Polls: polls("c", 1, "0a"), Final: true}, Unseen)
	f("nothing of a partition is left", History{Sends: sends("a"), Final: true}, Unseen)
	deleted := []Start{{p0, 1}}
	f("clean: deleted before anybody was given it", History{Sends: sends("a", "b"), Polls: polls("c", 1, "1b"), Starts: deleted, Final: true})
	f("gone though it was not deleted", History{Sends: sends("a", "b", "c"), Polls: polls("c", 1, "2c"), Starts: deleted, Final: true}, LostWrite)
	f("a failed write is read", History{Sends: append(sends("a"), unsure("x", Failed)), Polls: polls("c", 1, "0a", "1x")}, AbortedRead)
	f("a value of nobody", History{Sends: sends("a"), Polls: polls("c", 1, "0a", "1?")}, PhantomRead)
	f("back", History{Sends: sends("a", "b"), Polls: polls("c", 1, "1b", "0a")}, NonMonotonicPoll)
	f("again", History{Sends: sends("a", "b"), Polls: polls("c", 1, "0a", "0a", "1b")}, NonMonotonicPoll)
	f("ahead", History{Sends: sends("a", "b", "c"), Polls: join(polls("d", 1, "1b"), polls("c", 1, "0a", "2c"))}, PollSkip)
	f("a producer's records change places", History{Sends: join(with(sends("a")[0], func(s *Send) { s.Offset = 1 }), with(sends("b")[0], func(s *Send) { s.Offset = 0 }))}, SendOrder)
}

// TestCommits: the order is that of real time, as far as calls didn't overlap.
func TestCommits(t *testing.T) {
	f := func(name string, want int, commits ...Commit) {
		t.Helper()
		h := History{Commits: commits}
		got := h.Check()
		if len(got) != want {
			t.Errorf("%s: %v, want %d", name, got, want)
		}
		for _, g := range got {
			if g.Rule != CommitFalls || !strings.Contains(g.Text, "group g") {
				t.Errorf("%s: %v", name, g)
			}
		}
	}
	f("rises", 0, listed(5, 1, 2), listed(5, 3, 4), listed(9, 5, 6))
	f("falls", 1, listed(5, 1, 2), listed(4, 3, 4))
	f("falls and stays", 2, listed(5, 1, 2), listed(4, 3, 4), listed(4, 5, 6))
	f("an acknowledged commit is not shown", 1, acked(7, 1, 2), listed(5, 3, 4))
	f("nothing is shown after a commit", 1, acked(7, 1, 2), listed(types.NoOffset, 3, 4))
	f("the commit ended after the question began", 0, acked(7, 1, 4), listed(5, 3, 5))
	f("two questions at once", 0, listed(7, 1, 4), listed(5, 3, 5))
	other := listed(1, 3, 4)
	other.Group = "h"
	f("another group", 0, listed(5, 1, 2), other)
	f("recorded in another order than called", 1, listed(4, 3, 4), listed(5, 1, 2))
}
