package api

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/core/errcode"
	"tidemark/internal/core/group"
	"tidemark/internal/core/transaction"
	"tidemark/internal/core/types"
	"tidemark/internal/wire"
)

// TxnOffsetCommit (key 28): offsets of a group that become its committed ones with
// the producer's transaction, or never.
//
// Behaviour
//   - From v3 on the sender may say which member of the group it is (KIP-447), and
//     is refused like a member's OffsetCommit.
//   - From v5 on the group's partition becomes part of the transaction here (KIP-890);
//     before, it must be already, which is asked.
//   - Offsets that come when their transaction may have ended are refused: they would open
//     one that nobody ends. The code is one that has the sender ask again, and hear why.
//   - A producer that was fenced is told INVALID_PRODUCER_EPOCH.
//
// Versions 0 to 6. 2: leader epochs. 3: flexible, members. 4: TRANSACTION_ABORTABLE. 5:
// transactions v2. 6: topics by id.
func (c *Call) txnOffsetCommit(in *kmsg.TxnOffsetCommitRequest) (kmsg.Response, error) {
	ev := group.TxnCommit{
		Commit: group.Commit{
			Group: in.Group, MemberID: in.MemberID, InstanceID: text(in.InstanceID), Generation: in.Generation,
			UnknownGroupIsNotFound: in.Version >= 6,
		},
		ProducerID: types.ProducerID(in.ProducerID), ProducerEpoch: in.ProducerEpoch,
	}
	if in.Version < 3 {
		ev.Generation, ev.MemberID = -1, ""
	}
	unknown := make([]wire.ErrCode, len(in.Topics))
	for i, t := range in.Topics {
		name, id, code := c.commitTopic(topicRef{name: t.Topic, id: t.TopicID, useID: in.Version >= 6})
		if unknown[i] = code; code != wire.None {
			continue
		}
		for _, p := range t.Partitions {
			ev.Offsets = append(ev.Offsets, group.CommitOffset{
				Topic: name, TopicID: id, Partition: p.Partition, Offset: types.Offset(p.Offset), LeaderEpoch: types.LeaderEpoch(p.LeaderEpoch),
				Metadata: text(p.Metadata), Retention: -1,
			})
		}
	}
	return txnCommitAnswer(in, unknown, c.commitInTxn(in, ev)), nil
}

// commitInTxn has the group's partition in the transaction before the offsets are written.
func (c *Call) commitInTxn(in *kmsg.TxnOffsetCommitRequest, ev group.TxnCommit) group.CommitResponse {
	tp, err := c.Groups.PartitionOf(c.Ctx, in.Group)
	if err != nil {
		return group.CommitResponse{Code: CodeOf(err)}
	}
	var refused errcode.Code
	code := c.whileConcurrent(func() errcode.Code {
		var guard TxnGuard
		// Each time anew: the marker that was waited for has ended the guard before.
		if guard, refused = c.Groups.GuardTxn(c.Ctx, in.Group, ev.ProducerID, ev.ProducerEpoch); refused != errcode.None {
			return errcode.None
		}
		ev.Guard = uint64(guard)
		return c.Transactions.Enlist(c.Ctx, transaction.Add{
			ID: in.TransactionalID, ProducerID: ev.ProducerID, Epoch: ev.ProducerEpoch, Partitions: []types.TopicPartition{tp}, VerifyOnly: in.Version < 5,
		})
	})
	switch {
	case code == wire.ErrTransactionAbortable && in.Version < 4:
		code = wire.ErrInvalidTxnState
	case code == wire.ErrProducerFenced:
		code = wire.ErrInvalidProducerEpoch // Kafka parity: what a log says of the producer
	case code == wire.ErrNotCoordinator, code == wire.ErrConcurrentTransactions:
		code = wire.ErrCoordinatorLoadInProgress // of the transaction: the sender has the right group's coordinator, and asks again
	}
	if code != wire.None {
		return group.CommitResponse{Code: code}
	}
	if refused != errcode.None {
		return group.CommitResponse{Code: refused}
	}
	return c.Groups.CommitTxn(c.Ctx, ev)
}

func txnCommitAnswer(in *kmsg.TxnOffsetCommitRequest, unknown []wire.ErrCode, r group.CommitResponse) *kmsg.TxnOffsetCommitResponse {
	out := kmsg.NewPtrTxnOffsetCommitResponse()
	next := 0
	for i, t := range in.Topics {
		to := kmsg.NewTxnOffsetCommitResponseTopic()
		to.Topic, to.TopicID = t.Topic, t.TopicID
		for _, p := range t.Partitions {
			if unknown[i] != wire.None {
				to.Partitions = append(to.Partitions, kmsg.TxnOffsetCommitResponseTopicPartition{Partition: p.Partition, ErrorCode: int16(unknown[i])})
				continue
			}
			code := r.Code
			if code == errcode.None && next < len(r.Partitions) {
				code = r.Partitions[next]
			}
			next++
			to.Partitions = append(to.Partitions, kmsg.TxnOffsetCommitResponseTopicPartition{Partition: p.Partition, ErrorCode: wireCode(code)})
		}
		out.Topics = append(out.Topics, to)
	}
	return out
}
