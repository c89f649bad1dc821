//go:build chaos

package chaos_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"tidemark/internal/core/types"
	"tidemark/internal/history"
	"tidemark/internal/vfs"
)

const (
	// leaseTime is the brokers' session time-out: freezes last longer.
	leaseTime = 4 * time.Second
	// offsetsTopic is compared too: groups' commits are writes like others.
	offsetsTopic      = "__consumer_offsets"
	offsetsPartitions = 3
)

var settings = []string{
	"broker.session.timeout.ms=4000", "replica.lag.time.max.ms=4000", "min.insync.replicas=2", "default.replication.factor=3",
	"offsets.topic.replication.factor=3", fmt.Sprintf("offsets.topic.num.partitions=%d", offsetsPartitions),
	"log.segment.bytes=1048576", "group.initial.rebalance.delay.ms=0", "auto.create.topics.enable=false",
}

// chosen reads the seed and the time of the faults from the environment.
func chosen(t *testing.T) (seed uint64, faultsFor time.Duration) {
	t.Helper()
	seed, faultsFor = uint64(time.Now().UnixNano())%1_000_000, 60*time.Second
	if s := os.Getenv("TIDEMARK_CHAOS_SEED"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		seed = n
	}
	if s := os.Getenv("TIDEMARK_CHAOS_TIME"); s != "" {
		d, err := time.ParseDuration(s)
		if err != nil {
			t.Fatal(err)
		}
		faultsFor = d
	}
	return seed, faultsFor
}

// workFolder is kept if the test fails.
func workFolder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "tidemark-chaos-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("folders, logs and history.json are in %s", dir)
		} else if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// world is one cluster and its clients.
type world struct {
	t   *testing.T
	n   *nemesis
	c   *clients
	adm *kadm.Client

	leaderless time.Time // since when a partition has been without a leader while all nodes were ready; zero: none is
	operated   int       // unclean elections that the operator asked for
}

// startWorld starts the three nodes and creates the topics.
func startWorld(t *testing.T, dir string, seed uint64) *world {
	t.Helper()
	if os.Getenv("TIDEMARK_BIN") == "" {
		t.Fatal("TIDEMARK_BIN names no binary: run `make chaos`")
	}
	w := &world{t: t, n: &nemesis{t: t, began: time.Now(), injected: map[fault]int{}}, c: &clients{t: t, rec: newRecorder(), seed: seed, topics: []string{"orders", "parts"}}}
	w.n.isWhole = w.whole
	for id := 1; id <= 3; id++ {
		join := ""
		if id > 1 {
			join = w.n.nodes[0].http
		}
		b := newNode(t, dir, id, join, settings...)
		w.n.nodes, w.c.seeds = append(w.n.nodes, b), append(w.c.seeds, b.kafka)
		b.start()
		eventually(t, healLimit, fmt.Sprintf("node %d is ready", id), b.ready)
		w.n.log("node %d is ready", id)
	}
	cl, err := kgo.NewClient(w.c.options()...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	w.adm = kadm.NewClient(cl)
	for _, topic := range w.c.topics {
		if _, err := w.adm.CreateTopic(t.Context(), 3, 3, nil, topic); err != nil {
			t.Fatal(err)
		}
		for p := range int32(3) {
			w.c.partitions = append(w.c.partitions, types.TopicPartition{Topic: topic, Partition: p})
		}
	}
	eventually(t, healLimit, "all replicas are in sync", w.whole)
	return w
}

// whole says which partition lacks a leader or a replica, and has the operator
// elect leaders where nothing else will: a partition all of whose in-sync and
// eligible replicas ended without a clean shutdown waits for one.
func (w *world) whole() error {
	ctx, cancel := context.WithTimeout(w.t.Context(), callTimeout)
	defer cancel()
	md, err := w.adm.Metadata(ctx)
	if err != nil {
		return err
	}
	var lacks error
	orphans := kadm.TopicsSet{}
	for _, topic := range md.Topics.Sorted() {
		if topic.Err != nil {
			return fmt.Errorf("%s: %w", topic.Topic, topic.Err)
		}
		for _, p := range topic.Partitions.Sorted() {
			if p.Leader < 0 {
				orphans.Add(p.Topic, p.Partition)
			}
			if p.Leader < 0 || len(p.ISR) != len(w.n.nodes) {
				lacks = fmt.Errorf("%s-%d: leader %d, in sync %v, %v", topic.Topic, p.Partition, p.Leader, p.ISR, p.Err)
			}
		}
	}
	w.operate(ctx, len(md.Brokers), orphans)
	if len(md.Topics) < len(w.c.topics) {
		return fmt.Errorf("%d topics", len(md.Topics))
	}
	return lacks
}

// operatorWaits is how long partitions stay without a leader before the operator acts: longer than a lease.
const operatorWaits = leaseTime + time.Second

// operate asks for unclean elections, as an operator would who sees that all
// brokers are back and that no machine lost its memory: then the best log has
// everything, and the election must find it.
func (w *world) operate(ctx context.Context, brokers int, orphans kadm.TopicsSet) {
	calm := brokers == len(w.n.nodes) && len(orphans) > 0
	for _, b := range w.n.nodes {
		calm = calm && b.ready() == nil
	}
	switch {
	case !calm:
		w.leaderless = time.Time{}
	case w.leaderless.IsZero():
		w.leaderless = time.Now()
	case time.Since(w.leaderless) > operatorWaits:
		w.leaderless = time.Time{}
		results, err := w.adm.ElectLeaders(ctx, kadm.ElectLiveReplica, orphans)
		w.n.log("  the operator elects leaders of %v: %v", orphans.IntoList(), err)
		for _, ps := range results {
			for _, r := range ps {
				if r.Err == nil {
					w.operated++
				} else {
					w.n.log("    %s-%d: %v", r.Topic, r.Partition, r.Err)
				}
			}
		}
	}
}

// ends gives the high watermarks of all partitions, of __consumer_offsets too.
func (w *world) ends() map[types.TopicPartition]types.Offset {
	w.t.Helper()
	out := map[types.TopicPartition]types.Offset{}
	eventually(w.t, healLimit, "all ends are known", func() error {
		ctx, cancel := context.WithTimeout(w.t.Context(), callTimeout)
		defer cancel()
		listed, err := w.adm.ListEndOffsets(ctx, append(slices.Clone(w.c.topics), offsetsTopic)...)
		if err != nil {
			return err
		}
		if err := listed.Error(); err != nil {
			return err
		}
		listed.Each(func(o kadm.ListedOffset) {
			out[types.TopicPartition{Topic: o.Topic, Partition: o.Partition}] = types.Offset(o.Offset)
		})
		return nil
	})
	return out
}

// TestChaos is one run; the package comment says what it does.
func TestChaos(t *testing.T) {
	seed, faultsFor := chosen(t)
	t.Logf("seed %d, faults for %v: TIDEMARK_CHAOS_SEED=%d TIDEMARK_CHAOS_TIME=%v repeats the faults", seed, faultsFor, seed, faultsFor)
	dir := workFolder(t)
	w := startWorld(t, dir, seed)
	t.Cleanup(func() {
		for _, b := range w.n.nodes {
			for msg, n := range b.complaints() {
				t.Logf("node %d: %d × %s", b.id, n, msg)
			}
		}
		for err, n := range w.c.rec.errs {
			t.Logf("given up: %d × %s", n, err)
		}
		if err := w.c.rec.write(filepath.Join(dir, "history.json")); err != nil {
			t.Error(err)
		}
	})
	produce, stopProducers := context.WithCancel(t.Context())
	defer stopProducers()
	kill, stopFlush := context.WithCancel(t.Context())
	defer stopFlush()
	consume, stopConsumers := context.WithCancel(t.Context())
	defer stopConsumers()
	w.c.produce(produce, kill, "p1")
	w.c.produce(produce, kill, "p2")
	w.c.produceSarama(produce, "s1")
	w.c.consume(consume, "workers", "c1")
	w.c.consume(consume, "workers", "c2")
	w.c.consumeSarama(consume, "readers", "d1")
	w.c.watch(consume, w.adm, "workers", "readers")
	w.progress("before any fault")

	faultsEnd, cancel := context.WithTimeout(t.Context(), faultsFor)
	defer cancel()
	w.n.run(faultsEnd, plan(seed, leaseTime, 10+int(faultsFor/(2*time.Second))))
	w.n.heal()
	w.progress("after the last fault")

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

// progress waits until every partition has taken new writes.
func (w *world) progress(when string) {
	w.t.Helper()
	before, from := w.c.rec.ackedBy(), time.Now()
	eventually(w.t, healLimit, "every partition takes writes "+when, func() error {
		now := w.c.rec.ackedBy()
		for _, tp := range w.c.partitions {
			if now[tp] < before[tp]+10 {
				return fmt.Errorf("%s took %d writes", tp, now[tp]-before[tp])
			}
		}
		return nil
	})
	w.n.log("every partition takes writes %s, after %.1fs", when, time.Since(from).Seconds())
}

// groupsCatchUp waits until both groups have committed the end of everything.
func (w *world) groupsCatchUp() {
	w.t.Helper()
	ends, from := w.ends(), time.Now()
	for _, group := range []string{"workers", "readers"} {
		eventually(w.t, healLimit, "group "+group+" reads to the end", func() error {
			at, err := w.c.list(w.t.Context(), w.adm, group)
			if err != nil {
				return err
			}
			for _, tp := range w.c.partitions {
				if at[tp] < ends[tp] {
					return fmt.Errorf("%s: committed %d of %d", tp, at[tp], ends[tp])
				}
			}
			return nil
		})
	}
	w.n.log("the groups have read to the end after %.1fs", time.Since(from).Seconds())
}

// judge reads everything, stops the nodes in order, and checks history and folders.
func (w *world) judge() {
	t := w.t
	t.Helper()
	ends := w.ends()
	ctx, cancel := context.WithTimeout(t.Context(), healLimit)
	defer cancel()
	if err := w.c.readAll(ctx, ends); err != nil {
		t.Error(err)
	}
	eventually(t, healLimit, "all replicas are in sync at the end", w.whole)
	for _, b := range w.n.nodes {
		b.end(syscall.SIGTERM)
	}
	w.c.rec.h.Final = true
	found := w.c.rec.h.Check()
	for _, tp := range slices.SortedFunc(maps.Keys(ends), func(a, b types.TopicPartition) int { return strings.Compare(a.String(), b.String()) }) {
		var replicas []history.Replica
		for _, b := range w.n.nodes {
			replicas = append(replicas, history.Replica{Name: fmt.Sprintf("node %d", b.id), FS: vfs.OS(), Dir: filepath.Join(b.dir, tp.String())})
		}
		differ, err := history.CompareReplicas(tp, ends[tp], replicas...)
		if err != nil {
			t.Error(err)
		}
		found = append(found, differ...)
	}
	w.report(ends)
	for i, f := range found {
		if i == 40 {
			t.Errorf("and %d more", len(found)-i)
			break
		}
		t.Error(f)
	}
}

// report says what was injected and what was seen.
func (w *world) report(ends map[types.TopicPartition]types.Offset) {
	outcomes, polls, commits, listings := map[history.Outcome]int{}, map[string]int{}, 0, 0
	for _, s := range w.c.rec.h.Sends {
		outcomes[s.Outcome]++
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
	w.n.log("injected: %s; unclean elections by the operator: %d", w.n.report(), w.operated)
	w.t.Logf("seen: %d sends %v; polls %v; %d commits, %d listed offsets", len(w.c.rec.h.Sends), outcomes, polls, commits, listings)
	w.t.Logf("ends: %v", ends)
}
