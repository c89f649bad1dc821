package config

// keysTxn lists producers and transactions.
func keysTxn() []key {
	return []key{
		{name: "producer.id.expiration.ms", def: "86400000", rule: longs(1), bind: func(b *Broker) any { return &b.ProducerIDExpirationMs }, doc: "How long a silent producer's state is kept."},
		{name: "producer.id.expiration.check.interval.ms", def: "600000", rule: longs(1), bind: func(b *Broker) any { return &b.ProducerIDExpirationCheckMs }, doc: "Time between two looks for silent producers."},
		{name: "transactional.id.expiration.ms", def: "604800000", rule: longs(1), bind: func(b *Broker) any { return &b.TransactionalIDExpirationMs }, doc: "How long a silent transactional id is kept."},
		{name: "transaction.max.timeout.ms", def: "900000", rule: longs(1), bind: func(b *Broker) any { return &b.TransactionMaxTimeoutMs }, doc: "Longest time-out a producer may ask for."},
		{name: "transaction.state.log.num.partitions", def: "50", rule: ints(1, 10000), bind: func(b *Broker) any { return &b.TransactionStatePartitions }, doc: "Partitions of __transaction_state."},
		{name: "transaction.state.log.replication.factor", def: "1", rule: int16s(1), bind: func(b *Broker) any { return &b.TransactionStateReplication }, doc: "Replicas of __transaction_state. Kafka's default is 3; one node can't hold three."},
		{name: "transaction.state.log.min.isr", def: "1", rule: int32s(1), bind: func(b *Broker) any { return &b.TransactionStateMinISR }, doc: "min.insync.replicas of __transaction_state."},
		{name: "transaction.state.log.segment.bytes", def: "104857600", rule: int32s(14), bind: func(b *Broker) any { return &b.TransactionStateSegmentBytes }, doc: "segment.bytes of __transaction_state."},
		{name: "transaction.abort.timed.out.transaction.cleanup.interval.ms", def: "10000", rule: longs(1), bind: func(b *Broker) any { return &b.TransactionAbortCheckMs }, doc: "Time between two looks for transactions that have timed out."},
		{name: "transaction.remove.expired.transaction.cleanup.interval.ms", def: "3600000", rule: longs(1), bind: func(b *Broker) any { return &b.TransactionRemoveExpiredEvery }, doc: "Time between two looks for transactional ids that have expired."},
		{name: "transaction.partition.verification.enable", def: "true", rule: boolean(), bind: func(b *Broker) any { return &b.TransactionPartitionVerify }, doc: "Whether a transactional write is checked with the coordinator (KIP-890)."},
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
		{name: "group.coordinator.rebalance.protocols", def: "classic,consumer", rule: someOf("classic", "consumer", "share", "streams"), bind: func(b *Broker) any { return &b.Group.RebalanceProtocols }, doc: "Group protocols served."},
		{name: "group.consumer.session.timeout.ms", def: "45000", rule: longs(1), bind: func(b *Broker) any { return &b.Group.ConsumerSessionTimeoutMs }, doc: "Session time-out of KIP-848 members."},
		{name: "group.consumer.min.session.timeout.ms", def: "45000", rule: longs(1), bind: func(b *Broker) any { return &b.Group.ConsumerMinSessionTimeoutMs }, doc: "Least group-level session time-out."},
		{name: "group.consumer.max.session.timeout.ms", def: "60000", rule: longs(1), bind: func(b *Broker) any { return &b.Group.ConsumerMaxSessionTimeoutMs }, doc: "Largest group-level session time-out."},
		{name: "group.consumer.heartbeat.interval.ms", def: "5000", rule: longs(1), bind: func(b *Broker) any { return &b.Group.ConsumerHeartbeatMs }, doc: "Heartbeat interval of KIP-848 members."},
		{name: "group.consumer.min.heartbeat.interval.ms", def: "5000", rule: longs(1), bind: func(b *Broker) any { return &b.Group.ConsumerMinHeartbeatMs }, doc: "Least group-level heartbeat interval."},
		{name: "group.consumer.max.heartbeat.interval.ms", def: "15000", rule: longs(1), bind: func(b *Broker) any { return &b.Group.ConsumerMaxHeartbeatMs }, doc: "Largest group-level heartbeat interval."},
		{name: "group.consumer.max.size", def: "2147483647", rule: int32s(1), bind: func(b *Broker) any { return &b.Group.ConsumerMaxSize }, doc: "Members of a KIP-848 group."},
		{name: "group.consumer.assignors", def: "uniform,range", rule: someOf(), bind: func(b *Broker) any { return &b.Group.ConsumerAssignors }, doc: "Server-side assignors, the default first."},
		{name: "group.consumer.migration.policy", def: "bidirectional", rule: words("disabled", "downgrade", "upgrade", "bidirectional"), bind: func(b *Broker) any { return &b.Group.ConsumerMigrationPolicy }, doc: "Which online conversions between classic and consumer groups are allowed."},
	}
}

func keysOffsets() []key {
	return []key{
		{name: "offsets.topic.num.partitions", def: "50", rule: ints(1, 10000), bind: func(b *Broker) any { return &b.Offsets.TopicPartitions }, doc: "Partitions of __consumer_offsets; not to be changed once it exists."},
		{name: "offsets.topic.replication.factor", def: "1", rule: int16s(1), bind: func(b *Broker) any { return &b.Offsets.TopicReplicationFactor }, doc: "Replicas of __consumer_offsets. Kafka's default is 3; one node can't hold three."},
		{name: "offsets.topic.segment.bytes", def: "104857600", rule: int32s(14), bind: func(b *Broker) any { return &b.Offsets.TopicSegmentBytes }, doc: "segment.bytes of __consumer_offsets."},
		{name: "offsets.topic.compression.codec", def: "0", rule: ints(0, 4), bind: func(b *Broker) any { return &b.Offsets.TopicCompressionCodec }, doc: "Codec of the batches in __consumer_offsets, by number."},
		{name: "offsets.retention.minutes", def: "10080", rule: int32s(1), bind: func(b *Broker) any { return &b.Offsets.RetentionMinutes }, doc: "How long an empty group's offsets are kept."},
		{name: "offsets.retention.check.interval.ms", def: "600000", rule: longs(1), bind: func(b *Broker) any { return &b.Offsets.RetentionCheckMs }, doc: "Time between two looks for offsets to expire."},
		{name: "offset.metadata.max.bytes", def: "4096", rule: int32s(0), bind: func(b *Broker) any { return &b.Offsets.MetadataMaxBytes }, doc: "Largest metadata text with a committed offset."},
		{name: "offsets.commit.timeout.ms", def: "5000", rule: longs(1), bind: func(b *Broker) any { return &b.Offsets.CommitTimeoutMs }, doc: "How long a commit may take."},
		{name: "offsets.load.buffer.size", def: "5242880", rule: int32s(1), bind: func(b *Broker) any { return &b.Offsets.LoadBufferBytes }, doc: "Bytes read at a time when a coordinator loads its partition."},
	}
}
