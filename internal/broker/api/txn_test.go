package api

import (
	"fmt"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/batch"
	"tidemark/internal/core/errcode"
	"tidemark/internal/core/group"
	"tidemark/internal/core/transaction"
	"tidemark/internal/core/types"
	"tidemark/internal/wire"
)

func txnWorld(t *testing.T) (*world, *fakeTxns, *fakeGroups) {
	w, f, g := newWorld(t), &fakeTxns{node: 2}, &fakeGroups{node: 1}
	w.server.Transactions, w.server.Groups = f, g
	w.topic("t", topicOptions{partitions: 3})
	return w, f, g
}

func txnBatch(t *testing.T) []byte {
	t.Helper()
	b := batch.NewBuilder(batch.BuilderOptions{LeaderEpoch: -1, Transactional: true, Producer: &batch.Producer{ID: 5, Epoch: 2}})
	b.Append(1, nil, []byte("v"))
	raw, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// A transaction's first batch is appended with what its coordinator has said; the
// versions of Produce differ in what is asked and what a refusal is called.
func TestProduceOfATransaction(t *testing.T) {
	id := "id"
	f := func(version int16, open bool, said errcode.Code, want wire.ErrCode, verifies, asks bool) {
		t.Helper()
		w, txns, _ := txnWorld(t)
		txns.codes = []errcode.Code{said}
		w.part("t", 1).txnOpen = open
		in := kmsg.NewPtrProduceRequest()
		in.Acks, in.TransactionID = 1, &id
		in.Topics = []kmsg.ProduceRequestTopic{{Topic: "t", Partitions: []kmsg.ProduceRequestTopicPartition{{Partition: 1, Records: txnBatch(t)}}}}
		out := ask[*kmsg.ProduceResponse](w, in, version)
		if got := wire.ErrCode(out.Topics[0].Partitions[0].ErrorCode); got != want {
			t.Errorf("v%d, open %v, %s: %s, want %s", version, open, said, got, want)
		}
		var adds []any
		if asks {
			adds = []any{fmt.Sprintf("%+v", transaction.Add{ID: id, ProducerID: 5, Epoch: 2, Partitions: []types.TopicPartition{{Topic: "t", Partition: 1}}, VerifyOnly: verifies})}
		}
		var got []any
		for _, a := range txns.asked {
			got = append(got, fmt.Sprintf("%+v", a))
		}
		if !slices.Equal(got, adds) {
			t.Errorf("v%d: the coordinator was asked %v, want %v", version, got, adds)
		}
	}
	f(9, false, errcode.None, wire.None, true, true)
	f(12, false, errcode.None, wire.None, false, true)
	f(12, true, errcode.ProducerFenced, wire.None, false, false) // nobody is asked about an open one
	f(10, false, errcode.TransactionAbortable, wire.ErrInvalidTxnState, true, true)
	f(11, false, errcode.TransactionAbortable, wire.ErrTransactionAbortable, true, true)
	f(12, false, errcode.ProducerFenced, wire.ErrInvalidProducerEpoch, false, true)
	f(12, false, errcode.InvalidProducerIDMapping, wire.ErrInvalidProducerIDMapping, false, true)
	f(12, false, errcode.NotCoordinator, wire.ErrNotEnoughReplicas, false, true)
	f(9, false, errcode.CoordinatorNotAvailable, wire.ErrNotEnoughReplicas, true, true)
	id = "" // the coordinator's to refuse, as in Kafka
	f(12, false, errcode.InvalidRequest, wire.ErrInvalidRequest, false, true)
}

// AddPartitionsToTxn adds all or none, and tells older clients older codes.
func TestAddPartitionsToTxn(t *testing.T) {
	w, txns, _ := txnWorld(t)
	in := kmsg.NewPtrAddPartitionsToTxnRequest()
	in.TransactionalID, in.ProducerID, in.ProducerEpoch = "id", 5, 2
	in.Topics = []kmsg.AddPartitionsToTxnRequestTopic{{Topic: "t", Partitions: []int32{2, 0}}}
	codes := func(version int16) (all []wire.ErrCode) {
		for _, topic := range ask[*kmsg.AddPartitionsToTxnResponse](w, in, version).Topics {
			for _, p := range topic.Partitions {
				all = append(all, wire.ErrCode(p.ErrorCode))
			}
		}
		return all
	}
	f := func(version int16, said errcode.Code, want ...wire.ErrCode) {
		t.Helper()
		txns.codes = []errcode.Code{said}
		if got := codes(version); !slices.Equal(got, want) {
			t.Errorf("v%d, %s: %v, want %v", version, said, got, want)
		}
	}
	f(3, errcode.None, wire.None, wire.None)
	f(0, errcode.ProducerFenced, wire.ErrInvalidProducerEpoch, wire.ErrInvalidProducerEpoch)
	f(2, errcode.ProducerFenced, wire.ErrProducerFenced, wire.ErrProducerFenced)
	in.Topics[0].Partitions = []int32{2, 3}
	asked := len(txns.asked)
	f(3, errcode.None, wire.ErrOperationNotAttempted, wire.ErrUnknownTopicOrPartition)
	if len(txns.asked) != asked {
		t.Error("the coordinator was asked about partitions of which one doesn't exist")
	}

	w.topic("closed", topicOptions{fenced: true})
	w.topic("mirrored", topicOptions{mirror: "m"})
	before := in.Topics
	for _, name := range []string{"closed", "mirrored"} {
		in.Topics = []kmsg.AddPartitionsToTxnRequestTopic{{Topic: "t", Partitions: []int32{0}}, {Topic: name, Partitions: []int32{0}}}
		f(3, errcode.None, wire.ErrOperationNotAttempted, wire.ErrPolicyViolation)
	}
	if in.Topics = before; len(txns.asked) != asked {
		t.Error("the coordinator was asked about a partition that a switchover has closed, or a mirror writes")
	}

	in.Transactions = []kmsg.AddPartitionsToTxnRequestTransaction{{TransactionalID: "id", ProducerID: 5, ProducerEpoch: 2, VerifyOnly: true,
		Topics: []kmsg.AddPartitionsToTxnRequestTransactionTopic{{Topic: "t", Partitions: []int32{1}}}}}
	g := func(version int16, said errcode.Code, want wire.ErrCode) {
		t.Helper()
		txns.codes = []errcode.Code{said}
		out := ask[*kmsg.AddPartitionsToTxnResponse](w, in, version)
		if got := wire.ErrCode(out.Transactions[0].Topics[0].Partitions[0].ErrorCode); got != want || out.Transactions[0].TransactionalID != "id" {
			t.Errorf("v%d, %s: %s of %q, want %s", version, said, got, out.Transactions[0].TransactionalID, want)
		}
	}
	g(4, errcode.TransactionAbortable, wire.ErrTransactionAbortable)
	g(5, errcode.TransactionAbortable, wire.ErrTransactionAbortable)
	g(5, errcode.None, wire.None)
	in.Transactions[0].Topics[0].Topic, in.Transactions[0].Topics[0].Partitions = "closed", []int32{0}
	g(5, errcode.None, wire.None) // what it has written there may be asked about
	in.Transactions[0].VerifyOnly = false
	g(5, errcode.None, wire.ErrPolicyViolation)
	for _, tp := range []types.TopicPartition{{Topic: "none"}, {Topic: "t", Partition: 3}} {
		in.Transactions[0].Topics[0] = kmsg.AddPartitionsToTxnRequestTransactionTopic{Topic: tp.Topic, Partitions: []int32{tp.Partition}}
		g(5, errcode.None, wire.ErrUnknownTopicOrPartition)
	}
}

func TestEndTxnAndOffsets(t *testing.T) {
	w, txns, groups := txnWorld(t)
	txns.end = transaction.EndResponse{ProducerID: 5, Epoch: 3}
	end := kmsg.NewPtrEndTxnRequest()
	end.TransactionalID, end.ProducerID, end.ProducerEpoch, end.Commit = "id", 5, 2, true
	if out := ask[*kmsg.EndTxnResponse](w, end, 5); out.ErrorCode != 0 || out.ProducerID != 5 || out.ProducerEpoch != 3 {
		t.Errorf("v5: %+v", out)
	}
	if ev := txns.asked[0].(transaction.End); !ev.Bumps || !ev.Commit {
		t.Errorf("v5 asks %+v", ev)
	}
	if ask[*kmsg.EndTxnResponse](w, end, 4); txns.asked[1].(transaction.End).Bumps {
		t.Error("v4 bumps")
	}
	txns.end.Code = errcode.ProducerFenced
	if out := ask[*kmsg.EndTxnResponse](w, end, 1); wire.ErrCode(out.ErrorCode) != wire.ErrInvalidProducerEpoch {
		t.Errorf("v1: %v", wire.ErrCode(out.ErrorCode))
	}

	add := kmsg.NewPtrAddOffsetsToTxnRequest()
	add.TransactionalID, add.ProducerID, add.ProducerEpoch, add.Group = "id", 5, 2, "four"
	if out := ask[*kmsg.AddOffsetsToTxnResponse](w, add, 3); out.ErrorCode != 0 {
		t.Errorf("add offsets: %+v", out)
	}
	if ev := txns.asked[len(txns.asked)-1].(transaction.Add); len(ev.Partitions) != 1 || ev.Partitions[0].String() != "__consumer_offsets-4" {
		t.Errorf("add offsets asks %+v", ev)
	}

	groups.commit = group.CommitResponse{Partitions: []errcode.Code{errcode.None, errcode.OffsetMetadataTooLarge}}
	commit := kmsg.NewPtrTxnOffsetCommitRequest()
	commit.TransactionalID, commit.ProducerID, commit.ProducerEpoch, commit.Group, commit.Generation, commit.MemberID = "id", 5, 2, "g", 3, "m"
	commit.Topics = []kmsg.TxnOffsetCommitRequestTopic{{Topic: "t", Partitions: []kmsg.TxnOffsetCommitRequestTopicPartition{{Partition: 0, Offset: 4}, {Partition: 1, Offset: 5}}}}
	f := func(version int16, said errcode.Code, want ...wire.ErrCode) {
		t.Helper()
		txns.codes = []errcode.Code{said}
		var got []wire.ErrCode
		for _, p := range ask[*kmsg.TxnOffsetCommitResponse](w, commit, version).Topics[0].Partitions {
			got = append(got, wire.ErrCode(p.ErrorCode))
		}
		if !slices.Equal(got, want) {
			t.Errorf("v%d, %s: %v, want %v", version, said, got, want)
		}
	}
	f(5, errcode.None, wire.None, wire.ErrOffsetMetadataTooLarge)
	if ev := groups.asked.(group.TxnCommit); ev.ProducerID != 5 || ev.Generation != 3 || ev.Offsets[1].Offset != 5 || ev.Guard != 8 {
		t.Errorf("the group is asked %+v", ev)
	}
	f(3, errcode.TransactionAbortable, wire.ErrInvalidTxnState, wire.ErrInvalidTxnState)
	f(4, errcode.TransactionAbortable, wire.ErrTransactionAbortable, wire.ErrTransactionAbortable)
	f(5, errcode.NotCoordinator, wire.ErrCoordinatorLoadInProgress, wire.ErrCoordinatorLoadInProgress)
	f(5, errcode.ProducerFenced, wire.ErrInvalidProducerEpoch, wire.ErrInvalidProducerEpoch)
	groups.guard = errcode.NotCoordinator
	f(5, errcode.None, wire.ErrNotCoordinator, wire.ErrNotCoordinator)
}

func TestInitProducerIDOfATransaction(t *testing.T) {
	w, txns, _ := txnWorld(t)
	in := kmsg.NewPtrInitProducerIDRequest()
	in.TransactionalID, in.TransactionTimeoutMillis = ptr("id"), 1000
	in.ProducerID, in.ProducerEpoch = 5, 2
	txns.init = transaction.InitResponse{ProducerID: 5, Epoch: 3}
	if out := ask[*kmsg.InitProducerIDResponse](w, in, 4); out.ErrorCode != 0 || out.ProducerID != 5 || out.ProducerEpoch != 3 {
		t.Errorf("%+v", out)
	}
	if ev := txns.asked[0].(transaction.Init); ev.ID != "id" || ev.Timeout != 1000 || ev.ProducerID != 5 || ev.Epoch != 2 {
		t.Errorf("asked %+v", ev)
	}
	txns.init = transaction.InitResponse{Code: errcode.ProducerFenced, ProducerID: -1, Epoch: -1}
	for version, want := range map[int16]wire.ErrCode{3: wire.ErrInvalidProducerEpoch, 4: wire.ErrProducerFenced} {
		if out := ask[*kmsg.InitProducerIDResponse](w, in, version); wire.ErrCode(out.ErrorCode) != want {
			t.Errorf("v%d: %v, want %v", version, wire.ErrCode(out.ErrorCode), want)
		}
	}
	find := kmsg.NewPtrFindCoordinatorRequest()
	find.CoordinatorType, find.CoordinatorKeys = 1, []string{"id"}
	if out := ask[*kmsg.FindCoordinatorResponse](w, find, 4); out.Coordinators[0].NodeID != 2 {
		t.Errorf("coordinator %+v", out.Coordinators[0])
	}
}

// Markers go into the log of their partition, and a group's to its coordinator.
func TestWriteTxnMarkers(t *testing.T) {
	w, _, groups := txnWorld(t)
	w.server.Markers = MarkerWriter{Image: w.server.Image, Partitions: w.server.Partitions, Groups: groups, Now: w.server.Now}
	in := kmsg.NewPtrWriteTxnMarkersRequest()
	in.Markers = []kmsg.WriteTxnMarkersRequestMarker{{ProducerID: 5, ProducerEpoch: 2, Committed: true, CoordinatorEpoch: 3,
		Topics: []kmsg.WriteTxnMarkersRequestMarkerTopic{{Topic: "t", Partitions: []int32{1}}, {Topic: "gone", Partitions: []int32{0}}}}}
	out := ask[*kmsg.WriteTxnMarkersResponse](w, in, 1)
	if m := out.Markers[0]; m.ProducerID != 5 || m.Topics[0].Partitions[0].ErrorCode != 0 || wire.ErrCode(m.Topics[1].Partitions[0].ErrorCode) != wire.ErrUnknownTopicOrPartition {
		t.Errorf("%+v", m)
	}
	p := w.part("t", 1)
	if len(p.batches) != 1 || p.appended[0].Acks != -1 || p.appended[0].Origin != OriginCoordinator {
		t.Fatalf("%d batches, asked for as %+v", len(p.batches), p.appended)
	}
	m, err := batch.ParseMarker(p.batches[0])
	if want := (batch.Marker{Kind: batch.Commit, ProducerID: 5, ProducerEpoch: 2, CoordinatorEpoch: 3}); err != nil || m != want {
		t.Errorf("marker %+v, %v", m, err)
	}
	w.topic(offsetsTopic, topicOptions{partitions: 5})
	in.Markers[0].Topics = []kmsg.WriteTxnMarkersRequestMarkerTopic{{Topic: offsetsTopic, Partitions: []int32{4}}}
	ask[*kmsg.WriteTxnMarkersResponse](w, in, 1)
	if m, ok := groups.asked.(TxnMarker); !ok || m.ProducerID != 5 || !m.Commit {
		t.Errorf("the groups' coordinator was asked %+v", groups.asked)
	}
}

func TestDescribeTransactions(t *testing.T) {
	w, txns, _ := txnWorld(t)
	txns.known = map[string]transaction.Metadata{"id": {ProducerID: 5, Epoch: 2, Timeout: 1000, State: transaction.Ongoing, StartedAt: 77,
		Partitions: []types.TopicPartition{{Topic: "a"}, {Topic: "a", Partition: 3}, {Topic: "b", Partition: 1}}}}
	txns.listed = []transaction.Listing{{ID: "id", ProducerID: 5, State: transaction.Ongoing}}
	in := kmsg.NewPtrDescribeTransactionsRequest()
	in.TransactionalIDs = []string{"id", "none", ""}
	out := ask[*kmsg.DescribeTransactionsResponse](w, in, 0).TransactionStates
	if x := out[0]; x.State != "Ongoing" || x.TimeoutMillis != 1000 || x.StartTimestamp != 77 || x.ProducerID != 5 || x.ProducerEpoch != 2 ||
		len(x.Topics) != 2 || !slices.Equal(x.Topics[0].Partitions, []int32{0, 3}) {
		t.Errorf("%+v", x)
	}
	if wire.ErrCode(out[1].ErrorCode) != wire.ErrTransactionalIDNotFound {
		t.Errorf("%+v", out[1])
	}
	if wire.ErrCode(out[2].ErrorCode) != wire.ErrInvalidRequest {
		t.Errorf("%+v", out[2])
	}
	list := kmsg.NewPtrListTransactionsRequest()
	list.StateFilters, list.TransactionalIDPattern, list.DurationFilterMillis = []string{"Ongoing", "Odd"}, ptr("i."), 5
	got := ask[*kmsg.ListTransactionsResponse](w, list, 2)
	if len(got.TransactionStates) != 1 || got.TransactionStates[0].TransactionState != "Ongoing" || !slices.Equal(got.UnknownStateFilters, []string{"Odd"}) {
		t.Errorf("%+v", got)
	}
	f := txns.asked[len(txns.asked)-1].(transaction.Filter)
	if f.OpenFor != 5 || !slices.Equal(f.States, []transaction.State{transaction.Ongoing}) || !f.Match("id") || f.Match("idx") {
		t.Errorf("filter %+v", f)
	}
	list.TransactionalIDPattern = ptr("(")
	if got := ask[*kmsg.ListTransactionsResponse](w, list, 2); wire.ErrCode(got.ErrorCode) != wire.ErrInvalidRegularExpression || len(got.UnknownStateFilters) > 0 {
		t.Errorf("a pattern that is none: %v", wire.ErrCode(got.ErrorCode))
	}
	producers := kmsg.NewPtrDescribeProducersRequest()
	producers.Topics = []kmsg.DescribeProducersRequestTopic{{Topic: "t", Partitions: []int32{1, 9}}}
	parts := ask[*kmsg.DescribeProducersResponse](w, producers, 0).Topics[0].Partitions
	if a := parts[0].ActiveProducers; len(a) != 2 || a[0].CurrentTxnStartOffset != 40 || a[1].CurrentTxnStartOffset != -1 || a[0].CoordinatorEpoch != 3 {
		t.Errorf("%+v", a)
	}
	if wire.ErrCode(parts[1].ErrorCode) != wire.ErrUnknownTopicOrPartition {
		t.Errorf("%+v", parts[1])
	}
}
