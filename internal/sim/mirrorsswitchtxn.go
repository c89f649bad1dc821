package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/batch"
	"tidemark/internal/broker/coordinator/transactions"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/internal/wire"
)

// Transactions through switchovers (docs/adr/0028). Each cluster has its own coordinators,
// and producers, those of one cluster (clustertxn.go), write where they may: who is refused
// begins anew, as another producer, there or at another cluster. Promotions here are
// switchovers alone, so that nothing of a log that was promised is ever given up.

// crossings are the producers' transactional ids, and the judge of what became of their
// transactions. A nil one has none.
type crossings struct {
	w      *mirrors
	worlds []*txnWorld // by site
	ids    []*txnID
	runs   []*transactionRun
	// ordered are the starts that a switchover was ordered to promote; first is when the
	// first partition of a start was promoted.
	ordered map[string]bool
	first   map[string]time.Duration
	// sent are the batches with each producer's sequence.
	sent map[sentKey][]*grain
}

// sentKey is what a broker knows a batch by that it has taken before.
type sentKey struct {
	part     meta.PartitionID
	producer producerEpoch
	sequence int32
}

var _ txnEar = (*crossings)(nil)

func (w *mirrors) beginCrossings() {
	if w.o.TxnIDs == 0 {
		return
	}
	x := &crossings{w: w, ordered: map[string]bool{}, first: map[string]time.Duration{}, sent: map[sentKey][]*grain{}}
	w.crossings = x
	for i := range w.o.TxnIDs {
		x.ids = append(x.ids, &txnID{name: fmt.Sprintf("txn-id-%d", i), bumps: i%2 == 0})
	}
	for _, c := range w.sites {
		t := &txnWorld{c: c, k: w.k, p: newProcess(w.k, c.prefix+"transactions' clients", 1), ids: x.ids, ear: x, succeed: x.succeed}
		t.attempted = func(m *machine, p int32, raw []byte) {
			w.check.attempted(m, meta.PartitionID{Topic: c.topicID(), Number: p}, raw)
		}
		c.txns = t
		x.worlds = append(x.worlds, t)
		x.orderState(t)
	}
	for _, id := range x.ids {
		x.succeed(id)
	}
}

// orderState has a cluster's state topic made, until it is there; then its readers begin.
func (x *crossings) orderState(t *txnWorld) {
	c := t.c
	d := x.w.k.dice(c.prefix + "transactions' topic")
	var want types.TopicID
	for i := range want {
		want[i] = byte(d.IntN(256))
	}
	x.w.k.after(300*time.Millisecond, "transactions' topic ordered", func() {
		if t.topic = c.topicNamed(transactions.StateTopic); t.topic.IsZero() {
			c.operate(d, "create the transactions' topic", func(m *machine) error {
				return c.createInternal(m, transactions.StateTopic, want, txnPartitions)
			})
			x.w.k.after(time.Second, "transactions' topic ordered", func() { x.orderState(t) })
			return
		}
		t.begun = true
		for p := range x.w.o.Partitions {
			r := &stableReader{w: t, partition: int32(p)}
			t.readers = append(t.readers, r)
			t.p.Go(&t.work, r.run)
		}
	})
}

// succeed begins the next instance of an id, mostly where its topic is written.
func (x *crossings) succeed(id *txnID) {
	d := x.w.k.dice("transactions' producers")
	from, knows := d.IntN(len(x.worlds)), d.chance(0.7)
	for i := range x.worlds {
		t := x.worlds[(from+i)%len(x.worlds)]
		if t.begun && !t.c.topicID().IsZero() && (!knows || x.isWritten(t.c)) {
			t.start(id)
			return
		}
	}
	x.w.k.after(d.around(time.Second), "another instance", func() { x.succeed(id) })
}

// isWritten reports whether a cluster's partitions are all written.
func (x *crossings) isWritten(c *cluster) bool {
	for n := range int32(x.w.o.Partitions) {
		if r := c.record(meta.PartitionID{Topic: c.topicID(), Number: n}); r == nil || !r.Writable {
			return false
		}
	}
	return true
}

// txnDies ends a producer's program in the middle of what it does.
func (w *mirrors) txnDies(d dice) string {
	if w.crossings == nil {
		return ""
	}
	x := w.crossings.ids[d.IntN(len(w.crossings.ids))].current
	rest := d.between(0, 8*time.Second)
	if x == nil || x.stopped {
		return ""
	}
	x.rest = rest
	x.stop("it dies")
	return x.who()
}

// begins implements txnEar.
func (x *crossings) begins(c *txnClient) *transactionRun {
	t := &transactionRun{number: len(x.runs), id: c.id, began: x.w.k.now, by: c, in: producerEpoch{c.pid, c.epoch}, acked: map[int32]types.Offset{}}
	x.runs = append(x.runs, t)
	return t
}

// answers implements txnEar: the coordinators themselves are judged where there is one cluster.
func (x *crossings) answers(*machine, *txnID, wire.ErrCode) {}

// initialised implements txnEar.
func (x *crossings) initialised(*machine, *txnClient, *kmsg.InitProducerIDResponse) {}

// hears implements txnEar.
func (x *crossings) hears(types.ProducerID, int16) {}

// acknowledged implements txnEar.
func (x *crossings) acknowledged(m *machine, t *transactionRun, p int32, base types.Offset, raw []byte) {
	m.c.eye().acked(m, meta.PartitionID{Topic: m.c.topicID(), Number: p}, base, raw)
	if _, ok := t.acked[p]; !ok {
		t.acked[p] = base
	}
}

// decided implements txnEar.
func (x *crossings) decided(m *machine, t *transactionRun, commit bool) {
	f := fateOf(commit)
	if t.told != open && t.told != f && !x.isLossy() {
		x.w.check.fail("TxnWhole", "%s says that %v is %v; at %v it was %v", m.name, t, f, t.toldAt.Round(time.Millisecond), t.told)
		return
	}
	if t.told == open {
		t.told, t.toldAt = f, x.w.k.now
	}
}

// delivered implements txnEar. What readers were given is compared with the markers when a
// switchover promotes, and in the end.
func (x *crossings) delivered(r *stableReader, _ *batch.Header, raw []byte, isAborted bool) {
	t := runIn(x.runs, raw)
	if t == nil {
		return
	}
	t.read, t.hidden = t.read || !isAborted, t.hidden || isAborted
	if t.read && (t.hidden || !t.asked || t.told == aborted) && !x.isLossy() {
		x.w.check.fail("NoAbortedRead", "%s was given %v, which is %v (asked to be committed: %v, told to readers as aborted: %v)", r.who(), t, t.told, t.asked, t.hidden)
	}
}

// isLossy reports whether an unclean election has taken something: half of a
// transaction, perhaps, or what its coordinator knew.
func (x *crossings) isLossy() bool {
	return slices.ContainsFunc(x.w.sites, func(c *cluster) bool { return len(c.judged.(*siteJudge).uncleanly) > 0 })
}

// isOrdered takes note of a start that a switchover is ordered to promote.
func (x *crossings) isOrdered(start string) {
	if x != nil {
		x.ordered[start] = true
	}
}

// isEnd reports whether a batch ends a transaction that is open behind prev.
func isEnd(h *batch.Header, prev *grain) bool {
	if !h.IsControl() || !h.IsTransactional() {
		return false
	}
	for g := prev; g != nil; g = g.parent {
		if at, err := batch.ParseHeader(g.raw); err == nil && at.IsTransactional() && at.ProducerID == h.ProducerID {
			return !at.IsControl()
		}
	}
	return false
}

// endsBehindFence reports whether a batch is what a partition that a switchover has
// closed may still take: the end of a transaction that is open in its log (I-270).
func (w *mirrors) endsBehindFence(rec *meta.PartitionRecord, h *batch.Header, prev *grain) bool {
	if w.crossings == nil || rec.Fence == nil || !isEnd(h, prev) {
		return false
	}
	w.k.probe("switchover: a marker passes the fence")
	return true
}

// once is NoDuplicate: what a producer sent once is in a log once, at the cluster that it was
// sent to first and at those that were promoted since: they know it again (R30).
func (s *siteJudge) once(m *machine, h *held, l *siteLog, g *grain) {
	x := s.a.w.crossings
	if x == nil {
		return
	}
	hd, err := batch.ParseHeader(g.raw)
	if err != nil || hd.IsControl() || hd.ProducerID < 0 {
		return
	}
	key := sentKey{h.id, producerEpoch{hd.ProducerID, hd.ProducerEpoch}, hd.BaseSequence}
	for _, other := range x.sent[key] {
		if other == g {
			return
		}
	}
	for _, other := range x.sent[key] {
		if slices.Contains(l.seq, other) {
			s.a.fail("NoDuplicate", "%s partition %d: %s is what %s is: sequence %d of producer %d, epoch %d", m.name, h.id.Number, g, other, hd.BaseSequence, hd.ProducerID, hd.ProducerEpoch)
			return
		}
	}
	x.sent[key] = append(x.sent[key], g)
}

// crossed has a promotion judged once all partitions of its start are promoted.
func (s *siteJudge) crossed(id meta.PartitionID, old, rec *meta.PartitionRecord) {
	x := s.a.w.crossings
	if x == nil || len(rec.Promotions) <= len(old.Promotions) {
		return
	}
	start := rec.Promotions[len(rec.Promotions)-1].StartID
	if _, known := x.first[start]; !known {
		x.first[start] = x.w.k.now
	}
	x.w.k.after(0, "look at the promotion", func() { x.promoted(s, id.Topic, start) })
}

// promoted is TxnWhole where a switchover has promoted all of a start: nothing is open, each
// transaction has one end in all partitions, and what its producer was told to be
// committed is all there, committed.
func (x *crossings) promoted(s *siteJudge, topic types.TopicID, start string) {
	if !x.ordered[start] || x.isLossy() {
		return
	}
	fates := map[int]map[int32]fate{}
	for n := range int32(x.w.o.Partitions) {
		id := meta.PartitionID{Topic: topic, Number: n}
		rec := s.records[id]
		if rec == nil || len(rec.Promotions) == 0 || rec.Promotions[len(rec.Promotions)-1].StartID != start {
			return // another partition's turn is yet to come
		}
		if !s.addFates(id, rec.Promotions[len(rec.Promotions)-1].LogEnd, fates) {
			return
		}
	}
	x.w.k.probe("switchover: judged for its transactions")
	where := fmt.Sprintf("%s, promoted by the switchover of start %s", s.c.id, start)
	for _, t := range x.runs {
		if t.by.w.c == s.c && t.began >= x.first[start] {
			break // it is of the promoted cluster, and those that follow are
		}
		for _, p := range sortedKeys(fates[t.number]) {
			if fates[t.number][p] == open {
				x.w.check.fail("TxnWhole", "%s: %v is open in partition %d (I-271)", where, t, p)
				return
			}
		}
		if !x.agree(where, t, fates[t.number]) {
			return
		}
	}
}

// addFates adds what the log of a partition's leader says below an offset; false if it can't be seen.
func (s *siteJudge) addFates(id meta.PartitionID, end types.Offset, fates map[int]map[int32]fate) bool {
	rec := s.records[id]
	if rec == nil {
		return false
	}
	m := s.c.machine(rec.Leader)
	if m == nil || !m.up() {
		return false
	}
	h := m.held(id)
	l := s.logs[h]
	if h == nil || l == nil || l.start > 0 {
		return false
	}
	for number, f := range fatesBelow(l.seq, end) {
		if fates[number] == nil {
			fates[number] = map[int32]fate{}
		}
		fates[number][id.Number] = f
	}
	return true
}

// agree demands that what a transaction's producer was told, what readers were given and
// what the markers of all partitions say is one.
func (x *crossings) agree(where string, t *transactionRun, of map[int32]fate) bool {
	commits, aborts := 0, 0
	for _, f := range of {
		switch f {
		case committed:
			commits++
		case aborted:
			aborts++
		}
	}
	fail := func(invariant, why string) bool {
		x.w.check.fail(invariant, "%s: %v %s: it is %v, its producer was told %v, with records acknowledged in %v", where, t, why, of, t.told, sortedKeys(t.acked))
		return false
	}
	switch {
	case commits > 0 && commits < len(of):
		return fail("TxnWhole", "has more than one end")
	case commits > 0 && !t.asked:
		return fail("TxnWhole", "is committed, and nobody asked for that")
	case commits > 0 && t.told == aborted, aborts > 0 && t.told == committed:
		return fail("TxnWhole", "ended otherwise than its producer was told")
	case t.read && aborts > 0, t.hidden && commits > 0:
		return fail("NoAbortedRead", "ended otherwise than readers were told")
	case commits == 0 && t.told != committed:
		return true
	}
	for _, p := range sortedKeys(t.acked) {
		if of[p] != committed {
			return fail("TxnWhole", fmt.Sprintf("is committed, and lacks what was acknowledged in partition %d", p))
		}
	}
	return true
}

// unfinished says what transactions lack after the faults.
func (x *crossings) unfinished() string {
	if x == nil || x.isLossy() {
		return ""
	}
	for _, t := range x.worlds {
		for n := range int32(x.w.o.Partitions) {
			id := meta.PartitionID{Topic: t.c.topicID(), Number: n}
			if v, ok := x.w.leaderView(t.c, id); ok && v.LastStable != v.HighWatermark {
				return fmt.Sprintf("%s partition %d is stable up to %d, readable up to %d", t.c.id, n, v.LastStable, v.HighWatermark)
			}
		}
	}
	if !slices.ContainsFunc(x.worlds, func(t *txnWorld) bool { return x.isWritten(t.c) }) {
		return ""
	}
	for _, id := range x.ids {
		if id.current == nil || !id.current.isDone() {
			return id.name + " has committed nothing since the faults ended"
		}
	}
	return ""
}

// final judges all transactions once more, in the logs that clients may write: where they
// were written, or where that cluster has gone to. An operator who has opened what a
// switchover had closed has two clusters that are written, each with what it wrote.
func (x *crossings) final() {
	if x == nil || x.isLossy() {
		return
	}
	fates := map[*cluster]map[int]map[int32]fate{}
	for _, t := range x.worlds {
		if !x.isWritten(t.c) {
			continue
		}
		of := map[int]map[int32]fate{}
		s := t.c.judged.(*siteJudge)
		for n := range int32(x.w.o.Partitions) {
			id := meta.PartitionID{Topic: t.c.topicID(), Number: n}
			v, ok := x.w.leaderView(t.c, id)
			if !ok || !s.addFates(id, v.LogEnd, of) {
				return
			}
		}
		fates[t.c] = of
	}
	for _, t := range x.runs {
		for _, w := range x.worlds {
			of, written := fates[w.c]
			_, own := fates[t.by.w.c]
			if written && (w.c == t.by.w.c || !own && x.w.verbs["reopen"] == 0) {
				if !x.agree(w.c.id+" at the end", t, of[t.number]) {
					return
				}
				x.w.k.probe("end: a transaction is " + t.told.String())
			}
		}
	}
}
