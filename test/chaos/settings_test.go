//go:build chaos && linux

package chaos_test

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"
)

const (
	// leaseTime is the brokers' session time-out: some freezes and cuts last longer.
	leaseTime = 4 * time.Second
	// healLimit bounds each wait for a cluster that nothing harms any more.
	healLimit = 3 * time.Minute
	// offsetsTopic is compared too: groups' commits are writes like others.
	offsetsTopic = "__consumer_offsets"
	// stateTopic holds what the coordinators of transactions know.
	stateTopic = "__transaction_state"
	// deals is the topic of transactions. It keeps everything: what is missing of one is a fault.
	deals = "deals"
	// retentionBytes is how much of a partition is kept: a run of an hour must end with
	// the disk that it began with. It holds several minutes of the load, longer than any group lags.
	retentionBytes = 16 << 20
	// sendsMax bounds what all producers send in a run, and so the record of it: longer
	// runs send less often.
	sendsMax = 2_000_000
	// diskBytes is the size of a disk that a node has of its own, in memory: far more than it holds.
	diskBytes = 8 << 30
	// longForm is from when on a run is long enough for five nodes.
	longForm = 5 * time.Minute
)

// chosen is what the environment says about a run.
type chosen struct {
	seed      uint64
	faultsFor time.Duration
	nodes     int
	proxies   bool // also where namespaces may be made
	flushAcks bool // log.flush.acks: what is acknowledged is on a disk
	only      string
}

func choose(t *testing.T) chosen {
	t.Helper()
	c := chosen{seed: uint64(time.Now().UnixNano()) % 1_000_000, faultsFor: time.Minute}
	number := func(name string, least, most int, set func(int)) {
		if s := os.Getenv(name); s != "" {
			n, err := strconv.Atoi(s)
			if err != nil || n < least || n > most {
				t.Fatalf("%s=%q: want a number from %d to %d", name, s, least, most)
			}
			set(n)
		}
	}
	number("TIDEMARK_CHAOS_SEED", 0, 1<<62, func(n int) { c.seed = uint64(n) })
	if s := os.Getenv("TIDEMARK_CHAOS_TIME"); s != "" {
		d, err := time.ParseDuration(s)
		if err != nil {
			t.Fatal(err)
		}
		c.faultsFor = d
	}
	if c.nodes = 3; c.faultsFor >= longForm {
		c.nodes = 5
	}
	number("TIDEMARK_CHAOS_NODES", 3, 5, func(n int) { c.nodes = n })
	c.flushAcks = c.seed%2 == 0
	number("TIDEMARK_CHAOS_FLUSH", 0, 1, func(n int) { c.flushAcks = n == 1 })
	c.proxies = os.Getenv("TIDEMARK_CHAOS_NET") == "proxies"
	c.only = os.Getenv("TIDEMARK_CHAOS_ONLY")
	return c
}

// sendEvery is the pause between two records of a producer.
func (c chosen) sendEvery() time.Duration {
	const producersMax = 7
	return max(sendEvery, c.faultsFor*producersMax/sendsMax)
}

// settings of every node. Clocks that jump must not let anything expire.
func (c chosen) settings() []string {
	return []string{
		"broker.session.timeout.ms=4000", "replica.lag.time.max.ms=4000", "min.insync.replicas=2", "default.replication.factor=3",
		"offsets.topic.replication.factor=3", "offsets.topic.num.partitions=3", "log.segment.bytes=1048576",
		"transaction.state.log.num.partitions=3", "transactional.id.expiration.ms=9223372036854775807",
		"group.initial.rebalance.delay.ms=0", "auto.create.topics.enable=false", "log.segment.delete.delay.ms=1000",
		"log.retention.ms=-1", fmt.Sprintf("log.retention.bytes=%d", retentionBytes), "log.retention.check.interval.ms=10000", "log.message.timestamp.after.max.ms=9223372036854775807", "offsets.retention.minutes=2147483647",
		"producer.id.expiration.ms=9223372036854775807", "log.flush.scheduler.interval.ms=200", "metadata.plaintext=true", fmt.Sprintf("log.flush.acks=%v", c.flushAcks),
	}
}
