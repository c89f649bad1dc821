package broker

import (
	"context"

	"tidemark/internal/assert"
	"tidemark/internal/clock"
	"tidemark/internal/core/control"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/internal/wire"
)

// producerIDBlock is how many ids one transaction takes (Kafka's block size).
const producerIDBlock = 1000

// producerIDs hands out producer ids from blocks of this cluster's range (R30).
// What a stopped broker had left of its block is never used.
type producerIDs struct {
	b *Broker

	turn  chan struct{} // holds one token: who has it owns the following; kept across the transaction: all callers need its outcome
	block control.ProducerIDBlock
	used  int
}

func newProducerIDs(b *Broker) *producerIDs {
	s := &producerIDs{b: b, turn: make(chan struct{}, 1)}
	s.turn <- struct{}{}
	return s
}

// Next implements api.ProducerIDs.
func (s *producerIDs) Next(ctx context.Context) (types.ProducerID, error) {
	if _, err := clock.Wait(ctx, clock.Forever, s.turn); err != nil {
		return types.NoProducer, wire.ErrCoordinatorLoadInProgress
	}
	defer func() { s.turn <- struct{}{} }()
	if s.used == s.block.Size {
		var block control.ProducerIDBlock
		err := s.b.plan(ctx, func(i *meta.Image) ([]meta.Plan, error) {
			plan, next, err := control.AllocateProducerIDs(i, s.b.random31(), producerIDBlock, s.b.me())
			block = next
			return []meta.Plan{plan}, err
		})
		if err != nil {
			// Whatever it is, it passes: the store is away, or the registration has lapsed. Any
			// other code than this one (Kafka parity) has Java's producer give up for good.
			s.b.logger.Warn("no producer ids can be had now", "err", err)
			return types.NoProducer, wire.ErrCoordinatorLoadInProgress
		}
		s.block, s.used = block, 0
	}
	id := s.block.First + types.ProducerID(s.used)
	// Invariant I-123: producer ids are never negative (R30).
	assert.That(id >= 0, "I-123: producer id %d", id)
	s.used++
	return id, nil
}
