package coordinator

import (
	"time"

	"tidemark/internal/config"
	"tidemark/internal/core/group"
	"tidemark/internal/core/group/consumer"
	"tidemark/internal/core/types"
)

// OffsetsTopic is where groups and their offsets are kept.
const OffsetsTopic = "__consumer_offsets"

// Config is what the coordinator needs of the broker's configuration.
type Config struct {
	Group group.Config

	TopicPartitions    int32 // offsets.topic.num.partitions, at creation
	TopicReplication   int16 // offsets.topic.replication.factor, at creation
	TopicSegmentBytes  int32 // offsets.topic.segment.bytes, at creation
	Compression        int8  // offsets.topic.compression.codec
	CommitTimeout      time.Duration
	RetentionCheck     time.Duration // offsets.retention.check.interval.ms
	LoadBufferBytes    int           // offsets.load.buffer.size
	QueueLength        int           // requests that may wait for one partition's loop; 0 means 1024
	ReloadAfterFailure time.Duration // 0 means a second
}

// ConfigOf takes the coordinator's configuration out of the broker's.
func ConfigOf(b *config.Broker) Config {
	return Config{
		Group: group.Config{
			InitialRebalanceDelay:  b.Group.InitialRebalanceDelayMs,
			MinSessionTimeout:      b.Group.MinSessionTimeoutMs,
			MaxSessionTimeout:      b.Group.MaxSessionTimeoutMs,
			MaxSize:                int(b.Group.MaxSize),
			OffsetMetadataMaxBytes: int(b.Offsets.MetadataMaxBytes),
			OffsetsRetention:       types.Millis(b.Offsets.RetentionMinutes) * 60_000,
			Consumer: consumer.Config{
				SessionTimeout: b.Group.ConsumerSessionTimeoutMs, HeartbeatInterval: b.Group.ConsumerHeartbeatIntervalMs,
				MaxSize: int(b.Group.ConsumerMaxSize), Assignors: b.Group.ConsumerAssignors,
			},
		},
		TopicPartitions:   b.Offsets.TopicPartitions,
		TopicReplication:  b.Offsets.TopicReplicationFactor,
		TopicSegmentBytes: b.Offsets.TopicSegmentBytes,
		Compression:       int8(b.Offsets.TopicCompressionCodec),
		CommitTimeout:     time.Duration(b.Offsets.CommitTimeoutMs) * time.Millisecond,
		RetentionCheck:    time.Duration(b.Offsets.RetentionCheckMs) * time.Millisecond,
		LoadBufferBytes:   int(b.Offsets.LoadBufferBytes),
	}
}
