package broker

import (
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
func logConfig(t config.Topic) log.Config {
	c := log.DefaultConfig()
	c.SegmentBytes = int(t.SegmentBytes)
	c.SegmentMs = t.SegmentMs
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

// deleteDelay is how long a deleted partition's folder stays.
func deleteDelay(t config.Topic) types.Millis { return t.FileDeleteDelayMs }
