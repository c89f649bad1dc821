//go:build kafka

package perf_test

import (
	"fmt"
	"testing"
	"time"

	"tidemark/test/process"
)

// TestFigureCatchUp: how fast a follower that was away gets back in sync, and what that does to those who write meanwhile.
func TestFigureCatchUp(t *testing.T) {
	mib := option(t, "MIB", 1024)
	tab := newTable(t)
	systems := startSystems(t)
	for run := range option(t, "RUNS", 3) + 1 {
		for _, s := range systems {
			counted := tab
			if run == 0 {
				counted = newTable(t) // warms up
			}
			figureCatchUp(t, s, run, mib, counted)
		}
	}
	tab.print(fmt.Sprintf("a follower returns to %d MiB that it lacks, while 1,000 records a second are written", mib))
}

func figureCatchUp(t *testing.T, s *system, run, mib int, tab *table) {
	const rate, lone = 1000, 10 * time.Second
	topic := fmt.Sprint("away-", run)
	s.createTopic(topic, loadPartitions, 3, map[string]*string{"min.insync.replicas": &minISR})
	quiet := steady(t, s, topic, rate, 0, lone)
	s.nodes[2].stop()
	flood(t, s, topic, mib<<20/valueBytes)
	during := make(chan latencies, 1)
	s.nodes[2].start() // neither its time nor its processor time is the catch-up's
	began, back, leaders := time.Now(), s.cpuOf(2), s.cpuOf(0, 1)
	stopped := make(chan struct{})
	go func() { during <- steadyUntil(t, s, topic, rate, stopped) }()
	s.waitWhole(topic, loadPartitions, 3)
	took := time.Since(began)
	close(stopped)
	l := <-during
	tab.add(s.name, "catch-up, MiB/s", float64(mib)/took.Seconds())
	tab.add(s.name, "CPU-s per GiB, of the returning node", (s.cpuOf(2)-back)*1024/float64(mib))
	tab.add(s.name, "CPU-s per GiB, of its leaders", (s.cpuOf(0, 1)-leaders)*1024/float64(mib))
	tab.add(s.name, "p99 of produce before, ms", quiet.at(.99))
	tab.add(s.name, "p99 of produce during, ms", l.at(.99))
	s.deleteTopic(topic)
}

// cpuOf is the processor time that some nodes, by index, have used so far.
func (s *system) cpuOf(nodes ...int) (total float64) {
	for _, i := range nodes {
		total += process.CPUSeconds(s.tb, s.nodes[i].pid())
	}
	return total
}
