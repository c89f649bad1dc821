package broker

import (
	"context"
	"time"

	"tidemark/internal/clock"
)

// progressEvery is how often a long start says how far it is.
const progressEvery = 2 * time.Second

// settle waits until every shard has run what is queued now: at the start, until
// every log is open. A long wait says how far it is.
func (b *Broker) settle(ctx context.Context) error {
	began := clock.Now(ctx)
	for _, s := range b.shards {
		done := make(chan struct{})
		if err := s.send(ctx, event{f: func() { close(done) }}); err != nil {
			return err
		}
		for {
			over, err := clock.Wait(ctx, progressEvery, done)
			if err != nil {
				return err
			}
			if over {
				break
			}
			b.tellProgress(clock.Since(ctx, began))
		}
	}
	return nil
}

// tellProgress says how many logs are open, at which rate, and how long the rest may take.
func (b *Broker) tellProgress(took time.Duration) {
	open, total := 0, 0
	for p := range b.Partitions() {
		total++
		if p.Log() != nil {
			open++
		}
	}
	if open == 0 || open == total {
		return
	}
	rest := time.Duration(float64(took) / float64(open) * float64(total-open))
	b.logger.Info("opening partitions", "open", open, "of", total, "perSecond", int(float64(open)/took.Seconds()), "remaining", rest.Round(time.Second))
}
