package source

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/core/types"
)

// TxnMarker is the decision of a transaction, for some partitions.
type TxnMarker struct {
	ProducerID       types.ProducerID
	Epoch            int16
	Commit           bool
	CoordinatorEpoch int32
	// Version is the transaction's (KIP-890): from 2 on Epoch is above that of its batches.
	Version    int8
	Partitions []types.TopicPartition
}

// WriteTxnMarkers has a broker of this cluster write markers into partitions that it
// leads (key 27). The answer has a code for each partition of each marker, in their order.
func (c *Client) WriteTxnMarkers(ctx context.Context, broker types.BrokerID, markers []TxnMarker) ([][]Code, error) {
	req := kmsg.NewPtrWriteTxnMarkersRequest()
	for _, m := range markers {
		to := kmsg.NewWriteTxnMarkersRequestMarker()
		to.ProducerID, to.ProducerEpoch, to.Committed, to.CoordinatorEpoch = int64(m.ProducerID), m.Epoch, m.Commit, m.CoordinatorEpoch
		to.TransactionVersion = m.Version
		for _, tp := range m.Partitions {
			topic := kmsg.NewWriteTxnMarkersRequestMarkerTopic()
			topic.Topic, topic.Partitions = tp.Topic, []int32{tp.Partition}
			to.Topics = append(to.Topics, topic)
		}
		req.Markers = append(req.Markers, to)
	}
	resp, err := askBroker[*kmsg.WriteTxnMarkersResponse](ctx, c, broker, req)
	if err != nil {
		return nil, err
	}
	out := make([][]Code, 0, len(resp.Markers))
	for _, m := range resp.Markers {
		var codes []Code
		for _, t := range m.Topics {
			for _, p := range t.Partitions {
				codes = append(codes, Code(p.ErrorCode))
			}
		}
		out = append(out, codes)
	}
	return out, nil
}

// TxnMember is a producer's transaction, and partitions that are to be in it.
type TxnMember struct {
	ID         string
	ProducerID types.ProducerID
	Epoch      int16
	// VerifyOnly asks whether they are in it already.
	VerifyOnly bool
	Partitions []types.TopicPartition
}

// AddPartitionsToTxn asks a transaction's coordinator, in the form that brokers use
// (key 24 from version 4 on). All partitions are in it afterwards, or none was added.
func (c *Client) AddPartitionsToTxn(ctx context.Context, broker types.BrokerID, m TxnMember) (Code, error) {
	req := kmsg.NewPtrAddPartitionsToTxnRequest()
	txn := kmsg.NewAddPartitionsToTxnRequestTransaction()
	txn.TransactionalID, txn.ProducerID, txn.ProducerEpoch, txn.VerifyOnly = m.ID, int64(m.ProducerID), m.Epoch, m.VerifyOnly
	for _, tp := range m.Partitions {
		topic := kmsg.NewAddPartitionsToTxnRequestTransactionTopic()
		topic.Topic, topic.Partitions = tp.Topic, []int32{tp.Partition}
		txn.Topics = append(txn.Topics, topic)
	}
	req.Transactions = append(req.Transactions, txn)
	resp, err := askBroker[*kmsg.AddPartitionsToTxnResponse](ctx, c, broker, req)
	if err != nil {
		return 0, err
	}
	if resp.ErrorCode != 0 {
		return Code(resp.ErrorCode), nil
	}
	for _, t := range resp.Transactions {
		for _, topic := range t.Topics {
			for _, p := range topic.Partitions {
				return Code(p.ErrorCode), nil // all have the same
			}
		}
	}
	return 0, &Error{Kind: ErrAnswer, Op: "AddPartitionsToTxn", Sentence: "the answer names no partition"}
}

func askBroker[R kmsg.Response](ctx context.Context, c *Client, broker types.BrokerID, req kmsg.Request) (R, error) {
	var none R
	if c.over != nil {
		req.SetVersion(apiOf(req.Key()).max)
		kr, _, err := c.over(broker).roundTrip(ctx, req, 0, 0, nil)
		if err != nil {
			return none, err
		}
		return kr.(R), nil
	}
	kr, _, err := c.askAt(ctx, broker, req)
	if err != nil {
		return none, err
	}
	return kr.(R), nil
}
