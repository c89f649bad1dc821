package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"

	"tidemark/internal/broker/mirror"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/test/e2e/harness"
)

// txnOutcome is what a producer knows of a transaction of its.
type txnOutcome int

const (
	txnUnknown   txnOutcome = iota // its commit was asked for and not answered by yes
	txnCommitted                   // acknowledged
	txnNot                         // no commit was ever asked for
)

// txnLoad is what producers of transactions did until they were refused.
type txnLoad struct {
	work sync.WaitGroup

	mu sync.Mutex
	// guarded by mu: by transaction, and the values of each.
	outcomes map[string]txnOutcome
	perTxn   int
}

// start has producers write transactions over both partitions of the topic, a
// quarter of them aborted, until the cluster takes no more. It returns once each has
// ended five.
func (l *txnLoad) start(t *testing.T, s *side, prefix string, producers int, opts ...kgo.Opt) {
	t.Helper()
	var begun sync.WaitGroup
	for n := range producers {
		c := txnClient(t, s.addresses(), fmt.Sprintf("load-%d", n), append([]kgo.Opt{kgo.RecordRetries(2)}, opts...)...)
		begun.Add(1)
		l.work.Go(func() {
			once := sync.OnceFunc(begun.Done)
			defer once()
			for i := 0; ; i++ {
				name := fmt.Sprintf("%s%d.%d", prefix, n, i)
				outcome, err := l.one(c, name, i%4 != 3)
				l.mu.Lock()
				l.outcomes[name] = outcome
				l.mu.Unlock()
				if err != nil {
					return
				}
				if i >= 4 {
					once()
				}
			}
		})
	}
	harness.Join(t, "each producer has ended five transactions", &begun)
}

func (l *txnLoad) one(c *kgo.Client, name string, commit bool) (txnOutcome, error) {
	ctx, cancel := context.WithTimeout(context.Background(), harness.Patience)
	defer cancel()
	if err := c.BeginTransaction(); err != nil {
		return txnNot, err
	}
	var records []*kgo.Record
	for k := range l.perTxn {
		records = append(records, &kgo.Record{Topic: backTopic, Partition: int32(k % 2), Value: fmt.Appendf(nil, "%s/%d", name, k)})
	}
	if err := c.ProduceSync(ctx, records...).FirstErr(); err != nil {
		return txnNot, errors.Join(err, c.EndTransaction(ctx, kgo.TryAbort))
	}
	if !commit {
		return txnNot, c.EndTransaction(ctx, kgo.TryAbort)
	}
	if err := c.EndTransaction(ctx, kgo.TryCommit); err != nil {
		return txnUnknown, err
	}
	return txnCommitted, nil
}

// check reads a side's committed records: each transaction is there whole or not at
// all, as its producer was told. It writes one record to each partition, so that
// readers know where to end.
func (l *txnLoad) check(t *testing.T, s *side) {
	t.Helper()
	s.write(t, 2, "last", 1)
	got := map[string]int{}
	for _, v := range stable(t, s.addresses(), backTopic, kgo.ReadCommitted()) {
		if name, _, ok := strings.Cut(v, "/"); ok {
			got[name]++
		}
	}
	committed := 0
	for name, outcome := range l.outcomes {
		switch n := got[name]; {
		case n != 0 && n != l.perTxn:
			t.Errorf("transaction %s is torn: %d of %d records are committed", name, n, l.perTxn)
		case outcome == txnCommitted && n == 0:
			t.Errorf("transaction %s was acknowledged and is aborted", name)
		case outcome == txnNot && n != 0:
			t.Errorf("transaction %s was never to be committed, and is", name)
		}
		if got[name] > 0 {
			committed++
		}
		delete(got, name)
	}
	if len(got) > 0 {
		t.Errorf("nobody wrote %v", got)
	}
	t.Logf("%d transactions, %d committed", len(l.outcomes), committed)
}

// A switchover under producers of transactions: each is whole on the other side, a
// commit that was acknowledged is there, and the promotion finds nothing open; and so it
// is on the way back.
func TestSwitchoverKeepsTransactionsWhole(t *testing.T) {
	for _, n := range []int{1, 3} {
		t.Run(fmt.Sprintf("%d nodes each", n), func(t *testing.T) {
			protocols(t, func(t *testing.T, opts ...kgo.Opt) {
				a, b := startSide(t, "A", n), startSide(t, "B", n)
				a.createTopic(t, 2)
				a.write(t, 2, "first", 1)
				mirrorOf(t, b.any(), mirror.Spec{Bootstrap: a.addresses()})
				awaitCopy(t, a, b, 2)
				load := &txnLoad{outcomes: map[string]txnOutcome{}, perTxn: 4}
				from, to, name := a, b, "m"
				for range 2 {
					load.start(t, from, name, 4, opts...)
					st, err := to.any().Mirrors().Switchover(harness.Context(t), name, mirror.SwitchoverRequest{Reverse: true})
					if err != nil {
						t.Fatal(err)
					}
					harness.Join(t, "the producers end", &load.work)
					if text := strings.Join(st.Message, "\n"); strings.Contains(text, "SOURCE_MOVED") || !strings.Contains(text, "mirrors this cluster now") {
						t.Fatalf("it says %s", text)
					}
					load.check(t, to)
					for p := range int32(2) {
						harness.Eventually(t, "the old side mirrors the new one", func() bool {
							rec := from.record(p)
							return rec.IsMirror() && rec.Mirror.State == meta.MirrorMirroring && from.logEnd(t, p) == to.logEnd(t, p)
						})
					}
					from.checkVaults(t)
					to.checkVaults(t)
					from, to, name = to, from, "m-back"
				}
			})
		})
	}
}

// What a producer has left open is aborted at the source by its coordinator before
// anything is promoted, and told; its commit comes too late. What was decided is carried out.
func TestSwitchoverAbortsWhatIsOpen(t *testing.T) {
	a, b := startSide(t, "A", 1), startSide(t, "B", 1)
	a.createTopic(t, 2)
	mirrorOf(t, b.any(), mirror.Spec{Bootstrap: a.addresses()})
	c := txnClient(t, a.addresses(), "idle")
	if err := c.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	ctx := harness.Context(t)
	for p := range int32(2) {
		if err := c.ProduceSync(ctx, &kgo.Record{Topic: backTopic, Partition: p, Value: []byte("open")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	awaitCopy(t, a, b, 2)
	st, err := b.any().Mirrors().Switchover(ctx, "m", mirror.SwitchoverRequest{DryRun: true})
	if err != nil {
		t.Fatal(err)
	}
	if text := strings.Join(st.Message, "\n"); !strings.Contains(text, "1 producers have a transaction open there") {
		t.Errorf("the dry run says %s", text)
	}
	if st, err = b.any().Mirrors().Switchover(ctx, "m", mirror.SwitchoverRequest{}); err != nil {
		t.Fatal(err)
	}
	if text := strings.Join(st.Message, "\n"); !strings.Contains(text, "aborted there, whole: idle") {
		t.Errorf("it says %s", text)
	}
	if err := c.EndTransaction(ctx, kgo.TryCommit); err == nil {
		t.Error("a commit was acknowledged after the transaction was aborted")
	}
	b.write(t, 2, "last", 1)
	if got := stable(t, b.addresses(), backTopic, kgo.ReadCommitted()); slices.Contains(got, "open") {
		t.Errorf("an aborted record is committed: %v", got)
	}
	for p := range int32(2) {
		own, _ := b.any().PartitionByName(backTopic, p)
		theirs, _ := a.any().PartitionByName(backTopic, p)
		if open := theirs.Log().OpenTransactions(); len(open) > 0 {
			t.Errorf("the source has %v open", open)
		}
		made := b.record(p).Promotions[0]
		if at := types.Offset(2); made.LogEnd != at || a.logEnd(t, p) != at {
			t.Errorf("%s-%d was promoted at %d, and ends at %d at the source: want a record and its marker", own.Name().Topic, p, made.LogEnd, a.logEnd(t, p))
		}
	}
}

// A source that can't be fenced must have ended its transactions: what its producers left
// open is waited for, and named.
func TestSwitchoverWaitsForTransactionsOfAnotherSource(t *testing.T) {
	src, _ := newKfake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, backTopic))
	b := startSide(t, "B", 1)
	c := txnClient(t, src.ListenAddrs(), "left", kgo.MaxVersions(kversion.V3_9_0()))
	if err := c.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	ctx := harness.Context(t)
	if err := c.ProduceSync(ctx, &kgo.Record{Topic: backTopic, Value: []byte("open")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	mirrorOf(t, b.any(), mirror.Spec{Bootstrap: src.ListenAddrs()})
	awaitEnd(t, b.any(), backTopic, 0, 1)
	_, err := b.any().Mirrors().Switchover(ctx, "m", mirror.SwitchoverRequest{TimeoutMs: 600, SettleMs: 100})
	if err == nil || !strings.Contains(err.Error(), "ends by its time-out") || !strings.Contains(err.Error(), "orders-0 has a transaction of producer") {
		t.Fatalf("with a transaction open: %v", err)
	}
	if err := c.EndTransaction(ctx, kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
	if _, err := b.any().Mirrors().Switchover(ctx, "m", mirror.SwitchoverRequest{TimeoutMs: types.Millis(harness.Patience / time.Millisecond), SettleMs: 100}); err != nil {
		t.Fatal(err)
	}
	if made := b.record(0).Promotions[0]; made.LogEnd != 2 {
		t.Errorf("promoted at %d, want the record and its marker", made.LogEnd)
	}
}
