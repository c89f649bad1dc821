package group

import (
	"testing"

	"tidemark/internal/core/errcode"
	"tidemark/internal/core/types"
)

// txnBench drives a table whose log takes everything at once, and loads it anew.
type txnBench struct {
	t     *testing.T
	table *Table
	log   []Append
	codes map[RequestID]errcode.Code
	last  RequestID
	// refuse is what appends are told that the log takes all the same.
	refuse errcode.Code
}

func newTxnBench(t *testing.T) *txnBench {
	b := &txnBench{t: t, codes: map[RequestID]errcode.Code{}}
	b.load()
	return b
}

func (b *txnBench) load() {
	b.table = NewTable(Config{OffsetMetadataMaxBytes: 100, OffsetsRetention: 1000, MaxSize: 10})
	for _, a := range b.log {
		for _, r := range a.Records {
			if a.Writer != nil {
				b.table.ReplayTxn(a.Writer.ProducerID, r)
			} else {
				b.table.Replay(r)
			}
		}
		if a.Marker != nil {
			b.table.ReplayMarker(a.Marker.ProducerID, a.Marker.Commit)
		}
	}
	var out Effects
	b.table.Loaded(1, &out)
}

func (b *txnBench) step(ev Event) errcode.Code {
	var out Effects
	b.table.Step(1, ev, &out)
	for i := 0; i < len(out.Appends); i++ {
		b.log = append(b.log, out.Appends[i])
		b.table.Step(1, Appended{Token: out.Appends[i].Token, Code: b.refuse}, &out)
	}
	for _, r := range out.Replies {
		switch a := r.Response.(type) {
		case CommitResponse:
			b.codes[r.Request] = a.Code
		case CodeResponse:
			b.codes[r.Request] = a.Code
		case ClampResponse:
			b.codes[r.Request] = a.Code
		}
	}
	return b.codes[b.last]
}

func (b *txnBench) request() RequestID {
	b.last++
	b.codes[b.last] = -1
	return b.last
}

var txnPartition = types.TopicPartition{Topic: "t"}

func (b *txnBench) commit(id types.ProducerID, offset types.Offset) errcode.Code {
	c := Commit{Request: b.request(), Group: "g", Generation: -1, Offsets: []CommitOffset{{Topic: "t", Offset: offset, Retention: -1}}}
	if id < 0 {
		return b.step(c)
	}
	return b.step(TxnCommit{Commit: c, ProducerID: id})
}

func (b *txnBench) end(id types.ProducerID, commit bool) errcode.Code {
	return b.step(EndTxn{Request: b.request(), ProducerID: id, Commit: commit})
}

func (b *txnBench) clamp(at types.Offset) {
	b.step(Clamp{Request: b.request(), Cuts: []Cut{{txnPartition, at}}})
}

// holds compares the committed offset, now and as a coordinator that loads the log anew has it.
func (b *txnBench) holds(what string, want types.Offset, unstable bool) {
	b.t.Helper()
	for _, when := range []string{"", ", loaded anew"} {
		got := types.NoOffset
		if v := b.table.Offset("g", txnPartition); v != nil {
			got = v.Offset
		}
		if u := b.table.IsUnstable("g", txnPartition); got != want || u != unstable {
			b.t.Errorf("%s%s: offset %d, unstable %v, want %d, %v", what, when, got, u, want, unstable)
		}
		b.load()
	}
}

func TestTxnOffsets(t *testing.T) {
	b := newTxnBench(t)
	b.commit(-1, 5)
	if code := b.commit(7, 9); code != errcode.None {
		t.Fatalf("commit: %v", code)
	}
	b.holds("open", 5, true)
	b.end(8, true)
	b.holds("another one's end", 5, true)
	b.end(7, false)
	b.holds("aborted", 5, false)
	b.commit(7, 10)
	b.commit(7, 11)
	b.end(7, true)
	b.holds("committed", 11, false)
	b.commit(7, 12)
	b.commit(-1, 3)
	b.end(7, true)
	b.holds("a commit that came behind it stays", 3, false)
	b.commit(7, 20)
	b.commit(8, 21)
	b.end(8, true)
	b.end(7, true)
	b.holds("of two transactions the later record stays", 21, false)
}

// GroupNotAhead: a cut is above no offset that a transaction brings afterwards.
func TestClampOfPendingOffsets(t *testing.T) {
	b := newTxnBench(t)
	b.commit(7, 9)
	b.clamp(4)
	b.end(7, true)
	b.holds("none was there before", 4, false)

	b = newTxnBench(t)
	b.commit(-1, 2)
	b.commit(7, 9)
	b.clamp(4)
	b.holds("one below the cut was there", 2, true)
	b.end(7, true)
	b.holds("and stays", 2, false)

	b = newTxnBench(t)
	b.commit(-1, 6)
	b.commit(7, 3)
	b.clamp(4)
	b.end(7, true)
	b.holds("what is below the cut counts", 4, false)
}

// A commit that was refused may be in the log all the same, above a cut or behind a
// group's end: what a load finds of it is what its sender was told.
func TestRefusedCommits(t *testing.T) {
	refused := func(b *txnBench, offset types.Offset) {
		b.refuse = errcode.CoordinatorNotAvailable
		b.commit(-1, offset)
		b.refuse = errcode.None
	}
	b := newTxnBench(t)
	b.commit(-1, 2)
	refused(b, 9)
	b.clamp(4)
	b.holds("a cut below it", 2, false)

	b = newTxnBench(t)
	refused(b, 9)
	b.clamp(4)
	b.holds("a cut, and nothing was there before", types.NoOffset, false)

	b = newTxnBench(t)
	refused(b, 9)
	b.commit(-1, 3)
	b.clamp(4)
	b.holds("a later one counts alone", 3, false)
	if n := len(b.log); n != 2 {
		t.Errorf("%d appends: the cut had nothing to lower", n)
	}

	b = newTxnBench(t)
	refused(b, 9)
	b.step(DeleteOffsets{Request: b.request(), Group: "g", Partitions: []types.TopicPartition{txnPartition}})
	b.holds("deleted", types.NoOffset, false)

	b = newTxnBench(t)
	refused(b, 9)
	b.step(SweepOffsets{})
	if b.holds("the group is swept", types.NoOffset, false); b.table.Groups() != 0 {
		t.Errorf("%d groups are left", b.table.Groups())
	}
}

// A group that a transaction is about to bring offsets is neither deleted nor swept.
func TestPendingOffsetsKeepTheGroup(t *testing.T) {
	b := newTxnBench(t)
	b.commit(7, 9)
	if code := b.step(DeleteGroup{Request: b.request(), Group: "g"}); code != errcode.NonEmptyGroup {
		t.Errorf("delete: %v", code)
	}
	b.step(SweepOffsets{})
	b.end(7, true)
	b.holds("committed", 9, false)
	b.commit(7, 10)
	b.end(7, false)
	if code := b.step(DeleteGroup{Request: b.request(), Group: "g"}); code != errcode.None {
		t.Errorf("delete: %v", code)
	}
	b.commit(8, 3)
	b.end(8, false)
	if n := b.table.Groups(); n != 1 {
		t.Errorf("%d groups, want the one that an abort left with nothing, until it is swept", n)
	}
	b.step(SweepOffsets{})
	if n := b.table.Groups(); n != 0 {
		t.Errorf("%d groups after the sweep", n)
	}
}

// A member's offsets are taken of the present generation only; a producer that says
// nothing of a group is let through.
func TestTxnCommitOfMembers(t *testing.T) {
	b := newTxnBench(t)
	c := Commit{Group: "g", MemberID: "m", Generation: 3, Offsets: []CommitOffset{{Topic: "t", Offset: 1, Retention: -1}}}
	c.Request = b.request()
	if code := b.step(TxnCommit{Commit: c, ProducerID: 7}); code != errcode.IllegalGeneration {
		t.Errorf("a member of no group: %v", code)
	}
	c.Request, c.UnknownGroupIsNotFound = b.request(), true
	if code := b.step(TxnCommit{Commit: c, ProducerID: 7}); code != errcode.GroupIDNotFound {
		t.Errorf("a member of no group, of a newer client: %v", code)
	}
	b.commit(-1, 5)
	c.Request, c.Generation = b.request(), -1
	if code := b.step(TxnCommit{Commit: c, ProducerID: 7}); code != errcode.None {
		t.Errorf("no generation, in a group that only keeps offsets: %v", code)
	}
	c.Generation = 3
	b.table.Replay(GroupRecord{Group: "g", Value: &Metadata{ProtocolType: "consumer", Generation: 3, Leader: "m", StateSince: 1,
		Members: []MemberMetadata{{MemberID: "m", SessionTimeout: 1000, RebalanceTimeout: 1000}}}})
	var out Effects
	b.table.Loaded(1, &out)
	c.Request = b.request()
	if code := b.step(TxnCommit{Commit: c, ProducerID: 7}); code != errcode.None {
		t.Errorf("the member: %v", code)
	}
	c.Request, c.Generation = b.request(), 2
	if code := b.step(TxnCommit{Commit: c, ProducerID: 7}); code != errcode.IllegalGeneration {
		t.Errorf("an old generation: %v", code)
	}
	c.Request, c.MemberID, c.Generation = b.request(), "other", 3
	if code := b.step(TxnCommit{Commit: c, ProducerID: 7}); code != errcode.UnknownMemberID {
		t.Errorf("another member: %v", code)
	}
	if code := b.commit(8, 1); code != errcode.None {
		t.Errorf("no member: %v", code)
	}
}
