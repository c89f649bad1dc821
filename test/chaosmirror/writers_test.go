//go:build chaos && linux

package chaosmirror_test

import (
	"context"
	"fmt"
	"hash/crc32"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"tidemark/internal/core/types"
	"tidemark/internal/history"
)

const (
	// sendEvery is the pace of each writer: every fault hits records in flight, and the brokers decide, not the machine.
	sendEvery      = 15 * time.Millisecond
	outstandingMax = 300 // records of a writer that await their outcome
	valueMax       = 800 // bytes of padding
)

// generation is the writers of one cluster while its partitions are on the same
// timelines. Values name it, so that each is written once in the whole run.
type generation struct {
	w    *world
	c    *cluster
	name string
	// timelines says on which timeline each partition is written.
	timelines map[types.TopicPartition]string
	// lineages are the whole lists of all partitions, also of those that are mirrors.
	lineages    map[types.TopicPartition]history.Lineage
	reading     sync.WaitGroup
	haltReading context.CancelFunc
	halt        context.CancelFunc
	done        sync.WaitGroup
	flushed     context.Context
	giveUp      context.CancelFunc
	// deserts: the writer of transactions may leave its last one open when it is stopped.
	deserts atomic.Bool
}

// write starts a generation on the partitions of a cluster that clients may write now.
func (w *world) write(c *cluster) *generation {
	w.generations++
	g := &generation{w: w, c: c, name: fmt.Sprintf("%s%d", c.name, w.generations), timelines: map[types.TopicPartition]string{}, lineages: map[types.TopicPartition]history.Lineage{}}
	for tp, l := range c.roots {
		g.timelines[tp], g.lineages[tp] = l[0].ID, l
	}
	if c.roots == nil {
		var r records
		eventually(w.t, healLimit, c.name+" says what can be written", func() (err error) { // all of it may have been killed just now
			r, err = c.look(w.t.Context())
			return err
		})
		for tp, rec := range r.partitions {
			g.lineages[tp] = lineage(rec)
			if n := len(rec.Timelines); rec.Writable && n > 0 {
				g.timelines[tp] = rec.Timelines[n-1].ID
			}
		}
	}
	if len(g.timelines) == 0 {
		return nil
	}
	stop, halt := context.WithCancel(context.Background())
	g.halt = halt
	g.flushed, g.giveUp = context.WithCancel(context.Background())
	reading, haltReading := context.WithCancel(context.Background())
	g.haltReading = haltReading
	w.names = append(w.names, g.name)
	w.t.Cleanup(func() { g.stop(0); g.stopReading() })
	g.readGroups(reading)
	w.log("writers %s on %d partitions of %s", g.name, len(g.timelines), c.name)
	for i := range 2 {
		g.run(w, stop, fmt.Sprintf("%s.%d", g.name, i))
	}
	g.transact(stop)
	if w.java != nil {
		w.java.begin(g)
	}
	return g
}

// run is one writer: idempotent, acks=all.
func (g *generation) run(w *world, stop context.Context, name string) {
	cl, err := kgo.NewClient(g.c.options(kgo.RequiredAcks(kgo.AllISRAcks()), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(5*time.Millisecond),
		kgo.ProduceRequestTimeout(3*time.Second), kgo.UnknownTopicRetries(-1), kgo.RetryTimeout(verbLimit))...)
	if err != nil {
		w.t.Error(err)
		return
	}
	g.done.Go(func() {
		defer cl.Close()
		r := rand.New(rand.NewPCG(w.chosen.seed, uint64(crc32.ChecksumIEEE([]byte(name)))))
		list := slices.SortedFunc(maps.Keys(g.timelines), byName)
		outstanding := make(chan struct{}, outstandingMax)
		tick := time.NewTicker(sendEvery)
		defer tick.Stop()
		for n := 0; ; n++ {
			select {
			case <-tick.C:
			case <-stop.Done():
				_ = cl.Flush(g.flushed) // what has no outcome then stays unknown
				return
			}
			select {
			case outstanding <- struct{}{}:
			case <-stop.Done():
				continue
			}
			tp := list[r.IntN(len(list))]
			value := fmt.Sprintf("%s_%06d-%s", name, n, strings.Repeat("x", r.IntN(valueMax)))
			i := w.book.writing(g.c.name, g.timelines[tp], tp, value)
			cl.Produce(context.Background(), &kgo.Record{Topic: tp.Topic, Partition: tp.Partition, Value: []byte(value)}, func(r *kgo.Record, err error) {
				<-outstanding
				if err == nil {
					w.book.acked(g.c.name, i, r.Offset)
				} else {
					w.book.failed(g.c.name, err)
				}
			})
		}
	})
}

// stop ends the writers. They wait so long at most for what has no outcome yet.
func (g *generation) stop(patience time.Duration) {
	if g == nil {
		return
	}
	g.halt()
	timer := time.AfterFunc(patience, g.giveUp)
	defer timer.Stop()
	if g.w.java != nil {
		g.w.java.end(g, patience)
	}
	g.done.Wait()
	g.giveUp()
}
