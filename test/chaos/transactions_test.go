//go:build chaos && linux

package chaos_test

import (
	"context"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"tidemark/internal/core/types"
	"tidemark/internal/history"
	"tidemark/test/chaos/harm"
)

const (
	// txnRecordsMax bounds the records of a transaction, over all partitions.
	txnRecordsMax = 6
	// txnValueMax bounds what of a value is no name: nothing of the topic is ever deleted.
	txnValueMax = 150
	// txnTimeout is how long a coordinator waits for the end of one: longer than most freezes.
	txnTimeout = 10 * time.Second
)

// createDeals creates the topic of transactions.
func (w *world) createDeals() {
	w.t.Helper()
	kept := "-1"
	if _, err := w.adm.CreateTopic(w.t.Context(), 3, 3, map[string]*string{"retention.bytes": &kept}, deals); err != nil {
		w.t.Fatal(err)
	}
	for p := range int32(3) {
		w.c.deals = append(w.c.deals, types.TopicPartition{Topic: deals, Partition: p})
	}
}

// transact writes transactions until stop ends, a quarter of which it aborts. Where one
// doesn't end as asked, a new producer of the same transactional id goes on. After
// kill it waits for nothing any more.
func (c *clients) transact(stop, kill context.Context, name string, opts ...kgo.Opt) {
	c.producers.Go(func() {
		r := rand.New(rand.NewPCG(c.seed, uint64(crc32.ChecksumIEEE([]byte(name)))))
		for n := 0; stop.Err() == nil; harm.Pause(stop, 200*time.Millisecond) {
			cl, err := kgo.NewClient(c.options(append(opts, kgo.TransactionalID(name), kgo.TransactionTimeout(txnTimeout), kgo.RequiredAcks(kgo.AllISRAcks()),
				kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(5*time.Millisecond), kgo.ProduceRequestTimeout(3*time.Second), kgo.RetryTimeout(2*txnTimeout))...)...)
			if err != nil {
				c.t.Error(err)
				return
			}
			for err == nil && stop.Err() == nil {
				err = c.transaction(stop, kill, cl, r, name, n)
				n++
			}
			if err != nil {
				c.rec.failed(name, err)
			}
			cl.Close()
		}
	})
}

// transaction writes one and notes its outcome. Its error says that this producer can't go on.
func (c *clients) transaction(stop, kill context.Context, cl *kgo.Client, r *rand.Rand, producer string, n int) error {
	if err := cl.BeginTransaction(); err != nil {
		return err
	}
	txn := fmt.Sprintf("%s.%06d", producer, n)
	var sends []int
	var records []*kgo.Record
	wrote := make(chan error, txnRecordsMax)
	for i := range 1 + r.IntN(txnRecordsMax) {
		tp := c.deals[r.IntN(len(c.deals))]
		value := fmt.Sprintf("%s_%d-%s", txn, i, strings.Repeat("x", r.IntN(txnValueMax)))
		sends = append(sends, c.rec.sending(history.Send{Producer: producer, Partition: tp, Value: value, Txn: txn}))
		records = append(records, &kgo.Record{Topic: tp.Topic, Partition: tp.Partition, Value: []byte(value)})
		cl.Produce(kill, records[i], func(_ *kgo.Record, err error) { wrote <- err })
		harm.Pause(stop, c.every)
	}
	commits := r.IntN(4) > 0
	var failure error
	limit := time.NewTimer(3 * txnTimeout)
	defer limit.Stop()
	for range records {
		select {
		case err := <-wrote:
			if err != nil {
				failure = fmt.Errorf("in a transaction: %w", err)
			}
		case <-limit.C: // as after a loss that its coordinator forgot it by: the next producer ends it
			c.rec.ended(sends, nil, history.Failed)
			return fmt.Errorf("a transaction's records have no outcome after %v", 3*txnTimeout)
		}
	}
	if commits = commits && failure == nil; commits {
		c.rec.ending(txn)
	} else {
		c.rec.ended(sends, nil, history.Failed) // whatever comes next: nobody may commit it
	}
	ctx, cancel := context.WithTimeout(kill, 2*txnTimeout)
	defer cancel()
	if err := cl.EndTransaction(ctx, kgo.TransactionEndTry(commits)); err != nil {
		return fmt.Errorf("end of a transaction: %w", err)
	}
	if commits {
		var offsets []int64
		for _, rec := range records {
			offsets = append(offsets, rec.Offset)
		}
		c.rec.ended(sends, offsets, history.Acked)
	}
	return failure
}

// noTxnOpen waits until readers of committed records can get to the end. After an allowed
// loss a transaction of which its coordinator knows nothing any more may stay open.
func (w *world) noTxnOpen() {
	w.t.Helper()
	if len(w.c.rec.h.Losses) > 0 {
		return
	}
	from := time.Now()
	eventually(w.t, healLimit, "no transaction is open", func() error {
		ctx, cancel := context.WithTimeout(w.t.Context(), callTimeout)
		defer cancel()
		ends, err := w.listDeals(ctx, w.adm.ListEndOffsets)
		if err != nil {
			return err
		}
		stable, err := w.listDeals(ctx, w.adm.ListCommittedOffsets)
		if err != nil {
			return err
		}
		for _, tp := range w.c.deals {
			if stable[tp] < ends[tp] {
				return fmt.Errorf("%s: committed records can be read up to %d, the log ends at %d", tp, stable[tp], ends[tp])
			}
		}
		return nil
	})
	w.n.Log("no transaction is open after %.1fs", time.Since(from).Seconds())
}

// stableEnds is up to where readers of committed records get.
func (w *world) stableEnds() (stable map[types.TopicPartition]types.Offset) {
	w.t.Helper()
	eventually(w.t, healLimit, "all stable ends are known", func() (err error) {
		ctx, cancel := context.WithTimeout(w.t.Context(), callTimeout)
		defer cancel()
		stable, err = w.listDeals(ctx, w.adm.ListCommittedOffsets)
		return err
	})
	return stable
}

func (w *world) listDeals(ctx context.Context, ask func(context.Context, ...string) (kadm.ListedOffsets, error)) (map[types.TopicPartition]types.Offset, error) {
	listed, err := ask(ctx, deals)
	if err != nil {
		return nil, err
	}
	out := map[types.TopicPartition]types.Offset{}
	listed.Each(func(o kadm.ListedOffset) {
		out[types.TopicPartition{Topic: o.Topic, Partition: o.Partition}] = types.Offset(o.Offset)
	})
	return out, listed.Error()
}
