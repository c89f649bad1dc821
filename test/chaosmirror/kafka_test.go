//go:build chaos && kafka && linux

package chaosmirror_test

import (
	"context"
	"net"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"tidemark/test/chaos/harm"
	"tidemark/test/chaos/links"
	kafka "tidemark/test/kafka/cluster"
)

// kafkaFirst is the place of Kafka's first broker.
const kafkaFirst = places + 1

// startKafka starts three brokers of Apache Kafka, at places of the network.
func (w *world) startKafka(n links.Network) {
	ports := make([]int, kafkaBrokers)
	for i := range ports {
		_, port, err := net.SplitHostPort(n.Place(kafkaFirst + i).Kafka)
		if err == nil {
			ports[i], err = net.LookupPort("tcp", port)
		}
		if err != nil {
			w.t.Fatal(err)
		}
	}
	k := kafka.Start(w.t, kafka.Options{
		Brokers: kafkaBrokers, Combined: true, Ports: ports,
		Props: map[string]string{"min.insync.replicas": "2", "default.replication.factor": "3", "offsets.topic.replication.factor": "3", "transaction.state.log.replication.factor": "3", "transaction.state.log.num.partitions": "1",
			"transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000", "log.segment.bytes": "1048576"},
		JVM: []string{"-Xmx384m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"},
		At: func(id int) kafka.Place {
			place := kafkaFirst + id - 1
			return kafka.Place{Host: n.Place(place).Host, Start: func(cmd *exec.Cmd) error { return n.Start(place, cmd) }, Dial: n.Dial}
		},
	})
	w.k = w.newCluster("K", n)
	w.k.seeds = strings.Split(k.Bootstrap(), ",")
	w.k.connect()
	w.harmKafka = func(ctx context.Context) { harmKafka(w, n, k, ctx) }
	w.killKafka = k.KillAll
}

// harmKafka kills, freezes and cuts off one broker after the other until ctx ends,
// each at least once. A step that has begun is brought to its end.
func harmKafka(w *world, n links.Network, k *kafka.Cluster, ctx context.Context) {
	for i := 0; ctx.Err() == nil || i < 3; i++ {
		id := i%kafkaBrokers + 1
		harm.Pause(ctx, time.Second)
		switch i % 3 {
		case 0:
			w.log("! kill -9 of broker %d of Kafka", id)
			w.saw("Kafka: kill -9 of a broker", 1)
			k.Kill(id)
			harm.Pause(ctx, time.Second)
			k.Restart(id)
		case 1:
			w.log("! freeze of broker %d of Kafka", id)
			w.saw("Kafka: freeze of a broker", 1)
			k.Signal(id, syscall.SIGSTOP, false)
			harm.Pause(w.t.Context(), 4*time.Second)
			k.Signal(id, syscall.SIGCONT, false)
		case 2:
			w.log("! cut between Kafka and A")
			w.saw("Kafka: cut from A", 1)
			w.cutKafka(n, links.Cut)
			harm.Pause(w.t.Context(), 2*time.Second)
			w.cutKafka(n, links.Way{})
		}
	}
}
