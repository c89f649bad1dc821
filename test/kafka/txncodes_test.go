//go:build kafka

package kafka_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/batch"
	"tidemark/internal/core/types"
	"tidemark/test/kafka/cluster"
)

// txnDifferences are the questions about transactions that we mean to answer otherwise than Kafka.
var txnDifferences = []meantDifference{
	{"AddPartitionsToTxn v[45]: is it there, of two one is", "brokers ask about one partition each; the answer is one for all"},
	{"AddOffsetsToTxn v\\d: no group", "no group has the empty name here, as the commit that follows is told by both"},
	{"TxnOffsetCommit v\\d: (an id that nobody has|no id)", "the coordinator is always asked, also while the producer's transaction is open in the group's log"},
}

// TestTransactionCodes asks Kafka and a node of ours the same about transactions, by frames made by hand: what is refused, and with which code.
func TestTransactionCodes(t *testing.T) {
	kafka := cluster.Start(t, cluster.Options{Props: map[string]string{"transaction.state.log.num.partitions": "1", "offsets.topic.num.partitions": "1"}})
	tidemark := startNode(t, "serve", "--set", "transaction.state.log.num.partitions=1", "--set", "offsets.topic.num.partitions=1")
	was, is := &txnAsker{newAsker(t, "Kafka", kafka.Bootstrap())}, &txnAsker{newAsker(t, "Tidemark", tidemark.kafka)}
	for _, a := range []*txnAsker{was, is} {
		a.inits()
		a.adds()
		a.ends()
		a.repeatedEnds()
		a.offsets()
		a.produces()
		a.markers()
		a.looks()
	}
	compareCodes(t, was.asker, is.asker, txnDifferences)
}

// txnAsker asks one contender about transactions.
type txnAsker struct{ *asker }

// txnProducer is a transactional id with the producer id and epoch it was given.
type txnProducer struct {
	id    string
	pid   int64
	epoch int16
}

func initRequest(id string, timeout int32, pid int64, epoch int16) *kmsg.InitProducerIDRequest {
	req := kmsg.NewPtrInitProducerIDRequest()
	req.TransactionalID, req.TransactionTimeoutMillis, req.ProducerID, req.ProducerEpoch = &id, timeout, pid, epoch
	return req
}

func (a *txnAsker) inits() {
	for _, q := range []struct {
		what    string
		id      string
		timeout int32
		pid     int64
		epoch   int16
	}{
		{"no time", "i", 0, -1, -1}, {"less than no time", "i", -1, -1, -1}, {"too long a time", "i", 1 << 30, -1, -1}, {"no id", "", 60000, -1, -1},
		{"producer without epoch", "i", 60000, 7, -1}, {"epoch without producer", "i", 60000, -1, 7}, {"a producer of a new id", "i-new", 60000, 1 << 40, 3},
	} {
		a.ask(q.what, initRequest(q.id, q.timeout, q.pid, q.epoch), 4)
	}
	p := a.producer("i-known")
	f := func(what string, pid int64, epoch int16, version int16) {
		resp := a.ask(what, initRequest(p.id, 60000, pid, epoch), version).(*kmsg.InitProducerIDResponse)
		if resp.ErrorCode == 0 {
			a.keep(what+": how much higher its epoch is", fmt.Sprint(resp.ProducerEpoch-p.epoch))
		}
	}
	f("its own producer goes on", p.pid, p.epoch, 4)
	f("its own producer goes on, told twice", p.pid, p.epoch, 4+1)
	f("an epoch to come", p.pid, p.epoch+9, 4)
	f("an epoch to come, of an old client", p.pid, p.epoch+9, 3)
	f("another producer", p.pid+1000, p.epoch, 4)
	f("anew", -1, -1, 4)
	f("an epoch before the last", p.pid, p.epoch, 4)
	find := kmsg.NewPtrFindCoordinatorRequest()
	find.CoordinatorType, find.CoordinatorKeys = 1, []string{"", "x"}
	a.ask("ids of which one is empty", find, 4)
}

// strangers gives producers that aren't a transactional id's.
func strangers(p txnProducer) map[string]txnProducer {
	return map[string]txnProducer{
		"an id that nobody has": {"nobody", p.pid, p.epoch}, "no id": {"", p.pid, p.epoch}, "another producer id": {p.id, p.pid + 1000, p.epoch},
		"an epoch to come": {p.id, p.pid, p.epoch + 1}, "an epoch gone by": {p.id, p.pid, p.epoch - 1},
	}
}

// eachStranger has a function called for each of them in one order.
func eachStranger(p txnProducer, f func(what string, p txnProducer)) {
	all := strangers(p)
	for _, what := range []string{"an id that nobody has", "no id", "another producer id", "an epoch to come", "an epoch gone by"} {
		f(what, all[what])
	}
}

func addRequest(p txnProducer, topics ...kmsg.AddPartitionsToTxnRequestTopic) *kmsg.AddPartitionsToTxnRequest {
	req := kmsg.NewPtrAddPartitionsToTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Topics = p.id, p.pid, p.epoch, topics
	return req
}

func addTopic(name string, partitions ...int32) kmsg.AddPartitionsToTxnRequestTopic {
	return kmsg.AddPartitionsToTxnRequestTopic{Topic: name, Partitions: partitions}
}

func brokersAdd(p txnProducer, verify bool, topic string, partitions ...int32) *kmsg.AddPartitionsToTxnRequest {
	req := kmsg.NewPtrAddPartitionsToTxnRequest()
	req.Transactions = []kmsg.AddPartitionsToTxnRequestTransaction{{TransactionalID: p.id, ProducerID: p.pid, ProducerEpoch: p.epoch, VerifyOnly: verify,
		Topics: []kmsg.AddPartitionsToTxnRequestTransactionTopic{{Topic: topic, Partitions: partitions}}}}
	return req
}

func (a *txnAsker) adds() {
	p := a.producer("adds")
	p = txnProducer{p.id, p.pid, a.producer("adds").epoch} // so that there is an epoch gone by
	for _, version := range []int16{0, 1, 2, 3} {
		eachStranger(p, func(what string, s txnProducer) { a.ask(what, addRequest(s, addTopic("codes", 0)), version) })
		a.ask("no partitions", addRequest(p), version)
		a.ask("an unknown topic", addRequest(p, addTopic("nonesuch", 0)), version)
		a.ask("a partition too many", addRequest(p, addTopic("codes", 0, 7)), version)
	}
	for _, version := range []int16{4, 5} {
		eachStranger(p, func(what string, s txnProducer) {
			a.ask("is it there, "+what, brokersAdd(s, true, "codes", 0), version)
			a.ask("add, "+what, brokersAdd(s, false, "codes", 0), version)
		})
		a.ask("is it there, nothing is", brokersAdd(p, true, "codes", 0), version)
	}
	a.ask("one", addRequest(p, addTopic("codes", 0)), 3)
	a.ask("the same again", addRequest(p, addTopic("codes", 0)), 3)
	for _, version := range []int16{4, 5} {
		a.ask("is it there, it is", brokersAdd(p, true, "codes", 0), version)
		a.ask("is it there, of two one is", brokersAdd(p, true, "codes", 0, 1), version)
		a.ask("add an unknown topic", brokersAdd(p, false, "nonesuch", 0), version)
	}
}

func endRequest(p txnProducer, commit bool) *kmsg.EndTxnRequest {
	req := kmsg.NewPtrEndTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = p.id, p.pid, p.epoch, commit
	return req
}

var endings = map[bool]string{true: "commit", false: "abort"}

// end asks for an end, and keeps by how much the epoch rose. It gives the producer as told.
func (a *txnAsker) end(what string, p txnProducer, commit bool, version int16) txnProducer {
	resp := a.ask(endings[commit]+", "+what, endRequest(p, commit), version).(*kmsg.EndTxnResponse)
	if resp.ErrorCode != 0 || version < 5 {
		return p
	}
	a.keep(fmt.Sprintf("%s, %s: how much higher its epoch is", endings[commit], what), fmt.Sprint(resp.ProducerEpoch-p.epoch))
	return txnProducer{p.id, resp.ProducerID, resp.ProducerEpoch}
}

func (a *txnAsker) ends() {
	for _, version := range []int16{1, 3, 4, 5} {
		id := fmt.Sprint("ends", version)
		a.producer(id)
		p := a.producer(id)
		for _, commit := range []bool{true, false} {
			eachStranger(p, func(what string, s txnProducer) { a.end(what, s, commit, version) })
		}
		p = a.end("of nothing", p, true, version)
		p = a.end("of nothing", p, false, version)
		a.settled(addRequest(p, addTopic("codes", 0)), 3)
		p = a.end("of a transaction", p, true, version)
		p = a.end("of nothing after a commit", p, true, version)
		p = a.end("of nothing after a commit", p, false, version)
		a.settled(addRequest(p, addTopic("codes", 0)), 3)
		p = a.end("of a transaction", p, false, version)
		p = a.end("of nothing after an abort", p, true, version)
		a.end("of nothing after an abort", p, false, version)
	}
}

// repeatedEnds are those whose first answer was lost.
func (a *txnAsker) repeatedEnds() {
	for _, version := range []int16{4, 5} {
		for _, commit := range []bool{true, false} {
			p := a.producer(fmt.Sprint("repeats", version, commit))
			a.settled(addRequest(p, addTopic("codes", 0)), 3)
			what := "of one that is to " + endings[commit]
			next := a.end(what, p, commit, version)
			a.end("once more "+what, p, commit, version)
			a.end("the other way "+what, p, !commit, version)
			a.settled(addRequest(next, addTopic("codes", 0)), 3)
			a.end("a late copy "+what, p, commit, version)
			a.settled(endRequest(next, true), version)
		}
	}
}

func txnCommitRequest(p txnProducer, group, member string, generation int32, topic string, id [16]byte) *kmsg.TxnOffsetCommitRequest {
	req := kmsg.NewPtrTxnOffsetCommitRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Group, req.MemberID, req.Generation = p.id, p.pid, p.epoch, group, member, generation
	req.Topics = []kmsg.TxnOffsetCommitRequestTopic{{Topic: topic, TopicID: id, Partitions: []kmsg.TxnOffsetCommitRequestTopicPartition{{Partition: 0, Offset: 3, LeaderEpoch: -1}}}}
	return req
}

func addOffsets(p txnProducer, group string) *kmsg.AddOffsetsToTxnRequest {
	req := kmsg.NewPtrAddOffsetsToTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Group = p.id, p.pid, p.epoch, group
	return req
}

func (a *txnAsker) offsets() {
	a.producer("offsets")
	p := a.producer("offsets")
	for _, version := range []int16{1, 3, 4} {
		eachStranger(p, func(what string, s txnProducer) { a.ask(what, addOffsets(s, "g"), version) })
		a.ask("no group", addOffsets(a.producer("no-group"), ""), version)
	}
	commit := func(what string, p txnProducer, group, member string, generation int32, topic string, id [16]byte, version int16) {
		a.ask(what, txnCommitRequest(p, group, member, generation, topic, id), version)
	}
	for _, version := range []int16{2, 3, 4} {
		commit("the group wasn't added", p, "g", "", -1, "codes", a.c.topicID, version)
	}
	a.ask("a group", addOffsets(p, "g"), 4)
	for _, version := range []int16{2, 3, 4, 5, 6} {
		eachStranger(p, func(what string, s txnProducer) { commit(what, s, "g", "", -1, "codes", a.c.topicID, version) })
		commit("no group", p, "", "", -1, "codes", a.c.topicID, version)
		commit("an unknown topic", p, "g", "", -1, "nonesuch", [16]byte{5}, version)
		commit("a group that is none yet", p, "g", "", -1, "codes", a.c.topicID, version)
		a.fetchOffsets(fmt.Sprint("in a transaction, after version ", version))
		if version >= 3 {
			commit("a member that there isn't", p, "g", "m", 3, "codes", a.c.topicID, version)
			commit("a generation without member", p, "g", "", 3, "codes", a.c.topicID, version)
			commit("a member without generation", p, "g", "m", -1, "codes", a.c.topicID, version)
			commit("a member of no group", p, "g-other", "m", 3, "codes", a.c.topicID, version)
		}
	}
	p = a.end("with offsets", p, true, 5)
	p = txnProducer{p.id, p.pid, p.epoch}
	a.settled(addRequest(p, addTopic("codes", 0)), 3) // until the markers are written
	a.fetchOffsets("after its commit")
	a.end("with a partition", p, false, 5)
}

func (a *txnAsker) fetchOffsets(when string) {
	for _, stable := range []bool{false, true} {
		for version := int16(7); version <= 10; version++ {
			for _, all := range []bool{false, true} {
				req := kmsg.NewPtrOffsetFetchRequest()
				req.Group, req.RequireStable = "g", stable
				g := kmsg.OffsetFetchRequestGroup{Group: "g", MemberEpoch: -1}
				if !all {
					req.Topics = []kmsg.OffsetFetchRequestTopic{{Topic: "codes", Partitions: []int32{0, 1}}}
					g.Topics = []kmsg.OffsetFetchRequestGroupTopic{{Topic: "codes", TopicID: a.c.topicID, Partitions: []int32{0, 1}}}
				}
				req.Groups = []kmsg.OffsetFetchRequestGroup{g}
				a.ask(fmt.Sprintf("stable %v, all %v, %s", stable, all, when), req, version)
			}
		}
	}
}

// txnBatch is a batch of one record.
func (a *txnAsker) txnBatch(p txnProducer, sequence int32, transactional bool) []byte {
	b := batch.NewBuilder(batch.BuilderOptions{Producer: &batch.Producer{ID: types.ProducerID(p.pid), Epoch: p.epoch, BaseSequence: sequence}, Transactional: transactional,
		LeaderEpoch: types.NoLeaderEpoch})
	b.Append(types.Millis(time.Now().UnixMilli()), nil, []byte("v"))
	raw, err := b.Build()
	if err != nil {
		a.t.Fatal(err)
	}
	return raw
}

func (a *txnAsker) produce(what string, id *string, raw []byte, partition int32, version int16) {
	req := kmsg.NewPtrProduceRequest()
	req.TransactionID, req.Acks, req.TimeoutMillis = id, -1, 20000
	rp := kmsg.NewProduceRequestTopicPartition()
	rp.Partition, rp.Records = partition, raw
	req.Topics = []kmsg.ProduceRequestTopic{{Topic: a.c.topic, TopicID: a.c.topicID, Partitions: []kmsg.ProduceRequestTopicPartition{rp}}}
	a.ask(what, req, version)
}

func (a *txnAsker) produces() {
	for _, version := range []int16{9, 10, 11, 12, 13} {
		id := fmt.Sprint("produces", version)
		a.producer(id)
		p := a.producer(id)
		eachStranger(p, func(what string, s txnProducer) { a.produce(what, &s.id, a.txnBatch(s, 0, true), 0, version) })
		a.produce("of a transaction, no id told", nil, a.txnBatch(p, 0, true), 0, version)
		a.produce("first a number that isn't 0", &p.id, a.txnBatch(p, 5, true), 0, version)
		a.produce("the partition wasn't added", &p.id, a.txnBatch(p, 0, true), 0, version)
		a.settled(addRequest(p, addTopic("codes", 0, 1)), 3)
		a.produce("the partition was added", &p.id, a.txnBatch(p, 0, true), 1, version)
		a.produce("the same again", &p.id, a.txnBatch(p, 0, true), 1, version)
		a.produce("a number left out", &p.id, a.txnBatch(p, 9, true), 1, version)
		a.produce("not of the transaction that is open", &p.id, a.txnBatch(p, 1, false), 1, version)
		eachStranger(p, func(what string, s txnProducer) {
			a.produce("while one is open, "+what, &s.id, a.txnBatch(s, 1, true), 1, version)
		})
		next := a.end(fmt.Sprint("after Produce ", version), p, true, 5)
		a.settled(initRequest(p.id, 60000, next.pid, next.epoch), 5)
		a.produce("late, after the end", &p.id, a.txnBatch(p, 1, true), 1, version)
	}
}

func markersRequest(p txnProducer, coordinator int32, topic string, partitions ...int32) *kmsg.WriteTxnMarkersRequest {
	req := kmsg.NewPtrWriteTxnMarkersRequest()
	req.Markers = []kmsg.WriteTxnMarkersRequestMarker{{ProducerID: p.pid, ProducerEpoch: p.epoch, CoordinatorEpoch: coordinator,
		Topics: []kmsg.WriteTxnMarkersRequestMarkerTopic{{Topic: topic, Partitions: partitions}}}}
	return req
}

func (a *txnAsker) markers() {
	for _, version := range []int16{1, 2} {
		id := fmt.Sprint("markers", version)
		a.producer(id)
		p := a.producer(id)
		stranger := txnProducer{"", p.pid + 1000, 0}
		a.ask("an unknown topic", markersRequest(p, 0, "nonesuch", 0), version)
		a.ask("a partition too many", markersRequest(p, 0, "codes", 0, 7), version)
		a.ask("a producer that isn't there", markersRequest(stranger, 0, "codes", 0), version)
		a.ask("the groups' topic", markersRequest(stranger, 0, "__consumer_offsets", 0), version)
		a.settled(addRequest(p, addTopic("codes", 0)), 3)
		a.produce(fmt.Sprint("for a marker of version ", version), &p.id, a.txnBatch(p, 0, true), 0, 12)
		a.ask("an epoch gone by", markersRequest(txnProducer{"", p.pid, p.epoch - 1}, 0, "codes", 0), version)
		a.ask("its own", markersRequest(p, 5, "codes", 0), version)
		a.ask("once more", markersRequest(p, 5, "codes", 0), version)
		a.ask("of a coordinator gone by", markersRequest(p, 4, "codes", 0), version)
		a.ask("an epoch to come", markersRequest(txnProducer{"", p.pid, p.epoch + 1}, 5, "codes", 0), version)
	}
}

// looks are what operators' tools ask.
func (a *txnAsker) looks() {
	describe := kmsg.NewPtrDescribeTransactionsRequest()
	for _, id := range []string{"nobody", "", "ends4"} {
		describe.TransactionalIDs = []string{id}
		resp := a.ask(fmt.Sprintf("%q", id), describe, 0).(*kmsg.DescribeTransactionsResponse)
		if s := resp.TransactionStates[0]; s.ErrorCode == 0 {
			a.keep("described", fmt.Sprintf("%s for %d, epoch %d, %d topics", s.State, s.TimeoutMillis, s.ProducerEpoch, len(s.Topics)))
		}
	}
	producers := kmsg.NewPtrDescribeProducersRequest()
	producers.Topics = []kmsg.DescribeProducersRequestTopic{{Topic: "codes", Partitions: []int32{0, 7}}, {Topic: "nonesuch", Partitions: []int32{0}}}
	a.ask("partitions that are and aren't", producers, 0)
	for _, pattern := range []string{"", "(", "a.*s", "ends[45]"} {
		list := kmsg.NewPtrListTransactionsRequest()
		list.TransactionalIDPattern, list.StateFilters = &pattern, []string{"CompleteAbort", "Odd"}
		resp := a.ask("pattern "+pattern, list, 2).(*kmsg.ListTransactionsResponse)
		var ids []string
		for _, s := range resp.TransactionStates {
			ids = append(ids, s.TransactionalID)
		}
		slices.Sort(ids)
		a.keep("listed by "+pattern, fmt.Sprintf("%v, unknown %v", ids, resp.UnknownStateFilters))
	}
}
