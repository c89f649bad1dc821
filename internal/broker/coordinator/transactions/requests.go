package transactions

import (
	"context"

	"tidemark/internal/broker/coordinator/statelog"
	"tidemark/internal/core/errcode"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/transaction"
	"tidemark/internal/core/types"
	"tidemark/internal/wire"
)

// ask has the loop do a task and waits for its answer; no loop is an answer too.
func (l *loop) ask(ctx context.Context, do statelog.Task[transaction.RequestID]) (transaction.Response, errcode.Code) {
	if l == nil {
		return nil, errcode.NotCoordinator
	}
	return l.inbox.Ask(ctx, false, do)
}

// submit has the loop take an event and waits for its answer.
func submit[R transaction.Response](ctx context.Context, l *loop, event func(id transaction.RequestID) transaction.Event) (R, errcode.Code) {
	var none R
	r, code := l.ask(ctx, func(id transaction.RequestID) { l.step(event(id)) })
	if code != errcode.None {
		return none, code
	}
	if typed, ok := r.(R); ok {
		return typed, errcode.None
	}
	return none, r.(transaction.CodeResponse).Code
}

// look runs f on the loop's table and waits for it.
func (l *loop) look(ctx context.Context, f func(now types.Millis, t *transaction.Table)) errcode.Code {
	r, code := l.ask(ctx, func(id transaction.RequestID) {
		f(l.now(), l.table)
		l.inbox.Answer(id, transaction.CodeResponse{Code: errcode.None})
	})
	if code != errcode.None {
		return code
	}
	return r.(transaction.CodeResponse).Code
}

// FindCoordinator implements api.Transactions. While older programs may be in the cluster,
// which would lead partitions of the state topic and serve nothing, there is none.
func (c *Coordinator) FindCoordinator(ctx context.Context, id string) (types.BrokerID, error) {
	if c.o.Image().FeatureLevel(meta.FeatureTransactions) == 0 {
		return types.NoBroker, wire.Errorf(wire.ErrCoordinatorNotAvailable, "Transactions are served from %s 1 on: run tidemark cluster upgrade once all nodes run this program.", meta.FeatureTransactions)
	}
	return c.topic.Leader(ctx, id)
}

// Init implements api.Transactions.
func (c *Coordinator) Init(ctx context.Context, ev transaction.Init) transaction.InitResponse {
	l := c.home(ev.ID)
	var code errcode.Code
	if ev.FreshProducerID, code = c.producerID(ctx, l, ev.ID); code == errcode.None {
		var r transaction.InitResponse
		if r, code = submit[transaction.InitResponse](ctx, l, func(id transaction.RequestID) transaction.Event {
			ev.Request = id
			return ev
		}); code == errcode.None {
			return r
		}
	}
	return transaction.InitResponse{Code: code, ProducerID: types.NoProducer, Epoch: transaction.NoEpoch}
}

// producerID gives a new producer id, where one is about to be given out.
func (c *Coordinator) producerID(ctx context.Context, l *loop, id string) (types.ProducerID, errcode.Code) {
	wanted := false
	if code := l.look(ctx, func(_ types.Millis, t *transaction.Table) { wanted = t.WantsProducerID(id) }); code != errcode.None || !wanted {
		return types.NoProducer, code
	}
	fresh, err := c.o.ProducerIDs.Next(ctx)
	if err != nil {
		return types.NoProducer, errcode.CoordinatorNotAvailable
	}
	return fresh, errcode.None
}

// Add implements api.Transactions.
func (c *Coordinator) Add(ctx context.Context, ev transaction.Add) errcode.Code {
	r, code := submit[transaction.CodeResponse](ctx, c.home(ev.ID), func(id transaction.RequestID) transaction.Event {
		ev.Request = id
		return ev
	})
	if code != errcode.None {
		return code
	}
	return r.Code
}

// End implements api.Transactions.
func (c *Coordinator) End(ctx context.Context, ev transaction.End) transaction.EndResponse {
	l := c.home(ev.ID)
	code := errcode.None
	ev.FreshProducerID = types.NoProducer
	if ev.Bumps {
		ev.FreshProducerID, code = c.producerID(ctx, l, ev.ID)
	}
	if code == errcode.None {
		var r transaction.EndResponse
		if r, code = submit[transaction.EndResponse](ctx, l, func(id transaction.RequestID) transaction.Event {
			ev.Request = id
			return ev
		}); code == errcode.None {
			return r
		}
	}
	return transaction.EndResponse{Code: code, ProducerID: types.NoProducer, Epoch: transaction.NoEpoch}
}

// Describe implements api.Transactions.
func (c *Coordinator) Describe(ctx context.Context, id string) (transaction.Metadata, errcode.Code) {
	var m transaction.Metadata
	found := false
	code := c.home(id).look(ctx, func(_ types.Millis, t *transaction.Table) { m, found = t.Describe(id) })
	if code == errcode.None && !found {
		code = errcode.TransactionalIDNotFound
	}
	return m, code
}

// List implements api.Transactions. While a partition loads, that is the answer for all.
func (c *Coordinator) List(ctx context.Context, f transaction.Filter) ([]transaction.Listing, errcode.Code) {
	var all []transaction.Listing
	for _, l := range c.All() {
		var some []transaction.Listing
		switch code := l.look(ctx, func(now types.Millis, t *transaction.Table) { some = t.List(now, f) }); code {
		case errcode.None:
			all = append(all, some...)
		case errcode.NotCoordinator: // it has moved: its new coordinator lists it
		default:
			return nil, code
		}
	}
	sortListings(all)
	return all, errcode.None
}
