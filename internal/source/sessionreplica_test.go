package source

import (
	"testing"
	"time"

	"tidemark/internal/core/types"
)

// TestAReplicaThatRegistersAnewAsksForEverything: the leader learns a replica's
// registration partition by partition, so that a session that was begun in an
// earlier one, or before any, must not go on (KIP-903).
func TestAReplicaThatRegistersAnewAsksForEverything(t *testing.T) {
	epoch := types.NoBrokerEpoch
	s := new(Client).NewSession(1, SessionOptions{Replica: &Replica{ID: 2, Epoch: func() types.BrokerEpoch { return epoch }}})
	idle := types.TopicPartition{Topic: "idle", Partition: 0}
	s.Set(FetchPartition{TopicPartition: idle, TopicID: types.TopicID{1}})
	f := func(name string, wantEpoch int32, wantPartitions int) {
		t.Helper()
		req, asked := s.request(17, FetchLimits{MaxWait: time.Second})
		if req.SessionEpoch != wantEpoch || len(asked) != wantPartitions || len(req.Topics) != wantPartitions {
			t.Errorf("%s: session epoch %d with %d partitions, want %d with %d", name, req.SessionEpoch, len(asked), wantEpoch, wantPartitions)
		}
		if req.ReplicaState.Epoch != int64(epoch) {
			t.Errorf("%s: registration %d, want %d", name, req.ReplicaState.Epoch, epoch)
		}
		s.sent(asked)
		s.advance(7)
	}
	f("first", 0, 1)
	f("goes on", 1, 0)
	epoch = 40
	f("registered", 0, 1)
	f("goes on", 1, 0)
	f("goes on", 2, 0)
	epoch = 57
	f("registered anew", 0, 1)
	f("goes on", 1, 0)
}
