package api

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/core/meta"
	"tidemark/internal/core/replica"
	"tidemark/internal/core/types"
	"tidemark/internal/wire"
)

// rackWorld has a leader in rack r1 and followers, one in each of the racks given.
func rackWorld(t *testing.T, readers ...replica.Reader) *world {
	t.Helper()
	w := newWorld(t)
	w.topic("t", topicOptions{})
	w.settings.ReadFromRack = true
	for i, r := range readers {
		w.apply(map[string][]byte{meta.KeysOf(testCluster).Broker(r.ID): meta.BrokerRecord{
			ID: r.ID, Rack: []string{"r2", "r3", "r2"}[i], Incarnation: "x", DirectoryID: "y",
			Endpoints: []meta.Endpoint{{Listener: "PLAINTEXT", Host: "h", Port: 9092, Security: "PLAINTEXT"}},
		}.Encode()})
	}
	p := w.part("t", 0).fill(10, 10)
	p.readers = readers
	p.advance(10)
	return w
}

// TestPreferredReadReplica (KIP-392): who names a rack is sent to a follower
// there that holds the offset, and gets no records; nobody else is.
func TestPreferredReadReplica(t *testing.T) {
	two, three, four := replica.Reader{ID: 2, LogStart: 4, LogEnd: 8}, replica.Reader{ID: 3, LogEnd: 10}, replica.Reader{ID: 4, LogEnd: 9}
	f := func(rack string, version int16, offset types.Offset, change func(*world, *kmsg.FetchRequest), want int32) {
		t.Helper()
		w := rackWorld(t, two, three, four)
		in := fetchOf(whole(offset))
		in.Rack, in.MinBytes, in.MaxWaitMillis = rack, 1, 60_000
		if change != nil {
			change(w, in)
		}
		from := time.Now()
		out := ask[*kmsg.FetchResponse](w, in, version)
		if time.Since(from) > 30*time.Second {
			t.Error("the answer waited for records")
		}
		p := out.Topics[0].Partitions[0]
		if p.PreferredReadReplica != want {
			t.Errorf("rack %q, version %d, offset %d: preferred replica %d, want %d", rack, version, offset, p.PreferredReadReplica, want)
		}
		if records := len(p.RecordBatches) > 0; records == (want >= 0) {
			t.Errorf("rack %q, offset %d: %d bytes beside preferred replica %d", rack, offset, len(p.RecordBatches), want)
		}
		if p.ErrorCode != 0 || p.HighWatermark != 10 {
			t.Errorf("%+v", p)
		}
		w.nothingHeld()
	}
	f("r2", 11, 5, nil, 4) // 4 has more than 2
	f("r2", 18, 0, nil, 4) // and 2 doesn't go back that far
	f("r3", 12, 9, nil, 3)
	f("r1", 12, 5, nil, -1) // the leader's own
	f("nowhere", 12, 5, nil, -1)
	f("", 12, 5, nil, -1)
	f("r2", 10, 5, nil, -1) // too old to say it
	f("r2", 12, 5, func(w *world, _ *kmsg.FetchRequest) { w.settings.ReadFromRack = false }, -1)
	f("r2", 12, 5, func(w *world, _ *kmsg.FetchRequest) { w.part("t", 0).readers = nil }, -1)
	f("r2", 12, 9, func(w *world, _ *kmsg.FetchRequest) { w.part("t", 0).readers = []replica.Reader{two} }, -1)
	f("r2", 12, 5, func(w *world, _ *kmsg.FetchRequest) {
		w.apply(map[string][]byte{meta.KeysOf(testCluster).Broker(2): nil, meta.KeysOf(testCluster).Broker(4): nil})
	}, -1) // they live no more
	f("r2", 12, 5, func(_ *world, in *kmsg.FetchRequest) { in.ReplicaID = 2 }, -1) // a follower follows the leader
}

func whole(o types.Offset) want { return want{topic: "t", offset: o, epoch: unsaid, last: unsaid} }

// TestFollowersAnswerConsumers: from version 11 on, consumers alone find a partition that another broker leads.
func TestFollowersAnswerConsumers(t *testing.T) {
	f := func(version int16, replicaID int32, want wire.ErrCode) {
		t.Helper()
		w := rackWorld(t)
		w.part("t", 0).follows = true
		in := fetchOf(whole(0))
		in.ReplicaID, in.ReplicaState.ID = replicaID, replicaID
		p := ask[*kmsg.FetchResponse](w, in, version).Topics[0].Partitions[0]
		if wire.ErrCode(p.ErrorCode) != want || (len(p.RecordBatches) > 0) != (want == wire.None) {
			t.Errorf("version %d, replica %d: %v and %d bytes, want %v", version, replicaID, wire.ErrCode(p.ErrorCode), len(p.RecordBatches), want)
		}
	}
	f(10, -1, wire.ErrNotLeaderOrFollower)
	f(11, -1, wire.None)
	f(18, -1, wire.None)
	f(12, 2, wire.ErrNotLeaderOrFollower)
	f(18, 2, wire.ErrNotLeaderOrFollower)
}

// TestPreferredReadReplicaInASession: the follower is named at every request, until the client asks no more.
func TestPreferredReadReplicaInASession(t *testing.T) {
	w := rackWorld(t, replica.Reader{ID: 2, LogEnd: 10})
	in := fetchOf(whole(10))
	in.SessionEpoch, in.Rack = 0, "r2"
	first := ask[*kmsg.FetchResponse](w, in, 12)
	next := fetchOf()
	next.SessionID, next.SessionEpoch, next.Rack, next.MinBytes, next.MaxWaitMillis = first.SessionID, 1, "r2", 1, 60_000
	second := ask[*kmsg.FetchResponse](w, next, 12)
	for i, out := range []*kmsg.FetchResponse{first, second} {
		if len(out.Topics) != 1 || out.Topics[0].Partitions[0].PreferredReadReplica != 2 {
			t.Errorf("answer %d: %+v", i+1, out.Topics)
		}
	}
}
