package broker

import (
	"context"

	"tidemark/internal/batch"
	"tidemark/internal/broker/api"
	"tidemark/internal/core/txn"
	"tidemark/internal/core/types"
	"tidemark/internal/wire"
)

// guards are the looks into transactions that a leader has begun and not used yet
// (KIP-890). The shard owns them.
//
// The first batch of a transaction in a log is taken only with a guard that is in
// force: its coordinator was asked after the last marker of that producer came
// here. So a batch that was on its way for long opens no transaction that nobody
// ends: the marker that ended its own has taken its guard away.
type guards struct {
	byProducer map[types.ProducerID]guard
	last       api.TxnGuard
}

type guard struct {
	number api.TxnGuard
	epoch  int16
	at     types.Millis // by ticks
}

// guardsMany is from how many on those are dropped that were not used for
// guardLifeMs: their producers have gone, or were refused.
const (
	guardsMany               = 1024
	guardLifeMs types.Millis = 600_000
)

// begin gives the guard of a producer that has no transaction open here.
func (g *guards) begin(id types.ProducerID, epoch int16, now types.Millis) api.TxnGuard {
	if x, ok := g.byProducer[id]; ok && x.epoch == epoch {
		return x.number
	}
	if g.byProducer == nil {
		g.byProducer = map[types.ProducerID]guard{}
	}
	if len(g.byProducer) >= guardsMany {
		for old, x := range g.byProducer {
			if now-x.at >= guardLifeMs {
				delete(g.byProducer, old)
			}
		}
	}
	g.last++
	g.byProducer[id] = guard{number: g.last, epoch: epoch, at: now}
	return g.last
}

// admits reports whether a transaction's first batch comes with a guard that is in force.
func (g *guards) admits(id types.ProducerID, epoch int16, number api.TxnGuard) bool {
	x, ok := g.byProducer[id]
	return ok && number != 0 && x.number == number && x.epoch == epoch
}

// end takes a producer's guard away: it was used, or a marker has come.
func (g *guards) end(id types.ProducerID) { delete(g.byProducer, id) }

// clear takes all away: markers may have come while another node led.
func (g *guards) clear() { g.byProducer = nil }

// Guard implements api.Partition.
func (p *Partition) Guard(ctx context.Context, id types.ProducerID, epoch int16) (number api.TxnGuard, open bool, err error) {
	s := p.serving.Load()
	if s.err != nil {
		return 0, false, s.err
	}
	if s.log.InTransaction(id, epoch) {
		return 0, true, nil
	}
	switch { // no transaction takes the partition in for what is refused then
	case s.fenced:
		return 0, false, errFenced(p.tp)
	case s.mirror != "":
		return 0, false, api.ErrReadOnly(p.tp.Topic, s.mirror)
	}
	err = p.Do(ctx, func(*Owned) error {
		if open = p.log.InTransaction(id, epoch); !open {
			number = p.guards.begin(id, epoch, p.env.ticks())
		}
		return nil
	})
	return number, open, err
}

// Producers implements api.Partition.
func (p *Partition) Producers(context.Context) ([]txn.Producer, error) {
	s := p.serving.Load()
	if s.err != nil {
		return nil, s.err
	}
	return s.log.Producers(), nil
}

// mayJoin judges a batch of a transaction before it is appended; it runs on the shard.
func (p *Partition) mayJoin(op *appendOp) error {
	if p.env.rules.NoTxnGuards {
		return nil
	}
	h, err := batch.ParseHeader(op.raw)
	switch {
	case err != nil, !h.IsTransactional():
		return nil // the log judges it
	case op.req.Origin == api.OriginCoordinator && h.IsControl():
		return nil // a marker; what else a coordinator writes for a transaction are a group's offsets
	}
	if p.log.InTransaction(h.ProducerID, h.ProducerEpoch) || p.guards.admits(h.ProducerID, h.ProducerEpoch, op.req.Guard) {
		return nil
	}
	return wire.Errorf(wire.ErrInvalidTxnState, "The transaction of producer %d has ended before its batch came to %s.", h.ProducerID, p.tp)
}

// joined takes note of a batch that was appended: a transaction's, or a marker.
func (p *Partition) joined(op *appendOp) {
	if len(p.guards.byProducer) == 0 {
		return
	}
	if h, err := batch.ParseHeader(op.raw); err == nil && h.IsTransactional() {
		p.guards.end(h.ProducerID)
	}
}
