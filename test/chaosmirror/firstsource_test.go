//go:build chaos && linux

package chaosmirror_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	"tidemark/internal/core/types"
	"tidemark/internal/history"
	"tidemark/test/chaos/harm"
	"tidemark/test/chaos/links"
)

// kafkaBrokers is how many brokers of Apache Kafka there are, where it is the first source.
const kafkaBrokers = 3

// kafkaLoad is how long Kafka is written and harmed before A takes over.
const kafkaLoad = 15 * time.Second

// cutKafka sets both ways between Kafka's brokers and A.
func (w *world) cutKafka(n links.Network, way links.Way) {
	for i := range kafkaBrokers {
		for _, b := range w.a.nodes {
			n.Set(places+1+i, b.ID, way)
			n.Set(b.ID, places+1+i, way)
		}
	}
}

// rootsOf takes for Kafka's lineages what A derived for them: one timeline each,
// named after cluster and topic (R16).
func (w *world) rootsOf(k, a *cluster) {
	eventually(w.t, healLimit, "A mirrors every partition of Kafka", func() error {
		r, err := a.look(w.t.Context())
		if err != nil {
			return err
		}
		k.roots = map[types.TopicPartition]history.Lineage{}
		for _, tp := range partitions() {
			rec := r.partitions[tp]
			if rec == nil || len(rec.Timelines) != 1 {
				return fmt.Errorf("%s has no timeline yet", tp)
			}
			k.roots[tp] = lineage(rec)
		}
		return nil
	})
}

// leaveKafka has Kafka written and harmed while A mirrors it, fails over to A while
// Kafka is written on, and ends Kafka for good: it can't become a mirror. An even seed
// has the failover at a consistent cut.
func (w *world) leaveKafka() {
	w.writers[w.k] = w.write(w.k)
	harmed, cancel := context.WithTimeout(w.t.Context(), min(kafkaLoad, w.chosen.runFor/3))
	defer cancel()
	var harming sync.WaitGroup
	harming.Go(func() { w.harmKafka(harmed) })
	<-harmed.Done()
	harming.Wait()
	w.failOver(w.a, firstMirror, w.chosen.seed%2 == 0)
	w.writers[w.a] = w.write(w.a)
	harm.Pause(w.t.Context(), 2*time.Second)
	w.writers[w.k].stop(healLimit)
	w.writers[w.k].stopReading()
	w.writers[w.k] = nil
	w.noTxnOpen(w.k)
	w.observeAll(true, w.k)
	w.observeCommitted(w.k, true)
	w.log("Kafka ends for good")
	w.killKafka()
}
