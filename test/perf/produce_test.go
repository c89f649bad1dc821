//go:build kafka

package perf_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"tidemark/test/kafka/cluster"
)

// Load: one topic of 9 partitions with three replicas, records of 1,000 random bytes, no compression, idempotent acks=all with
// min.insync.replicas=2.
const (
	loadPartitions = 9
	valueBytes     = 1000
)

var minISR = "2"

// producer is the Go load's client; linger is how long a batch may wait for more.
func producer(tb testing.TB, s *system, topic string, linger time.Duration) *kgo.Client {
	return client(tb, s.bootstrap, kgo.DefaultProduceTopic(topic), kgo.RequiredAcks(kgo.AllISRAcks()), kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.ProducerLinger(linger), kgo.ProducerBatchMaxBytes(256<<10), kgo.MaxBufferedRecords(20000), kgo.RecordPartitioner(kgo.UniformBytesPartitioner(64<<10, true, true, nil)))
}

func values() [][]byte {
	random := rand.New(rand.NewPCG(1, 2))
	out := make([][]byte, 256)
	for i := range out {
		out[i] = make([]byte, valueBytes)
		for j := range out[i] {
			out[i][j] = byte(random.Uint32())
		}
	}
	return out
}

// flood writes bytes as fast as they are taken and gives the seconds.
func flood(tb testing.TB, s *system, topic string, records int) float64 {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cl := producer(tb, s, topic, 5*time.Millisecond)
	defer cl.Close()
	vals := values()
	var failed error
	var once sync.Once
	begin := time.Now()
	for i := range records {
		cl.Produce(ctx, &kgo.Record{Value: vals[i%len(vals)]}, func(_ *kgo.Record, err error) {
			if err != nil {
				once.Do(func() { failed = err })
			}
		})
	}
	if err := cl.Flush(ctx); err != nil {
		tb.Fatal(err)
	}
	if failed != nil {
		tb.Fatalf("%s: %v", s.name, failed)
	}
	return time.Since(begin).Seconds()
}

// latencies are the times from when a record was due to its acknowledgement, in ms.
type latencies []float64

func (l latencies) at(q float64) float64 {
	if len(l) == 0 {
		return 0
	}
	return l[min(len(l)-1, int(q*float64(len(l))))]
}

// steady sends records at a fixed rate for some time. A record's latency counts from the moment when it was due, so that a stall is
// felt by every record that it kept from being sent.
func steady(tb testing.TB, s *system, topic string, rate int, linger, length time.Duration) latencies {
	tb.Helper()
	return sendSteadily(tb, s, topic, rate, linger, func(sent int) bool { return sent >= int(length.Seconds()*float64(rate)) })
}

// steadyUntil does so without linger until it is told to stop.
func steadyUntil(tb testing.TB, s *system, topic string, rate int, stopped <-chan struct{}) latencies {
	tb.Helper()
	return sendSteadily(tb, s, topic, rate, 0, func(int) bool {
		select {
		case <-stopped:
			return true
		default:
			return false
		}
	})
}

func sendSteadily(tb testing.TB, s *system, topic string, rate int, linger time.Duration, enough func(sent int) bool) latencies {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cl := producer(tb, s, topic, linger)
	defer cl.Close()
	vals := values()
	var mu sync.Mutex // guards the following
	var out latencies
	var failed error
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	begin := time.Now()
	for sent := 0; !enough(sent); <-tick.C {
		for ; !enough(sent); sent++ {
			due := begin.Add(time.Duration(sent) * time.Second / time.Duration(rate))
			if due.After(time.Now()) {
				break
			}
			cl.Produce(ctx, &kgo.Record{Value: vals[sent%len(vals)]}, func(_ *kgo.Record, err error) {
				mu.Lock()
				defer mu.Unlock()
				out = append(out, float64(time.Since(due))/float64(time.Millisecond))
				if err != nil {
					failed = err
				}
			})
		}
	}
	if err := cl.Flush(ctx); err != nil {
		failed = err
	}
	mu.Lock()
	defer mu.Unlock()
	if failed != nil {
		tb.Errorf("%s: %v", s.name, failed)
	}
	slices.Sort(out)
	return out
}

// sideBySide runs a load against both systems in turns; the first turn of each warms it up and doesn't count.
func sideBySide(t *testing.T, runs int, load func(s *system, topic string, count bool, tab *table)) *table {
	t.Helper()
	systems := startSystems(t)
	tab := newTable(t)
	for run := range runs + 1 {
		for _, s := range systems {
			topic := fmt.Sprint("load-", run)
			s.createTopic(topic, loadPartitions, 3, map[string]*string{"min.insync.replicas": &minISR})
			load(s, topic, run > 0, tab)
			s.deleteTopic(topic)
			runtime.GC()
		}
	}
	return tab
}

// TestFigureThroughput floods both systems: records and bytes per second, and the brokers' processor time per GiB.
func TestFigureThroughput(t *testing.T) {
	mib := option(t, "MIB", 512)
	records := mib << 20 / valueBytes
	tab := sideBySide(t, option(t, "RUNS", 5), func(s *system, topic string, count bool, tab *table) {
		before := s.cpu()
		seconds := flood(t, s, topic, records)
		used := s.cpu() - before
		if !count {
			return
		}
		tab.add(s.name, "records/s", float64(records)/seconds)
		tab.add(s.name, "MB/s", float64(records)*valueBytes/1e6/seconds)
		tab.add(s.name, "brokers' CPU-s per GiB", used*(1<<30)/(float64(records)*valueBytes))
		tab.add(s.name, "memory of three, MiB", s.rss())
	})
	tab.print(fmt.Sprintf("%d MiB as fast as it goes, RF 3, acks=all, franz-go", mib))
}

// TestFigureLatency sends at fixed rates, far below what either can take.
func TestFigureLatency(t *testing.T) {
	length := time.Duration(option(t, "SECONDS", 15)) * time.Second
	for _, c := range []struct {
		rate   int
		linger time.Duration
	}{{1000, 0}, {10000, 5 * time.Millisecond}} {
		t.Run(fmt.Sprintf("%d-per-second", c.rate), func(t *testing.T) {
			tab := sideBySide(t, option(t, "RUNS", 5), func(s *system, topic string, count bool, tab *table) {
				before := s.cpu()
				l := steady(t, s, topic, c.rate, c.linger, length)
				used := s.cpu() - before
				if !count {
					return
				}
				for _, q := range []float64{50, 99, 99.9} {
					tab.add(s.name, fmt.Sprintf("p%v, ms", q), l.at(q/100))
				}
				tab.add(s.name, "largest, ms", l.at(1))
				tab.add(s.name, "brokers' CPU-s per GiB", used*(1<<30)/(float64(len(l))*valueBytes))
			})
			tab.print(fmt.Sprintf("%d records of %d bytes a second for %s, linger %s, RF 3, acks=all, franz-go", c.rate, valueBytes, length, c.linger))
		})
	}
}

var perfLine = regexp.MustCompile(`records sent, ([0-9.]+) records/sec \(([0-9.]+) MB/sec\).* ([0-9]+) ms 50th, ([0-9]+) ms 95th, ([0-9]+) ms 99th, ([0-9]+) ms 99.9th`)

// TestFigureJavaClient loads both systems with Kafka's own kafka-producer-perf-test: at a fixed rate, and as fast as it goes.
func TestFigureJavaClient(t *testing.T) {
	for _, rate := range []int{5000, -1} {
		records := option(t, "SECONDS", 15) * rate
		if rate < 0 {
			records = option(t, "MIB", 512) << 20 / valueBytes
		}
		t.Run(fmt.Sprint("rate", rate), func(t *testing.T) {
			tab := sideBySide(t, option(t, "RUNS", 5), func(s *system, topic string, count bool, tab *table) {
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				defer cancel()
				before := s.cpu()
				out, err := cluster.RunJava(ctx, t, "org.apache.kafka.tools.ProducerPerformance", "--topic", topic, "--num-records", fmt.Sprint(records),
					"--record-size", fmt.Sprint(valueBytes), "--throughput", fmt.Sprint(rate),
					"--producer-props", "bootstrap.servers="+strings.Join(s.bootstrap, ","), "acks=all", "linger.ms=5", "batch.size=65536")
				if err != nil {
					t.Fatalf("%v\n%s", err, out)
				}
				used := s.cpu() - before
				m := perfLine.FindAllStringSubmatch(out, -1)
				if len(m) == 0 {
					t.Fatalf("kafka-producer-perf-test said %q", out)
				}
				if !count {
					return
				}
				last := m[len(m)-1]
				for i, name := range []string{"records/s", "MiB/s", "p50, ms", "p95, ms", "p99, ms", "p99.9, ms"} {
					v, _ := strconv.ParseFloat(last[i+1], 64)
					tab.add(s.name, name, v)
				}
				tab.add(s.name, "brokers' CPU-s per GiB", used*(1<<30)/(float64(records)*valueBytes))
			})
			tab.print(fmt.Sprintf("%d records of %d bytes, at most %d a second, RF 3, acks=all, Java", records, valueBytes, rate))
		})
	}
}
