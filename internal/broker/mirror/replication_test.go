package mirror

import (
	"testing"

	"tidemark/internal/config"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
)

func TestReplicasOfMirroredTopics(t *testing.T) {
	const cluster = "cluster0cluster0cluste"
	f := func(setting int16, brokers, draining int, want int) {
		t.Helper()
		var kvs []meta.KV
		for i := range brokers {
			b := meta.BrokerRecord{ID: types.BrokerID(i), Draining: i < draining, Endpoints: []meta.Endpoint{{Listener: "PLAINTEXT", Host: "h", Port: 1}}}
			kvs = append(kvs, meta.KV{Key: meta.KeysOf(cluster).Broker(b.ID), Value: b.Encode(), CreateRevision: 1, ModRevision: 1})
		}
		image, _ := meta.Load(cluster, kvs, 5)
		if got := replicas(image, &config.Mirror{ReplicationFactor: setting}); got != want {
			t.Errorf("setting %d on %d brokers, %d of them leaving: %d replicas, want %d", setting, brokers, draining, got, want)
		}
	}
	f(0, 1, 0, 1)
	f(0, 2, 0, 2)
	f(0, 3, 0, 3)
	f(0, 9, 0, 3)
	f(0, 3, 1, 2) // who leaves is given nothing
	f(0, 0, 0, 1)
	f(2, 5, 0, 2)
	f(5, 3, 0, 5) // what is asked for and can't be is refused, not lowered
}
