package sim

import (
	"fmt"
	"time"

	"tidemark/internal/batch"
	"tidemark/internal/core/types"
	"tidemark/internal/wire"
)

// producing is an idempotent producer's way to one partition: one batch at a time,
// each sent again until it is acknowledged. Whoever embeds it knows where to.
type producing struct {
	k         *kernel
	number    int
	partition int32
	pid       types.ProducerID
	seq       int32
	queue     []int // records of each batch that waits
	raw       []byte
	records   int32
	sent      int // attempts, so that a late answer is known
	busy      bool
	made      int
	believes  types.BrokerID
	// ackedSince is when the last acknowledgement came.
	ackedSince time.Duration

	// renew makes it another producer if it must be, or whenever it is asked for: what
	// was sent before may be there or not.
	renew func(always bool)
	// send makes one attempt.
	send func()
}

func newProducing(k *kernel, number, partition int) producing {
	return producing{k: k, number: number, partition: int32(partition), ackedSince: -1}
}

func (p *producing) who() string { return fmt.Sprintf("producer %d-%d", p.number, p.partition) }

// write orders a batch of n records.
func (p *producing) write(n int) {
	p.queue = append(p.queue, n)
	if !p.busy {
		p.busy = true
		p.next()
	}
}

// next makes the next batch and sends it.
func (p *producing) next() {
	if len(p.queue) == 0 {
		p.busy = false
		return
	}
	p.build()
	p.send()
}

func (p *producing) build() {
	p.renew(false)
	d := p.k.dice("records " + p.who())
	p.made++
	b := batch.NewBuilder(batch.BuilderOptions{LeaderEpoch: types.NoLeaderEpoch, Producer: &batch.Producer{ID: p.pid, Epoch: 0, BaseSequence: p.seq}})
	p.records = int32(p.queue[0])
	now := epoch2026 + types.Millis(p.k.now/time.Millisecond)
	for i := range p.records {
		b.Append(now, fmt.Appendf(nil, "key-%d", d.IntN(8)), fmt.Appendf(nil, "%s %d.%d%0*d", p.who(), p.made, i, 1+d.IntN(60), 0))
	}
	raw, err := b.Build()
	if err != nil {
		p.k.fail("PANIC", "build: %v", err)
		return
	}
	p.raw = raw
}

// anew makes the batch once more, of another producer.
func (p *producing) anew() {
	p.k.probe("producer: begins anew")
	p.renew(true)
	p.build()
	p.believes = 0
}

// attempt sends the batch to a machine, whose part produce is: it runs as a task there.
// answered is told what came of the newest attempt.
func (p *producing) attempt(net *network, m *machine, produce func(raw []byte) (types.Offset, error), answered func(err error)) {
	p.sent++
	attempt, raw := p.sent, append([]byte(nil), p.raw...)
	net.call(p.who(), m.name, "produce", clientTimeout, func(reply func(func())) {
		if !m.serves() {
			return
		}
		m.task(func() {
			_, err := produce(raw)
			reply(func() {
				if attempt == p.sent {
					answered(err)
				}
			})
		})
	}, func() {
		if attempt == p.sent {
			answered(wire.ErrRequestTimedOut)
		}
	})
}

// acknowledged takes the batch off the queue.
func (p *producing) acknowledged() {
	p.seq += p.records
	p.queue = p.queue[1:]
	p.ackedSince = p.k.now
}
