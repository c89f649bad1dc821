package sim

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"tidemark/internal/batch"
	"tidemark/internal/broker/api"
	"tidemark/internal/broker/mirror"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/internal/wire"
)

// Transactions of a source, and failovers at a consistent cut (ADR 11). Their
// coordinator is a model that never fails: each author is its producer and coordinator
// in one, and knows which of its transactions is open. Logs, guards, mirrors and the
// failovers are the product's own.

// authors are the transactional producers of a run.
type authors struct {
	w    *mirrors
	p    *process
	work sync.WaitGroup
	runs int
	// parts are the partitions that each transaction has an acknowledged batch in.
	parts map[int]map[int32]bool
}

// author writes one transaction after the other, over several partitions, wherever it may.
type author struct {
	all    *authors
	number int
	bumps  bool // each transaction has an epoch of its own (KIP-890)
	site   int
	pid    types.ProducerID
	epoch  int16
	open   int // the number of its open transaction, -1: none is
	seq    map[int32]int32
}

func (w *mirrors) beginAuthors() {
	if w.o.Authors == 0 {
		return
	}
	a := &authors{w: w, p: newProcess(w.k, "authors", 1), parts: map[int]map[int32]bool{}}
	w.authors = a
	for i := range w.o.Authors {
		x := &author{all: a, number: i, bumps: i%2 == 0, open: -1}
		x.renew()
		a.p.Go(&a.work, x.live)
	}
}

func (x *author) who() string { return fmt.Sprintf("author %d", x.number) }

func (x *author) dice() dice { return x.all.w.k.dice(x.who()) }

// renew makes it another producer: whatever was open stays as it is.
func (x *author) renew() {
	x.all.w.pids++
	x.pid, x.epoch, x.seq = x.all.w.pids, 0, map[int32]int32{}
}

func (x *author) pause(lo, hi time.Duration) {
	_, _ = x.all.p.Wait(x.all.p.context(), x.dice().between(lo, hi), nil) // nothing ends it
}

func (x *author) live() {
	for !x.all.w.healed {
		if !x.transact() {
			x.site = (x.site + 1) % len(x.all.w.sites)
			x.renew()
		}
		x.open = -1
		x.pause(50*time.Millisecond, time.Second)
	}
}

// transact writes one transaction; false: it can't be ended here any more.
func (x *author) transact() bool {
	w, d := x.all.w, x.dice()
	x.open = x.all.runs
	x.all.runs++
	parts := d.Perm(w.o.Partitions)[:1+d.IntN(w.o.Partitions)]
	x.all.parts[x.open] = map[int32]bool{}
	for _, p := range parts {
		raw := x.batchOf(int32(p))
		if !x.tries(int32(p), func(m *machine, part api.Partition) error { return x.write(m, part, raw) }) {
			return false
		}
		x.pause(0, 200*time.Millisecond)
	}
	commit := d.chance(0.8)
	if x.bumps {
		x.epoch++
		x.seq = map[int32]int32{}
	}
	for _, p := range parts {
		x.pause(0, 300*time.Millisecond)
		if !x.tries(int32(p), func(m *machine, part api.Partition) error { return x.mark(m, part, commit) }) {
			return false
		}
	}
	return true
}

// tries does something at a partition's leader until it has happened; false if the
// partition isn't written here, or after a while.
func (x *author) tries(p int32, do func(m *machine, part api.Partition) error) bool {
	const most = 20
	w := x.all.w
	for range most {
		c := w.sites[x.site]
		m := c.machine(c.leaderAt(x.dice(), p, 0))
		err := x.at(m, func() error {
			t, ok := m.node.Image().TopicByName(clusterTopic)
			if !ok {
				return wire.ErrPolicyViolation
			}
			part, err := m.node.Partitions().Get(t.ID, p)
			if err != nil {
				return err
			}
			return do(m, part)
		})
		switch api.CodeOf(err) {
		case wire.None:
			return true
		case wire.ErrPolicyViolation, wire.ErrInvalidTxnState, wire.ErrInvalidProducerEpoch, wire.ErrOutOfOrderSequenceNumber:
			return false
		}
		x.pause(50*time.Millisecond, 300*time.Millisecond)
	}
	return false
}

// at runs something as a task of a machine, once and in time, and waits for what comes of it.
func (x *author) at(m *machine, do func() error) error {
	w, p := x.all.w, x.all.p
	settled := false
	var out error
	once := func(err error) {
		if !settled {
			p.do(func() { settled, out = true, err })
		}
	}
	arrives := w.k.arrival(clientTimeout, true)
	w.net.call(x.who(), m.name, "author", clientTimeout, func(reply func(func())) {
		if m.serves() && arrives() {
			m.task(func() {
				err := do()
				reply(func() { once(err) })
			})
		}
	}, func() { once(errLost) })
	if err := p.until(p.context(), func() bool { return settled }); err != nil {
		return err
	}
	return out
}

// batchOf makes the open transaction's batch for a partition.
func (x *author) batchOf(p int32) []byte {
	b := batch.NewBuilder(batch.BuilderOptions{LeaderEpoch: types.NoLeaderEpoch, Transactional: true, Producer: &batch.Producer{ID: x.pid, Epoch: x.epoch, BaseSequence: x.seq[p]}})
	b.Append(epoch2026+types.Millis(x.all.w.k.now/time.Millisecond), nil, fmt.Appendf(nil, "%s%d of %s", txnMark, x.open, x.who()))
	raw, err := b.Build()
	if err != nil {
		x.all.w.k.fail("PANIC", "build: %v", err)
	}
	return raw
}

// write appends the transaction's batch, as the handler of Produce does.
func (x *author) write(m *machine, part api.Partition, sent []byte) error {
	number, n, ctx := x.open, part.Name().Partition, m.node.Context()
	guard, _, err := part.Guard(ctx, x.pid, x.epoch)
	if err != nil {
		return err
	}
	if x.open != number {
		return wire.ErrInvalidTxnState // it is over: what the coordinator would say
	}
	id := meta.PartitionID{Topic: part.TopicID(), Number: n}
	x.all.w.check.attempted(m, id, sent)
	raw := append([]byte(nil), sent...) // the log stamps it
	done, err := part.Append(ctx, raw, api.AppendRequest{Acks: -1, Timeout: time.Second, LeaderEpoch: types.NoLeaderEpoch, RequestVersion: 11, Guard: guard})
	if err == nil && m.node.HasHungUp() {
		err = errHungUp
	}
	if err != nil {
		return err
	}
	m.c.eye().acked(m, id, done.BaseOffset, sent)
	if x.open == number && !x.all.parts[number][n] {
		x.seq[n]++
		x.all.parts[number][n] = true
	}
	return nil
}

// mark appends the end of the transaction.
func (x *author) mark(m *machine, part api.Partition, commit bool) error {
	marker := api.TxnMarker{ProducerID: x.pid, Epoch: x.epoch, Commit: commit, CoordinatorEpoch: 1, Bumped: x.bumps}
	raw := marker.Batch(epoch2026 + types.Millis(x.all.w.k.now/time.Millisecond))
	x.all.w.check.attempted(m, meta.PartitionID{Topic: part.TopicID(), Number: part.Name().Partition}, raw)
	_, err := part.Append(m.node.Context(), raw, api.AppendRequest{Acks: -1, Timeout: time.Second, LeaderEpoch: types.NoLeaderEpoch, Origin: api.OriginCoordinator, BumpedMarker: marker.Bumped})
	return err
}

// failoverConsistent orders a failover at a consistent cut.
func (w *mirrors) failoverConsistent(d dice) string {
	c, name := w.present(d)
	if c == nil {
		return ""
	}
	if !w.verb(d, c, "failover "+name+" --consistent", func(ctx context.Context, m *mirror.Mirrors) error {
		if w.o.PlainFailovers {
			_, err := m.Failover(ctx, name, nil)
			return err
		}
		_, err := m.FailoverConsistent(ctx, name, nil, "")
		return err
	}) {
		return ""
	}
	return c.prefix + "failover at a consistent cut of " + name
}

// cutConsistently takes back what a cluster promised of records above a consistent cut,
// and has the promotion judged once all of its mirror's partitions are promoted.
func (s *siteJudge) cutConsistently(id meta.PartitionID, old, rec *meta.PartitionRecord) {
	if s.a.w.authors == nil || len(rec.Promotions) <= len(old.Promotions) {
		return
	}
	made := rec.Promotions[len(rec.Promotions)-1]
	if made.EndBefore > 0 {
		s.a.w.k.probe("promotion: at a consistent cut below the log end")
		maps.DeleteFunc(s.promised[id], func(g *grain, _ bool) bool { return g.next > made.LogEnd })
	}
	s.a.w.k.after(0, "look at the promotion", func() { s.wholeAt(id.Topic, made.StartID) })
}

// isAboveCut reports whether a consistent cut gave a batch up: it lies above the cut and is older than the promotion.
func (s *siteJudge) isAboveCut(id meta.PartitionID, g *grain) bool {
	rec := s.records[id]
	return rec != nil && slices.ContainsFunc(rec.Promotions, func(p meta.PromotionRecord) bool {
		return p.EndBefore > 0 && g.next > p.LogEnd && g.epoch < p.PromotedEpoch
	})
}

// wholeAt is TxnWhole across the partitions of a mirror that one start promoted at a
// consistent cut: no transaction is committed below its partition's cut in one of them, and
// has records and no end below the cut in another.
func (s *siteJudge) wholeAt(topic types.TopicID, start string) {
	fates := map[int]map[int32]fate{}
	for _, c := range s.a.w.sites {
		if len(c.judged.(*siteJudge).uncleanly) > 0 {
			return // what was lost may have been half of a transaction
		}
	}
	for n := range int32(s.a.w.o.Partitions) {
		rec := s.records[meta.PartitionID{Topic: topic, Number: n}]
		if rec == nil || len(rec.Promotions) == 0 || rec.Promotions[len(rec.Promotions)-1].StartID != start {
			return // another partition's turn is yet to come
		}
		m := s.c.machine(rec.Leader)
		if m == nil || !m.up() {
			return
		}
		h := m.held(meta.PartitionID{Topic: topic, Number: n})
		l := s.logs[h]
		if h == nil || l == nil || l.start > 0 {
			return
		}
		for number, f := range fatesBelow(l.seq, rec.Promotions[len(rec.Promotions)-1].LogEnd) {
			if fates[number] == nil {
				fates[number] = map[int32]fate{}
			}
			fates[number][n] = f
		}
	}
	s.a.w.k.probe("promotion: judged for its transactions")
	for _, number := range slices.Sorted(maps.Keys(fates)) {
		of := fates[number]
		commits := 0
		for _, f := range of {
			if f == committed {
				commits++
			}
		}
		if commits > 0 && (commits < len(of) || len(of) < len(s.a.w.authors.parts[number])) {
			s.a.fail("TxnWhole", "%s: at the promotion of start %s transaction %d is %v; it had records in %v", s.c.id, start, number, of, sortedKeys(s.a.w.authors.parts[number]))
			return
		}
	}
}

// fatesBelow gives the transactions that have records below an offset, and what the markers there say.
func fatesBelow(seq []*grain, end types.Offset) map[int]fate {
	out := map[int]fate{}
	running := map[types.ProducerID]int{}
	for _, g := range seq {
		h, err := batch.ParseHeader(g.raw)
		if err != nil || !h.IsTransactional() || g.next > end {
			continue
		}
		if h.IsControl() {
			if number, ok := running[h.ProducerID]; ok {
				m, _ := batch.ParseMarker(g.raw)
				out[number] = fateOf(m.Kind == batch.Commit)
				delete(running, h.ProducerID)
			}
			continue
		}
		for it := batch.Records(g.raw, nil); it.Next(); {
			text, found := strings.CutPrefix(string(it.Record.Value), txnMark)
			word, _, _ := strings.Cut(text, " ")
			if number, err := strconv.Atoi(word); found && err == nil {
				running[h.ProducerID], out[number] = number, open
			}
		}
	}
	return out
}
