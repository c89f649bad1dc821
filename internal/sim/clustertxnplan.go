package sim

import (
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/internal/wire"
)

// What the plan does to transactions.

// anyTxnClient picks the present instance of an id, nil if there is none that works.
func (c *cluster) anyTxnClient(d dice) *txnClient {
	if c.txns == nil || !c.txns.begun {
		return nil
	}
	x := c.txns.ids[d.IntN(len(c.txns.ids))].current
	if x == nil || x.stopped {
		return nil
	}
	return x
}

// txnDie ends a producer's program in the middle of what it does.
func (c *cluster) txnDie(d dice) string {
	x := c.anyTxnClient(d)
	if x == nil {
		return ""
	}
	x.rest = d.between(0, 8*time.Second)
	x.stop("it dies")
	return x.who()
}

// txnSecond begins a second instance while the first one works on: that one is fenced.
func (c *cluster) txnSecond(d dice) string {
	x := c.anyTxnClient(d)
	if x == nil {
		return ""
	}
	c.txns.start(x.id)
	return "a second instance of " + x.id.name
}

// txnPause freezes a producer, often for longer than a transaction may take.
func (c *cluster) txnPause(d dice) string {
	x := c.anyTxnClient(d)
	if x == nil {
		return ""
	}
	x.sleeps = d.between(200*time.Millisecond, 8*time.Second)
	return fmt.Sprintf("%s for %v", x.who(), x.sleeps.Round(time.Millisecond))
}

// txnLate brings a batch that nobody acknowledged once more, from wherever it was on its way.
func (c *cluster) txnLate(d dice) string {
	x := c.anyTxnClient(d)
	if x == nil || len(x.id.late) == 0 {
		return ""
	}
	late := x.id.late[d.IntN(len(x.id.late))]
	x.sendLate(late, d)
	return fmt.Sprintf("a batch of %s for partition %d", x.id.name, late.partition)
}

// sendLate brings a batch once more; nobody waits for the answer.
func (x *txnClient) sendLate(late lateBatch, d dice) {
	c := x.w.c
	leader, _ := c.leader(c.wantTopic, int(late.partition), d, 0)
	x.w.p.Go(&x.w.work, func() {
		_, _ = x.w.request(sending{from: x.who(), to: c.machine(leader), req: late.req, timeout: clientTimeout}, func(_ *machine, r kmsg.Response) {
			c.k.probe("transaction: a late batch is answered " + wire.ErrCode(producedOf(r).ErrorCode).Error())
		})
	})
}

// crashTxns stops the leader of a partition of the transactions' topic, and some of the
// producers that it coordinates.
func (c *cluster) crashTxns(d dice) string {
	if c.txns == nil {
		return ""
	}
	at := meta.PartitionID{Topic: c.txns.topic, Number: int32(d.IntN(txnPartitions))}
	r := c.check.ledger(at).record
	if r == nil || r.Leader == types.NoBroker {
		return ""
	}
	m := c.machine(r.Leader)
	if !m.up() {
		return ""
	}
	m.crash()
	what := m.name
	for _, id := range c.txns.ids {
		if x := id.current; x != nil && !x.stopped && c.txnPartition(id.name) == at && d.chance(0.3) {
			x.stop("it dies with its coordinator")
			what += ", " + x.who()
		}
	}
	return what
}
