//go:build chaos && linux

package chaosmirror_test

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"tidemark/internal/core/types"
)

const (
	// leaseTime is the brokers' session time-out: some freezes and cuts last longer.
	leaseTime = 5 * time.Second
	// healLimit bounds each wait for clusters that nothing harms meanwhile.
	healLimit = 4 * time.Minute
	// verbLimit bounds how long an operator has to repeat a verb while clusters are harmed.
	verbLimit = 240 * time.Second
	// callTimeout bounds one request of an operator that answers at once.
	callTimeout = 5 * time.Second
	// verbTimeout bounds one request of a verb: longer than the product's own patience.
	verbTimeout = 75 * time.Second
	// mirrorName is the mirror's on every cluster, firstMirror that of Apache Kafka on A.
	mirrorName, firstMirror = "m", "k"
)

// partitionsOf says how many partitions each topic has.
var partitionsOf = map[string]int32{"orders": 2, "parts": 2}

func topics() []string { return slices.Sorted(maps.Keys(partitionsOf)) }

// partitions lists the test's partitions in order.
func partitions() (list []types.TopicPartition) {
	for _, topic := range topics() {
		for p := range partitionsOf[topic] {
			list = append(list, types.TopicPartition{Topic: topic, Partition: p})
		}
	}
	return list
}

// chosen is what the environment says about a run.
type chosen struct {
	seed    uint64
	runFor  time.Duration
	proxies bool
	calm    bool // no faults: the rounds alone
	java    bool // Java's producers write too
	kafka   bool // the first source is Apache Kafka
}

func choose(t *testing.T) chosen {
	t.Helper()
	c := chosen{seed: uint64(time.Now().UnixNano()) % 1_000_000, runFor: time.Minute}
	if s := os.Getenv("TIDEMARK_CHAOS_SEED"); s != "" {
		n, err := strconv.ParseUint(s, 10, 62)
		if err != nil {
			t.Fatalf("TIDEMARK_CHAOS_SEED=%q: want a number", s)
		}
		c.seed = n
	}
	if s := os.Getenv("TIDEMARK_CHAOS_TIME"); s != "" {
		d, err := time.ParseDuration(s)
		if err != nil {
			t.Fatal(err)
		}
		c.runFor = d
	}
	c.proxies = os.Getenv("TIDEMARK_CHAOS_NET") == "proxies"
	c.calm = os.Getenv("TIDEMARK_CHAOS_ONLY") == "none"
	c.java, c.kafka = os.Getenv("TIDEMARK_CHAOS_JAVA") != "", os.Getenv("TIDEMARK_CHAOS_KAFKA") != ""
	if (c.java || c.kafka) && os.Getenv("TIDEMARK_KAFKA_LIBS") == "" {
		t.Fatal("TIDEMARK_KAFKA_LIBS names no folder with Apache Kafka's jars: run `make kafka`")
	}
	if os.Getenv("TIDEMARK_BIN") == "" {
		t.Fatal("TIDEMARK_BIN names no binary: run `make chaos-mirror`")
	}
	return c
}

// settings of every node of a cluster of so many.
func settings(nodes int) []string {
	least := min(2, nodes)
	return []string{
		fmt.Sprintf("broker.session.timeout.ms=%d", leaseTime.Milliseconds()), "replica.lag.time.max.ms=5000", fmt.Sprintf("min.insync.replicas=%d", least),
		fmt.Sprintf("default.replication.factor=%d", nodes), fmt.Sprintf("mirror.replication.factor=%d", nodes),
		fmt.Sprintf("offsets.topic.replication.factor=%d", nodes), "offsets.topic.num.partitions=1",
		fmt.Sprintf("transaction.state.log.replication.factor=%d", nodes), fmt.Sprintf("transaction.state.log.min.isr=%d", least),
		"transaction.state.log.num.partitions=1", "transactional.id.expiration.ms=9223372036854775807", "log.segment.bytes=262144",
		"auto.create.topics.enable=false", "group.initial.rebalance.delay.ms=0", "offsets.retention.minutes=2147483647",
		"producer.id.expiration.ms=9223372036854775807", "log.message.timestamp.after.max.ms=9223372036854775807", "log.retention.ms=-1", "log.flush.scheduler.interval.ms=200", "metadata.plaintext=true",
	}
}
