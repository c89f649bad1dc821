package mirror

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"tidemark/internal/core/types"
)

// txnRecord is a record of the model's source: data of a transaction, its marker, or neither.
type txnRecord struct {
	txn      int // index in the model's transactions, -1: none
	producer types.ProducerID
	epoch    int16
	marker   bool
	commit   bool
}

// modelTxn is a transaction as only the model knows it.
type modelTxn struct {
	producer  types.ProducerID
	epoch     int16 // of the data
	parts     []int // partitions with its data
	commit    bool
	ending    bool
	unmarked  []int        // parts without a marker yet
	markedAt  map[int]int  // offset of the marker by part
	firstAt   map[int]int  // of the data
	committed map[int]bool // the marker is below the high watermark
}

// txnModel is a source with transactions, and a mirror that fetches from it. It
// knows what a cut must not do.
type txnModel struct {
	rng   *rand.Rand
	now   types.Millis
	tick  int // one step in so many moves the clock
	logs  [][]txnRecord
	marks []int // high watermarks
	txns  []*modelTxn
	open  []int // by producer: the transaction under way, -1: none
	epoch []int16
	tv2   []bool

	have   []int // the mirror's log ends
	saw    []Sightings
	asked  []types.Millis // of a fetch on its way, -1: none
	answer []int          // the mark that it will tell, -1: not evaluated yet
	stuck  []bool         // not fetched any more
}

func newTxnModel(seed uint64, partitions, producers int, tv2 func(int) bool) *txnModel {
	m := &txnModel{rng: rand.New(rand.NewPCG(seed, 7)), now: 1000, tick: 3 + 40*int(seed%2)}
	for range partitions {
		m.logs, m.marks, m.have, m.saw = append(m.logs, nil), append(m.marks, 0), append(m.have, 0), append(m.saw, Sightings{})
		m.asked, m.answer, m.stuck = append(m.asked, -1), append(m.answer, -1), append(m.stuck, false)
	}
	for p := range producers {
		m.open, m.epoch, m.tv2 = append(m.open, -1), append(m.epoch, 0), append(m.tv2, tv2(p))
	}
	return m
}

func (m *txnModel) step() {
	if m.rng.IntN(m.tick) == 0 {
		m.now += types.Millis(m.rng.IntN(12))
	}
	p := m.rng.IntN(len(m.logs))
	switch m.rng.IntN(6) {
	case 0, 1:
		m.produce(m.rng.IntN(len(m.open)), p)
	case 2:
		m.end(m.rng.IntN(len(m.open)))
	case 3:
		m.commitMark(p)
	default:
		m.fetch(p)
	}
}

// produce begins or goes on with a producer's transaction.
func (m *txnModel) produce(who, p int) {
	if m.open[who] < 0 {
		m.open[who] = len(m.txns)
		m.txns = append(m.txns, &modelTxn{producer: types.ProducerID(who + 100), epoch: m.epoch[who], markedAt: map[int]int{}, firstAt: map[int]int{}, committed: map[int]bool{}})
	}
	t := m.txns[m.open[who]]
	if t.ending {
		return
	}
	if !slices.Contains(t.parts, p) {
		t.parts = append(t.parts, p)
		t.firstAt[p] = len(m.logs[p])
	}
	m.logs[p] = append(m.logs[p], txnRecord{txn: m.open[who], producer: t.producer, epoch: t.epoch})
}

// end decides a transaction once all of its data is committed, then writes its markers one by one, and is done with it when they are committed.
func (m *txnModel) end(who int) {
	if m.open[who] < 0 {
		return
	}
	t := m.txns[m.open[who]]
	if !t.ending {
		for _, p := range t.parts {
			for o := t.firstAt[p]; o < len(m.logs[p]); o++ {
				if r := m.logs[p][o]; r.txn == m.open[who] && o >= m.marks[p] {
					return // not acknowledged yet
				}
			}
		}
		t.ending, t.commit, t.unmarked = true, m.rng.IntN(5) > 0, slices.Clone(t.parts)
		return
	}
	if len(t.unmarked) > 0 {
		i := m.rng.IntN(len(t.unmarked))
		p := t.unmarked[i]
		t.unmarked = slices.Delete(t.unmarked, i, i+1)
		e := t.epoch
		if m.tv2[who] {
			e++
		}
		t.markedAt[p] = len(m.logs[p])
		m.logs[p] = append(m.logs[p], txnRecord{txn: m.open[who], producer: t.producer, epoch: e, marker: true, commit: t.commit})
		return
	}
	for p, at := range t.markedAt {
		if at >= m.marks[p] {
			return
		}
	}
	m.open[who] = -1
	if m.tv2[who] {
		m.epoch[who]++
	}
}

func (m *txnModel) commitMark(p int) {
	if n := len(m.logs[p]); n > m.marks[p] {
		m.marks[p] += 1 + m.rng.IntN(n-m.marks[p])
	}
}

// fetch moves a partition's fetch one step on: asked, evaluated, answered.
func (m *txnModel) fetch(p int) {
	switch {
	case m.stuck[p]:
	case m.asked[p] < 0:
		m.asked[p] = m.now
	case m.answer[p] < 0:
		m.answer[p] = m.marks[p]
	default:
		m.saw[p].Saw(m.asked[p], m.now, types.Offset(m.answer[p]))
		n := m.answer[p] - m.have[p]
		if n > 0 && m.rng.IntN(4) == 0 {
			n = m.rng.IntN(n) // not all fits into the answer
		}
		m.have[p] += max(n, 0)
		m.asked[p], m.answer[p] = -1, -1
	}
}

// facts are what a leader would tell; from says where its scan begins.
func (m *txnModel) facts(p, from int) TxnFacts {
	s := &m.saw[p]
	f := TxnFacts{
		TopicPartition: types.TopicPartition{Topic: "t", Partition: int32(p)}, End: types.Offset(m.have[p]), CompleteAt: s.AbsentAt(types.Offset(m.have[p])),
		From: types.Offset(from), FromKnown: s.KnownBy(types.Offset(from) - 1), Older: map[types.ProducerID]int16{},
	}
	if from == 0 {
		f.FromKnown = -1
	}
	type begun struct {
		first types.Offset
		epoch int16
	}
	data := map[types.ProducerID]begun{}
	for o := range m.have[p] {
		r, at := m.logs[p][o], types.Offset(o)
		if o < from {
			if r.marker {
				f.Older[r.producer] = r.epoch
			} else {
				data[r.producer] = begun{first: -1, epoch: r.epoch}
			}
			if r.marker {
				delete(data, r.producer)
			}
			continue
		}
		b, ok := data[r.producer]
		if !r.marker {
			if !ok {
				data[r.producer] = begun{first: at, epoch: r.epoch}
			}
			continue
		}
		e := TxnEnd{Producer: r.producer, Epoch: r.epoch, DataEpoch: UnknownEpoch, First: -1, At: at, Commit: r.commit, KnownBy: s.KnownBy(at), FirstAbsent: -1}
		if ok && b.first >= 0 {
			e.DataEpoch, e.First, e.FirstAbsent = b.epoch, b.first, s.AbsentAt(b.first)
		}
		f.Ends = append(f.Ends, e)
		delete(data, r.producer)
	}
	for id, b := range data {
		f.Open = append(f.Open, TxnOpen{Producer: id, Epoch: b.epoch, First: b.first, FirstKnown: s.KnownBy(max(b.first, types.Offset(from))), FirstAbsent: -1})
		if b.first >= 0 {
			f.Open[len(f.Open)-1].FirstAbsent = s.AbsentAt(b.first)
		}
	}
	return f
}

func (m *txnModel) allFacts() []TxnFacts {
	var list []TxnFacts
	for p := range m.logs {
		from := 0
		if m.rng.IntN(2) == 0 && m.have[p] > 0 {
			from = m.rng.IntN(m.have[p])
		}
		list = append(list, m.facts(p, from))
	}
	return list
}

// half names a transaction that the cut commits in one partition and not in another.
func (m *txnModel) half(cuts []types.Offset) string {
	for i, t := range m.txns {
		if !t.commit {
			continue
		}
		var in, out []int
		for _, p := range t.parts {
			if at, ok := t.markedAt[p]; ok && types.Offset(at) < cuts[p] {
				in = append(in, p)
			} else {
				out = append(out, p)
			}
		}
		if len(in) > 0 && len(out) > 0 {
			return fmt.Sprintf("transaction %d of producer %d (epoch %d) is committed in partitions %v and not in %v", i, t.producer, t.epoch, in, out)
		}
	}
	return ""
}

// greatest is the highest cut at which no transaction is half committed, by all that the model knows.
func (m *txnModel) greatest() []types.Offset {
	cuts := make([]types.Offset, len(m.logs))
	for p := range cuts {
		cuts[p] = types.Offset(m.have[p])
	}
	for changed := true; changed; {
		changed = false
		for _, t := range m.txns {
			whole := true
			for _, p := range t.parts {
				at, ok := t.markedAt[p]
				whole = whole && ok && types.Offset(at) < cuts[p]
			}
			for p, at := range t.markedAt {
				if !whole && t.commit && types.Offset(at) < cuts[p] {
					cuts[p], changed = types.Offset(at), true
				}
			}
		}
	}
	return cuts
}

// play runs one random history up to a failover. late partitions stop being fetched some time before.
func play(seed uint64, tv2 func(int) bool) *txnModel {
	r := rand.New(rand.NewPCG(seed, 1))
	m := newTxnModel(seed, 2+r.IntN(3), 1+r.IntN(3), tv2)
	for range 60 + r.IntN(300) {
		m.step()
	}
	for p := range m.stuck {
		m.stuck[p] = r.IntN(4) == 0
	}
	for range r.IntN(60) {
		m.step()
	}
	return m
}

func bothKinds(p int) bool { return p%2 == 0 }

// TestConsistentCutsRandom: whatever the interleaving of writes, markers,
// fetches and epochs, no cut leaves a transaction half committed.
func TestConsistentCutsRandom(t *testing.T) {
	cut, refused, whole := 0, 0, 0
	for seed := range uint64(4000) {
		m := play(seed, bothKinds)
		cuts, r := ConsistentCuts(m.allFacts())
		switch {
		case r != nil:
			refused++
			continue
		case slices.Equal(cuts, m.ends()):
			whole++
		default:
			cut++
		}
		if bad := m.half(cuts); bad != "" {
			t.Fatalf("seed %d: cut at %v of %v: %s", seed, cuts, m.have, bad)
		}
	}
	t.Logf("%d histories cut, %d whole, %d refused", cut, whole, refused)
	if cut < 100 || whole < 20 || refused < 20 || refused > 3000 {
		t.Error("the histories don't show what they should")
	}
}

func (m *txnModel) ends() []types.Offset {
	out := make([]types.Offset, len(m.have))
	for p := range out {
		out[p] = types.Offset(m.have[p])
	}
	return out
}

// settleFetches lets the mirror see every partition complete, after the last write.
func (m *txnModel) settleFetches() {
	m.now += 10
	for p := range m.logs {
		m.asked[p], m.answer[p], m.have[p] = -1, -1, m.marks[p]
		m.saw[p].Saw(m.now, m.now+1, types.Offset(m.marks[p]))
	}
	m.now += 10
	for p := range m.logs {
		m.saw[p].Saw(m.now, m.now+1, types.Offset(m.marks[p]))
	}
}

// TestConsistentCutsAreTheHighest: where an epoch stands for one transaction
// and every partition was seen complete, exactly what must go is cut.
func TestConsistentCutsAreTheHighest(t *testing.T) {
	fewer := 0
	for seed := range uint64(2000) {
		m := play(seed, func(int) bool { return true })
		m.settleFetches()
		var facts []TxnFacts
		for p := range m.logs {
			facts = append(facts, m.facts(p, 0))
		}
		cuts, r := ConsistentCuts(facts)
		if r != nil {
			t.Fatalf("seed %d: %v", seed, r)
		}
		if want := m.greatest(); !slices.Equal(cuts, want) {
			t.Fatalf("seed %d: cut at %v, want %v of %v", seed, cuts, want, m.have)
		}
		if !slices.Equal(cuts, m.ends()) {
			fewer++
		}
	}
	if fewer < 50 {
		t.Errorf("only %d histories had something to cut", fewer)
	}
}

// TestConsistentCutsMutations: each rule that is switched off leaves a half transaction in some history.
func TestConsistentCutsMutations(t *testing.T) {
	for name, rules := range map[string]cutRules{
		"an unseen part counts as none":           {noHorizon: true},
		"what is given up takes nothing along":    {noFollow: true},
		"one epoch's transactions are told apart": {oneEpochOne: true},
		"times of one millisecond are in order":   {looseTimes: true},
	} {
		found := false
		for seed := uint64(0); seed < 20000 && !found; seed++ {
			m := play(seed, bothKinds)
			cuts, r := consistentCuts(m.allFacts(), rules)
			found = r == nil && m.half(cuts) != ""
		}
		if !found {
			t.Errorf("%s: no history shows it", name)
		}
	}
}

// TestConsistentCutsOfClocksThatDiffer: facts of a node whose clock is ahead, within known bounds, cut no less than they must.
func TestConsistentCutsOfClocksThatDiffer(t *testing.T) {
	for seed := range uint64(1500) {
		m := play(seed, bothKinds)
		facts := m.allFacts()
		ahead := types.Millis(500)
		for i := range facts {
			if i%2 == 1 {
				facts[i].Shift(-ahead, -ahead) // what the other node would say
				facts[i].Shift(ahead-types.Millis(seed%4), ahead+types.Millis(seed%5))
			}
		}
		cuts, r := ConsistentCuts(facts)
		if bad := ""; r == nil {
			if bad = m.half(cuts); bad != "" {
				t.Fatalf("seed %d: %s", seed, bad)
			}
		}
	}
}

// TestConsistentCutsByHand: the stories of docs/adr/0011.
func TestConsistentCutsByHand(t *testing.T) {
	at := func(p int32, end types.Offset, complete types.Millis) TxnFacts {
		return TxnFacts{TopicPartition: types.TopicPartition{Topic: "t", Partition: p}, End: end, CompleteAt: complete, FromKnown: -1}
	}
	f := func(name, want string, parts ...TxnFacts) {
		t.Helper()
		cuts, r := ConsistentCuts(parts)
		got := fmt.Sprint(cuts)
		if r != nil {
			got = string(r.Reason)
			if !strings.Contains(r.Detail, "--consistent") {
				t.Errorf("%s: %q names no way out", name, r.Detail)
			}
		}
		if got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	marked := func(p TxnFacts, pid types.ProducerID, data, marker int16, first, end types.Offset, known types.Millis) TxnFacts {
		p.Ends = append(p.Ends, TxnEnd{Producer: pid, Epoch: marker, DataEpoch: data, First: first, At: end, Commit: true, KnownBy: known, FirstAbsent: -1})
		return p
	}
	opened := func(p TxnFacts, pid types.ProducerID, epoch int16, first types.Offset, known, absent types.Millis) TxnFacts {
		p.Open = append(p.Open, TxnOpen{Producer: pid, Epoch: epoch, First: first, FirstKnown: known, FirstAbsent: absent})
		return p
	}
	f("no transactions", "[10 20]", at(0, 10, 5), at(1, 20, -1))
	f("one partition", "[10]", marked(at(0, 10, -1), 1, 0, 0, 3, 4, Never))
	f("whole", "[10 20]", marked(at(0, 10, 100), 1, 3, 4, 3, 9, 50), marked(at(1, 20, 100), 1, 3, 4, 5, 19, 50))
	f("the second marker is missing", "[9 20]", marked(at(0, 10, 100), 1, 3, 4, 3, 9, 50), opened(at(1, 20, 100), 1, 3, 5, 40, 30))
	f("an earlier transaction's marker stays", "[10 20]", marked(at(0, 10, 100), 1, 2, 3, 3, 9, 50), opened(at(1, 20, 100), 1, 3, 5, 40, 30))
	f("an old producer's, which the times tell apart", "[10 20]", marked(at(0, 10, 100), 1, 3, 3, 3, 9, 50), opened(at(1, 20, 100), 1, 3, 5, 80, 70))
	f("an old producer's, which nothing tells apart", "[9 20]", marked(at(0, 10, 100), 1, 3, 3, 3, 9, 50), opened(at(1, 20, 100), 1, 3, 5, 40, 30))
	f("open on both sides", "[12 20]", opened(marked(at(0, 12, 100), 1, 3, 3, 3, 9, 50), 1, 3, 10, 60, 50), opened(at(1, 20, 100), 1, 3, 5, 60, 30))
	f("the other partition wasn't seen since", "[9 20]", marked(at(0, 10, 100), 1, 3, 4, 3, 9, 50), at(1, 20, 49))
	f("nor ever", "TRANSACTIONS_UNKNOWN", marked(at(0, 10, 100), 1, 3, 4, 3, 9, 50), at(1, 20, -1))
	f("a cut takes another transaction along", "[9 15]",
		marked(marked(at(0, 12, 100), 1, 3, 4, 3, 9, 50), 2, 7, 8, 4, 11, 50),
		marked(opened(at(1, 20, 100), 1, 3, 5, 40, 30), 2, 7, 8, 6, 15, 50))
	old := at(1, 20, 100)
	old.From, old.FromKnown, old.Older = 18, 60, map[types.ProducerID]int16{1: 3}
	f("what is too long ago to tell", "TRANSACTIONS_UNKNOWN", opened(at(0, 10, 100), 1, 3, 5, 40, 30), old)
	f("what is too long ago, of a lower epoch", "[10 20]", opened(at(0, 10, 100), 1, 4, 5, 40, 30), old)
	f("a partition that stood still for long", "TRANSACTIONS_UNKNOWN", at(0, 10, 40), old)
}

func TestSightings(t *testing.T) {
	var s Sightings
	if s.KnownBy(0) != Never || s.AbsentAt(0) != -1 || s.Until(9) != -1 {
		t.Error("nothing was seen, and something is known")
	}
	s.Saw(10, 12, 100)
	s.Saw(40, 45, 100)
	s.Saw(50, 55, 130)
	f := func(o types.Offset, known, absent types.Millis) {
		t.Helper()
		if s.KnownBy(o) != known || s.AbsentAt(o) != absent {
			t.Errorf("offset %d: known by %d, absent at %d; want %d, %d", o, s.KnownBy(o), s.AbsentAt(o), known, absent)
		}
	}
	f(99, 12, -1)
	f(100, 55, 40)
	f(130, Never, 50)
	if s.Until(54) != 100 || s.Until(55) != 130 || s.Until(11) != -1 {
		t.Error("Until")
	}
	s.Saw(60, 61, 90)
	f(100, Never, 60)
	for i := range 3000 {
		s.Saw(types.Millis(100+i*30), types.Millis(100+i*30), types.Offset(100+i))
	}
	if len(s.list) > marksSeenMax || s.KnownBy(3098) != 100+2999*30 {
		t.Errorf("%d sightings, the newest known by %d", len(s.list), s.KnownBy(3098))
	}
	s.Forget()
	f(0, Never, -1)
}
