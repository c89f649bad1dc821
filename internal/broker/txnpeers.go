package broker

import (
	"context"
	"fmt"

	"tidemark/internal/broker/coordinator/transactions"
	"tidemark/internal/clock"
	"tidemark/internal/core/errcode"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/transaction"
	"tidemark/internal/core/types"
	"tidemark/internal/source"
	"tidemark/internal/wire"
)

// newTransactions makes the transaction coordinator, which leads nothing yet.
func (b *Broker) newTransactions() *transactions.Coordinator {
	o := transactions.Options{
		Node: b.coordinating(), Config: transactions.ConfigOf(b.cfg), ProducerIDs: b.ids, Peers: txnPeers{b},
		WriteMarker: func(ctx context.Context, m transactions.Marker, tp types.TopicPartition) wire.ErrCode {
			return b.markers().Write(ctx, m, tp)
		},
	}
	if v := b.opts.virtual; v != nil {
		o.Rules = v.Rules.Txns
	}
	return transactions.New(o)
}

// showTransactions tells a coordinator that has just been made what it leads.
func (b *Broker) showTransactions(c *transactions.Coordinator) {
	b.showAll(c, transactions.StateTopic)
}

// elected is a coordinator as images see it.
type elected interface {
	Elected(partition int32, epoch types.LeaderEpoch)
	Resigned(partition int32)
}

// showAll tells a coordinator which partitions of its topic this node leads.
func (b *Broker) showAll(c elected, topic string) {
	image := b.Image()
	if t, ok := image.TopicByName(topic); ok {
		for p := range image.PartitionsOf(t.ID) {
			b.showCoordinator(c, image, p)
		}
	}
}

func (b *Broker) showCoordinator(c elected, image *meta.Image, p *meta.Partition) {
	if b.leads(image, p.Record) {
		c.Elected(p.ID.Number, p.Record.LeaderEpoch)
	} else {
		c.Resigned(p.ID.Number)
	}
}

// txnPeers reaches the coordinators and leaders of other nodes over the listener between brokers.
type txnPeers struct{ *Broker }

func (n txnPeers) client(id types.BrokerID) (*source.Client, error) {
	peer, ok := peers{n.Broker}.Peer(id)
	if !ok || n.peerClient == nil {
		return nil, fmt.Errorf("broker %d is not registered on the listener between brokers", id)
	}
	n.peerClient.SetBroker(peer)
	return n.peerClient, nil
}

// WriteTxnMarkers implements transactions.Peers.
func (n txnPeers) WriteTxnMarkers(ctx context.Context, id types.BrokerID, markers []transactions.Marker) ([][]wire.ErrCode, error) {
	c, err := n.client(id)
	if err != nil {
		return nil, err
	}
	ctx, cancel := clock.WithTimeout(ctx, 2*transactions.MarkerPatience)
	defer cancel()
	list := make([]source.TxnMarker, 0, len(markers))
	for _, m := range markers {
		to := source.TxnMarker{ProducerID: m.ProducerID, Epoch: m.Epoch, Commit: m.Commit, CoordinatorEpoch: m.CoordinatorEpoch, Partitions: m.Partitions}
		if m.Bumped {
			to.Version = 2
		}
		list = append(list, to)
	}
	return c.WriteTxnMarkers(ctx, id, list)
}

// AddPartitionsToTxn implements transactions.Peers.
func (n txnPeers) AddPartitionsToTxn(ctx context.Context, id types.BrokerID, add transaction.Add) (errcode.Code, error) {
	c, err := n.client(id)
	if err != nil {
		return 0, err
	}
	return c.AddPartitionsToTxn(ctx, id, source.TxnMember{
		ID: add.ID, ProducerID: add.ProducerID, Epoch: add.Epoch, VerifyOnly: add.VerifyOnly, Partitions: add.Partitions,
	})
}
