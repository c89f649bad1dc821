package broker

import (
	"context"
	"time"
)

// progressEvery is how often a long start says how far it is.
const progressEvery = 2 * time.Second

// settle waits until every shard has run what is queued now: at the start, until
// every log is open. A long wait says how far it is.
func (b *Broker) settle(ctx context.Context) error {
	began := time.Now()
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	for _, s := range b.shards {
		done := make(chan struct{})
		if err := s.send(ctx, event{f: func() { close(done) }}); err != nil {
			return err
		}
		for waiting := true; waiting; {
			select {
			case <-done:
				waiting = false
			case <-tick.C:
				b.tellProgress(time.Since(began))
			case <-ctx.Done():
				return ctx.Err()
			}
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
