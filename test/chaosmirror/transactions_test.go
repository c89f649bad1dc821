//go:build chaos && linux

package chaosmirror_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"tidemark/internal/broker/mirror"
	"tidemark/internal/core/types"
	"tidemark/internal/history"
	"tidemark/test/chaos/harm"
)

const (
	// txnRecordsMax bounds the records of a transaction, over all partitions.
	txnRecordsMax = 6
	// txnTimeout is how long a coordinator waits for the end of one: longer than any freeze.
	txnTimeout = 10 * time.Second
	// txnPatience bounds how long a producer waits for the outcome of a transaction's records:
	// where they are given up the next producer of its id ends what is open.
	txnPatience = 3 * txnTimeout
	// consistentFor is how long an operator insists on a consistent failover, in a short run a third of it.
	consistentFor = 20 * time.Second
	// transactionalID is that of the one who writes transactions, wherever and whenever: after a
	// change of sides it begins anew with it, and what its last producer there left open is aborted.
	transactionalID = "dealer"
)

var (
	// errDeserted says that a producer leaves its transaction open.
	errDeserted  = errors.New("the transaction is left open")
	errNoOutcome = errors.New("none came in time")
)

// consistent reports whether a round's failover is to be at a consistent cut, a third of them are.
func (w *world) consistent(round int) bool {
	return rand.New(rand.NewPCG(w.chosen.seed, uint64(round))).IntN(3) == 0
}

// transact is a writer of transactions, of which a quarter is aborted, beside the
// other writers of a generation. Where one doesn't end as asked, a new producer of
// the same transactional id goes on. One that is given up with its side may leave
// its last transaction open.
func (g *generation) transact(stop context.Context) {
	b := g.w.book
	g.done.Go(func() {
		r := rand.New(rand.NewPCG(g.w.chosen.seed, uint64(crc32.ChecksumIEEE([]byte(g.name)))))
		for n := 0; stop.Err() == nil; harm.Pause(stop, 200*time.Millisecond) {
			cl, err := kgo.NewClient(g.c.options(kgo.TransactionalID(transactionalID), kgo.TransactionTimeout(txnTimeout), kgo.RequiredAcks(kgo.AllISRAcks()),
				kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(5*time.Millisecond), kgo.ProduceRequestTimeout(3*time.Second), kgo.RetryTimeout(txnTimeout))...)
			if err != nil {
				g.w.t.Error(err)
				return
			}
			for err == nil && stop.Err() == nil {
				err = g.transaction(stop, cl, r, n)
				n++
			}
			switch {
			case errors.Is(err, errDeserted):
				g.w.saw("transactions left open by their producers", 1)
			case err != nil:
				g.w.saw("transactions that did not end as asked", 1)
				b.failed(g.c.name, fmt.Errorf("transaction: %w", err))
			}
			cl.Close()
		}
	})
}

// transaction writes one. Its error says that this producer can't go on.
func (g *generation) transaction(stop context.Context, cl *kgo.Client, r *rand.Rand, n int) error {
	b := g.w.book
	if err := cl.BeginTransaction(); err != nil {
		return err
	}
	name := fmt.Sprintf("%s.t%d", g.name, n)
	txn := b.beginning(name, g.c.name)
	list := slices.SortedFunc(maps.Keys(g.timelines), byName)
	records := 1 + r.IntN(txnRecordsMax)
	outcomes := make(chan error, records)
	for i := range records {
		tp := list[r.IntN(len(list))]
		value := fmt.Sprintf("%s_%d-%s", name, i, strings.Repeat("x", r.IntN(valueMax)))
		write := b.writingIn(txn, g.c.name, g.timelines[tp], tp, value)
		cl.Produce(g.flushed, &kgo.Record{Topic: tp.Topic, Partition: tp.Partition, Value: []byte(value)}, func(r *kgo.Record, err error) {
			if err == nil {
				b.acked(g.c.name, write, r.Offset)
			}
			outcomes <- err
		})
		harm.Pause(stop, sendEvery)
	}
	if stop.Err() != nil && g.deserts.Load() && r.IntN(2) == 0 {
		return errDeserted
	}
	failure, settled := g.await(outcomes, records)
	if !settled {
		return fmt.Errorf("its records have no outcome: %w", cmp.Or(failure, errNoOutcome)) // its coordinator aborts it
	}
	commits := r.IntN(4) > 0 && failure == nil
	if commits {
		b.committing(txn)
	}
	ctx, cancel := context.WithTimeout(g.flushed, 2*txnTimeout)
	defer cancel()
	if err := cl.EndTransaction(ctx, kgo.TransactionEndTry(commits)); err != nil {
		return fmt.Errorf("its end: %w", err)
	}
	if commits {
		b.committed(txn)
		g.w.saw("transactions committed", 1)
	} else {
		g.w.saw("transactions aborted", 1)
	}
	return nil
}

// await gives the first failure of a transaction's records, and whether all have an
// outcome: after a failure the client keeps some back until the transaction ends.
func (g *generation) await(outcomes <-chan error, records int) (failure error, settled bool) {
	limit := time.NewTimer(txnPatience)
	defer limit.Stop()
	for range records {
		select {
		case err := <-outcomes:
			if err != nil && failure == nil {
				failure = err
				limit.Reset(time.Second)
			}
		case <-limit.C:
			return failure, false
		case <-g.flushed.Done():
			return errors.Join(failure, g.flushed.Err()), false
		}
	}
	return failure, true
}

func (b *book) beginning(name, cluster string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.judge.Beginning(name, cluster)
}

func (b *book) writingIn(txn int, cluster, timeline string, tp types.TopicPartition, value string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.count(cluster, "sent")
	return b.judge.WritingIn(txn, history.Write{Cluster: cluster, Timeline: timeline, Partition: tp, Value: idOf([]byte(value))})
}

func (b *book) committing(txn int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.clock++
	b.judge.CommittingTxn(txn, b.clock)
}

func (b *book) committed(txn int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.judge.CommittedTxn(txn)
}

// noTxnOpen waits until a cluster's coordinators have nothing left to end, and its
// readers of committed records can get to the end. A transaction of which no record
// has come yet shows in no log, and ends with a marker nevertheless.
func (w *world) noTxnOpen(c *cluster) {
	eventually(w.t, healLimit, "no transaction is open on "+c.name, func() error {
		ctx, cancel := context.WithTimeout(w.t.Context(), callTimeout)
		defer cancel()
		undecided, err := c.adm.ListTransactions(ctx, nil, []string{"Ongoing", "PrepareCommit", "PrepareAbort"})
		if err != nil {
			return err
		}
		for _, t := range undecided.Sorted() {
			return fmt.Errorf("transaction %q of producer %d is in state %s", t.TxnID, t.ProducerID, t.State)
		}
		ends, err := c.adm.ListEndOffsets(ctx, topics()...)
		if err = errors.Join(err, ends.Error()); err != nil {
			return err
		}
		stable, err := c.adm.ListCommittedOffsets(ctx, topics()...)
		if err = errors.Join(err, stable.Error()); err != nil {
			return err
		}
		for _, tp := range partitions() {
			end, _ := ends.Lookup(tp.Topic, tp.Partition)
			if at, ok := stable.Lookup(tp.Topic, tp.Partition); !ok || at.Offset < end.Offset {
				return fmt.Errorf("%s: committed records can be read up to %d, the log ends at %d", tp, at.Offset, end.Offset)
			}
		}
		return nil
	})
}

// observeCommitted has the judge look at what a cluster's readers of committed records
// are given: all that is there, from a place on below which it was read before, or from the start.
func (w *world) observeCommitted(c *cluster, final bool) {
	for _, tp := range partitions() {
		from := types.Offset(0)
		if !final {
			from = w.window(c, tp)
		}
		var v history.CommittedView
		eventually(w.t, healLimit, fmt.Sprintf("committed records of %s on %s are read to the end", tp, c.name), func() (err error) {
			v, err = w.readCommitted(c, tp, from)
			return err
		})
		w.saw("records given to readers of committed ones", len(v.Records))
		w.book.mu.Lock()
		found := w.book.judge.ObserveCommitted(v)
		w.book.mu.Unlock()
		w.report(found)
	}
}

// readCommitted reads a partition up to its last stable offset.
func (w *world) readCommitted(c *cluster, tp types.TopicPartition, from types.Offset) (history.CommittedView, error) {
	ctx, cancel := context.WithTimeout(w.t.Context(), healLimit)
	defer cancel()
	v := history.CommittedView{Cluster: c.name, Partition: tp, From: from, End: from}
	var err error
	if v.Lineage, err = c.lineageOf(ctx, tp); err != nil {
		return v, err
	}
	stable, err := c.adm.ListCommittedOffsets(ctx, tp.Topic)
	if err = errors.Join(err, stable.Error()); err != nil {
		return v, err
	}
	end, _ := stable.Lookup(tp.Topic, tp.Partition)
	cl, err := kgo.NewClient(c.options(kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords(), kgo.FetchMaxWait(500*time.Millisecond),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{tp.Topic: {tp.Partition: kgo.NewOffset().At(int64(from))}}))...)
	if err != nil {
		return v, err
	}
	defer cl.Close()
	for int64(v.End) < end.Offset {
		fetches := cl.PollRecords(ctx, 5000)
		if ctx.Err() != nil {
			return v, fmt.Errorf("read up to %d of %d", v.End, end.Offset)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			v.End = types.Offset(r.Offset + 1)
			if !r.Attrs.IsControl() {
				v.Records = append(v.Records, history.Record{Offset: types.Offset(r.Offset), Value: idOf(r.Value)})
			}
		})
	}
	v.Ended = w.book.tick()
	after, err := c.lineageOf(ctx, tp)
	if err == nil && !slices.Equal(after, v.Lineage) {
		err = fmt.Errorf("%s: the timelines of %s changed while it was read", c.name, tp)
	}
	return v, err
}

// promoted has the judge hear how the newest timelines of a cluster began.
func (w *world) promoted(c *cluster, r records, st mirror.Status, consistent, clean bool) {
	for _, p := range st.Partitions {
		tp := types.TopicPartition{Topic: p.Topic, Partition: p.Partition}
		rec := r.partitions[tp]
		if rec == nil || p.Promotion == nil || len(rec.Timelines) == 0 {
			continue
		}
		f := history.Fork{Partition: tp, Timeline: rec.Timelines[len(rec.Timelines)-1].ID, Cluster: c.name, Consistent: consistent, Clean: clean, Told: p.Promotion.LastMirroredOffset}
		w.book.mu.Lock()
		found := w.book.judge.Promoted(f, lineage(rec))
		w.book.mu.Unlock()
		w.report(found)
	}
}
