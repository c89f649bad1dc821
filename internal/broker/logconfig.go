package broker

import (
	"hash/fnv"

	"tidemark/internal/config"
	"tidemark/internal/core/types"
	"tidemark/internal/log"
)

// never is what Kafka's Long.MAX_VALUE stands for in intervals; package log says 0.
const never = 1<<63 - 1

func zeroIfNever[T ~int64](v T) T {
	if v == never {
		return 0
	}
	return v
}

// logConfig is a topic's configuration as its logs obey it.
func logConfig(t config.Topic, tp types.TopicPartition) log.Config {
	c := log.DefaultConfig()
	c.SegmentBytes = int(t.SegmentBytes)
	c.SegmentMs = t.SegmentMs - jitter(tp, t.SegmentJitterMs, t.SegmentMs)
	c.SegmentIndexBytes = int(t.SegmentIndexBytes)
	c.IndexIntervalBytes = int(t.IndexIntervalBytes)
	c.RetentionBytes, c.RetentionMs = t.RetentionBytes, t.RetentionMs
	c.Compact, c.Delete = t.Compact, t.Delete
	c.MaxMessageBytes = int(t.MaxMessageBytes)
	c.MinCompactionLagMs, c.MaxCompactionLagMs = t.MinCompactionLagMs, t.MaxCompactionLagMs
	c.DeleteRetentionMs = t.DeleteRetentionMs
	c.MinCleanableDirtyRatio = t.MinCleanableDirtyRatio
	c.FlushMessages = zeroIfNever(t.FlushMessages)
	c.FlushMs = zeroIfNever(t.FlushMs)
	c.LogAppendTime = t.LogAppendTime
	c.TimestampBeforeMaxMs = zeroIfNever(t.TimestampBeforeMaxMs)
	c.TimestampAfterMaxMs = zeroIfNever(t.TimestampAfterMaxMs)
	c.Compression = t.CompressionType
	c.FileDeleteDelayMs = t.FileDeleteDelayMs
	c.Preallocate = t.Preallocate
	c.ProducerIDExpirationMs = t.ProducerIDExpirationMs
	return c
}

// jitter is the part of segment.ms that a partition rolls earlier by, so that
// partitions made together don't roll together. It is drawn from the partition's
// name: the same at each start.
func jitter(tp types.TopicPartition, most, segment types.Millis) types.Millis {
	most = min(most, segment-1)
	if most <= 0 {
		return 0
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(tp.String())) // never fails (hash.Hash)
	return types.Millis(h.Sum64() % uint64(most+1))
}

// deleteDelay is how long a deleted partition's folder stays.
func deleteDelay(t config.Topic) types.Millis { return t.FileDeleteDelayMs }
