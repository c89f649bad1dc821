//go:build chaos && linux

package chaos_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"

	"tidemark/internal/await"
	"tidemark/internal/core/types"
	"tidemark/internal/history"
	"tidemark/internal/log"
	"tidemark/internal/vfs"
)

// TestChaos is one run; the package comment says what it does.
func TestChaos(t *testing.T) {
	c := choose(t)
	repeat := fmt.Sprintf("TIDEMARK_CHAOS_SEED=%d TIDEMARK_CHAOS_TIME=%v TIDEMARK_CHAOS_NODES=%d TIDEMARK_CHAOS_FLUSH=%d", c.seed, c.faultsFor, c.nodes, map[bool]int{true: 1}[c.flushAcks])
	t.Logf("seed %d, %d nodes, faults for %v, log.flush.acks=%v: %s repeats the schedule", c.seed, c.nodes, c.faultsFor, c.flushAcks, repeat)
	dir := workFolder(t)
	w := startWorld(t, dir, c)
	t.Cleanup(func() { w.lastReport(dir, repeat) })
	produce, stopProducers := context.WithCancel(t.Context())
	defer stopProducers()
	kill, stopFlush := context.WithCancel(t.Context())
	defer stopFlush()
	consume, stopConsumers := context.WithCancel(t.Context())
	defer stopConsumers()
	w.c.produce(produce, kill, "p1")
	w.c.produce(produce, kill, "p2")
	w.c.produceSarama(produce, "s1")
	w.c.produceJava(produce, "j1")
	w.c.produceWeakly(produce, kill, "w1")
	w.c.transact(produce, kill, "t1", kgo.MaxVersions(kversion.V3_9_0())) // the protocol before KIP-890
	w.c.transact(produce, kill, "t2")
	w.c.consume(consume, "workers", "c1")
	w.c.consume(consume, "workers", "c2")
	w.c.consumeSarama(consume, "readers", "d1")
	w.c.consumeWith(consume, "auditors", "a1", kgo.ConsumeTopics(deals), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	for _, name := range []string{"n1", "n2"} { // the protocol of KIP-848
		w.c.consumeWith(consume, "subscribers", name, kgo.ConsumeTopics(w.c.topics...), kgo.ServerSideBalancer(), kgo.Balancers(kgo.CooperativeStickyBalancer()))
	}
	w.c.watch(consume, w.adm, "workers", "readers", "subscribers")
	w.progress("before any fault")

	faultsEnd, cancel := context.WithTimeout(t.Context(), c.faultsFor)
	defer cancel()
	measured := make(chan struct{})
	go func() { w.watchSizes(faultsEnd); close(measured) }()
	w.n.run(faultsEnd, c.seed, c.only)
	<-measured
	if t.Failed() {
		return
	}
	w.n.heal()
	for _, topic := range w.c.topics {
		eventually(t, healLimit, "the minimum of "+topic+" is 2", func() error { return w.setMinISR(t.Context(), topic, "2") })
		// From here on nothing is deleted: where the logs begin stays as it is read.
		eventually(t, healLimit, topic+" deletes no more", func() error { return w.configure(t.Context(), topic, "retention.bytes", "-1") })
	}
	w.progress("after the last fault")
	w.finalTopic()

	stopProducers()
	done := make(chan struct{})
	go func() { w.c.producers.Wait(); close(done) }()
	bounded(t, done, "the producers know all outcomes")
	stopFlush()
	w.groupsCatchUp()
	stopConsumers()
	done2 := make(chan struct{})
	go func() { w.c.consumers.Wait(); close(done2) }()
	bounded(t, done2, "the consumers end")
	w.judge()
}

// workFolder is kept if the test fails.
func workFolder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "tidemark-chaos-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if !t.Failed() {
			if err := os.RemoveAll(dir); err != nil {
				t.Error(err)
			}
		}
	})
	return dir
}

// eventually asks f until it gives nil, and fails the test with its last answer.
func eventually(t testing.TB, limit time.Duration, what string, f func() error) {
	t.Helper()
	await.NoError(t, limit, what, f)
}

// bounded waits for done and fails the test if nothing comes.
func bounded(t *testing.T, done <-chan struct{}, what string) {
	t.Helper()
	limit := time.NewTimer(healLimit)
	defer limit.Stop()
	select {
	case <-done:
	case <-limit.C:
		t.Fatalf("not within %v: %s", healLimit, what)
	}
}

// ownStart is where a replica's log begins: each deletes by retention for itself.
func ownStart(t *testing.T, folder string, tp types.TopicPartition) types.Offset {
	t.Helper()
	c, problems, err := log.OpenCheckpoints(vfs.OS(), folder)
	if err != nil || len(problems) > 0 {
		t.Errorf("%s: %v, %v", folder, err, problems)
		return 0
	}
	return c.Get(tp).LogStart
}

// judge reads everything, stops the nodes in order, and checks history and folders.
func (w *world) judge() {
	t := w.t
	t.Helper()
	w.noTxnOpen()
	starts, ends := w.bounds()
	ctx, cancel := context.WithTimeout(t.Context(), healLimit)
	defer cancel()
	if err := w.c.readAll(ctx, w.c.partitions, starts, ends); err != nil {
		t.Error(err)
	}
	if err := w.c.readAll(ctx, w.c.deals, starts, w.stableEnds(), kgo.FetchIsolationLevel(kgo.ReadCommitted())); err != nil {
		t.Error(err)
	}
	eventually(t, healLimit, "all replicas are in sync at the end", w.whole)
	for _, b := range w.n.nodes {
		b.End(syscall.SIGTERM)
	}
	w.c.rec.h.Final = true
	for tp, at := range starts {
		w.c.rec.h.Starts = append(w.c.rec.h.Starts, history.Start{Partition: tp, Offset: at})
	}
	w.found = w.c.rec.h.Check()
	for _, tp := range slices.SortedFunc(maps.Keys(ends), func(a, b types.TopicPartition) int { return strings.Compare(a.String(), b.String()) }) {
		var replicas []history.Replica
		for _, id := range w.replicas[tp] {
			b := w.n.node(int(id))
			replicas = append(replicas, history.Replica{Name: fmt.Sprintf("node %d", b.ID), FS: vfs.OS(), Dir: filepath.Join(b.Folder(), tp.String()), Start: max(starts[tp], ownStart(t, b.Folder(), tp))})
		}
		if len(replicas) != 3 {
			t.Errorf("%s has replicas on %v", tp, w.replicas[tp])
		}
		differ, err := history.CompareReplicas(tp, ends[tp], replicas...)
		if err != nil {
			t.Error(err)
		}
		w.found = append(w.found, differ...)
	}
	t.Logf("log starts: %v, ends: %v", starts, ends)
	for i, f := range w.found {
		if i == 40 {
			t.Errorf("and %d more", len(w.found)-i)
			break
		}
		t.Error(f)
	}
}

// lastReport says what was injected and what was seen, and of a failure where to look.
func (w *world) lastReport(dir, repeat string) {
	t := w.t
	for _, b := range w.n.nodes {
		for msg, n := range b.Complaints() {
			if strings.HasPrefix(msg, "PANIC") {
				t.Errorf("node %d: %d × %s", b.ID, n, msg)
			} else {
				w.n.Saw(fmt.Sprintf("× node %d wrote: %s", b.ID, msg), n)
			}
		}
	}
	if t.Failed() {
		for _, b := range w.n.nodes {
			b.End(syscall.SIGQUIT) // its log then says what each goroutine was doing
		}
	}
	w.c.rec.mu.Lock()
	outcomes, polls, commits, listings := map[string]int{}, map[string]int{}, 0, 0
	for _, s := range w.c.rec.h.Sends {
		kind := string(s.Outcome)
		if s.Txn != "" {
			kind += " in a transaction"
		}
		if s.Weak {
			kind += " by the leader alone"
		}
		outcomes[kind]++
	}
	for _, p := range w.c.rec.h.Polls {
		polls[p.Consumer]++
	}
	for _, m := range w.c.rec.h.Commits {
		if m.Listed {
			listings++
		} else {
			commits++
		}
	}
	for err, n := range w.c.rec.errs {
		w.n.Saw("× given up by "+err, n)
	}
	w.c.rec.mu.Unlock()
	t.Logf("clients: %v; polls %v; %d commits, %d listed offsets; unclean elections by the operator: %d; losses allowed: %d",
		outcomes, polls, commits, listings, w.operated, len(w.c.rec.h.Losses))
	t.Log(w.n.table())
	t.Log(w.growth())
	if !t.Failed() {
		return
	}
	if err := w.c.rec.write(filepath.Join(dir, "history.json")); err != nil {
		t.Error(err)
	}
	if b := w.n.small; b != nil {
		if err := os.CopyFS(b.Dir, os.DirFS(b.Folder())); err != nil {
			t.Error(err)
		}
	}
	if len(w.found) > 0 {
		t.Logf("FIRST VIOLATION: %s", w.found[0])
	}
	t.Logf("folders, logs and history.json are kept in %s; %s make chaos repeats the schedule", dir, repeat)
}
