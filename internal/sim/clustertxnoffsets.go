package sim

import (
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/broker/coordinator/statelog"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/internal/wire"
)

// Offsets in transactions: producers commit a group's offsets as part of what they write
// (KIP-98), frame by frame through the production coordinators of both. Each id has a group
// of its own, whose offsets are numbers that only rise.
//
// A client of before KIP-890 that hears nothing of its commit aborts: a copy that is still
// under way could come into its next transaction of the same epoch, and no broker can know.

// groupReader asks for a group's offsets again and again, as a consumer does that begins:
// only for those that no open transaction may change (KIP-447).
type groupReader struct {
	w           *txnWorld
	id          *txnID
	coordinator types.BrokerID
	since       time.Duration // when its last whole answer was asked for, -1: never
}

// groupOf is the group whose offsets an id's transactions commit.
func (id *txnID) group() string { return id.name + "'s group" }

// commitOffsets makes an offset of the id's group a part of the transaction; false: it
// can only be aborted.
func (x *txnClient) commitOffsets(t *transactionRun) bool {
	if !x.id.bumps && !x.addOffsets() {
		return false
	}
	d := x.dice()
	c := x.w.judge.commits(t, int32(d.IntN(x.w.c.o.Partitions)))
	at := types.BrokerID(0)
	for range addTries {
		if at == 0 {
			at = x.w.lookForGroup(x.who(), x.id.group(), d)
		}
		code := wire.ErrCoordinatorNotAvailable
		if at != 0 {
			code = x.sendOffsets(at, c)
		}
		switch code {
		case wire.None:
			return true
		case wire.ErrProducerFenced, wire.ErrInvalidProducerEpoch, wire.ErrInvalidProducerIDMapping:
			x.stop("TxnOffsetCommit: " + code.Error())
			return false
		case wire.ErrRequestTimedOut:
			if !x.id.bumps {
				x.w.k.probe("transaction: an offset of unknown fate")
				return false
			}
			at = 0
		case wire.ErrNotCoordinator, wire.ErrCoordinatorNotAvailable:
			at = 0
		case wire.ErrCoordinatorLoadInProgress, wire.ErrConcurrentTransactions, wire.ErrUnknownTopicOrPartition:
		default:
			x.w.k.probe("transaction: offsets not taken: " + code.Error())
			return false
		}
		if x.stopped {
			return false
		}
		x.pause(20*time.Millisecond, 200*time.Millisecond)
	}
	return false
}

// addOffsets has the transaction's coordinator add the group (before KIP-890).
func (x *txnClient) addOffsets() bool {
	req := kmsg.NewPtrAddOffsetsToTxnRequest()
	req.Version, req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Group = 3, x.id.name, int64(x.pid), x.epoch, x.id.group()
	return x.addTo("AddOffsetsToTxn", req, func(r kmsg.Response) int16 { return r.(*kmsg.AddOffsetsToTxnResponse).ErrorCode })
}

// sendOffsets sends one attempt to the group's coordinator.
func (x *txnClient) sendOffsets(to types.BrokerID, c *txnCommit) wire.ErrCode {
	req := kmsg.NewPtrTxnOffsetCommitRequest()
	req.Version, req.TransactionalID, req.Group, req.ProducerID, req.ProducerEpoch = 3, x.id.name, x.id.group(), int64(x.pid), x.epoch
	if x.id.bumps {
		req.Version = 5
	}
	part := kmsg.NewTxnOffsetCommitRequestTopicPartition()
	part.Partition, part.Offset, part.Metadata = c.partition, int64(c.number), &c.text
	topic := kmsg.NewTxnOffsetCommitRequestTopic()
	topic.Topic, topic.Partitions = clusterTopic, []kmsg.TxnOffsetCommitRequestTopicPartition{part}
	req.Topics = append(req.Topics, topic)
	code := func(r kmsg.Response) wire.ErrCode {
		return wire.ErrCode(r.(*kmsg.TxnOffsetCommitResponse).Topics[0].Partitions[0].ErrorCode)
	}
	resp, err := x.w.request(sending{from: x.who(), to: x.w.c.machine(to), req: req, timeout: clientTimeout, onTime: !x.id.bumps}, func(m *machine, r kmsg.Response) {
		if code(r) == wire.None {
			x.w.judge.pending(m, c)
		}
	})
	if err != nil {
		return wire.ErrRequestTimedOut
	}
	return code(resp)
}

// lookForGroup asks some broker who coordinates a group, 0 if it doesn't say.
func (w *txnWorld) lookForGroup(who, group string, d dice) types.BrokerID {
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.Version, req.CoordinatorKey, req.CoordinatorType = 3, group, 0
	resp, err := w.request(sending{from: who, to: w.c.anyMachine(d), req: req, timeout: clientTimeout}, nil)
	if err != nil {
		return 0
	}
	if r := resp.(*kmsg.FindCoordinatorResponse); r.ErrorCode == 0 && w.c.machine(types.BrokerID(r.NodeID)) != nil {
		return types.BrokerID(r.NodeID)
	}
	return 0
}

func (r *groupReader) who() string { return "reader of " + r.id.group() }

func (r *groupReader) run() {
	d := r.w.k.dice(r.who())
	r.since = -1
	for {
		if r.coordinator == 0 {
			r.coordinator = r.w.lookForGroup(r.who(), r.id.group(), d)
		}
		if r.coordinator != 0 && !r.fetch() {
			r.coordinator = 0
		}
		_, _ = r.w.p.Wait(r.w.p.context(), d.between(50*time.Millisecond, 800*time.Millisecond), nil) // nothing ends it
	}
}

func (r *groupReader) fetch() bool {
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Version, req.Group, req.RequireStable = 7, r.id.group(), true
	topic := kmsg.NewOffsetFetchRequestTopic()
	topic.Topic = clusterTopic
	for p := range r.w.c.o.Partitions {
		topic.Partitions = append(topic.Partitions, int32(p))
	}
	req.Topics = append(req.Topics, topic)
	sent := r.w.k.now
	resp, err := r.w.request(sending{from: r.who(), to: r.w.c.machine(r.coordinator), req: req, timeout: clientTimeout}, func(m *machine, resp kmsg.Response) {
		if f := resp.(*kmsg.OffsetFetchResponse); f.ErrorCode == 0 {
			r.w.judge.offsetsTold(m, r.id, f.Topics[0].Partitions, sent)
		}
	})
	if err != nil {
		return false
	}
	f := resp.(*kmsg.OffsetFetchResponse)
	if code := wire.ErrCode(f.ErrorCode); code != wire.None {
		return code == wire.ErrCoordinatorLoadInProgress
	}
	for _, p := range f.Topics[0].Partitions {
		if wire.ErrCode(p.ErrorCode) == wire.ErrUnstableOffsetCommit {
			r.w.k.probe("transaction: an offset isn't stable yet")
			return true
		}
	}
	r.since = sent
	return true
}

// behind says what the reader lacks after the faults: a whole answer, once all ids have committed.
func (r *groupReader) behind() string {
	if len(r.w.judge.lost) > 0 || r.w.c.check.ledger(r.w.offsetsPartition(r.id)).unclean >= 0 {
		return "" // what an unclean election took may have been the end of a transaction
	}
	for _, id := range r.w.ids {
		if x := id.current; x != nil && r.since < x.committed {
			return r.w.judge.endsInTime(r.who() + " has had no whole answer since the last commit")
		}
	}
	if r.since < r.w.c.healedAt {
		return r.who() + " has had no whole answer since the faults ended"
	}
	return ""
}

// offsetsPartition is where the offsets of an id's group are.
func (w *txnWorld) offsetsPartition(id *txnID) meta.PartitionID {
	return meta.PartitionID{Topic: w.c.offsetsTopic, Number: statelog.PartitionFor(id.group(), offsetsPartitions)}
}

// txnCommit is an offset that a transaction commits.
type txnCommit struct {
	t         *transactionRun
	number    int // of the commit, and the offset
	partition int32
	text      string // its metadata
	// in is the leader epoch of the coordinator that has taken it, at the moment at; -1: none has said so.
	in types.LeaderEpoch
	at time.Duration
}

// String is how findings tell of it.
func (c *txnCommit) String() string { return fmt.Sprintf("offset %d of %v", c.number, c.t) }
