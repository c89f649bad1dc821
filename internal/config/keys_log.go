package config

// keysTopic lists the defaults of topics that are not about segments.
func keysTopic() []key {
	return []key{
		{name: "num.partitions", def: "1", rule: ints(1, 100000), bind: func(b *Broker) any { return &b.NumPartitions },
			doc: "Partitions of a topic that is made without a count."},
		{name: "default.replication.factor", def: "1", rule: int16s(1), bind: func(b *Broker) any { return &b.DefaultReplicationFactor },
			doc: "Replicas of a topic that is made without a count."},
		{name: "auto.create.topics.enable", def: "true", rule: boolean(), bind: func(b *Broker) any { return &b.AutoCreateTopicsEnable },
			doc: "Make a topic when a client asks for one that isn't there and allows it."},
		{name: "delete.topic.enable", def: "true", rule: boolean(), bind: func(b *Broker) any { return &b.DeleteTopicEnable },
			doc: "Whether DeleteTopics is allowed."},
		{name: "min.insync.replicas", def: "1", rule: int32s(1), bind: func(b *Broker) any { return &b.MinInsyncReplicas },
			doc: "In-sync replicas without which acks=all is refused. Topics without a setting of their own follow a change once the controller runs with it."},
		{name: "unclean.leader.election.enable", def: "false", rule: boolean(), bind: func(b *Broker) any { return &b.UncleanLeaderElection },
			doc: "Whether a replica outside the ISR may lead when no other is left."},
		{name: "replica.lag.time.max.ms", def: "30000", rule: longs(1), bind: func(b *Broker) any { return &b.ReplicaLagTimeMaxMs },
			doc: "A follower that hasn't caught up for so long leaves the ISR."},
		{name: "message.max.bytes", def: "1048588", rule: int32s(0), bind: func(b *Broker) any { return &b.MessageMaxBytes },
			doc: "Largest record batch in bytes, as sent."},
		{name: "compression.type", def: "producer", rule: words("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"), bind: func(b *Broker) any { return &b.CompressionType },
			doc: "Compression of batches in the log; producer keeps what was sent."},
		{name: "log.message.timestamp.type", def: "CreateTime", rule: words("CreateTime", "LogAppendTime"), bind: func(b *Broker) any { return &b.MessageTimestampType },
			doc: "Whose clock stamps records."},
		{name: "log.message.timestamp.before.max.ms", def: "9223372036854775807", rule: longs(0), bind: func(b *Broker) any { return &b.MessageTimestampBeforeMs },
			doc: "How far a record's time may lie in the past (KIP-937)."},
		{name: "log.message.timestamp.after.max.ms", def: "3600000", rule: longs(0), bind: func(b *Broker) any { return &b.MessageTimestampAfterMs },
			doc: "How far a record's time may lie in the future (KIP-937)."},
		{name: "create.topics.max.partitions.per.request", def: "100000", rule: int32s(1), bind: func(b *Broker) any { return &b.CreateTopicPolicyMaxPerReq }, own: true,
			doc: "Partitions that one request may make."},
	}
}

// keysLog lists segments, retention, compaction, flushing and recovery.
func keysLog() []key {
	return append(keysSegments(), keysFlush()...)
}

func keysSegments() []key {
	return []key{
		{name: "log.segment.bytes", def: "1073741824", rule: int32s(14), bind: func(b *Broker) any { return &b.LogSegmentBytes },
			doc: "Size at which a segment is rolled."},
		{name: "log.roll.ms", def: "604800000", rule: longs(1), bind: func(b *Broker) any { return &b.LogRollMs }, doc: "Age at which a segment is rolled."},
		{name: "log.roll.hours", rule: int32s(1), alias: "log.roll.ms", unit: 3600000, doc: "log.roll.ms in hours."},
		{name: "log.roll.jitter.ms", def: "0", rule: longs(0), bind: func(b *Broker) any { return &b.LogRollJitterMs }, doc: "Largest random part taken off log.roll.ms."},
		{name: "log.roll.jitter.hours", rule: int32s(0), alias: "log.roll.jitter.ms", unit: 3600000, doc: "log.roll.jitter.ms in hours."},
		{name: "log.index.size.max.bytes", def: "10485760", rule: int32s(4), bind: func(b *Broker) any { return &b.LogIndexSizeMaxBytes }, doc: "Largest offset index."},
		{name: "log.index.interval.bytes", def: "4096", rule: int32s(0), bind: func(b *Broker) any { return &b.LogIndexIntervalBytes }, doc: "Bytes between two index entries."},
		{name: "log.retention.bytes", def: "-1", rule: longs(-1), bind: func(b *Broker) any { return &b.LogRetentionBytes }, doc: "Size a partition is cut down to; -1: no bound."},
		{name: "log.retention.ms", def: "604800000", rule: longs(-1), bind: func(b *Broker) any { return &b.LogRetentionMs }, doc: "Age at which segments go; -1: never."},
		{name: "log.retention.minutes", rule: int32s(-1), alias: "log.retention.ms", unit: 60000, doc: "log.retention.ms in minutes."},
		{name: "log.retention.hours", rule: int32s(-1), alias: "log.retention.ms", unit: 3600000, doc: "log.retention.ms in hours."},
		{name: "log.retention.check.interval.ms", def: "300000", rule: longs(1), bind: func(b *Broker) any { return &b.LogRetentionCheckIntervalMs }, doc: "Time between two looks for segments to delete."},
		{name: "log.segment.delete.delay.ms", def: "60000", rule: longs(0), bind: func(b *Broker) any { return &b.LogSegmentDeleteDelayMs }, doc: "Time between a file's removal from the log and from the disk."},
		{name: "log.cleanup.policy", def: "delete", rule: listOf("compact", "delete"), bind: func(b *Broker) any { return &b.LogCleanupPolicy }, doc: "delete, compact, or both."},
		{name: "log.cleaner.enable", def: "true", rule: boolean(), bind: func(b *Broker) any { return &b.LogCleanerEnable }, doc: "Whether compaction runs."},
		{name: "log.cleaner.threads", def: "1", rule: int32s(0), bind: func(b *Broker) any { return &b.LogCleanerThreads }, doc: "Compactions at a time."},
		{name: "log.cleaner.backoff.ms", def: "15000", rule: longs(0), bind: func(b *Broker) any { return &b.LogCleanerBackoffMs }, doc: "Pause when there is nothing to compact."},
		{name: "log.cleaner.min.cleanable.ratio", def: "0.5", rule: ratio(), bind: func(b *Broker) any { return &b.LogCleanerMinCleanableRatio }, doc: "Share of uncompacted bytes from which compaction pays."},
		{name: "log.cleaner.min.compaction.lag.ms", def: "0", rule: longs(0), bind: func(b *Broker) any { return &b.LogCleanerMinLagMs }, doc: "Age below which a record is not compacted."},
		{name: "log.cleaner.max.compaction.lag.ms", def: "9223372036854775807", rule: longs(1), bind: func(b *Broker) any { return &b.LogCleanerMaxLagMs }, doc: "Age at which a record must be compacted."},
		{name: "log.cleaner.delete.retention.ms", def: "86400000", rule: longs(0), bind: func(b *Broker) any { return &b.LogCleanerDeleteRetentionMs }, doc: "How long tombstones and markers stay."},
		{name: "log.cleaner.dedupe.buffer.size", def: "134217728", rule: longs(1), bind: func(b *Broker) any { return &b.LogCleanerDedupeBufferSize }, doc: "Memory for the map from keys to offsets, over all compactions."},
		{name: "log.preallocate", def: "false", rule: boolean(), bind: func(b *Broker) any { return &b.LogPreallocate }, doc: "Whether a new segment takes its full size at once."},
	}
}

func keysFlush() []key {
	return []key{
		{name: "log.flush.interval.messages", def: "9223372036854775807", rule: longs(1), bind: func(b *Broker) any { return &b.LogFlushMessages }, doc: "Records between two flushes of a partition."},
		{name: "log.flush.interval.ms", def: "9223372036854775807", rule: longs(0), bind: func(b *Broker) any { return &b.LogFlushMs }, doc: "Longest time a record stays unflushed."},
		{name: "log.flush.scheduler.interval.ms", def: "9223372036854775807", rule: longs(1), bind: func(b *Broker) any { return &b.LogFlushSchedulerMs }, doc: "Time between two looks for partitions that need a flush."},
		{name: "log.flush.offset.checkpoint.interval.ms", def: "60000", rule: longs(0), bind: func(b *Broker) any { return &b.LogFlushCheckpointMs }, doc: "Time between two writes of the recovery points."},
		{name: "log.flush.acks", def: "false", rule: boolean(), bind: func(b *Broker) any { return &b.LogFlushAcks }, own: true, doc: "Whether each acks=all answer waits until its records are synced to disk (group commit)."},
		{name: "num.recovery.threads.per.data.dir", def: "4", rule: ints(1, 1024), bind: func(b *Broker) any { return &b.NumRecoveryThreadsPerDir }, doc: "Partitions of a folder opened at a time."},
		{name: "num.shards", def: "64", rule: ints(1, 1024), bind: func(b *Broker) any { return &b.NumShards }, own: true, doc: "Event loops that own partitions: as many partitions can wait for the disk at a time, which is what a start and a failover of many partitions do."},
	}
}
