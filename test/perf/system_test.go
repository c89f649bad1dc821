//go:build kafka

package perf_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"tidemark/test/kafka/cluster"
	"tidemark/test/process"
)

// system is a cluster of three processes under measurement; each is a broker and a voter of the metadata quorum.
type system struct {
	tb        testing.TB
	name      string
	bootstrap []string
	nodes     []member // ids from 1
	folders   []string // Tidemark's data folders
	http      []string // and its HTTP APIs
	adm       *kadm.Client
}

// member is one process of a system.
type member struct {
	pid   func() int
	kill  func() // kill -9
	stop  func() // in order; both return when the process is gone
	start func() // returns when its listener accepts
}

// heap are the JVM options that Kafka's own start script gives a broker.
var heap = []string{"-Xms1G", "-Xmx1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35",
	"-XX:+ExplicitGCInvokesConcurrent", "-Djava.awt.headless=true"}

// kafkaDefaults put back what the test clusters change for speed.
var kafkaDefaults = map[string]string{
	"broker.session.timeout.ms": "9000", "broker.heartbeat.interval.ms": "2000", "log.retention.check.interval.ms": "300000",
	"log.cleaner.backoff.ms": "15000", "log.initial.task.delay.ms": "30000",
	"offsets.topic.replication.factor": "3", "offsets.topic.num.partitions": "50", "auto.leader.rebalance.enable": "false",
}

func startKafka(tb testing.TB) *system {
	tb.Helper()
	c := cluster.Start(tb, cluster.Options{Brokers: 3, Combined: true, JVM: heap, Props: kafkaDefaults})
	s := &system{tb: tb, name: "Kafka", bootstrap: strings.Split(c.Bootstrap(), ",")}
	for id := 1; id <= 3; id++ {
		s.nodes = append(s.nodes, member{
			pid: func() int { return c.Node(id).Pid() }, kill: func() { c.Kill(id) }, stop: func() { c.Stop(id) }, start: func() { c.Restart(id) },
		})
	}
	s.connect()
	return s
}

// startTidemark starts n nodes that keep their metadata themselves.
func startTidemark(tb testing.TB, n int, settings ...string) *system {
	tb.Helper()
	first := ""
	s := &system{tb: tb, name: "Tidemark"}
	for id := 1; id <= n; id++ {
		p := newNode(tb, id, first, settings...)
		p.start()
		p.waitReady()
		if first == "" {
			first = p.http
		}
		s.folders, s.bootstrap, s.http = append(s.folders, p.dir), append(s.bootstrap, p.kafka), append(s.http, p.http)
		s.nodes = append(s.nodes, member{
			pid: p.PID, kill: func() { p.End(syscall.SIGKILL) }, stop: func() { p.End(syscall.SIGTERM) }, start: func() { p.start(); p.waitReady() },
		})
	}
	s.connect()
	return s
}

// names are the systems that a figure measures; TIDEMARK_PERF_SYSTEMS chooses others ("Tidemark", "Kafka Tidemark").
func names(otherwise string) []string {
	if text := os.Getenv("TIDEMARK_PERF_SYSTEMS"); text != "" {
		return strings.Fields(text)
	}
	return strings.Fields(otherwise)
}

func startNamed(tb testing.TB, name string) *system {
	tb.Helper()
	if name == "Kafka" {
		return startKafka(tb)
	}
	return startTidemark(tb, 3, "auto.leader.rebalance.enable=false")
}

// startSystems starts what is to be compared, in the order of the turns.
func startSystems(tb testing.TB) []*system {
	tb.Helper()
	var out []*system
	for _, name := range names("Kafka Tidemark") {
		out = append(out, startNamed(tb, name))
	}
	return out
}

func (s *system) connect() { s.adm = kadm.NewClient(client(s.tb, s.bootstrap)) }

// client is a client that is closed with the test.
func client(tb testing.TB, bootstrap []string, opts ...kgo.Opt) *kgo.Client {
	tb.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(bootstrap...), kgo.MetadataMinAge(50 * time.Millisecond)}, opts...)...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(cl.Close)
	return cl
}

// createTopic makes a topic and waits until all its replicas are in sync.
func (s *system) createTopic(name string, partitions int32, rf int16, configs map[string]*string) {
	s.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	eventually(s.tb, patience, "topic "+name+" is made", func() error {
		_, err := s.adm.CreateTopic(ctx, partitions, rf, configs, name)
		if err != nil && strings.Contains(err.Error(), "TOPIC_ALREADY_EXISTS") {
			err = nil
		}
		return err
	})
	s.waitWhole(name, int(partitions), int(rf))
}

// waitWhole waits until all partitions of a topic have a leader and all replicas in sync.
func (s *system) waitWhole(name string, partitions, rf int) {
	s.tb.Helper()
	eventually(s.tb, patience, name+" is whole", func() error { return s.whole(name, partitions, rf) })
}

func (s *system) whole(name string, partitions, rf int) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	topics, err := s.adm.ListTopics(ctx, name)
	if err != nil {
		return err
	}
	t := topics[name]
	if t.Err != nil {
		return t.Err
	}
	lacking := 0
	for _, p := range t.Partitions {
		if p.Err != nil || p.Leader < 0 || len(p.ISR) != rf {
			lacking++
		}
	}
	if lacking > 0 || len(t.Partitions) != partitions {
		return fmt.Errorf("%d of %d partitions lack a leader or a replica in sync", lacking+partitions-len(t.Partitions), partitions)
	}
	return nil
}

func (s *system) deleteTopic(name string) {
	s.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if _, err := s.adm.DeleteTopics(ctx, name); err != nil {
		s.tb.Fatal(err)
	}
}

// cpu is the processor time that all processes have used so far, in seconds.
func (s *system) cpu() float64 {
	total := 0.0
	for _, m := range s.nodes {
		total += process.CPUSeconds(s.tb, m.pid())
	}
	return total
}

func (s *system) rss() float64 {
	total := 0.0
	for _, m := range s.nodes {
		total += process.ResidentMiB(s.tb, m.pid())
	}
	return total
}

// option is a number that the environment may change.
func option(tb testing.TB, name string, otherwise int) int {
	tb.Helper()
	text := os.Getenv("TIDEMARK_PERF_" + name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		tb.Fatalf("TIDEMARK_PERF_%s=%s: %v", name, text, err)
	}
	return n
}

// table gathers the figures of runs, per system and name, and prints medians with their ratio.
type table struct {
	tb    testing.TB
	names []string
	runs  map[string]map[string][]float64 // name → system → values
}

func newTable(tb testing.TB) *table { return &table{tb: tb, runs: map[string]map[string][]float64{}} }

func (t *table) add(system, name string, value float64) {
	if t.runs[name] == nil {
		t.runs[name] = map[string][]float64{}
		t.names = append(t.names, name)
	}
	t.runs[name][system] = append(t.runs[name][system], value)
}

func median(values []float64) float64 {
	s := slices.Sorted(slices.Values(values))
	if len(s) == 0 {
		return 0
	}
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

// print writes one line a figure; the ratio is Tidemark's median by Kafka's.
func (t *table) print(title string) {
	var out strings.Builder
	fmt.Fprintf(&out, "\n%s (load average %s)\n| figure | Kafka | Tidemark | ratio | Kafka's runs | Tidemark's runs |\n|---|---|---|---|---|---|\n", title, loadAverage())
	for _, name := range t.names {
		k, m := t.runs[name]["Kafka"], t.runs[name]["Tidemark"]
		ratio := "-"
		if len(k) > 0 && len(m) > 0 && median(k) != 0 {
			ratio = fmt.Sprintf("%.2f", median(m)/median(k))
		}
		fmt.Fprintf(&out, "| %s | %.4g | %.4g | %s | %s | %s |\n", name, median(k), median(m), ratio, short(k), short(m))
	}
	t.tb.Log(out.String())
}

func short(values []float64) string {
	var out []string
	for _, v := range values {
		out = append(out, fmt.Sprintf("%.4g", v))
	}
	return strings.Join(out, " ")
}

func loadAverage() string {
	raw, _ := os.ReadFile("/proc/loadavg")
	fields := strings.Fields(string(raw))
	return strings.Join(fields[:min(len(fields), 3)], " ")
}
