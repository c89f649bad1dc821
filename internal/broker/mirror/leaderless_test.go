package mirror

import (
	"strings"
	"testing"

	"tidemark/internal/core/meta"
	core "tidemark/internal/core/mirror"
	"tidemark/internal/core/types"
	"tidemark/internal/source"
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

// TestLeaderlessSourceIsSaid: a partition that nobody leads at the source, and that
// nobody is about to lead, counts as failed, and its reason names the partition, the
// source and the command; one that is being elected only waits.
func TestLeaderlessSourceIsSaid(t *testing.T) {
	tp := types.TopicPartition{Topic: "t", Partition: 1}
	md := &source.Metadata{ClusterID: "far", Brokers: []source.Broker{{ID: 1, Host: "one", Port: 9092}, {ID: 3, Host: "three", Port: 9092}}}
	f := func(p source.Partition, state string, reason core.Reason, words ...string) {
		t.Helper()
		p.Leader = types.NoBroker
		c := &copier{tp: tp}
		k, failed := leaderOf(c, md, &source.Topic{Name: "t", Partitions: []source.Partition{{}, p}})
		if k != nil || failed.Reason != reason {
			t.Fatalf("%+v: %+v, %+v; want %s", p, k, failed, reason)
		}
		c.status.Store(&shown{Status: core.Status{State: meta.MirrorMirroring, Reason: failed.Reason, Detail: failed.Detail, Facts: core.Facts{SeenAt: -1}}})
		st := PartitionStatus{Topic: "t", Partition: 1, State: meta.MirrorMirroring}
		c.describe(&st)
		if st.State != state {
			t.Errorf("%+v: %s, want %s", p, st.State, state)
		}
		for _, w := range append(words, "t-1 of the source (cluster far)", string(reason)+": ") {
			if !strings.Contains(st.Reason, w) {
				t.Errorf("%+v: %q lacks %q", p, st.Reason, w)
			}
		}
	}
	f(source.Partition{ISR: []types.BrokerID{2}, Offline: []types.BrokerID{2}}, meta.MirrorFailed, core.SourceNoLeader,
		"has no leader", "in-sync replicas [2] is up (down: [2])", "kafka-leader-election --bootstrap-server one:9092 --election-type unclean --topic t --partition 1")
	f(source.Partition{ISR: []types.BrokerID{2}}, meta.MirrorFailed, core.SourceNoLeader)                               // told by the brokers that there are
	f(source.Partition{ISR: []types.BrokerID{3}, Offline: []types.BrokerID{3}}, meta.MirrorFailed, core.SourceNoLeader) // its log directory is gone
	f(source.Partition{}, meta.MirrorFailed, core.SourceNoLeader)
	// It has a leader, only not on this listener: an unclean election would lose records for nothing.
	f(source.Partition{Code: source.CodeListenerNotFound, ISR: []types.BrokerID{2}}, meta.MirrorMirroring, core.SourceUnreachable, "listener")
	f(source.Partition{ISR: []types.BrokerID{2, 3}, Offline: []types.BrokerID{2}}, meta.MirrorMirroring, core.SourceLeaderMoved, "broker 3 there is in sync and about to be elected")
}
