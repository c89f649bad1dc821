package transaction

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"tidemark/internal/core/errcode"
	"tidemark/internal/core/types"
)

// bench drives a table as a broker does, with a log that takes every write at
// once unless it is told to hold them.
type bench struct {
	t     *testing.T
	table *Table
	now   types.Millis
	log   []Record
	held  []Append
	hold  bool
	// refuse is what the next writes are refused with, None for none.
	refuse  errcode.Code
	answers map[RequestID]Response
	markers []Markers
	last    RequestID
	ids     types.ProducerID
}

func newBench(t *testing.T) *bench {
	b := &bench{t: t, ids: 100, now: 1000, answers: map[RequestID]Response{}}
	b.load()
	return b
}

// load begins a new coordinator's life with what the log holds.
func (b *bench) load() {
	b.table = NewTable(Config{MaxTimeout: 60_000, IDExpiration: 1_000_000})
	b.held, b.markers = nil, nil
	for _, r := range b.log {
		b.table.Replay(r)
	}
	var out Effects
	b.table.Loaded(b.now, &out)
	b.carryOut(&out)
}

func (b *bench) step(ev Event) {
	var out Effects
	b.table.Step(b.now, ev, &out)
	b.carryOut(&out)
}

func (b *bench) carryOut(out *Effects) {
	b.markers = append(b.markers, out.Markers...)
	for _, r := range out.Replies {
		if _, twice := b.answers[r.Request]; twice {
			b.t.Fatalf("request %d is answered twice: %+v", r.Request, r.Response)
		}
		b.answers[r.Request] = r.Response
	}
	b.held = append(b.held, out.Appends...)
	if !b.hold {
		b.release()
	}
}

// release completes the writes that are held.
func (b *bench) release() {
	for len(b.held) > 0 {
		a := b.held[0]
		b.held = b.held[1:]
		if b.refuse == errcode.None {
			b.log = append(b.log, a.Record)
		}
		b.step(Appended{Token: a.Token, Code: b.refuse})
	}
}

func (b *bench) request() RequestID {
	b.last++
	return b.last
}

func (b *bench) init(id string, pid types.ProducerID, epoch int16) InitResponse {
	r := b.request()
	ev := Init{Request: r, ID: id, Timeout: 5000, ProducerID: pid, Epoch: epoch, FreshProducerID: types.NoProducer}
	if b.table.WantsProducerID(id) {
		b.ids++
		ev.FreshProducerID = b.ids
	}
	b.step(ev)
	a, _ := b.answers[r].(InitResponse)
	return a
}

func (b *bench) fresh(id string) InitResponse {
	b.t.Helper()
	r := b.init(id, types.NoProducer, NoEpoch)
	if r.Code != errcode.None {
		b.t.Fatalf("init of %s: %v", id, r.Code)
	}
	return r
}

func (b *bench) add(id string, p InitResponse, tps ...string) errcode.Code {
	r := b.request()
	b.step(Add{Request: r, ID: id, ProducerID: p.ProducerID, Epoch: p.Epoch, Partitions: parts(tps...)})
	return b.codeOf(r)
}

func (b *bench) verify(id string, p InitResponse, tps ...string) errcode.Code {
	r := b.request()
	b.step(Add{Request: r, ID: id, ProducerID: p.ProducerID, Epoch: p.Epoch, Partitions: parts(tps...), VerifyOnly: true})
	return b.codeOf(r)
}

func (b *bench) end(id string, p InitResponse, commit, bumps bool) EndResponse {
	r := b.request()
	ev := End{Request: r, ID: id, ProducerID: p.ProducerID, Epoch: p.Epoch, Commit: commit, Bumps: bumps, FreshProducerID: types.NoProducer}
	if b.table.WantsProducerID(id) {
		b.ids++
		ev.FreshProducerID = b.ids
	}
	b.step(ev)
	a, ok := b.answers[r].(EndResponse)
	if !ok {
		return EndResponse{Code: -1}
	}
	return a
}

// codeOf gives a request's answer, -1 while it waits.
func (b *bench) codeOf(r RequestID) errcode.Code {
	if a, ok := b.answers[r].(CodeResponse); ok {
		return a.Code
	}
	return -1
}

// writeMarkers has every marker asked for written.
func (b *bench) writeMarkers() {
	for len(b.markers) > 0 {
		m := b.markers[0]
		b.markers = b.markers[1:]
		for _, tp := range m.Partitions {
			b.step(MarkerWritten{ID: m.ID, ProducerID: m.ProducerID, Epoch: m.Epoch, Partition: tp})
		}
	}
}

func (b *bench) state(id string) State {
	m, ok := b.table.Describe(id)
	if !ok {
		return -1
	}
	return m.State
}

func parts(names ...string) []types.TopicPartition {
	var all []types.TopicPartition
	for _, n := range names {
		topic, number, _ := strings.Cut(n, "-")
		tp := types.TopicPartition{Topic: topic}
		_, _ = fmt.Sscan(number, &tp.Partition)
		all = append(all, tp)
	}
	return all
}

func want[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// A transaction's whole life, as a client before KIP-890 sees it.
func TestLife(t *testing.T) {
	b := newBench(t)
	p := b.fresh("a")
	want(t, "first epoch", p.Epoch, 0)
	want(t, "verification before the transaction", b.verify("a", p, "x-0"), errcode.TransactionAbortable)
	want(t, "add", b.add("a", p, "x-1", "x-0"), errcode.None)
	want(t, "add again", b.add("a", p, "x-0"), errcode.None)
	want(t, "records", len(b.log), 2)
	want(t, "verification", b.verify("a", p, "x-0", "x-1"), errcode.None)
	want(t, "verification of another one", b.verify("a", p, "y-0"), errcode.TransactionAbortable)
	want(t, "add of more", b.add("a", p, "y-0"), errcode.None)
	want(t, "end", b.end("a", p, true, false), EndResponse{ProducerID: p.ProducerID, Epoch: 0})
	if len(b.markers) != 1 || !b.markers[0].Commit || !slices.Equal(b.markers[0].Partitions, parts("x-0", "x-1", "y-0")) {
		t.Fatalf("markers: %+v", b.markers)
	}
	want(t, "the end repeated while markers are written", b.end("a", p, true, false).Code, errcode.ConcurrentTransactions)
	want(t, "an abort of it", b.end("a", p, false, false).Code, errcode.InvalidTxnState)
	want(t, "add meanwhile", b.add("a", p, "x-0"), errcode.ConcurrentTransactions)
	want(t, "a new producer meanwhile", b.init("a", types.NoProducer, NoEpoch).Code, errcode.ConcurrentTransactions)
	m := b.markers[0]
	b.step(MarkerWritten{ID: "a", ProducerID: m.ProducerID, Epoch: m.Epoch, Partition: m.Partitions[0]})
	want(t, "state with two markers missing", b.state("a"), PrepareCommit)
	b.writeMarkers()
	want(t, "state", b.state("a"), CompleteCommit)
	want(t, "the end repeated", b.end("a", p, true, false), EndResponse{ProducerID: p.ProducerID, Epoch: 0})
	want(t, "an abort of it", b.end("a", p, false, false).Code, errcode.InvalidTxnState)
	want(t, "the next transaction", b.add("a", p, "x-0"), errcode.None)
	want(t, "its abort", b.end("a", p, false, false).Code, errcode.None)
	b.writeMarkers()
	want(t, "state", b.state("a"), CompleteAbort)
	want(t, "an end of nothing", b.end("a", b.fresh("a"), true, false).Code, errcode.InvalidTxnState)
}

// Of two producers with one transactional id the newer one goes on alone.
func TestFencing(t *testing.T) {
	b := newBench(t)
	old := b.fresh("a")
	want(t, "add", b.add("a", old, "x-0"), errcode.None)
	want(t, "the newer one's first request", b.init("a", types.NoProducer, NoEpoch).Code, errcode.ConcurrentTransactions)
	m := b.markers[0]
	if m.Commit || m.Epoch != old.Epoch+1 {
		t.Fatalf("the old transaction ends by %+v, want an abort above epoch %d", m, old.Epoch)
	}
	want(t, "the old one", b.add("a", old, "x-0"), errcode.ProducerFenced)
	want(t, "the old one's end", b.end("a", old, true, false).Code, errcode.ProducerFenced)
	b.writeMarkers()
	p := b.fresh("a")
	want(t, "epoch", p.Epoch, old.Epoch+2)
	want(t, "the old one, going on from its epoch", b.init("a", old.ProducerID, old.Epoch).Code, errcode.ProducerFenced)
	want(t, "another id", b.add("a", InitResponse{ProducerID: 7}, "x-0"), errcode.InvalidProducerIDMapping)
	want(t, "another transactional id", b.add("b", p, "x-0"), errcode.InvalidProducerIDMapping)
	want(t, "too long", func() errcode.Code {
		r := b.request()
		b.step(Init{Request: r, ID: "a", Timeout: 60_001, ProducerID: -1, Epoch: -1, FreshProducerID: -1})
		return b.answers[r].(InitResponse).Code
	}(), errcode.InvalidTransactionTimeout)
}

// KIP-360: a producer that names its epoch gets the next one, once.
func TestBumpIsRepeatable(t *testing.T) {
	b := newBench(t)
	p := b.fresh("a")
	q := b.init("a", p.ProducerID, p.Epoch)
	want(t, "bumped", q, InitResponse{ProducerID: p.ProducerID, Epoch: p.Epoch + 1})
	want(t, "repeated", b.init("a", p.ProducerID, p.Epoch), q)
	want(t, "add", b.add("a", q, "x-0"), errcode.None)
	want(t, "repeated late", b.init("a", p.ProducerID, p.Epoch).Code, errcode.ProducerFenced)
	want(t, "state", b.state("a"), Ongoing)
	want(t, "bump in a transaction", b.init("a", q.ProducerID, q.Epoch).Code, errcode.ConcurrentTransactions)
	b.writeMarkers()
	r := b.init("a", q.ProducerID, q.Epoch)
	want(t, "and again", r, InitResponse{ProducerID: p.ProducerID, Epoch: q.Epoch + 1})
}

// KIP-890: every end bumps the epoch, a repeated one doesn't, and what is late is fenced.
func TestEndsThatBump(t *testing.T) {
	b := newBench(t)
	p := b.fresh("a")
	want(t, "an abort of nothing", b.end("a", p, false, true), EndResponse{ProducerID: p.ProducerID, Epoch: 1})
	want(t, "state", b.state("a"), CompleteAbort)
	p.Epoch = 1
	want(t, "a commit of nothing", b.end("a", p, true, true).Code, errcode.InvalidTxnState)
	want(t, "add", b.add("a", p, "x-0"), errcode.None)
	e := b.end("a", p, true, true)
	want(t, "end", e, EndResponse{ProducerID: p.ProducerID, Epoch: 2})
	want(t, "markers' epoch", b.markers[0].Epoch, int16(2))
	want(t, "repeated, markers on their way", b.end("a", p, true, true).Code, errcode.ConcurrentTransactions)
	b.writeMarkers()
	want(t, "repeated", b.end("a", p, true, true), e)
	want(t, "repeated as an abort", b.end("a", p, false, true).Code, errcode.InvalidTxnState)
	next := InitResponse{ProducerID: e.ProducerID, Epoch: e.Epoch}
	want(t, "add to the next", b.add("a", next, "x-0"), errcode.None)
	want(t, "repeated late", b.end("a", p, true, true).Code, errcode.ProducerFenced)
	want(t, "state", b.state("a"), Ongoing)
	want(t, "a partition of the old epoch", b.add("a", p, "x-0"), errcode.ProducerFenced)
}

// When epochs run out the producer goes on with another id, whoever ends it.
func TestEpochsRunOut(t *testing.T) {
	b := newBench(t)
	p := b.fresh("a")
	b.log[0].Value.Epoch = lastClientEpoch
	b.load()
	p.Epoch = lastClientEpoch
	want(t, "add", b.add("a", p, "x-0"), errcode.None)
	e := b.end("a", p, true, true)
	if e.Code != errcode.None || e.Epoch != 0 || e.ProducerID == p.ProducerID {
		t.Fatalf("end: %+v", e)
	}
	want(t, "markers' id", b.markers[0].ProducerID, p.ProducerID)
	want(t, "markers' epoch", b.markers[0].Epoch, lastClientEpoch+1)
	b.load() // the markers go out again
	b.writeMarkers()
	want(t, "repeated", b.end("a", p, true, true), e)
	want(t, "add to the next", b.add("a", InitResponse{ProducerID: e.ProducerID}, "x-0"), errcode.None)
	b.end("a", InitResponse{ProducerID: e.ProducerID}, false, false)
	b.writeMarkers()

	b.log[len(b.log)-1].Value.Epoch = lastClientEpoch
	b.load()
	q := b.fresh("a")
	if q.Epoch != 0 || q.ProducerID == e.ProducerID {
		t.Fatalf("a producer begins anew with %+v", q)
	}
}

// What is open for longer than its producer asked for is aborted above its epoch, and
// a wall clock that jumps ends nothing.
func TestTimeout(t *testing.T) {
	b := newBench(t)
	p := b.fresh("a")
	b.add("a", p, "x-0")
	b.table.SetWall(1 << 40)
	b.now += 4999
	b.step(Sweep{})
	want(t, "state", b.state("a"), Ongoing)
	b.table.SetWall(0)
	b.now++
	b.step(Sweep{})
	want(t, "state", b.state("a"), PrepareAbort)
	want(t, "commit of it", b.end("a", p, true, false).Code, errcode.ProducerFenced)
	b.writeMarkers()
	want(t, "state", b.state("a"), CompleteAbort)

	p = b.fresh("b")
	b.add("b", p, "x-0")
	b.now += 3000
	b.load()
	b.now += 2000 // a new coordinator counts on from the record
	b.step(Sweep{})
	want(t, "state", b.state("b"), PrepareAbort)
}

// An id that nobody uses goes; an open transaction's stays.
func TestExpiration(t *testing.T) {
	b := newBench(t)
	b.fresh("idle")
	p := b.fresh("open")
	b.add("open", p, "x-0")
	b.now += 1_000_000
	b.step(Sweep{})
	want(t, "idle", b.state("idle"), State(-1))
	want(t, "open", b.state("open"), PrepareAbort)
	if r := b.log[len(b.log)-2]; r.ID != "idle" || r.Value != nil {
		t.Errorf("the log says %+v", b.log)
	}
}

// Nothing is answered and no marker goes out before the decision is durable; requests
// wait their turn, and are refused if the log takes nothing.
func TestNothingBeforeItIsDurable(t *testing.T) {
	b := newBench(t)
	p := b.fresh("a")
	b.hold = true
	first := b.add("a", p, "x-0")
	second := b.add("a", p, "x-1")
	third := b.end("a", p, true, false).Code
	if first != -1 || second != -1 || third != -1 || len(b.held) != 1 || len(b.markers) != 0 {
		t.Fatalf("answers %v, %v, %v, writes %d, markers %v", first, second, third, len(b.held), b.markers)
	}
	b.release()
	want(t, "answers", len(b.answers), 4)
	want(t, "partitions of the markers", len(b.markers[0].Partitions), 2)
	b.hold = false
	b.writeMarkers()

	b.refuse = errcode.CoordinatorNotAvailable
	want(t, "refused", b.add("a", p, "x-0"), errcode.CoordinatorNotAvailable)
	want(t, "refused", b.init("new", types.NoProducer, NoEpoch).Code, errcode.CoordinatorNotAvailable)
	want(t, "ids", b.table.IDs(), 1)
	b.refuse = errcode.None
	want(t, "taken", b.add("a", p, "x-0"), errcode.None)
	b.end("a", p, true, false)
	b.refuse = errcode.CoordinatorNotAvailable
	b.writeMarkers()
	want(t, "no room for the completion", b.state("a"), PrepareCommit)
	b.refuse = errcode.None
	b.step(Sweep{})
	want(t, "the next sweep completes it", b.state("a"), CompleteCommit)
}

func TestResign(t *testing.T) {
	b := newBench(t)
	p := b.fresh("a")
	b.hold = true
	b.add("a", p, "x-0")
	b.add("a", p, "x-1")
	b.end("a", p, true, false)
	b.step(Resign{Code: errcode.NotCoordinator})
	for r := b.last - 2; r <= b.last; r++ {
		switch a := b.answers[r].(type) {
		case CodeResponse:
			want(t, "add", a.Code, errcode.NotCoordinator)
		case EndResponse:
			want(t, "end", a.Code, errcode.NotCoordinator)
		default:
			t.Errorf("request %d: %T", r, a)
		}
	}
}

func TestList(t *testing.T) {
	b := newBench(t)
	p := b.fresh("a")
	b.fresh("b")
	b.add("a", p, "x-0")
	b.now += 100
	names := func(f Filter) string {
		var all []string
		for _, l := range b.table.List(b.now, f) {
			all = append(all, l.ID)
		}
		return strings.Join(all, ",")
	}
	want(t, "all", names(Filter{OpenFor: -1}), "a,b")
	want(t, "by state", names(Filter{OpenFor: -1, States: []State{Empty}}), "b")
	want(t, "by producer", names(Filter{OpenFor: -1, ProducerIDs: []types.ProducerID{p.ProducerID}}), "a")
	want(t, "open for 100 ms", names(Filter{OpenFor: 100}), "a")
	want(t, "open for 101 ms", names(Filter{OpenFor: 101}), "")
	want(t, "by name", names(Filter{OpenFor: -1, Match: func(id string) bool { return id == "b" }}), "b")
}

// TestBrokenInvariants brings about what no driver may do: the assertions notice.
func TestBrokenInvariants(t *testing.T) {
	f := func(name string, number string, do func(b *bench)) {
		t.Helper()
		defer func() {
			if p := recover(); p == nil || !strings.Contains(fmt.Sprint(p), number) {
				t.Errorf("%s: %v, want %s", name, p, number)
			}
		}()
		do(newBench(t))
	}
	f("a completion of nothing", "I-362", func(b *bench) { b.step(Appended{Token: 9}) })
	f("a step after the end", "I-361", func(b *bench) {
		b.step(Resign{Code: errcode.NotCoordinator})
		b.step(Sweep{})
	})
	f("two changes at once", "I-360", func(b *bench) {
		b.fresh("a")
		x := b.table.ids["a"]
		var out Effects
		none := func(types.Millis, errcode.Code, *Effects) {}
		b.table.change(x, x.meta, &out, none)
		b.table.change(x, x.meta, &out, none)
	})
	f("markers of no decision", "I-363", func(b *bench) {
		b.fresh("a")
		b.table.sendMarkers(b.now, b.table.ids["a"], &Effects{})
	})
}
