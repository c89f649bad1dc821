//go:build kafka

package kafka_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/core/types"
	"tidemark/test/kafka/cluster"
	"tidemark/test/process"
)

// docs/perf/README.md says how to run these and what they gave.

// benchMiB is how much the catch-up benchmarks mirror; TIDEMARK_BENCH_MIB changes it.
func benchMiB(b *testing.B) int64 {
	text := os.Getenv("TIDEMARK_BENCH_MIB")
	if text == "" {
		return 4096
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		b.Fatalf("TIDEMARK_BENCH_MIB=%s: %v", text, err)
	}
	return n
}

const catchUpPartitions = 8

// fillForCatchUp writes the benchmark's bytes to a topic of 8 partitions.
func fillForCatchUp(ctx context.Context, b *testing.B, cl *kgo.Client, topic string, mib int64) {
	b.Helper()
	createTopic(ctx, b, cl, topic, catchUpPartitions, 1)
	value := make([]byte, 1000)
	for i := range value {
		value[i] = byte(i * 7)
	}
	for i := range mib << 20 / 1024 {
		cl.Produce(ctx, &kgo.Record{Topic: topic, Partition: int32(i % catchUpPartitions), Value: value}, func(_ *kgo.Record, err error) {
			if err != nil {
				b.Error(err)
			}
		})
	}
	if err := cl.Flush(ctx); err != nil {
		b.Fatal(err)
	}
}

// bareCopy fetches a topic's raw batches and writes them to files: what any mirror must do at least. It gives the bytes.
func bareCopy(ctx context.Context, b *testing.B, cl *kgo.Client, topic string) int64 {
	b.Helper()
	topics, err := kadm.NewClient(cl).ListTopics(ctx, topic)
	if err != nil {
		b.Fatal(err)
	}
	limits := ends(ctx, b, cl, topic)
	files := map[int32]*os.File{}
	next := map[int32]int64{}
	for p := range int32(catchUpPartitions) {
		f, err := os.Create(filepath.Join(b.TempDir(), fmt.Sprint(p)))
		if err != nil {
			b.Fatal(err)
		}
		defer f.Close()
		files[p], next[p] = f, 0
	}
	var total int64
	for len(next) > 0 {
		req := kmsg.NewPtrFetchRequest()
		req.ReplicaID, req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.SessionEpoch = -1, 500, 1, 16<<20, -1
		rt := kmsg.NewFetchRequestTopic()
		rt.Topic, rt.TopicID = topic, topics[topic].ID
		for p, at := range next {
			rp := kmsg.NewFetchRequestTopicPartition()
			rp.Partition, rp.FetchOffset, rp.PartitionMaxBytes, rp.CurrentLeaderEpoch, rp.LastFetchedEpoch = p, at, 4<<20, -1, -1
			rt.Partitions = append(rt.Partitions, rp)
		}
		req.Topics = append(req.Topics, rt)
		raw, err := cl.Broker(1).RetriableRequest(ctx, req)
		if err != nil {
			b.Fatal(err)
		}
		for _, t := range raw.(*kmsg.FetchResponse).Topics {
			for _, p := range t.Partitions {
				total += writeWhole(b, files[p.Partition], p.RecordBatches, next, p.Partition)
				if next[p.Partition] >= limits[types.TopicPartition{Topic: topic, Partition: p.Partition}] {
					delete(next, p.Partition)
				}
			}
		}
	}
	return total
}

// writeWhole appends the whole batches of one answer and moves the partition's next offset behind them.
func writeWhole(b *testing.B, f *os.File, raw []byte, next map[int32]int64, p int32) int64 {
	end := 0
	for rest := raw; len(rest) >= 27; rest = raw[end:] {
		size := 12 + int(uint32(rest[8])<<24|uint32(rest[9])<<16|uint32(rest[10])<<8|uint32(rest[11]))
		if size > len(rest) {
			break
		}
		var base int64
		for _, c := range rest[:8] {
			base = base<<8 | int64(c)
		}
		next[p] = base + int64(uint32(rest[23])<<24|uint32(rest[24])<<16|uint32(rest[25])<<8|uint32(rest[26])) + 1
		end += size
	}
	if _, err := f.Write(raw[:end]); err != nil {
		b.Fatal(err)
	}
	return int64(end)
}

// BenchmarkMirrorCatchUp mirrors what a source already holds, and copies the same bytes bare in the same run.
func BenchmarkMirrorCatchUp(b *testing.B) {
	ctx := context.Background()
	mib := benchMiB(b)
	kafka := cluster.Start(b, cluster.Options{Brokers: 1})
	cl := client(b, kafka.Bootstrap(), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.ProducerBatchMaxBytes(1<<20), kgo.MaxBufferedRecords(50000))
	fillForCatchUp(ctx, b, cl, "fill", mib)
	bareCopy(ctx, b, cl, "fill") // warms the page cache for both
	for b.Loop() {
		var self0, self1 syscall.Rusage
		_ = syscall.Getrusage(syscall.RUSAGE_SELF, &self0)
		begin := time.Now()
		total := bareCopy(ctx, b, cl, "fill")
		bare := time.Since(begin)
		_ = syscall.Getrusage(syscall.RUSAGE_SELF, &self1)

		standby := newNode(b, "standby", "--source", kafka.Bootstrap())
		begin = time.Now()
		standby.start()
		standby.waitReady()
		standby.waitCaughtUp(10*time.Minute, ends(ctx, b, cl, "fill"))
		mirrored := time.Since(begin)
		gib := float64(total) / (1 << 30)
		b.ReportMetric(float64(total)/(1<<20)/bare.Seconds(), "bare-MiB/s")
		b.ReportMetric(float64(total)/(1<<20)/mirrored.Seconds(), "mirror-MiB/s")
		b.ReportMetric(bare.Seconds()/mirrored.Seconds(), "mirror/bare")
		b.ReportMetric(process.CPUSeconds(b, standby.PID())/gib, "mirror-cpu-s/GiB")
		b.ReportMetric((rusageSeconds(&self1)-rusageSeconds(&self0))/gib, "bare-cpu-s/GiB")
		b.ReportMetric(process.ResidentMiB(b, standby.PID()), "standby-RSS-MiB")
		standby.kill()
	}
}

func rusageSeconds(r *syscall.Rusage) float64 {
	return float64(r.Utime.Sec+r.Stime.Sec) + float64(r.Utime.Usec+r.Stime.Usec)/1e6
}

// BenchmarkMirrorMaker2 mirrors the same data with MirrorMaker 2 into an Apache Kafka.
func BenchmarkMirrorMaker2(b *testing.B) {
	libs := os.Getenv("TIDEMARK_MIRRORMAKER_LIBS")
	if libs == "" {
		b.Fatal("TIDEMARK_MIRRORMAKER_LIBS names no folder with MirrorMaker 2's jars: run `make bench-mirror`")
	}
	ctx := context.Background()
	mib := benchMiB(b)
	src, dst := cluster.Start(b, cluster.Options{}), cluster.Start(b, cluster.Options{})
	cl := client(b, src.Bootstrap(), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.ProducerBatchMaxBytes(1<<20), kgo.MaxBufferedRecords(50000))
	fillForCatchUp(ctx, b, cl, "fill", mib)
	for b.Loop() {
		props := fmt.Sprintf("clusters=src,dst\nsrc.bootstrap.servers=%s\ndst.bootstrap.servers=%s\nsrc->dst.enabled=true\nsrc->dst.topics=fill\ndst->src.enabled=false\n"+
			"replication.factor=1\nconfig.storage.replication.factor=1\noffset.storage.replication.factor=1\nstatus.storage.replication.factor=1\n"+
			"checkpoints.topic.replication.factor=1\nheartbeats.topic.replication.factor=1\noffset-syncs.topic.replication.factor=1\nrefresh.topics.interval.seconds=5\ntasks.max=2\n"+
			"src.consumer.fetch.max.bytes=16777216\nsrc.consumer.max.partition.fetch.bytes=4194304\nsrc.consumer.max.poll.records=10000\nsrc.consumer.auto.offset.reset=earliest\ndst.producer.batch.size=1048576\ndst.producer.linger.ms=5\n", src.Bootstrap(), dst.Bootstrap())
		file := filepath.Join(b.TempDir(), "mm2.properties")
		if err := os.WriteFile(file, []byte(props), 0o600); err != nil {
			b.Fatal(err)
		}
		before := process.CPUSeconds(b, dst.Node(1).Pid())
		begin := time.Now()
		mm := exec.Command("java", "-Xmx1g", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", filepath.Join(libs, "*"), "org.apache.kafka.connect.mirror.MirrorMaker", file)
		mm.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := mm.Start(); err != nil {
			b.Fatal(err)
		}
		want := mib << 20 / 1024
		target := client(b, dst.Bootstrap())
		var have int64
		eventually(b, 20*time.Minute, "MirrorMaker 2 has copied everything", func() error {
			have = 0
			listed, err := kadm.NewClient(target).ListEndOffsets(ctx, "src.fill")
			if err != nil {
				return err
			}
			listed.Each(func(o kadm.ListedOffset) { have += o.Offset })
			if have < want {
				return fmt.Errorf("%d of %d", have, want)
			}
			return nil
		})
		took := time.Since(begin)
		gib := float64(mib) / 1024
		b.ReportMetric(float64(mib)/took.Seconds(), "mm2-MiB/s")
		b.ReportMetric(process.CPUSeconds(b, mm.Process.Pid)/gib, "mm2-cpu-s/GiB")
		b.ReportMetric((process.CPUSeconds(b, dst.Node(1).Pid())-before)/gib, "target-kafka-cpu-s/GiB")
		_ = mm.Process.Kill()
		_ = mm.Wait()
	}
}

// BenchmarkMirrorLag writes 20 MB/s to the source and measures, record by record, when a consumer of each side has it.
func BenchmarkMirrorLag(b *testing.B) {
	const bytesPerSecond, valueBytes, seconds = 20_000_000, 1000, 20
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	kafka := cluster.Start(b, cluster.Options{})
	cl := client(b, kafka.Bootstrap(), kgo.DefaultProduceTopic("steady"), kgo.ProducerLinger(2*time.Millisecond), kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.MaxBufferedRecords(50000))
	createTopic(ctx, b, cl, "steady", 8, 1)
	standby := startStandby(b, kafka.Bootstrap())
	standby.waitCaughtUp(30*time.Second, ends(ctx, b, cl, "steady"))
	for b.Loop() {
		var mu sync.Mutex
		ages := map[string][]float64{}
		var readers sync.WaitGroup
		readCtx, stopReading := context.WithCancel(ctx)
		for name, addr := range map[string]string{"source": kafka.Bootstrap(), "standby": standby.kafka} {
			reader := client(b, addr, kgo.ConsumeTopics("steady"), kgo.ConsumeResetOffset(kgo.NewOffset().AtEnd()), kgo.FetchMaxWait(100*time.Millisecond))
			readers.Go(func() {
				for readCtx.Err() == nil {
					fetches := reader.PollFetches(readCtx)
					now := time.Now()
					mu.Lock()
					fetches.EachRecord(func(r *kgo.Record) {
						sent, _ := strconv.ParseInt(string(r.Key), 10, 64)
						ages[name] = append(ages[name], float64(now.UnixNano()-sent)/1e6)
					})
					mu.Unlock()
				}
			})
		}
		begin, value := time.Now(), make([]byte, valueBytes)
		tick := time.NewTicker(5 * time.Millisecond)
		for sent := 0; time.Since(begin) < seconds*time.Second; <-tick.C {
			for ; float64(sent) < time.Since(begin).Seconds()*bytesPerSecond/valueBytes; sent++ {
				cl.Produce(ctx, &kgo.Record{Key: strconv.AppendInt(nil, time.Now().UnixNano(), 10), Value: value}, nil)
			}
		}
		tick.Stop()
		_ = cl.Flush(ctx)
		stopReading()
		readers.Wait()
		for name, list := range ages {
			slices.Sort(list)
			b.ReportMetric(list[len(list)/2], name+"-p50-ms")
			b.ReportMetric(list[len(list)*99/100], name+"-p99-ms")
		}
	}
}

// BenchmarkManyPartitions measures restart, memory and failover with many mirrored partitions.
func BenchmarkManyPartitions(b *testing.B) {
	for _, partitions := range []int32{1000, 3000, 10000} {
		b.Run(fmt.Sprint(partitions), func(b *testing.B) {
			ctx := context.Background()
			made := time.Now()
			// Its controller answers late while a busy disk takes in 10,000 folders: it must not
			// declare its own broker dead meanwhile, which moves every leader epoch.
			kafka := cluster.Start(b, cluster.Options{Props: map[string]string{"broker.session.timeout.ms": "300000"}})
			cl := client(b, kafka.Bootstrap(), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.UnknownTopicRetries(100))
			for i := range partitions / 1000 {
				createTopic(ctx, b, cl, fmt.Sprint("many-", i), 1000, 1)
			}
			eventually(b, 5*time.Minute, "the source knows its partitions", func() error { return writeOne(ctx, cl, partitions/1000) })
			b.Logf("the source has its %d partitions after %v", partitions, time.Since(made).Round(time.Second))
			for b.Loop() {
				begin := time.Now()
				standby := startStandby(b, kafka.Bootstrap())
				standby.waitMirroring(15*time.Minute, int(partitions))
				b.ReportMetric(time.Since(begin).Seconds()*1000, "first-start-to-mirroring-ms")
				b.ReportMetric(process.CPUSeconds(b, standby.PID()), "first-start-cpu-s")
				b.ReportMetric(process.ResidentMiB(b, standby.PID()), "RSS-MiB")
				standby.stop()
				begin = time.Now()
				standby.start()
				standby.waitReady()
				b.ReportMetric(time.Since(begin).Seconds()*1000, "restart-ms")
				standby.waitMirroring(15*time.Minute, int(partitions))
				b.ReportMetric(time.Since(begin).Seconds()*1000, "restart-to-mirroring-ms")
				b.ReportMetric(process.CPUSeconds(b, standby.PID()), "restart-cpu-s")
				b.ReportMetric(process.ResidentMiB(b, standby.PID()), "RSS-after-restart-MiB")
				begin = time.Now()
				standby.failover()
				b.ReportMetric(time.Since(begin).Seconds()*1000, "failover-ms")
				standby.kill()
			}
		})
	}
}

// writeOne writes to each still empty one of 1,000 partitions of each topic.
func writeOne(ctx context.Context, cl *kgo.Client, topics int32) error {
	var failed atomic.Pointer[error]
	for i := range topics {
		topic := fmt.Sprint("many-", i)
		have, err := kadm.NewClient(cl).ListEndOffsets(ctx, topic)
		if err != nil {
			return err
		}
		if len(have[topic]) != 1000 {
			return fmt.Errorf("%s has %d partitions so far", topic, len(have[topic]))
		}
		for p, end := range have[topic] {
			if end.Err != nil {
				return fmt.Errorf("%s-%d: %w", topic, p, end.Err)
			}
			if end.Offset > 0 {
				continue
			}
			cl.Produce(ctx, &kgo.Record{Topic: topic, Partition: p, Value: []byte("v")}, func(r *kgo.Record, err error) {
				if err != nil {
					err = fmt.Errorf("%s-%d: %w", r.Topic, r.Partition, err)
					failed.Store(&err)
				}
			})
		}
	}
	if err := cl.Flush(ctx); err != nil {
		return err
	}
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}

// waitMirroring waits until n partitions have what the source had. It asks
// rarely where there are many: each answer lists them all.
func (n *node) waitMirroring(limit time.Duration, partitions int) {
	n.t.Helper()
	rest := time.NewTicker(time.Duration(partitions) * 200 * time.Microsecond)
	defer rest.Stop()
	eventually(n.t, limit, "all partitions mirror", func() error {
		<-rest.C
		resp, err := http.Get("http://" + n.http + "/api/v1/mirrors/standby")
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		var st mirrorStatus
		if err := json.NewDecoder(resp.Body).Decode(&st); err != nil {
			return err
		}
		there := 0
		for _, p := range st.Partitions {
			if p.State == "MIRRORING" && p.End == 1 {
				there++
			}
		}
		if there != partitions {
			return fmt.Errorf("%d of %d", there, partitions)
		}
		return nil
	})
}
