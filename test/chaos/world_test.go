//go:build chaos && linux

package chaos_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"tidemark/internal/core/types"
	"tidemark/internal/history"
	"tidemark/test/chaos/harm"
	"tidemark/test/chaos/nodes"
)

// world is one cluster and its clients.
type world struct {
	t      *testing.T
	chosen chosen
	dir    string
	n      *nemesis
	c      *clients
	adm    *kadm.Client

	replicas    map[types.TopicPartition][]int32 // as whole saw them last
	leaderless  time.Time                        // since when a partition has been without a leader while all nodes were ready; zero: none is
	operated    int                              // unclean elections that the operator asked for
	incarnation int                              // of the topic that comes and goes
	found       []history.Finding
	grown       []sizes
}

// startWorld starts the nodes and creates the topics.
func startWorld(t *testing.T, dir string, c chosen) *world {
	t.Helper()
	if os.Getenv("TIDEMARK_BIN") == "" {
		t.Fatal("TIDEMARK_BIN names no binary: run `make chaos`")
	}
	net := nodes.Network(t, c.nodes, c.proxies)
	w := &world{t: t, chosen: c, dir: dir, replicas: map[types.TopicPartition][]int32{}}
	w.c = &clients{t: t, net: net, rec: newRecorder(), seed: c.seed, every: c.sendEvery(), topics: []string{"orders", "parts"}}
	w.n = &nemesis{Nemesis: harm.New(t, net, c.seed, healLimit), w: w}
	for id := 1; id <= c.nodes; id++ {
		join := ""
		if id > 1 {
			join = w.n.nodes[0].Place.HTTP
		}
		b := nodes.New(t, dir, id, net, join, c.settings()...)
		b.OwnEnd = w.n.EndedByItself
		if id == 1+int(c.seed)%c.nodes {
			if err := b.OwnDisk(diskBytes); err != nil {
				t.Logf("no disk is filled for real: %v", err)
			} else {
				w.n.small = b
			}
		}
		w.n.nodes, w.c.seeds = append(w.n.nodes, b), append(w.c.seeds, b.Place.Advertise)
		b.Start()
		eventually(t, healLimit, fmt.Sprintf("node %d is ready", id), b.Ready)
		w.n.Log("node %d is ready", id)
	}
	cl, err := kgo.NewClient(w.c.options()...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	w.adm = kadm.NewClient(cl)
	flushed := "500" // one topic is synced now and then whatever log.flush.acks says
	for i, topic := range w.c.topics {
		configs := map[string]*string{}
		if i == 1 {
			configs["flush.ms"] = &flushed
		}
		if _, err := w.adm.CreateTopic(t.Context(), 3, 3, configs, topic); err != nil {
			t.Fatal(err)
		}
		for p := range int32(3) {
			w.c.partitions = append(w.c.partitions, types.TopicPartition{Topic: topic, Partition: p})
		}
	}
	w.createDeals()
	eventually(t, healLimit, "all replicas are in sync", w.whole)
	return w
}

// judged are the topics whose replicas must be the same in the end.
func (w *world) judged() []string {
	return append(slices.Clone(w.c.topics), deals, offsetsTopic, stateTopic)
}

// whole says which partition lacks a leader or a replica, and has the operator
// elect leaders where nothing else will: a partition all of whose in-sync and
// eligible replicas ended without a clean shutdown waits for one.
func (w *world) whole() error {
	ctx, cancel := context.WithTimeout(w.t.Context(), callTimeout)
	defer cancel()
	md, err := w.adm.Metadata(ctx, w.judged()...)
	if err != nil {
		return err
	}
	var lacks error
	orphans := kadm.TopicsSet{}
	for _, topic := range md.Topics.Sorted() {
		if (topic.Topic == offsetsTopic || topic.Topic == stateTopic) && topic.Err != nil {
			continue // before the first group, or the first transaction
		}
		if topic.Err != nil {
			return fmt.Errorf("%s: %w", topic.Topic, topic.Err)
		}
		for _, p := range topic.Partitions.Sorted() {
			w.replicas[types.TopicPartition{Topic: p.Topic, Partition: p.Partition}] = p.Replicas
			if p.Leader < 0 {
				orphans.Add(p.Topic, p.Partition)
			}
			if p.Leader < 0 || len(p.ISR) != 3 || len(p.Replicas) != 3 {
				lacks = fmt.Errorf("%s-%d: leader %d, replicas %v, in sync %v, %v", topic.Topic, p.Partition, p.Leader, p.Replicas, p.ISR, p.Err)
			}
		}
	}
	w.operate(ctx, len(md.Brokers), orphans)
	return lacks
}

// operatorWaits is how long partitions stay without a leader before the operator acts: longer than a lease.
const operatorWaits = leaseTime + time.Second

// operate asks for unclean elections, as an operator would who sees that all
// brokers are back: then the election must find the best log.
func (w *world) operate(ctx context.Context, brokers int, orphans kadm.TopicsSet) {
	calm := brokers == len(w.n.nodes) && len(orphans) > 0
	for _, b := range w.n.nodes {
		calm = calm && b.Ready() == nil
	}
	switch {
	case !calm:
		w.leaderless = time.Time{}
	case w.leaderless.IsZero():
		w.leaderless = time.Now()
	case time.Since(w.leaderless) > operatorWaits:
		w.leaderless = time.Time{}
		results, err := w.adm.ElectLeaders(ctx, kadm.ElectLiveReplica, orphans)
		w.n.Log("  the operator elects leaders of %v: %v", orphans.IntoList(), err)
		for _, ps := range results {
			for _, r := range ps {
				if r.Err == nil {
					w.operated++
				} else {
					w.n.Log("    %s-%d: %v", r.Topic, r.Partition, r.Err)
				}
			}
		}
	}
}

// bounds gives the log starts and high watermarks of all partitions, of the internal topics' too.
func (w *world) bounds() (starts, ends map[types.TopicPartition]types.Offset) {
	w.t.Helper()
	list := func(ask func(context.Context, ...string) (kadm.ListedOffsets, error)) map[types.TopicPartition]types.Offset {
		out := map[types.TopicPartition]types.Offset{}
		eventually(w.t, healLimit, "all starts and ends are known", func() error {
			ctx, cancel := context.WithTimeout(w.t.Context(), callTimeout)
			defer cancel()
			listed, err := ask(ctx, w.judged()...)
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
	return list(w.adm.ListStartOffsets), list(w.adm.ListEndOffsets)
}

// progress waits until every partition has taken new writes.
func (w *world) progress(when string) {
	w.t.Helper()
	before, from := w.c.rec.ackedBy(), time.Now()
	needed := w.c.partitions
	if len(w.c.rec.h.Losses) == 0 { // after one a transactional id may be stuck: its coordinator went back, its partitions did not
		needed = slices.Concat(needed, w.c.deals)
	}
	eventually(w.t, healLimit, "every partition takes writes "+when, func() error {
		now := w.c.rec.ackedBy()
		for _, tp := range needed {
			if now[tp] < before[tp]+10 {
				return fmt.Errorf("%s took %d writes", tp, now[tp]-before[tp])
			}
		}
		return nil
	})
	w.n.Log("every partition takes writes %s, after %.1fs", when, time.Since(from).Seconds())
}

// groupsCatchUp waits until the groups have committed the end of everything.
func (w *world) groupsCatchUp() {
	w.t.Helper()
	from := time.Now()
	_, ends := w.bounds()
	for _, group := range []string{"workers", "readers", "subscribers"} {
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
	w.n.Log("the groups have read to the end after %.1fs", time.Since(from).Seconds())
}
