//go:build kafka

package perf_test

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.etcd.io/bbolt"
)

// counts are how many partitions the figures of many partitions have; TIDEMARK_PERF_PARTITIONS asks for one count alone.
func counts(tb testing.TB) []int {
	tb.Helper()
	if n := option(tb, "PARTITIONS", 0); n > 0 {
		return []int{n}
	}
	return []int{1000, 10000}
}

// topicPartitions is how many partitions a topic of the figures of many has.
const topicPartitions = 1000

// many makes n partitions in topics of 1,000, each with a replica on every node, and writes a record to each. led is the broker that all
// of them prefer as their leader; 0 spreads them.
func (s *system) many(n int, led int32) []string {
	s.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var topics []string
	for at := 0; at < n; at += topicPartitions {
		name := fmt.Sprint("many-", at/topicPartitions)
		topics = append(topics, name)
		req := kmsg.NewPtrCreateTopicsRequest()
		req.TimeoutMillis = int32(patience / time.Millisecond)
		rt := kmsg.NewCreateTopicsRequestTopic()
		rt.Topic, rt.NumPartitions, rt.ReplicationFactor = name, -1, -1
		rc := kmsg.NewCreateTopicsRequestTopicConfig()
		rc.Name, rc.Value = "min.insync.replicas", kmsg.StringPtr(fmt.Sprint(min(2, len(s.nodes))))
		rt.Configs = append(rt.Configs, rc)
		for p := range min(topicPartitions, n-at) {
			ra := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
			ra.Partition, ra.Replicas = int32(p), s.replicas(p, led)
			rt.ReplicaAssignment = append(rt.ReplicaAssignment, ra)
		}
		req.Topics = append(req.Topics, rt)
		resp, err := req.RequestWith(ctx, client(s.tb, s.bootstrap))
		if err == nil {
			err = kerr.ErrorForCode(resp.Topics[0].ErrorCode)
		}
		if err != nil {
			s.tb.Fatalf("%s: %v", name, err)
		}
	}
	for _, name := range topics {
		s.waitWhole(name, min(topicPartitions, n), len(s.nodes))
	}
	s.writeEach(topics, n)
	return topics
}

func (s *system) replicas(p int, led int32) []int32 {
	var out []int32
	for i := range s.nodes {
		id := int32((p+i)%len(s.nodes) + 1)
		if id == led {
			out = append([]int32{id}, out...)
		} else {
			out = append(out, id)
		}
	}
	return out
}

// writeEach writes one record to every partition, as often as it takes, and gives how long the first and the last took.
func (s *system) writeEach(topics []string, n int) (first, last time.Duration) {
	s.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cl := client(s.tb, s.bootstrap, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.RequiredAcks(kgo.AllISRAcks()), kgo.ProducerLinger(0),
		kgo.RetryBackoffFn(func(int) time.Duration { return 50 * time.Millisecond }), kgo.MaxBufferedRecords(n+1), kgo.RecordRetries(1<<30),
		kgo.ProduceRequestTimeout(5*time.Second), kgo.UnknownTopicRetries(-1))
	defer cl.Close()
	var mu sync.Mutex
	begin := time.Now()
	for i := range n {
		cl.Produce(ctx, &kgo.Record{Topic: topics[i/topicPartitions], Partition: int32(i % topicPartitions), Value: []byte("v")}, func(_ *kgo.Record, err error) {
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				s.tb.Errorf("%s: %v", s.name, err)
			}
			if last = time.Since(begin); first == 0 {
				first = last
			}
		})
	}
	if err := cl.Flush(ctx); err != nil {
		s.tb.Fatal(err)
	}
	return first, last
}

// waitAllWhole waits until every partition has a leader and all replicas in sync, asking not too often: the answer is large.
func (s *system) waitAllWhole(topics []string, n int) {
	s.tb.Helper()
	for i := 0; i < len(topics); {
		if s.whole(topics[i], min(topicPartitions, n), len(s.nodes)) == nil {
			i++
			continue
		}
		<-time.After(100 * time.Millisecond)
	}
}

// metadataBytes is how much of a stopped node's metadata database is in use: the file itself grows by 16 MiB at a time.
func metadataBytes(tb testing.TB, folder string) int64 {
	tb.Helper()
	db, err := bbolt.Open(filepath.Join(folder, "metadata", "etcd", "member", "snap", "db"), 0o600, &bbolt.Options{ReadOnly: true, PreLoadFreelist: true, Timeout: patience})
	if err != nil {
		tb.Fatal(err)
	}
	defer db.Close()
	var size int64
	if err := db.View(func(tx *bbolt.Tx) error { size = tx.Size(); return nil }); err != nil {
		tb.Fatal(err)
	}
	return size - int64(db.Stats().FreePageN)*int64(db.Info().PageSize)
}

// TestFigureIdle: what partitions cost that nobody uses (memory, processor, metadata), and what it takes to start with them.
func TestFigureIdle(t *testing.T) {
	for _, nodes := range []int{1, 3} {
		for _, n := range counts(t) {
			t.Run(fmt.Sprintf("%d-nodes-%d-partitions", nodes, n), func(t *testing.T) { figureIdle(t, nodes, n) })
		}
	}
}

func figureIdle(t *testing.T, nodes, n int) {
	watch := time.Duration(option(t, "SECONDS", 20)) * time.Second
	s := startTidemark(t, nodes)
	empty := s.rss()
	begin := time.Now()
	topics := s.many(n, 0)
	made := time.Since(begin)
	<-time.After(10 * time.Second) // what is left of making them
	before := s.cpu()
	<-time.After(watch)
	idle := (s.cpu() - before) / watch.Seconds()
	rss := s.rss()
	for _, m := range s.nodes {
		m.stop()
	}
	db := metadataBytes(t, s.folders[0])
	begin = time.Now()
	var wg sync.WaitGroup
	for _, m := range s.nodes {
		wg.Go(m.start)
	}
	wg.Wait()
	ready := time.Since(begin)
	s.waitAllWhole(topics, n)
	whole := time.Since(begin)
	s.writeEach(topics, n)
	written := time.Since(begin)
	t.Logf("\n| nodes | partitions, RF %[1]d | made and written | idle, %% of one core, all nodes | memory, MiB, all nodes (empty) | metadata, bytes per partition | start: all ready | all in sync | all written to | CPU-s of the start | load |\n|---|---|---|---|---|---|---|---|---|---|---|\n"+
		"| %[1]d | %d | %.1f s | %.2f | %.0f (%.0f) | %.0f | %.2f s | %.2f s | %.2f s | %.1f | %s |",
		nodes, n, made.Seconds(), idle*100, rss, empty, float64(db)/float64(n), ready.Seconds(), whole.Seconds(), written.Seconds(), s.cpu(), loadAverage())
}

// TestFigureFailover: from kill -9 of the broker that leads everything, and from its orderly stop, to the last partition written to.
func TestFigureFailover(t *testing.T) {
	for _, n := range counts(t) {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			for _, name := range names("Tidemark") {
				figureFailover(t, startNamed(t, name), n)
			}
		})
	}
}

func figureFailover(t *testing.T, s *system, n int) {
	const victim = 2 // not the first, which most likely is the controller as well
	topics := s.many(n, victim)
	s.preferred(topics, n)
	kill := func(end func()) (time.Duration, time.Duration, time.Duration) {
		begin := time.Now()
		end()
		gone := time.Since(begin)
		first, last := s.writeEach(topics, n)
		return gone, gone + first, gone + last
	}
	_, first, last := kill(s.nodes[victim-1].kill)
	t.Logf("%s: kill -9 of the leader of %d partitions: first written to after %.2f s, last after %.2f s (load %s)", s.name, n, first.Seconds(), last.Seconds(), loadAverage())
	begin := time.Now()
	s.nodes[victim-1].start()
	s.waitAllWhole(topics, n)
	t.Logf("%s: it is back in sync with all after %.2f s", s.name, time.Since(begin).Seconds())
	s.preferred(topics, n)
	gone, first, last := kill(s.nodes[victim-1].stop)
	t.Logf("%s: orderly stop of the leader of %d partitions: gone after %.2f s; first written to after %.2f s, last after %.2f s (load %s)", s.name, n,
		gone.Seconds(), first.Seconds(), last.Seconds(), loadAverage())
}

// preferred moves every leader to its preferred replica.
func (s *system) preferred(topics []string, n int) {
	s.tb.Helper()
	eventually(s.tb, patience, "preferred leaders lead", func() error {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		req := kmsg.NewPtrElectLeadersRequest()
		req.ElectionType, req.TimeoutMillis = 0, int32(patience/time.Millisecond)
		for _, name := range topics {
			rt := kmsg.NewElectLeadersRequestTopic()
			rt.Topic = name
			for p := range int32(min(topicPartitions, n)) {
				rt.Partitions = append(rt.Partitions, p)
			}
			req.Topics = append(req.Topics, rt)
		}
		resp, err := req.RequestWith(ctx, client(s.tb, s.bootstrap))
		if err != nil {
			return err
		}
		for _, t := range resp.Topics {
			for _, p := range t.Partitions {
				if p.ErrorCode != 0 && p.ErrorCode != kerr.ElectionNotNeeded.Code {
					return fmt.Errorf("%s-%d: %w", t.Topic, p.Partition, kerr.ErrorForCode(p.ErrorCode))
				}
			}
		}
		return nil
	})
}
