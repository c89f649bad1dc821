package e2e

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/test/e2e/harness"
)

// TestDescribeQuorumOfThree: an admin client sees the members as Kafka's voters, and who leads.
func TestDescribeQuorumOfThree(t *testing.T) {
	c := newTrio(t)
	c.awaitVoters(3)
	harness.Eventually(t, "the quorum is described", func() bool {
		in := kmsg.NewPtrDescribeQuorumRequest()
		in.Topics = []kmsg.DescribeQuorumRequestTopic{{Topic: "__cluster_metadata", Partitions: []kmsg.DescribeQuorumRequestTopicPartition{{Partition: 0}}}}
		out, err := in.RequestWith(harness.Context(t), c.nodes[2].Client(t))
		if err != nil || out.ErrorCode != 0 {
			t.Logf("%+v, %v", out, err)
			return false
		}
		p := out.Topics[0].Partitions[0]
		for _, v := range p.CurrentVoters {
			if v.LogEndOffset < p.HighWatermark/2 || v.ReplicaDirectoryID == [16]byte{} {
				return false
			}
		}
		return len(p.CurrentVoters) == 3 && len(p.Observers) == 0 && p.LeaderID >= 1 && p.LeaderID <= 3 && p.LeaderEpoch > 0 && p.HighWatermark > 10 && len(out.Nodes) == 3
	})
}
