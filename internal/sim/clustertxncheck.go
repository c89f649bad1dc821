package sim

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/batch"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/internal/wire"
)

// txnJudge compares what becomes of transactions with what their producers asked for
// and were told. It reads the logs as they become readable, and hears what brokers
// answer and what readers are given; it believes no coordinator.
type txnJudge struct {
	w    *txnWorld
	runs []*transactionRun
	// epochs are the newest epochs that producers were told, and to whom.
	epochs map[types.ProducerID]*toldEpoch
	given  map[producerEpoch]*txnClient // who was given an epoch by InitProducerId
	// fenced are batches that were written in an epoch below one that had been told.
	fenced map[*writtenBatch]string
	parts  map[int32]*txnPart // by spot
	// offsets are the commits of groups' offsets, byText by their metadata.
	offsets []*txnCommit
	byText  map[string]*txnCommit
	// lost is when an unclean election last took a part of a partition of __transaction_state.
	lost map[int32]time.Duration
	// highest are the highest epochs that anybody has heard of; floor those of them at a loss of
	// what a coordinator knew: it may give them once more.
	highest, floor map[types.ProducerID]int16
}

// transactionRun is one transaction, as its producer means it.
type transactionRun struct {
	number int
	id     *txnID
	began  time.Duration
	by     *txnClient
	in     producerEpoch
	asked  bool // to be committed
	told   fate
	toldAt time.Duration
	acked  map[int32]types.Offset // spots with an acknowledged batch: the first one
	ends   map[int32]fate         // what the markers of each spot say
	read   bool                   // a reader of committed records was given some of it
	hidden bool                   // one was told that it was aborted: of several clusters
}

// String is how findings tell of it.
func (t *transactionRun) String() string {
	return fmt.Sprintf("transaction %d of %s", t.number, t.id.name)
}

// fate is the end of a transaction.
type fate int8

const (
	open fate = iota
	committed
	aborted
)

// String names it.
func (f fate) String() string { return [...]string{"open", "committed", "aborted"}[f] }

func fateOf(commit bool) fate {
	if commit {
		return committed
	}
	return aborted
}

type producerEpoch struct {
	id    types.ProducerID
	epoch int16
}

type toldEpoch struct {
	epoch int16
	to    *txnClient
	at    time.Duration
}

// txnPart is how far a partition's readable records were looked at.
type txnPart struct {
	next types.Offset
	// running are the transactions that have records behind their producer's last marker.
	running map[types.ProducerID][]*transactionRun
}

// txnMark begins the value of each record of a transaction.
const txnMark = "transaction "

func newTxnJudge(w *txnWorld) *txnJudge {
	return &txnJudge{w: w, epochs: map[types.ProducerID]*toldEpoch{}, given: map[producerEpoch]*txnClient{}, fenced: map[*writtenBatch]string{}, parts: map[int32]*txnPart{}, byText: map[string]*txnCommit{},
		lost: map[int32]time.Duration{}, highest: map[types.ProducerID]int16{}, floor: map[types.ProducerID]int16{}}
}

func (j *txnJudge) fail(invariant, format string, args ...any) {
	j.w.c.check.fail(invariant, format, args...)
}

// begins takes note of a transaction.
func (j *txnJudge) begins(x *txnClient) *transactionRun {
	t := &transactionRun{number: len(j.runs), id: x.id, began: j.w.k.now, by: x, in: producerEpoch{x.pid, x.epoch}, acked: map[int32]types.Offset{}, ends: map[int32]fate{}}
	j.runs = append(j.runs, t)
	return t
}

// runOf gives the transaction that a batch belongs to, nil if it belongs to none.
func (j *txnJudge) runOf(raw []byte) *transactionRun { return runIn(j.runs, raw) }

// runIn gives the transaction that a batch belongs to, nil if it belongs to none of these.
func runIn(runs []*transactionRun, raw []byte) *transactionRun {
	it := batch.Records(raw, nil)
	if !it.Next() {
		return nil
	}
	_, rest, found := bytes.Cut(it.Record.Value, []byte(txnMark)) // of an offset's record it is the metadata
	if !found {
		return nil
	}
	number, _, _ := bytes.Cut(rest, []byte(" "))
	n, err := strconv.Atoi(string(number))
	if err != nil || n >= len(runs) {
		return nil
	}
	return runs[n]
}

// answers judges who answers for an id: the coordinator (CoordinatorFence). Other codes
// are those of who isn't, or of a request that no coordinator has seen.
func (j *txnJudge) answers(m *machine, id *txnID, code wire.ErrCode) {
	switch code {
	case wire.None, wire.ErrConcurrentTransactions, wire.ErrProducerFenced, wire.ErrInvalidProducerIDMapping, wire.ErrInvalidTxnState:
		j.w.c.check.coordinatesIn(m, j.w.c.txnPartition(id.name), id.name, "answers "+code.Error())
	}
}

// initialised judges what a coordinator gives a producer: an epoch that nobody else
// was given (ProducerFenced). From then on nothing is written in a lower one.
func (j *txnJudge) initialised(m *machine, x *txnClient, r *kmsg.InitProducerIDResponse) {
	if r.ErrorCode != 0 {
		return
	}
	pid := types.ProducerID(r.ProducerID)
	key := producerEpoch{pid, r.ProducerEpoch}
	if other := j.given[key]; other != nil && other != x && j.isOwn(x, key) {
		j.fail("ProducerFenced", "%s gives %s epoch %d of producer %d, which %s was given before", m.name, x.who(), r.ProducerEpoch, pid, other.who())
		return
	}
	j.given[key] = x
	if before := j.epochs[pid]; before == nil || before.epoch < r.ProducerEpoch {
		j.epochs[pid] = &toldEpoch{epoch: r.ProducerEpoch, to: x, at: j.w.k.now}
	}
}

// acknowledged takes note of a batch that a broker has acknowledged.
func (j *txnJudge) acknowledged(m *machine, t *transactionRun, p int32, base types.Offset, raw []byte) {
	id := meta.PartitionID{Topic: j.w.c.wantTopic, Number: p}
	if j.isLost(t.id) && isRepeated(m.held(id), base, raw, func(other []byte) bool { return j.runOf(other) != t }) {
		j.w.k.probe("transaction: a producer's epoch was given again after an unclean election")
		return
	}
	j.w.c.check.acked(m, id, base, raw)
	if _, ok := t.acked[p]; !ok {
		t.acked[p] = base
	}
}

// isRepeated reports whether a log holds, where a batch is said to be, one of another
// transaction with its producer, epoch and sequence. Coordinators whose log an unclean
// election took give epochs again; the leader takes the batch for that one sent twice, and no
// broker can know better.
func isRepeated(h *held, base types.Offset, raw []byte, isOther func([]byte) bool) bool {
	if h == nil {
		return false
	}
	i := h.index(base)
	if i >= len(h.batches) || h.batches[i].base != base || !isOther(h.batches[i].raw) {
		return false
	}
	a, errA := batch.ParseHeader(raw)
	b, errB := batch.ParseHeader(h.batches[i].raw)
	return errA == nil && errB == nil && a.ProducerID == b.ProducerID && a.ProducerEpoch == b.ProducerEpoch && a.BaseSequence == b.BaseSequence
}

// decided judges a coordinator's answer to an end.
func (j *txnJudge) decided(m *machine, t *transactionRun, commit bool) {
	if !j.isSound(t) {
		return
	}
	f := fateOf(commit)
	if t.told != open && t.told != f {
		j.fail("TxnWhole", "%s says that %v is %v; at %v it was %v", m.name, t, f, t.toldAt.Round(time.Millisecond), t.told)
		return
	}
	if t.told == open {
		t.told, t.toldAt = f, j.w.k.now
	}
	j.agrees(t)
}

// agrees demands that all that is known of a transaction's end is one (TxnWhole), and
// that nobody has read what isn't committed (NoAbortedRead).
func (j *txnJudge) agrees(t *transactionRun) {
	if !j.isSound(t) {
		return
	}
	for _, p := range sortedKeys(t.ends) {
		f := t.ends[p]
		switch {
		case f == committed && !t.asked:
			j.fail("TxnWhole", "%v is committed in %s, and nobody asked for that", t, j.nameOf(p))
		case t.told != open && f != t.told:
			j.fail("TxnWhole", "%v is %v in %s; its producer was told at %v that it is %v", t, f, j.nameOf(p), t.toldAt.Round(time.Millisecond), t.told)
		case f == aborted && t.read:
			j.fail("NoAbortedRead", "%v is aborted in %s, and readers of what is committed were given some of it", t, j.nameOf(p))
		case f != t.ends[sortedKeys(t.ends)[0]]:
			j.fail("TxnWhole", "half of %v is committed: %v", t, t.ends)
		}
	}
	if t.read && t.told == aborted {
		j.fail("NoAbortedRead", "%v was aborted at %v, and readers of what is committed were given some of it", t, t.toldAt.Round(time.Millisecond))
	}
}

func sortedKeys[V any](m map[int32]V) []int32 {
	keys := make([]int32, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// isOurs reports whether a partition is one that transactions write to.
func (j *txnJudge) isOurs(l *ledger) bool { return j.isOfTxns(l.id.Topic) && !l.deleted }

// isOfTxns reports whether a topic is one that transactions write to.
func (j *txnJudge) isOfTxns(topic types.TopicID) bool {
	return topic == j.w.c.topic || j.w.c.o.TxnOffsets && topic == j.w.c.offsetsTopic
}

// wrote takes note of a batch that a leader has written.
func (j *txnJudge) wrote(w *writtenBatch) {
	h, err := batch.ParseHeader(w.raw)
	if err != nil || !h.IsTransactional() {
		return
	}
	j.hears(h.ProducerID, h.ProducerEpoch)
	if h.IsControl() {
		return
	}
	if e := j.epochs[h.ProducerID]; e != nil && h.ProducerEpoch < e.epoch && !j.isLost(e.to.id) {
		j.fenced[w] = fmt.Sprintf("producer %d wrote in epoch %d at %v; %s had been given epoch %d at %v",
			h.ProducerID, h.ProducerEpoch, j.w.k.now.Round(time.Millisecond), e.to.who(), e.epoch, e.at.Round(time.Millisecond))
	}
}

// readable looks at what has become readable of a partition.
func (j *txnJudge) readable(l *ledger) {
	if !j.isOurs(l) {
		return
	}
	spot := j.spot(l.id)
	part := j.parts[spot]
	if part == nil {
		part = &txnPart{running: map[types.ProducerID][]*transactionRun{}}
		j.parts[spot] = part
	}
	for w := l.committedFrom(part.next); w != nil; w = l.committedFrom(part.next) {
		part.next = w.next
		h, err := batch.ParseHeader(w.raw)
		if err != nil || !h.IsTransactional() {
			continue
		}
		if h.IsControl() {
			j.marker(l, part, w)
		} else {
			j.joins(l, part, w, h.ProducerID)
		}
	}
}

// joins judges a batch of a transaction.
func (j *txnJudge) joins(l *ledger, part *txnPart, w *writtenBatch, pid types.ProducerID) {
	if why, ok := j.fenced[w]; ok && l.unclean < 0 { // an unclean election may have taken what fenced it
		j.fail("ProducerFenced", "%s: %s is readable: %s", j.w.c.check.nameOf(l.id), w.shadowBatch, why)
		return
	}
	t := j.runOf(w.raw)
	if t == nil {
		return
	}
	if f, ended := t.ends[j.spot(l.id)]; ended && j.isWhole(l, t) {
		j.fail("OpenEnds", "%s: %s belongs to %v, which was %v there before: it opens a transaction that nobody ends", j.w.c.check.nameOf(l.id), w.shadowBatch, t, f)
		return
	}
	running := part.running[pid]
	if slices.Contains(running, t) {
		return
	}
	if j.isWhole(l, t) && slices.ContainsFunc(running, func(other *transactionRun) bool { return j.isWhole(l, other) }) {
		j.fail("TxnWhole", "%s: %s of %v lies in %v, which is open", j.w.c.check.nameOf(l.id), w.shadowBatch, t, running[0])
		return
	}
	part.running[pid] = append(running, t)
}

// marker judges the end of a producer's transaction.
func (j *txnJudge) marker(l *ledger, part *txnPart, w *writtenBatch) {
	m, err := batch.ParseMarker(w.raw)
	if err != nil {
		return
	}
	running := part.running[m.ProducerID]
	delete(part.running, m.ProducerID)
	for _, t := range running {
		if !j.isWhole(l, t) {
			continue
		}
		spot := j.spot(l.id)
		t.ends[spot] = fateOf(m.Kind == batch.Commit)
		j.w.k.note("log", "%s: %v is %v at %d", j.w.c.check.nameOf(l.id), t, t.ends[spot], w.base)
		j.agrees(t)
	}
}

// delivered judges a batch that a reader of committed records came to: it was given it,
// or was told that its transaction was aborted.
func (j *txnJudge) delivered(r *stableReader, h *batch.Header, raw []byte, isAborted bool) {
	l := j.w.c.check.ledger(meta.PartitionID{Topic: r.topic, Number: r.partition})
	t := j.runOf(raw)
	if t == nil || !j.isOurs(l) || !j.isWhole(l, t) {
		return
	}
	end := t.ends[r.partition]
	part := j.parts[r.partition]
	looked := part != nil && h.BaseOffset < part.next
	switch {
	case isAborted:
		if end == committed {
			j.fail("NoAbortedRead", "%s is told that %v was aborted, and it is committed", r.who(), t)
		}
		return
	case end == aborted, end == open && looked && slices.Contains(part.running[h.ProducerID], t):
		j.fail("NoAbortedRead", "%s is given %d-%d of %v, which is %v", r.who(), h.BaseOffset, h.NextOffset()-1, t, end)
		return
	}
	t.read = true
	j.agrees(t)
}

// openEnds demands that nothing is open for ever once the faults have ended (OpenEnds).
func (j *txnJudge) openEnds(image *meta.Image) string {
	c := j.w.c
	for p := range image.Partitions() {
		if !j.isOfTxns(p.ID.Topic) {
			continue
		}
		for _, id := range p.Record.Replicas {
			part, ok := c.machine(id).node.Broker().Partition(p.ID.Topic, p.ID.Number)
			if !ok {
				continue
			}
			v, _ := part.View()
			if v.LastStable == v.HighWatermark {
				continue
			}
			why := fmt.Sprintf("%s of broker %d is stable up to %d, readable up to %d", c.check.nameOf(p.ID), id, v.LastStable, v.HighWatermark)
			if len(j.lost) > 0 || c.check.ledger(p.ID).unclean >= 0 {
				j.w.k.probe("transaction: open for ever after an unclean election")
				continue
			}
			return j.endsInTime(why)
		}
	}
	return ""
}

// endsInTime gives why something isn't over yet, and demands that it is in a while (OpenEnds).
func (j *txnJudge) endsInTime(why string) string {
	const patience = 3 * time.Minute // many times a transaction's time-out
	c := j.w.c
	if c.k.now > c.healedAt+patience {
		j.fail("OpenEnds", "%v after the last fault %s", (c.k.now - c.healedAt).Round(time.Second), why)
	}
	return why
}

// final demands, once everything is over, that each transaction that was told to be
// committed is, wherever a batch of it was acknowledged.
func (j *txnJudge) final() {
	for _, t := range j.runs {
		for _, p := range sortedKeys(t.acked) {
			if t.told == committed && j.isWhole(j.ledgerAt(p), t) && t.ends[p] != committed {
				j.fail("TxnWhole", "%v was committed at %v; in %s, where its batch at %d was acknowledged, it is %v", t, t.toldAt.Round(time.Millisecond), j.nameOf(p), t.acked[p], t.ends[p])
				return
			}
		}
		j.w.k.probe("end: a transaction is " + t.told.String())
	}
	j.keptWhole()
}
