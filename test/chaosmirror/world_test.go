//go:build chaos && linux

package chaosmirror_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"tidemark/internal/broker/mirror"
	"tidemark/internal/console"
	"tidemark/internal/core/types"
	"tidemark/internal/history"
	"tidemark/test/chaos/harm"
	"tidemark/test/chaos/links"
	"tidemark/test/chaos/nodes"
)

// world is the clusters, their writers and the operator.
type world struct {
	t       *testing.T
	chosen  chosen
	a, b, c *cluster
	k       *cluster // Apache Kafka, the first source; nil: A is
	java    *jvm     // nil: without Java's producers
	// harmKafka harms the first source until its context ends, killKafka ends it.
	harmKafka func(context.Context)
	killKafka func()
	n         *nemesis
	book      *book
	r         *rand.Rand // the operator's

	generations int
	names       []string // of the generations
	falls       []fall   // not heard of yet
	writers     map[*cluster]*generation
	found       []history.Finding
}

func (w *world) log(format string, args ...any) {
	w.t.Helper()
	w.n.Log(format, args...)
}

// saw counts something that the run met.
func (w *world) saw(what string, by int) { w.n.Saw(what, by) }

func (w *world) clusters() []*cluster { return []*cluster{w.a, w.b, w.c} }

// sizes of the clusters, and the place of each one's first node.
var shapes = []struct {
	name         string
	first, count int
}{{"A", 1, 3}, {"B", 4, 3}, {"C", 7, 1}}

const places = 7

// startWorld starts all clusters, A with topics, and has B mirror A and C mirror B.
func startWorld(t *testing.T, dir string, c chosen) *world {
	t.Helper()
	w := &world{t: t, chosen: c, r: rand.New(rand.NewPCG(c.seed, 0x6f70657261746f72)), writers: map[*cluster]*generation{}}
	count := places
	if c.kafka {
		count += kafkaBrokers
	}
	net := nodes.Network(t, count, c.proxies)
	if c.kafka && !net.CanCutOther() {
		t.Fatal("Apache Kafka can't be the first source without network namespaces")
	}
	w.n = &nemesis{Nemesis: harm.New(t, net, c.seed, healLimit), w: w}
	var all []*cluster
	for _, s := range shapes {
		cl := w.newCluster(s.name, net)
		for id := s.first; id < s.first+s.count; id++ {
			join := ""
			if id > s.first {
				join = cl.nodes[0].Place.HTTP
			}
			n := nodes.New(t, dir, id, net, join, settings(s.count)...)
			n.OwnEnd = w.n.EndedByItself
			cl.nodes, cl.seeds = append(cl.nodes, n), append(cl.seeds, n.Place.Advertise)
		}
		all = append(all, cl)
	}
	w.a, w.b, w.c = all[0], all[1], all[2]
	w.book = newBook(all)
	var starting sync.WaitGroup
	for _, cl := range all {
		starting.Go(func() {
			for _, n := range cl.nodes {
				n.Start()
				if !w.within(healLimit, fmt.Sprintf("node %d is ready", n.ID), n.Ready) {
					return
				}
			}
		})
	}
	starting.Wait()
	if t.Failed() {
		t.FailNow()
	}
	for _, cl := range all {
		cl.connect()
	}
	if c.java {
		w.startJava(net)
	}
	w.createMirror(w.a, mirrorName, w.b)
	w.createMirror(w.b, mirrorName, w.a)
	w.createMirror(w.c, mirrorName, w.b)
	if c.kafka {
		w.startKafka(net)
		w.createTopics(w.k)
		w.createMirror(w.a, firstMirror, w.k)
		w.startMirror(w.a, firstMirror)
		w.rootsOf(w.k, w.a)
	} else {
		w.createTopics(w.a)
	}
	w.startMirror(w.b, mirrorName)
	w.startMirror(w.c, mirrorName)
	w.log("all nodes are ready, B mirrors A, C mirrors B")
	return w
}

func (w *world) newCluster(name string, net links.Network) *cluster {
	return &cluster{t: w.t, name: name, net: net, asleep: map[int]bool{}, log: w.log}
}

// within is eventually for goroutines other than the test's own.
func (w *world) within(limit time.Duration, what string, f func() error) bool {
	end := time.Now().Add(limit)
	for err := f(); err != nil; err = f() {
		if time.Now().After(end) {
			w.t.Errorf("not within %v: %s: %v", limit, what, err)
			return false
		}
		harm.Pause(w.t.Context(), 50*time.Millisecond)
	}
	return true
}

func (w *world) createTopics(on *cluster) {
	for topic, n := range partitionsOf {
		eventually(w.t, healLimit, "topic "+topic+" is made", func() error {
			ctx, cancel := context.WithTimeout(w.t.Context(), callTimeout)
			defer cancel()
			r, err := on.adm.CreateTopic(ctx, n, 3, nil, topic)
			if err == nil {
				err = r.Err
			}
			if errors.Is(err, kerr.TopicAlreadyExists) { // by an attempt that was not answered
				return nil
			}
			return err
		})
	}
}

// createMirror makes, and doesn't start, the mirror of a cluster on another one.
func (w *world) createMirror(on *cluster, name string, of *cluster) {
	eventually(w.t, healLimit, "the mirror of "+of.name+" on "+on.name+" is made", func() error {
		return on.ask(w.t.Context(), callTimeout, func(ctx context.Context, cl *console.Client) error {
			if _, err := cl.Status(ctx, name); err == nil {
				return nil
			}
			_, err := cl.Create(ctx, mirror.Spec{Name: name, Bootstrap: of.seeds})
			return err
		})
	})
}

func (w *world) startMirror(on *cluster, name string) {
	eventually(w.t, healLimit, "the mirror on "+on.name+" is started", func() error {
		return on.ask(w.t.Context(), callTimeout, func(ctx context.Context, cl *console.Client) error {
			_, err := cl.Verb(ctx, name, "start")
			return err
		})
	})
}

// whole waits until clusters lack nothing. The caller has the nemesis rest.
func (w *world) whole(when string, list ...*cluster) {
	w.t.Helper()
	from := time.Now()
	for _, c := range list {
		eventually(w.t, healLimit, c.name+" is whole "+when, func() error {
			c.supervise()
			return c.whole()
		})
	}
	if took := time.Since(from); took > 2*time.Second {
		w.log("  clusters whole %s after %.1fs", when, took.Seconds())
	}
}

// tend does what operators do while a verb doesn't get through: elect leaders that nothing else will.
func (w *world) tend() {
	for _, c := range w.clusters() {
		_ = c.whole() // in the midst of faults it seldom is
	}
}

// report counts and tells findings.
func (w *world) report(found []history.Finding) {
	w.t.Helper()
	for _, f := range found {
		if w.found = append(w.found, f); len(w.found) <= 40 {
			w.t.Error(f)
		}
	}
}

// observeAll has the judge look at every partition of the clusters, from a place
// below which the logs were read before, or from their starts.
func (w *world) observeAll(final bool, list ...*cluster) {
	w.t.Helper()
	for _, c := range list {
		for _, tp := range partitions() {
			w.report(w.book.observe(w.read(c, tp, final)))
		}
	}
}

// windowOffsets is how much of a log is read again between rounds; in the end all of it is.
const windowOffsets = 5_000

// window is from where a partition is read again between rounds.
func (w *world) window(c *cluster, tp types.TopicPartition) types.Offset {
	return max(0, w.book.seenEnd(c.name, tp)-windowOffsets)
}

// read gives a view of a partition that shows all that was acknowledged.
func (w *world) read(c *cluster, tp types.TopicPartition, final bool) history.View {
	w.t.Helper()
	var v history.View
	eventually(w.t, healLimit, fmt.Sprintf("%s of %s shows what was acknowledged", tp, c.name), func() error {
		ctx, cancel := context.WithTimeout(w.t.Context(), healLimit)
		defer cancel()
		from := types.Offset(0)
		if !final {
			from = w.window(c, tp)
		}
		var err error
		v, err = w.book.settled(ctx, c, tp, from)
		return err
	})
	v.Final = final
	return v
}
