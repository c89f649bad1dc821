package source

import (
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/core/types"
)

// TestMetadataOfALeaderlessPartition: who is in sync and who is down is kept where
// nobody leads, and only there.
func TestMetadataOfALeaderlessPartition(t *testing.T) {
	name := "t"
	from := func(leader int32) Partition {
		rt := kmsg.NewMetadataResponseTopic()
		rt.Topic = &name
		rp := kmsg.NewMetadataResponseTopicPartition()
		rp.Leader, rp.LeaderEpoch, rp.ErrorCode, rp.ISR, rp.OfflineReplicas = leader, 4, int16(CodeLeaderNotAvailable), []int32{2}, []int32{2, 3}
		rt.Partitions = append(rt.Partitions, rp)
		got, err := topicFrom("b", &rt)
		if err != nil {
			t.Fatal(err)
		}
		return got.Partitions[0]
	}
	if p := from(-1); p.Leader != types.NoBroker || !slices.Equal(p.ISR, []types.BrokerID{2}) || !slices.Equal(p.Offline, []types.BrokerID{2, 3}) {
		t.Errorf("%+v", p)
	}
	if p := from(1); p.Leader != 1 || p.ISR != nil || p.Offline != nil {
		t.Errorf("%+v", p)
	}
}
