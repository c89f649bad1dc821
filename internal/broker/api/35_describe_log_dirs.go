package api

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/core/types"
)

// DescribeLogDirs (key 35): log directories, their room, and the partitions in them.
//
// Behaviour
//   - Null topics are all. Directories are listed even if none of the topics is in them.
//   - An offline directory is KAFKA_STORAGE_ERROR and lists no partitions.
//
// Versions
//   - 2: flexible. 3: an error for the whole answer (never used). 4: total and
//     usable bytes (KIP-827). 5: cordoned directories (never).
func (c *Call) describeLogDirs(in *kmsg.DescribeLogDirsRequest) (kmsg.Response, error) {
	var wanted map[types.TopicPartition]bool
	if in.Topics != nil {
		wanted = make(map[types.TopicPartition]bool)
	}
	for _, t := range in.Topics {
		for _, p := range t.Partitions {
			wanted[types.TopicPartition{Topic: t.Topic, Partition: p}] = true
		}
	}
	out := kmsg.NewPtrDescribeLogDirsResponse()
	for _, d := range c.Partitions.LogDirs() {
		to := kmsg.NewDescribeLogDirsResponseDir()
		to.Dir, to.TotalBytes, to.UsableBytes = d.Path, d.TotalBytes, d.UsableBytes
		if d.Err != nil {
			to.ErrorCode = int16(CodeOf(d.Err))
		} else {
			to.Topics = logDirTopics(d.Partitions, wanted)
		}
		out.Dirs = append(out.Dirs, to)
	}
	return out, nil
}

func logDirTopics(parts []LogDirPartition, wanted map[types.TopicPartition]bool) []kmsg.DescribeLogDirsResponseDirTopic {
	var topics []kmsg.DescribeLogDirsResponseDirTopic
	at := make(map[string]int)
	for _, p := range parts {
		if wanted != nil && !wanted[p.TopicPartition] {
			continue
		}
		i, ok := at[p.Topic]
		if !ok {
			i = len(topics)
			at[p.Topic] = i
			topics = append(topics, kmsg.DescribeLogDirsResponseDirTopic{Topic: p.Topic})
		}
		topics[i].Partitions = append(topics[i].Partitions, kmsg.DescribeLogDirsResponseDirTopicPartition{
			Partition: p.Partition, Size: p.SizeBytes, OffsetLag: p.OffsetLag})
	}
	for i := range topics {
		slices.SortFunc(topics[i].Partitions, func(a, b kmsg.DescribeLogDirsResponseDirTopicPartition) int {
			return int(a.Partition - b.Partition)
		})
	}
	return topics
}
