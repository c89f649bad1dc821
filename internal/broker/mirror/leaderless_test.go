package mirror

import (
	"strings"
	"testing"

	"tidemark/internal/core/meta"
	core "tidemark/internal/core/mirror"
	"tidemark/internal/core/types"
)

// TestLeaderlessIsSaid: a partition that nobody leads doesn't show as MIRRORING, and
// its reason names what helps, unless an election is about to help by itself.
func TestLeaderlessIsSaid(t *testing.T) {
	n := newPaperNode(t, 1)
	epoch, _ := n.Image().BrokerEpoch(1)
	topic, keys := types.TopicID{9}, meta.KeysOf(paperCluster)
	n.put(t, keys.Topic(topic), meta.TopicRecord{ID: topic, Name: "u", Partitions: 2}.Encode())
	rec := meta.PartitionRecord{
		Replicas: []types.BrokerID{1, 2}, ELR: []meta.ISRMember{{ID: 2, BrokerEpoch: 99}}, Leader: types.NoBroker, MinISR: 2, Mirror: core.NewMirrored("m", "s"),
	}
	rec.Mirror.State = meta.MirrorMirroring
	n.put(t, keys.Partition(topic, 0), rec.Encode())
	rec.ELR = []meta.ISRMember{{ID: 1, BrokerEpoch: epoch}}
	n.put(t, keys.Partition(topic, 1), rec.Encode())
	f := func(topic types.TopicID, partition int32, state, reason string) {
		t.Helper()
		e, ok := n.Image().PartitionEntry(topic, partition)
		if !ok {
			t.Fatal("no partition")
		}
		st := PartitionStatus{Topic: "u", Partition: partition, State: meta.MirrorMirroring}
		describeLeaderless(n.Image(), e, n.Me(), &st)
		if st.State != state || (reason == "") != (st.Reason == "") || !strings.Contains(st.Reason, reason) {
			t.Errorf("%v-%d: %s, %q; want %s and %q", topic, partition, st.State, st.Reason, state, reason)
		}
	}
	f(paperTopic, 0, meta.MirrorMirroring, "")
	f(topic, 0, meta.MirrorFailed, "eligible [2]): start one of those brokers again, or let another replica lead that may lack records: kafka-leader-election --election-type unclean --topic u --partition 0")
	f(topic, 1, meta.MirrorMirroring, "broker 1 can lead it here and is about to be elected")
}
