package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"tidemark/internal/core/types"
)

// Topic is the effective configuration of one topic: its own configs over the
// broker's defaults. Times in milliseconds, sizes in bytes.
type Topic struct {
	Compact, Delete   bool
	CompressionType   string
	DeleteRetentionMs types.Millis
	FileDeleteDelayMs types.Millis
	// LeaderThrottledReplicas and FollowerThrottledReplicas are "*", or a list of partition:broker (IsThrottled).
	LeaderThrottledReplicas   string
	FollowerThrottledReplicas string
	FlushMessages             int64
	FlushMs                   types.Millis
	IndexIntervalBytes        int32
	MaxCompactionLagMs        types.Millis
	MaxMessageBytes           int32
	TimestampAfterMaxMs       types.Millis
	TimestampBeforeMaxMs      types.Millis
	LogAppendTime             bool
	MinCleanableDirtyRatio    float64
	MinCompactionLagMs        types.Millis
	MinInsyncReplicas         int32
	Preallocate               bool
	RetentionBytes            int64
	RetentionMs               types.Millis
	SegmentBytes              int32
	SegmentIndexBytes         int32
	SegmentJitterMs           types.Millis
	SegmentMs                 types.Millis
	UncleanLeaderElection     bool
	// ProducerIDExpirationMs is the broker's producer.id.expiration.ms: no topic config of its own.
	ProducerIDExpirationMs types.Millis
}

// topicText holds, while a Topic is filled, what its fields are derived from.
type topicText struct {
	Topic
	cleanupPolicy []string
	timestampType string
	unused        string
}

// topicKey is one row of the table of topic configs.
type topicKey struct {
	name   string
	broker string // the broker key that holds the default; empty: def holds it
	def    string
	rule   rule
	bind   func(*topicText) any
	doc    string
}

// topicKeys lists Kafka's topic configs. Those without effect here are kept so
// that tools and mirrors can set and read them.
var topicKeys = sync.OnceValue(func() []topicKey {
	unused := func(t *topicText) any { return &t.unused }
	return []topicKey{
		{name: "cleanup.policy", broker: "log.cleanup.policy", rule: listOf("compact", "delete"), bind: func(t *topicText) any { return &t.cleanupPolicy }, doc: "delete, compact, or both."},
		{name: "compression.type", broker: "compression.type", rule: words("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"), bind: func(t *topicText) any { return &t.CompressionType }, doc: "Compression of batches in the log; producer keeps what was sent."},
		{name: "delete.retention.ms", broker: "log.cleaner.delete.retention.ms", rule: longs(0), bind: func(t *topicText) any { return &t.DeleteRetentionMs }, doc: "How long tombstones and markers stay."},
		{name: "file.delete.delay.ms", broker: "log.segment.delete.delay.ms", rule: longs(0), bind: func(t *topicText) any { return &t.FileDeleteDelayMs }, doc: "Time between a file's removal from the log and from the disk."},
		{name: "flush.messages", broker: "log.flush.interval.messages", rule: longs(1), bind: func(t *topicText) any { return &t.FlushMessages }, doc: "Records between two flushes."},
		{name: "flush.ms", broker: "log.flush.interval.ms", rule: longs(0), bind: func(t *topicText) any { return &t.FlushMs }, doc: "Longest time a record stays unflushed."},
		{name: "follower.replication.throttled.replicas", def: "", rule: text(), bind: func(t *topicText) any { return &t.FollowerThrottledReplicas }, doc: "Replicas that follower.replication.throttled.rate of their broker holds back: partition:broker pairs, or *."},
		{name: "index.interval.bytes", broker: "log.index.interval.bytes", rule: int32s(0), bind: func(t *topicText) any { return &t.IndexIntervalBytes }, doc: "Bytes between two index entries."},
		{name: "leader.replication.throttled.replicas", def: "", rule: text(), bind: func(t *topicText) any { return &t.LeaderThrottledReplicas }, doc: "Replicas that leader.replication.throttled.rate of their leader holds back: partition:broker pairs of the leaders, or *."},
		{name: "local.retention.bytes", def: "-2", rule: longs(-2), bind: unused, doc: "Kept, no effect: there is no tiered storage."},
		{name: "local.retention.ms", def: "-2", rule: longs(-2), bind: unused, doc: "Kept, no effect: there is no tiered storage."},
		{name: "max.compaction.lag.ms", broker: "log.cleaner.max.compaction.lag.ms", rule: longs(1), bind: func(t *topicText) any { return &t.MaxCompactionLagMs }, doc: "Age at which a record must be compacted."},
		{name: "max.message.bytes", broker: "message.max.bytes", rule: int32s(0), bind: func(t *topicText) any { return &t.MaxMessageBytes }, doc: "Largest record batch in bytes, as sent."},
		{name: "message.timestamp.after.max.ms", broker: "log.message.timestamp.after.max.ms", rule: longs(0), bind: func(t *topicText) any { return &t.TimestampAfterMaxMs }, doc: "How far a record's time may lie in the future."},
		{name: "message.timestamp.before.max.ms", broker: "log.message.timestamp.before.max.ms", rule: longs(0), bind: func(t *topicText) any { return &t.TimestampBeforeMaxMs }, doc: "How far a record's time may lie in the past."},
		{name: "message.timestamp.type", broker: "log.message.timestamp.type", rule: words("CreateTime", "LogAppendTime"), bind: func(t *topicText) any { return &t.timestampType }, doc: "Whose clock stamps records."},
		{name: "min.cleanable.dirty.ratio", broker: "log.cleaner.min.cleanable.ratio", rule: ratio(), bind: func(t *topicText) any { return &t.MinCleanableDirtyRatio }, doc: "Share of uncompacted bytes from which compaction pays."},
		{name: "min.compaction.lag.ms", broker: "log.cleaner.min.compaction.lag.ms", rule: longs(0), bind: func(t *topicText) any { return &t.MinCompactionLagMs }, doc: "Age below which a record is not compacted."},
		{name: "min.insync.replicas", broker: "min.insync.replicas", rule: int32s(1), bind: func(t *topicText) any { return &t.MinInsyncReplicas }, doc: "In-sync replicas without which acks=all is refused."},
		{name: "preallocate", broker: "log.preallocate", rule: boolean(), bind: func(t *topicText) any { return &t.Preallocate }, doc: "Whether a new segment takes its full size at once."},
		{name: "remote.log.copy.disable", def: "false", rule: boolean(), bind: unusedBool, doc: "Kept, no effect: there is no tiered storage."},
		{name: "remote.log.delete.on.disable", def: "false", rule: boolean(), bind: unusedBool, doc: "Kept, no effect: there is no tiered storage."},
		{name: "remote.storage.enable", def: "false", rule: rule{kind: KindBoolean, oneOf: []string{"false"}}, bind: unusedBool, doc: "Only false: there is no tiered storage."},
		{name: "retention.bytes", broker: "log.retention.bytes", rule: longs(-1), bind: func(t *topicText) any { return &t.RetentionBytes }, doc: "Size a partition is cut down to; -1: no bound."},
		{name: "retention.ms", broker: "log.retention.ms", rule: longs(-1), bind: func(t *topicText) any { return &t.RetentionMs }, doc: "Age at which segments go; -1: never."},
		{name: "segment.bytes", broker: "log.segment.bytes", rule: int32s(14), bind: func(t *topicText) any { return &t.SegmentBytes }, doc: "Size at which a segment is rolled."},
		{name: "segment.index.bytes", broker: "log.index.size.max.bytes", rule: int32s(4), bind: func(t *topicText) any { return &t.SegmentIndexBytes }, doc: "Largest offset index."},
		{name: "segment.jitter.ms", broker: "log.roll.jitter.ms", rule: longs(0), bind: func(t *topicText) any { return &t.SegmentJitterMs }, doc: "Largest random part taken off segment.ms."},
		{name: "segment.ms", broker: "log.roll.ms", rule: longs(1), bind: func(t *topicText) any { return &t.SegmentMs }, doc: "Age at which a segment is rolled."},
		{name: "unclean.leader.election.enable", broker: "unclean.leader.election.enable", rule: boolean(), bind: func(t *topicText) any { return &t.UncleanLeaderElection }, doc: "Whether a replica outside the ISR may lead when no other is left."},
		{name: "compression.gzip.level", def: "-1", rule: ints(-1, 9), bind: unused, doc: "Kept, no effect: default levels are used."},
		{name: "compression.lz4.level", def: "9", rule: ints(1, 17), bind: unused, doc: "Kept, no effect: default levels are used."},
		{name: "compression.zstd.level", def: "3", rule: ints(-131072, 22), bind: unused, doc: "Kept, no effect: default levels are used."},
	}
})

func unusedBool(*topicText) any { return new(bool) }

// ErrTopicConfig marks a topic config that is unknown or has a value outside its range (Kafka: INVALID_CONFIG).
var ErrTopicConfig = errors.New("invalid topic config")

// ValidateTopic checks a topic's own configs; the error names every fault.
func ValidateTopic(configs map[string]string) error {
	index := make(map[string]topicKey)
	for _, k := range topicKeys() {
		index[k.name] = k
	}
	var faults []error
	for _, name := range slices.Sorted(maps.Keys(configs)) {
		k, ok := index[name]
		switch {
		case !ok:
			msg := fmt.Sprintf("unknown topic config name: %s", name)
			faults = append(faults, fmt.Errorf("%w: %s%s", ErrTopicConfig, msg, notThere(Nearest(name, slices.Collect(maps.Keys(index))))))
		case strings.HasSuffix(name, ".throttled.replicas") && !throttledReplicas.MatchString(strings.TrimSpace(configs[name])):
			faults = append(faults, fmt.Errorf("%w: invalid value %s for configuration %s: must be * or a list of partition:broker", ErrTopicConfig, configs[name], name))
		case !k.rule.check(configs[name]) || name == "remote.storage.enable" && strings.TrimSpace(configs[name]) != "false":
			allowed := k.rule.allowed()
			if name == "remote.storage.enable" {
				allowed = "false: there is no tiered storage"
			}
			faults = append(faults, fmt.Errorf("%w: invalid value %s for configuration %s: must be %s", ErrTopicConfig, configs[name], name, allowed))
		}
	}
	if len(faults) == 0 {
		if t := Default().Topic(configs); t.MinCompactionLagMs > t.MaxCompactionLagMs {
			faults = append(faults, fmt.Errorf("%w: min.compaction.lag.ms must be at most max.compaction.lag.ms", ErrTopicConfig))
		}
	}
	return errors.Join(faults...)
}

// Topic lays a topic's own configs over the broker's defaults. A config that
// ValidateTopic refuses (a newer version may have stored it) counts as absent.
func (b *Broker) Topic(configs map[string]string) Topic {
	var t topicText
	index := keyIndex()
	for _, k := range topicKeys() {
		text := k.def
		if k.broker != "" {
			text = b.text(index[k.broker]).Value
		}
		if v, ok := configs[k.name]; ok && k.rule.check(v) {
			text = v
		}
		store(k.bind(&t), text)
	}
	t.Compact = slices.Contains(t.cleanupPolicy, "compact")
	t.Delete = slices.Contains(t.cleanupPolicy, "delete")
	t.LogAppendTime = t.timestampType == "LogAppendTime"
	t.ProducerIDExpirationMs = b.ProducerIDExpirationMs
	return t.Topic
}
