package broker

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"tidemark/internal/config"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/timeline"
	"tidemark/internal/core/types"
)

// toldCoordinator notes what a coordinator is told.
type toldCoordinator struct{ words []string }

func (c *toldCoordinator) Elected(n int32, epoch types.LeaderEpoch) {
	c.words = append(c.words, fmt.Sprintf("elected %d in %d", n, epoch))
}

func (c *toldCoordinator) Resigned(n int32) { c.words = append(c.words, fmt.Sprint("resigned ", n)) }

// TestAStateTopicMadeAgain: an image may skip the moment between the deletion of a
// coordinator's topic and its next creation. Its loops end all the same: the new topic's
// leader epochs begin below theirs, and they would wait for it for ever.
func TestAStateTopicMadeAgain(t *testing.T) {
	const name, node = "__consumer_offsets", types.BrokerID(1)
	keys := meta.KeysOf("cluster0cluster0cluste")
	kvs := func(id types.TopicID, partitions int32, epoch types.LeaderEpoch, rev meta.Revision) []meta.KV {
		kv := func(key string, value []byte) meta.KV {
			return meta.KV{Key: key, Value: value, CreateRevision: rev, ModRevision: rev}
		}
		broker := meta.BrokerRecord{ID: node, Incarnation: "process-1", DirectoryID: "d", Endpoints: []meta.Endpoint{{Listener: "PLAINTEXT", Host: "h", Port: 1, Security: "PLAINTEXT"}}}
		list := []meta.KV{
			{Key: keys.Broker(node), Value: broker.Encode(), CreateRevision: 7, ModRevision: 7},
			kv(keys.Name(name), meta.NameRecord{ID: id}.Encode()), kv(keys.Topic(id), meta.TopicRecord{ID: id, Name: name, Partitions: partitions, Internal: true}.Encode()),
		}
		for n := range partitions {
			list = append(list, kv(keys.Partition(id, n), meta.PartitionRecord{
				Replicas: []types.BrokerID{node}, ISR: []meta.ISRMember{{ID: node, BrokerEpoch: 7}}, MinISR: 1, Leader: node, LeaderBrokerEpoch: 7,
				LeaderEpoch: epoch, Timelines: timeline.List{{ID: "root"}}, Writable: true,
			}.Encode()))
		}
		slices.SortFunc(list, func(a, b meta.KV) int { return strings.Compare(a.Key, b.Key) })
		return list
	}
	old, _ := meta.Load("cluster0cluster0cluste", kvs(types.TopicID{1}, 2, 5, 10), 10)
	image, d, err := old.Reload(kvs(types.TopicID{2}, 1, 0, 20), 20)
	if err != nil {
		t.Fatal(err)
	}
	b := &Broker{cfg: &config.Broker{NodeID: node}, process: "process", env: &environment{}}
	var told toldCoordinator
	b.showStateTopic(&told, name, image, d)
	if want := []string{"resigned 0", "resigned 1", "elected 0 in 0"}; !slices.Equal(told.words, want) {
		t.Errorf("told %q, want %q", told.words, want)
	}
}
