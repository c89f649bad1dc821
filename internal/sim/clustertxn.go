package sim

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/batch"
	"tidemark/internal/broker/coordinator/statelog"
	"tidemark/internal/broker/coordinator/transactions"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/internal/wire"
)

// txnPartitions is how many partitions __transaction_state has here.
const txnPartitions = 2

// txnWorld is what a run with transactions has beside the rest: transactional
// producers, readers of committed records, and __transaction_state.
type txnWorld struct {
	c       *cluster
	k       *kernel
	p       *process // of producers and readers
	work    sync.WaitGroup
	topic   types.TopicID // of __transaction_state
	begun   bool
	ids     []*txnID
	readers []*stableReader
	groups  []*groupReader // where transactions commit offsets
	judge   *txnJudge      // of this cluster; nil where there are several
	ear     txnEar
	// succeed begins the next instance of an id; nil: it begins here.
	succeed func(id *txnID)
	// attempted, if not nil, is told of each batch that comes to a broker.
	attempted func(m *machine, p int32, raw []byte)
}

// txnEar hears what clients of transactions do and are told.
type txnEar interface {
	begins(x *txnClient) *transactionRun
	answers(m *machine, id *txnID, code wire.ErrCode)
	initialised(m *machine, x *txnClient, r *kmsg.InitProducerIDResponse)
	hears(id types.ProducerID, epoch int16)
	acknowledged(m *machine, t *transactionRun, p int32, base types.Offset, raw []byte)
	decided(m *machine, t *transactionRun, commit bool)
	delivered(r *stableReader, h *batch.Header, raw []byte, isAborted bool)
}

// txnID is a transactional id. One instance of its program after the other works under
// it, and now and then two at a time.
type txnID struct {
	name      string
	bumps     bool // its clients take a new epoch from every end (KIP-890)
	instances int
	current   *txnClient
	// late are batches that nobody acknowledged, as they were sent; they may come again.
	late []lateBatch
}

type lateBatch struct {
	partition int32
	req       *kmsg.ProduceRequest
}

// txnClient is one instance: a program that begins, writes and ends transactions.
type txnClient struct {
	w           *txnWorld
	id          *txnID
	number      int
	started     time.Duration
	coordinator types.BrokerID // as it believes; 0: it must look
	pid         types.ProducerID
	epoch       int16
	renew       bool // it doesn't know what became of a batch: it needs a new epoch (KIP-360)
	sequences   map[int32]int32
	leaders     map[int32]types.BrokerID
	sleeps      time.Duration // before its next step
	rest        time.Duration // before another instance begins, where this one has died
	// stopped: it has died, or was told that another one has taken its place.
	stopped bool
	// refused: the partition isn't written here, or not any more.
	refused   bool
	committed time.Duration // when a transaction was last committed, -1: never
}

func (c *cluster) txnPartition(id string) meta.PartitionID {
	return meta.PartitionID{Topic: c.txns.topic, Number: statelog.PartitionFor(id, txnPartitions)}
}

// orderTxns has the state topic made, until it is there; then producers and readers begin.
func (c *cluster) orderTxns() {
	if c.o.Txns == 0 || c.world != nil {
		return
	}
	d := c.k.dice("transactions' topic")
	if c.txns == nil {
		w := &txnWorld{c: c, k: c.k, p: newProcess(c.k, "transactions' clients", 1)}
		w.judge = newTxnJudge(w)
		w.ear = w.judge
		for i := range w.topic {
			w.topic[i] = byte(d.IntN(256))
		}
		for i := range c.o.Txns {
			w.ids = append(w.ids, &txnID{name: fmt.Sprintf("txn-id-%d", i), bumps: d.chance(0.5)})
		}
		c.txns = w
	}
	c.k.after(300*time.Millisecond, "transactions' topic ordered", func() {
		switch {
		case !c.check.hasTxns:
			c.operate(d, "create the transactions' topic", func(m *machine) error {
				return c.createInternal(m, transactions.StateTopic, c.txns.topic, txnPartitions)
			})
			c.k.after(time.Second, "transactions' topic ordered", c.orderTxns)
		case c.topic.IsZero(), c.o.TxnOffsets && !c.check.hasOffsets:
			c.k.after(time.Second, "transactions' topic ordered", c.orderTxns)
		default:
			c.txns.begin()
		}
	})
}

func (w *txnWorld) begin() {
	if w.begun {
		return
	}
	w.begun = true
	for _, id := range w.ids {
		w.start(id)
	}
	for p := range w.c.o.Partitions {
		r := &stableReader{w: w, partition: int32(p)}
		w.readers = append(w.readers, r)
		w.p.Go(&w.work, r.run)
	}
	if w.c.o.TxnOffsets {
		for _, id := range w.ids {
			r := &groupReader{w: w, id: id}
			w.groups = append(w.groups, r)
			w.p.Go(&w.work, r.run)
		}
	}
}

// topicID is the id of the topic that is written to.
func (w *txnWorld) topicID() types.TopicID {
	if w.c.world != nil {
		return w.c.topicID()
	}
	return w.c.wantTopic
}

// start begins another instance under an id; the one before isn't asked.
func (w *txnWorld) start(id *txnID) {
	id.instances++
	x := &txnClient{w: w, id: id, number: id.instances, started: w.k.now, pid: types.NoProducer, epoch: -1, committed: -1, leaders: map[int32]types.BrokerID{}}
	id.current = x
	w.k.note(x.who(), "begins")
	w.p.Go(&w.work, x.live)
}

func (x *txnClient) who() string { return fmt.Sprintf("%s/%d", x.id.name, x.number) }

func (x *txnClient) dice() dice { return x.w.k.dice(x.who()) }

// live is the instance's program.
func (x *txnClient) live() {
	for !x.stopped && !x.isDone() {
		if x.pid == types.NoProducer || x.renew {
			x.init()
		} else {
			x.transact()
		}
		if x.refused {
			x.stop("its records are refused here")
		}
		x.pause(20*time.Millisecond, 300*time.Millisecond)
	}
	if x.id.current == x && !x.isDone() && !x.w.c.mutation.noSuccessors { // it was fenced, by a time-out or another one that has gone
		x.w.k.after(x.rest+x.dice().between(100*time.Millisecond, 2*time.Second), "another instance", func() {
			switch {
			case x.id.current != x:
			case x.w.succeed != nil:
				x.w.succeed(x.id)
			default:
				x.w.start(x.id)
			}
		})
	}
}

// isDone: after the faults each id commits one transaction, and rests.
func (x *txnClient) isDone() bool { return x.w.c.healed && x.committed >= x.w.c.healedAt }

// pause waits, or longer if the plan says so.
func (x *txnClient) pause(lo, hi time.Duration) {
	_, _ = x.w.p.Wait(x.w.p.context(), x.dice().between(lo, hi), nil) // nothing ends it
	for x.sleeps > 0 && !x.w.c.healed {
		span := min(x.sleeps, 500*time.Millisecond)
		x.sleeps -= span
		_, _ = x.w.p.Wait(x.w.p.context(), span, nil)
	}
}

// stop ends the instance: it is fenced, or has died.
func (x *txnClient) stop(why string) {
	if !x.stopped {
		x.stopped = true
		x.w.k.note(x.who(), "stops: %s", why)
	}
}

// ask sends a request to the coordinator. The answer's code is a repeatable one where
// there is no answer.
func (x *txnClient) ask(req kmsg.Request, code func(kmsg.Response) int16, said func(*machine, kmsg.Response)) (kmsg.Response, wire.ErrCode) {
	if x.coordinator == 0 && !x.look() {
		return nil, wire.ErrCoordinatorNotAvailable
	}
	resp, err := x.w.request(sending{from: x.who(), to: x.w.c.machine(x.coordinator), req: req, timeout: clientTimeout, onTime: !x.id.bumps}, func(m *machine, r kmsg.Response) {
		x.w.ear.answers(m, x.id, wire.ErrCode(code(r)))
		if said != nil {
			said(m, r)
		}
	})
	if err != nil {
		x.coordinator = 0
		return nil, wire.ErrRequestTimedOut
	}
	got := wire.ErrCode(code(resp))
	switch got {
	case wire.ErrNotCoordinator, wire.ErrCoordinatorNotAvailable:
		x.coordinator = 0
	case wire.ErrCoordinatorLoadInProgress:
		x.w.k.probe("transaction: coordinator loads")
	}
	return resp, got
}

// look asks some broker who coordinates the id.
func (x *txnClient) look() bool {
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.Version, req.CoordinatorKey, req.CoordinatorType = 3, x.id.name, 1
	resp, err := x.w.request(sending{from: x.who(), to: x.w.c.anyMachine(x.dice()), req: req, timeout: clientTimeout, onTime: true}, nil)
	if err != nil {
		return false
	}
	if r := resp.(*kmsg.FindCoordinatorResponse); r.ErrorCode == 0 && x.w.c.machine(types.BrokerID(r.NodeID)) != nil {
		x.coordinator = types.BrokerID(r.NodeID)
	}
	return x.coordinator != 0
}

// isRepeatable tells answers after which a client asks again.
func isRepeatable(code wire.ErrCode) bool {
	switch code {
	case wire.ErrConcurrentTransactions, wire.ErrCoordinatorLoadInProgress, wire.ErrCoordinatorNotAvailable, wire.ErrNotCoordinator, wire.ErrRequestTimedOut:
		return true
	}
	return false
}

// init gets a producer id and an epoch, or the next one.
func (x *txnClient) init() {
	req := kmsg.NewPtrInitProducerIDRequest()
	req.Version, req.TransactionalID, req.TransactionTimeoutMillis = 4, &x.id.name, int32(x.w.c.o.TxnTimeout/time.Millisecond)
	req.ProducerID, req.ProducerEpoch = int64(x.pid), x.epoch
	resp, code := x.ask(req, func(r kmsg.Response) int16 { return r.(*kmsg.InitProducerIDResponse).ErrorCode }, func(m *machine, r kmsg.Response) {
		x.w.ear.initialised(m, x, r.(*kmsg.InitProducerIDResponse))
	})
	switch {
	case code == wire.None:
		r := resp.(*kmsg.InitProducerIDResponse)
		x.goOn(r.ProducerID, r.ProducerEpoch)
	case code == wire.ErrConcurrentTransactions:
		x.w.k.probe("transaction: waits for the one before")
	case !isRepeatable(code):
		x.stop("InitProducerId: " + code.Error())
	}
}

// goOn takes a producer id and epoch; their sequences begin with 0.
func (x *txnClient) goOn(pid int64, epoch int16) {
	x.pid, x.epoch, x.renew, x.sequences = types.ProducerID(pid), epoch, false, map[int32]int32{}
	x.w.ear.hears(x.pid, epoch)
}

// transact is one transaction from its begin to its end, or as far as it comes.
func (x *txnClient) transact() {
	d := x.dice()
	t := x.w.ear.begins(x)
	parts := d.Perm(x.w.c.o.Partitions)[:1+d.IntN(x.w.c.o.Partitions)]
	good, opened := true, false
	for _, p := range parts {
		if !x.id.bumps {
			opened = true
			good = x.add(int32(p))
		}
		for n := 1 + d.IntN(2); n > 0 && good && !x.stopped; n-- {
			opened = true
			good = x.produce(t, int32(p))
		}
		if !good || x.stopped {
			break
		}
		x.pause(0, x.w.c.o.TxnThinks)
	}
	if x.w.c.o.TxnOffsets && good && !x.stopped && d.chance(0.6) {
		good = x.commitOffsets(t)
		x.pause(0, x.w.c.o.TxnThinks)
	}
	if opened && !x.stopped {
		x.end(t, good && d.chance(0.75))
	}
	if n := len(x.id.late); x.w.c.o.TxnLateAtOnce && !good && n > 0 && d.chance(0.5) {
		x.sendLate(x.id.late[n-1], d) // its transaction is over, and no newer epoch has come
	}
	x.renew = x.renew || !good && !x.id.bumps
}

// addTries is how often a client asks before it aborts.
const addTries = 12

// add has the coordinator add a partition.
func (x *txnClient) add(p int32) bool {
	req := kmsg.NewPtrAddPartitionsToTxnRequest()
	req.Version, req.TransactionalID, req.ProducerID, req.ProducerEpoch = 3, x.id.name, int64(x.pid), x.epoch
	topic := kmsg.NewAddPartitionsToTxnRequestTopic()
	topic.Topic, topic.Partitions = clusterTopic, []int32{p}
	req.Topics = append(req.Topics, topic)
	return x.addTo("AddPartitionsToTxn", req, func(r kmsg.Response) int16 {
		return r.(*kmsg.AddPartitionsToTxnResponse).Topics[0].Partitions[0].ErrorCode
	})
}

// addTo asks the coordinator to take something in, until it says whether it has.
func (x *txnClient) addTo(what string, req kmsg.Request, codeOf func(kmsg.Response) int16) bool {
	for range addTries {
		_, code := x.ask(req, codeOf, nil)
		switch {
		case code == wire.None:
			return true
		case x.stopped:
			return false
		case code == wire.ErrProducerFenced, code == wire.ErrInvalidProducerEpoch, code == wire.ErrInvalidProducerIDMapping:
			x.stop(what + ": " + code.Error())
			return false
		case !isRepeatable(code) && code != wire.ErrUnknownTopicOrPartition:
			x.w.k.probe("transaction: not added: " + code.Error())
			x.refused = code == wire.ErrPolicyViolation
			return false
		}
		x.pause(20*time.Millisecond, 200*time.Millisecond)
	}
	return false
}

// produce writes one batch, a few times if need be; false: the transaction can only be aborted.
func (x *txnClient) produce(t *transactionRun, p int32) bool {
	req, records := x.batchOf(t, p)
	for range x.w.c.o.TxnTries {
		code := x.sendBatch(t, p, req)
		switch code {
		case wire.None:
			x.sequences[p] += records
			return true
		case wire.ErrInvalidProducerEpoch, wire.ErrProducerFenced, wire.ErrInvalidProducerIDMapping:
			x.stop("Produce: " + code.Error())
			return false
		case wire.ErrInvalidTxnState, wire.ErrTransactionAbortable, wire.ErrOutOfOrderSequenceNumber, wire.ErrUnknownProducerID:
			x.w.k.probe("transaction: to be aborted: " + code.Error())
			return false
		case wire.ErrPolicyViolation:
			x.refused = true
			return false
		case wire.ErrNotLeaderOrFollower, wire.ErrRequestTimedOut:
			x.leaders[p] = 0
		}
		if x.stopped {
			return false
		}
		x.pause(20*time.Millisecond, 300*time.Millisecond)
	}
	x.w.k.probe("transaction: a batch of unknown fate")
	if x.id.late = append(x.id.late, lateBatch{p, req}); len(x.id.late) > 4 {
		x.id.late = x.id.late[1:]
	}
	return false
}

// batchOf makes the transaction's next batch for a partition.
func (x *txnClient) batchOf(t *transactionRun, p int32) (*kmsg.ProduceRequest, int32) {
	d := x.dice()
	b := batch.NewBuilder(batch.BuilderOptions{LeaderEpoch: types.NoLeaderEpoch, Transactional: true, Producer: &batch.Producer{ID: x.pid, Epoch: x.epoch, BaseSequence: x.sequences[p]}})
	records := int32(1 + d.IntN(3))
	for i := range records {
		b.Append(epoch2026+types.Millis(x.w.k.now/time.Millisecond), fmt.Appendf(nil, "key-%d", d.IntN(8)), fmt.Appendf(nil, "%s%d of %s, %d%0*d", txnMark, t.number, x.who(), i, 1+d.IntN(40), 0))
	}
	raw, err := b.Build()
	if err != nil {
		x.w.k.fail("PANIC", "build: %v", err)
	}
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.TransactionID, req.Acks, req.TimeoutMillis = 11, &x.id.name, -1, 1000
	if x.id.bumps {
		req.Version = 12
	}
	part := kmsg.NewProduceRequestTopicPartition()
	part.Partition, part.Records = p, raw
	topic := kmsg.NewProduceRequestTopic()
	topic.Topic, topic.Partitions = clusterTopic, []kmsg.ProduceRequestTopicPartition{part}
	req.Topics = append(req.Topics, topic)
	return req, records
}

func (x *txnClient) sendBatch(t *transactionRun, p int32, req *kmsg.ProduceRequest) wire.ErrCode {
	if x.leaders[p] == 0 {
		x.leaders[p], _ = x.w.c.leader(x.w.topicID(), int(p), x.dice(), 0)
	}
	resp, err := x.w.request(sending{from: x.who(), to: x.w.c.machine(x.leaders[p]), req: req, timeout: clientTimeout, comes: x.w.coming(p, req)}, func(m *machine, r kmsg.Response) {
		if a := producedOf(r); a.ErrorCode == 0 {
			x.w.ear.acknowledged(m, t, p, types.Offset(a.BaseOffset), req.Topics[0].Partitions[0].Records)
		}
	})
	if err != nil {
		return wire.ErrRequestTimedOut
	}
	return wire.ErrCode(producedOf(resp).ErrorCode)
}

// coming is told where a batch is taken; nil: nobody asks.
func (w *txnWorld) coming(p int32, req *kmsg.ProduceRequest) func(m *machine) {
	if w.attempted == nil {
		return nil
	}
	raw := req.Topics[0].Partitions[0].Records
	return func(m *machine) { w.attempted(m, p, raw) }
}

func producedOf(r kmsg.Response) *kmsg.ProduceResponseTopicPartition {
	return &r.(*kmsg.ProduceResponse).Topics[0].Partitions[0]
}

// end decides the transaction, and asks until it knows how.
func (x *txnClient) end(t *transactionRun, commit bool) {
	req := kmsg.NewPtrEndTxnRequest()
	req.Version, req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = 4, x.id.name, int64(x.pid), x.epoch, commit
	if x.id.bumps {
		req.Version = 5
	}
	t.asked = t.asked || commit
	for !x.stopped {
		resp, code := x.ask(req, func(r kmsg.Response) int16 { return r.(*kmsg.EndTxnResponse).ErrorCode }, func(m *machine, r kmsg.Response) {
			if r.(*kmsg.EndTxnResponse).ErrorCode == 0 {
				x.w.ear.decided(m, t, commit)
			}
		})
		switch {
		case code == wire.None:
			x.ended(resp.(*kmsg.EndTxnResponse), commit)
			return
		case code == wire.ErrInvalidTxnState && !commit: // nothing of it ever came to the coordinator
			x.renew = true
			return
		case !isRepeatable(code):
			x.stop("EndTxn: " + code.Error())
			return
		case x.dice().chance(x.w.c.mutation.diesAtEnd):
			x.stop("it dies before it knows the end of its transaction")
			return
		}
		x.pause(20*time.Millisecond, 300*time.Millisecond)
	}
}

func (x *txnClient) ended(r *kmsg.EndTxnResponse, commit bool) {
	if x.id.bumps {
		x.goOn(r.ProducerID, r.ProducerEpoch)
	}
	if commit {
		x.committed = x.w.k.now
	}
}

// heal has everybody who sleeps go on.
func (w *txnWorld) heal() {
	for _, id := range w.ids {
		if id.current != nil && id.current.stopped && !w.c.mutation.noSuccessors {
			w.start(id)
		}
	}
}

// txnsUnfinished says what transactions lack after the faults.
func (c *cluster) txnsUnfinished(image *meta.Image) string {
	if c.txns == nil {
		return ""
	}
	parts := 0
	for p := range image.PartitionsOf(c.txns.topic) {
		parts++
		if why := c.behind(p); why != "" {
			return fmt.Sprintf("transactions, partition %d: %s", p.ID.Number, why)
		}
	}
	if parts != txnPartitions {
		return fmt.Sprintf("%d partitions of transactions", parts)
	}
	if why := c.txns.judge.openEnds(image); why != "" {
		return why
	}
	if i := slices.IndexFunc(c.txns.ids, func(id *txnID) bool { return id.current == nil || !id.current.isDone() }); i >= 0 && !c.mutation.noSuccessors {
		return c.txns.judge.endsInTime(c.txns.ids[i].name + " has committed nothing since the faults ended")
	}
	for _, r := range c.txns.readers {
		if why := r.behind(); why != "" {
			return why
		}
	}
	for _, r := range c.txns.groups {
		if why := r.behind(); why != "" {
			return why
		}
	}
	return ""
}
