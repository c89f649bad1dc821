package api

import (
	"context"

	"tidemark/internal/core/errcode"
	"tidemark/internal/core/group"
	"tidemark/internal/core/transaction"
	"tidemark/internal/core/txn"
	"tidemark/internal/core/types"
	"tidemark/internal/wire"
)

// fakeTxns is a transaction coordinator that answers as it was told.
type fakeTxns struct {
	node    types.BrokerID
	nodeErr error
	init    transaction.InitResponse
	end     transaction.EndResponse
	// codes are what Add and Enlist answer, the last one for ever.
	codes  []errcode.Code
	known  map[string]transaction.Metadata
	listed []transaction.Listing

	asked []any // all events, and filters
}

func (f *fakeTxns) code() errcode.Code {
	if len(f.codes) == 0 {
		return errcode.None
	}
	c := f.codes[0]
	if len(f.codes) > 1 {
		f.codes = f.codes[1:]
	}
	return c
}

func (f *fakeTxns) FindCoordinator(_ context.Context, id string) (types.BrokerID, error) {
	f.asked = append(f.asked, id)
	return f.node, f.nodeErr
}

func (f *fakeTxns) Init(_ context.Context, ev transaction.Init) transaction.InitResponse {
	f.asked = append(f.asked, ev)
	return f.init
}

func (f *fakeTxns) Add(_ context.Context, ev transaction.Add) errcode.Code {
	f.asked = append(f.asked, ev)
	return f.code()
}

func (f *fakeTxns) Enlist(ctx context.Context, ev transaction.Add) errcode.Code {
	return f.Add(ctx, ev)
}

func (f *fakeTxns) End(_ context.Context, ev transaction.End) transaction.EndResponse {
	f.asked = append(f.asked, ev)
	return f.end
}

func (f *fakeTxns) Describe(_ context.Context, id string) (transaction.Metadata, errcode.Code) {
	m, ok := f.known[id]
	if !ok {
		return m, errcode.TransactionalIDNotFound
	}
	return m, errcode.None
}

func (f *fakeTxns) List(_ context.Context, filter transaction.Filter) ([]transaction.Listing, errcode.Code) {
	f.asked = append(f.asked, filter)
	return f.listed, f.code()
}

// Guard implements Partition: whether the producer's transaction is open here is txnOpen.
func (p *fakePartition) Guard(_ context.Context, id types.ProducerID, _ int16) (TxnGuard, bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return 7, p.txnOpen, nil
}

func (p *fakePartition) Producers(context.Context) ([]txn.Producer, error) {
	return []txn.Producer{
		{ID: 5, Epoch: 2, LastSequence: 9, LastTimestamp: 100, CoordinatorEpoch: 3, TxnFirstOffset: 40},
		{ID: 6, LastSequence: -1, LastTimestamp: 101, CoordinatorEpoch: -1, TxnFirstOffset: types.NoOffset},
	}, nil
}

func (f *fakeGroups) PartitionOf(_ context.Context, id string) (types.TopicPartition, error) {
	return types.TopicPartition{Topic: offsetsTopic, Partition: int32(len(id))}, f.nodeErr
}

func (f *fakeGroups) GuardTxn(context.Context, string, types.ProducerID, int16) (TxnGuard, errcode.Code) {
	return 8, f.guard
}

func (f *fakeGroups) CommitTxn(_ context.Context, ev group.TxnCommit) group.CommitResponse {
	f.asked = ev
	return f.commit
}

func (f *fakeGroups) EndTxn(_ context.Context, partition int32, m TxnMarker) wire.ErrCode {
	f.asked = m
	return wire.ErrCode(f.code)
}
