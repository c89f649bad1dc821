package config

// keysTxn lists producers and transactions.
func keysTxn() []key {
	return []key{
		{name: "producer.id.expiration.ms", def: "86400000", rule: longs(1), bind: func(b *Broker) any { return &b.ProducerIDExpirationMs }, doc: "How long a silent producer's state is kept."},
		{name: "transaction.max.timeout.ms", def: "900000", rule: longs(1), bind: func(b *Broker) any { return &b.Transactions.MaxTimeoutMs }, doc: "Longest transaction time-out that a producer may ask for."},
		{name: "transactional.id.expiration.ms", def: "604800000", rule: longs(1), bind: func(b *Broker) any { return &b.Transactions.IDExpirationMs }, doc: "How long a transactional id that nobody uses is kept."},
		{name: "transaction.abort.timed.out.transaction.cleanup.interval.ms", def: "10000", rule: longs(1), bind: func(b *Broker) any { return &b.Transactions.SweepIntervalMs }, doc: "Time between two looks for transactions that are open for too long."},
		{name: "transaction.state.log.num.partitions", def: "50", rule: ints(1, 10000), bind: func(b *Broker) any { return &b.Transactions.TopicPartitions }, doc: "Partitions of __transaction_state; not to be changed once it exists."},
		{name: "transaction.state.log.replication.factor", def: "3", rule: int16s(1), bind: func(b *Broker) any { return &b.Transactions.TopicReplicationFactor }, doc: "Replicas of __transaction_state. With fewer brokers it begins with one on each, and grows as brokers join."},
		{name: "transaction.state.log.min.isr", def: "2", rule: int32s(1), bind: func(b *Broker) any { return &b.Transactions.TopicMinISR }, doc: "min.insync.replicas of __transaction_state. With fewer replicas all of them are enough."},
		{name: "transaction.state.log.segment.bytes", def: "104857600", rule: int32s(14), bind: func(b *Broker) any { return &b.Transactions.TopicSegmentBytes }, doc: "segment.bytes of __transaction_state."},
		{name: "transaction.state.log.load.buffer.size", def: "5242880", rule: int32s(1), bind: func(b *Broker) any { return &b.Transactions.LoadBufferBytes }, doc: "Bytes read at a time when a coordinator loads its partition."},
	}
}

// keysGroup lists group coordinators and committed offsets.
func keysGroup() []key {
	return append(keysGroups(), keysOffsets()...)
}

func keysGroups() []key {
	return []key{
		{name: "group.min.session.timeout.ms", def: "6000", rule: longs(1), bind: func(b *Broker) any { return &b.Group.MinSessionTimeoutMs }, doc: "Least session time-out of a classic member."},
		{name: "group.max.session.timeout.ms", def: "1800000", rule: longs(1), bind: func(b *Broker) any { return &b.Group.MaxSessionTimeoutMs }, doc: "Largest session time-out of a classic member."},
		{name: "group.initial.rebalance.delay.ms", def: "3000", rule: longs(0), bind: func(b *Broker) any { return &b.Group.InitialRebalanceDelayMs }, doc: "How long the first member of a group waits for more."},
		{name: "group.max.size", def: "2147483647", rule: int32s(1), bind: func(b *Broker) any { return &b.Group.MaxSize }, doc: "Members of a classic group."},
		{name: "group.consumer.session.timeout.ms", def: "45000", rule: longs(1), bind: func(b *Broker) any { return &b.Group.ConsumerSessionTimeoutMs }, doc: "How long a member of the new protocol (KIP-848) may be silent."},
		{name: "group.consumer.heartbeat.interval.ms", def: "5000", rule: longs(1), bind: func(b *Broker) any { return &b.Group.ConsumerHeartbeatIntervalMs }, doc: "How often members of the new protocol are told to send heartbeats."},
		{name: "group.consumer.max.size", def: "2147483647", rule: int32s(1), bind: func(b *Broker) any { return &b.Group.ConsumerMaxSize }, doc: "Members of a group of the new protocol."},
		{name: "group.consumer.assignors", def: "uniform,range", rule: someOf("uniform", "range"), bind: func(b *Broker) any { return &b.Group.ConsumerAssignors },
			doc: "Server-side assignors that members may ask for; the first is taken where they don't."},
	}
}

func keysOffsets() []key {
	return []key{
		{name: "offsets.topic.num.partitions", def: "50", rule: ints(1, 10000), bind: func(b *Broker) any { return &b.Offsets.TopicPartitions }, doc: "Partitions of __consumer_offsets; not to be changed once it exists."},
		{name: "offsets.topic.replication.factor", def: "3", rule: int16s(1), bind: func(b *Broker) any { return &b.Offsets.TopicReplicationFactor }, doc: "Replicas of __consumer_offsets. With fewer brokers it begins with one on each, and grows as brokers join."},
		{name: "offsets.topic.segment.bytes", def: "104857600", rule: int32s(14), bind: func(b *Broker) any { return &b.Offsets.TopicSegmentBytes }, doc: "segment.bytes of __consumer_offsets."},
		{name: "offsets.topic.compression.codec", def: "0", rule: ints(0, 4), bind: func(b *Broker) any { return &b.Offsets.TopicCompressionCodec }, doc: "Codec of the batches in __consumer_offsets, by number."},
		{name: "offsets.retention.minutes", def: "10080", rule: int32s(1), bind: func(b *Broker) any { return &b.Offsets.RetentionMinutes }, doc: "How long an empty group's offsets are kept."},
		{name: "offsets.retention.check.interval.ms", def: "600000", rule: longs(1), bind: func(b *Broker) any { return &b.Offsets.RetentionCheckMs }, doc: "Time between two looks for offsets to expire."},
		{name: "offset.metadata.max.bytes", def: "4096", rule: int32s(0), bind: func(b *Broker) any { return &b.Offsets.MetadataMaxBytes }, doc: "Largest metadata text with a committed offset."},
		{name: "offsets.commit.timeout.ms", def: "5000", rule: longs(1), bind: func(b *Broker) any { return &b.Offsets.CommitTimeoutMs }, doc: "How long a commit may take."},
		{name: "offsets.load.buffer.size", def: "5242880", rule: int32s(1), bind: func(b *Broker) any { return &b.Offsets.LoadBufferBytes }, doc: "Bytes read at a time when a coordinator loads its partition."},
	}
}
