package sim

import (
	"fmt"
	"time"

	"tidemark/internal/batch"
	"tidemark/internal/core/types"
	"tidemark/internal/metastore/mem"
	"tidemark/internal/telemetry"
)

// world is one run: a source, a standby, a metadata store, and what happens to them.
type world struct {
	k        *kernel
	o        *Options
	mutation *Mutation
	net      *network
	src      *source
	store    *mem.Store
	node     *standby
	check    *checker
	metrics  *telemetry.Metrics
	done     map[string]int // actions that had an effect, by kind

	storeIsDown    bool
	failoverWanted bool
	timelines      int
	written        int // batches written to the standby by clients
	full           int // disk-full spans in force
	lastAdvance    time.Duration
}

// metrics are shared by all runs: nothing reads them.
var sharedMetrics = telemetry.New()

func newWorld(seed uint64, o *Options, m *Mutation, s *story) *world {
	k := newKernel(seed, s)
	k.buggify = o.Buggify
	w := &world{k: k, o: o, mutation: m, metrics: sharedMetrics, done: map[string]int{}}
	w.net = newNetwork(k, &o.Messages)
	w.store = mem.New()
	w.src = newSource(k, o)
	w.check = newChecker(w)
	w.node = newStandby(w)
	k.after(0, "boot", w.node.boot)
	w.advanceStore()
	return w
}

// advanceStore moves the store's clock, by which leases end.
func (w *world) advanceStore() {
	w.store.Advance(w.k.now - w.lastAdvance)
	w.lastAdvance = w.k.now
	w.storeChanged()
	w.k.after(250*time.Millisecond, "store clock", w.advanceStore)
}

// storeChanged tells the watcher that there may be something to see, and checks what was written.
func (w *world) storeChanged() {
	w.check.stored()
	if w.node != nil && w.node.alive() {
		w.node.poll()
	}
}

// txnFault draws what happens to a transaction at the store.
func (w *world) txnFault() mem.Fault {
	d := w.k.dice("transactions")
	if w.net.calm || !d.chance(w.o.TxnFault) {
		return mem.NoFault
	}
	f := []mem.Fault{mem.UnknownApplied, mem.UnknownNotApplied, mem.UnknownLate, mem.Unavailable}[d.IntN(4)]
	w.k.note("store", "a transaction's fate: %s", [...]string{"", "unknown, applied", "unknown, not applied", "unknown, applied late", "unavailable"}[f])
	if f == mem.UnknownLate {
		w.k.after(d.around(2*time.Second), "late transaction", func() {
			if w.store.ReleaseLate() > 0 {
				w.k.probe("store: late transaction applied")
			}
			w.storeChanged()
		})
	}
	return f
}

func (w *world) freshTimeline() string {
	w.timelines++
	return fmt.Sprintf("timeline-%d", w.timelines)
}

// sourcePart is a partition of the source's present topic.
func (w *world) sourcePart(number int32) *srcPartition { return w.src.parts[number] }

// anyPart picks a partition of the source.
func (w *world) anyPart(d dice) *srcPartition { return w.src.parts[d.IntN(len(w.src.parts))] }

// sourceNow is the source's wall clock.
func (w *world) sourceNow() types.Millis { return epoch2026 + types.Millis(w.k.now/time.Millisecond) }

// produce is a client's write to the source: some batches at once.
func (w *world) produce(d dice) string {
	p := w.anyPart(d)
	r := p.lead()
	if r == nil {
		return ""
	}
	from := r.end
	if !w.write(p, 1+d.IntN(4), d) {
		return ""
	}
	return fmt.Sprintf("%s takes %d-%d in epoch %d", p.who(), from, r.end-1, p.epoch)
}

// write has a partition that is led take so many batches.
func (w *world) write(p *srcPartition, batches int, d dice) bool {
	for range batches {
		b, err := p.batch(d)
		if err != nil {
			w.k.fail("PANIC", "build: %v", err)
			return false
		}
		p.append(b)
		w.src.index(p, b)
	}
	p.advance()
	p.replicate()
	return true
}

// batch makes the next batch of the leader, stamped.
func (p *srcPartition) batch(d dice) (*batchNode, error) {
	now := p.s.now()
	r := p.lead()
	p.writes++
	o := batch.BuilderOptions{LeaderEpoch: types.NoLeaderEpoch, Codec: pick(d, batch.None, batch.None, batch.None, batch.LZ4)}
	const producer = types.ProducerID(7)
	var raw []byte
	var err error
	switch {
	case p.openTxn && d.chance(0.3):
		p.openTxn = false
		raw = batch.NewMarker(pick(d, batch.Commit, batch.Abort), producer, 0, 0, now)
	default:
		n := 1 + d.IntN(4)
		switch {
		case p.s.o.Transactions && (p.openTxn || d.chance(0.3)):
			p.openTxn, o.Transactional = true, true
			fallthrough
		case p.s.o.Transactions && d.chance(0.5):
			o.Producer = &batch.Producer{ID: producer, Epoch: 0, BaseSequence: p.seq}
			if !o.Transactional {
				o.Producer.ID++
			}
			p.seq += int32(n)
		}
		b := batch.NewBuilder(o)
		for i := range n {
			b.Append(now, fmt.Appendf(nil, "key-%d", d.IntN(6)), fmt.Appendf(nil, "%d-%d-%d-%0*d", p.s.made, p.writes, i, 1+d.IntN(120), 0))
		}
		raw, err = b.Build()
	}
	if err != nil {
		return nil, err
	}
	batch.Stamp(raw, r.end, p.epoch)
	h, err := batch.ParseHeader(raw)
	if err != nil {
		return nil, err
	}
	return &batchNode{base: h.BaseOffset, next: h.NextOffset(), epoch: p.epoch, raw: raw}, nil
}

func (s *source) now() types.Millis { return epoch2026 + types.Millis(s.k.now/time.Millisecond) }

// firstTopic is the id of the topic that the standby has adopted: the first that was made, as a rule.
func (w *world) firstTopic() types.TopicID {
	if w.node != nil && w.node.image != nil {
		if t, ok := w.node.image.TopicByName(topicName); ok {
			return t.ID
		}
	}
	return w.src.topic
}
