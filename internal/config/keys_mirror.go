package config

// keysMirror lists mirrors and the vault. All are this project's own.
func keysMirror() []key {
	keys := []key{
		{name: "mirror.epoch.headroom", def: "8", rule: ints(0, 65536), bind: func(b *Broker) any { return &b.Mirror.EpochHeadroom }, doc: "How far the local leader epoch is raised above a batch's epoch that passed it (R21)."},
		{name: "mirror.promotion.step", def: "65536", rule: ints(1, 16777216), bind: func(b *Broker) any { return &b.Mirror.PromotionStep }, doc: "What a promotion adds to the highest epoch known (R23)."},
		{name: "mirror.metadata.refresh.ms", def: "5000", rule: longs(100), bind: func(b *Broker) any { return &b.Mirror.MetadataRefreshMs }, doc: "Time between two looks at the source's topics, leaders and identity."},
		{name: "mirror.group.sync.ms", def: "1000", rule: longs(100), bind: func(b *Broker) any { return &b.Mirror.GroupSyncMs }, doc: "Time between two syncs of group offsets."},
		{name: "mirror.config.sync.ms", def: "5000", rule: longs(100), bind: func(b *Broker) any { return &b.Mirror.ConfigSyncMs }, doc: "Time between two syncs of topic configs."},
		{name: "mirror.config.exclude", def: "follower.replication.throttled.replicas,leader.replication.throttled.replicas,min.insync.replicas,unclean.leader.election.enable,remote.storage.enable,local.retention.ms,local.retention.bytes", rule: listOf(), bind: func(b *Broker) any { return &b.Mirror.ConfigExclude }, doc: "Topic configs that aren't copied from the source."},
		{name: "mirror.acl.sync.ms", def: "10000", rule: longs(-1), bind: func(b *Broker) any { return &b.Mirror.ACLSyncMs }, doc: "Time between two syncs of access control entries; -1: they aren't copied. Entries that a mirror copied carry its name; it takes them away again and touches no others."},
		{name: "mirror.acl.include", def: "*", rule: listOf(), bind: func(b *Broker) any { return &b.Mirror.ACLInclude }, doc: "Which entries are copied: rules resource;name;operation;permission;principal, separated by commas. * and what is left out match everything, name and principal are RE2 expressions."},
		{name: "mirror.acl.exclude", def: "CLUSTER;*;CLUSTER_ACTION", rule: listOf(), bind: func(b *Broker) any { return &b.Mirror.ACLExclude }, doc: "Which entries aren't copied, in the same form; it goes over mirror.acl.include. By default the source's brokers don't become brokers here."},
		{name: "mirror.scram.sync.ms", def: "10000", rule: longs(-1), bind: func(b *Broker) any { return &b.Mirror.ScramSyncMs }, doc: "Time between two syncs of SCRAM users; -1: none. Credentials come from a Tidemark source that allows it (CLUSTER_ACTION or ALTER on its cluster, TLS or SASL); of other sources' users it is told who has no password here."},
		{name: "mirror.throttle.bytes.per.second", def: "-1", rule: longs(-1), bind: func(b *Broker) any { return &b.Mirror.ThrottleBytesPerSec }, doc: "Most bytes per second that a mirror takes from its source; -1: no bound."},
		{name: "mirror.fetch.max.bytes", def: "16777216", rule: int32s(1024), bind: func(b *Broker) any { return &b.Mirror.FetchMaxBytes }, doc: "Bytes of records asked for in one fetch from the source."},
		{name: "mirror.partition.fetch.bytes", def: "4194304", rule: int32s(1024), bind: func(b *Broker) any { return &b.Mirror.PartitionFetchBytes }, doc: "Bytes of one partition asked for in one fetch."},
		{name: "mirror.fetch.min.bytes", def: "1", rule: int32s(0), bind: func(b *Broker) any { return &b.Mirror.FetchMinBytes }, doc: "Bytes for which the source may let a fetch wait."},
		{name: "mirror.fetch.max.wait.ms", def: "500", rule: longs(0), bind: func(b *Broker) any { return &b.Mirror.FetchMaxWaitMs }, doc: "How long the source may let a fetch wait."},
		{name: "mirror.fetchers.per.source.broker", def: "1", rule: ints(1, 64), bind: func(b *Broker) any { return &b.Mirror.FetchersPerSource }, doc: "Fetch connections to each broker of the source."},
		{name: "mirror.inflight.max.bytes", def: "67108864", rule: longs(1024), bind: func(b *Broker) any { return &b.Mirror.MaxInflightBytes }, doc: "Bytes fetched and not yet appended, for each broker of the source."},
		{name: "mirror.request.timeout.ms", def: "30000", rule: longs(100), bind: func(b *Broker) any { return &b.Mirror.RequestTimeoutMs }, doc: "How long a request to the source may take."},
		{name: "mirror.retry.backoff.ms", def: "100", rule: longs(1), bind: func(b *Broker) any { return &b.Mirror.RetryBackoffMs }, doc: "First pause after a failure at the source."},
		{name: "mirror.retry.backoff.max.ms", def: "5000", rule: longs(1), bind: func(b *Broker) any { return &b.Mirror.RetryBackoffMaxMs }, doc: "Longest pause after failures at the source."},
		{name: "mirror.replication.factor", def: "0", rule: int16s(0), bind: func(b *Broker) any { return &b.Mirror.ReplicationFactor }, doc: "Replicas of mirrored topics, when they are made. 0: one on each live broker, at most three. Topics that are there keep theirs: mirror describe says how many have fewer than new ones get."},
		{name: "mirror.verify.interval.ms", def: "-1", rule: longs(-1), bind: func(b *Broker) any { return &b.Mirror.VerifyIntervalMs }, doc: "Pause between two comparisons of a mirror with its source in the background, each with a report; -1: only on command."},
		{name: "mirror.verify.bytes.per.second", def: "10485760", rule: longs(-1), bind: func(b *Broker) any { return &b.Mirror.VerifyBytesPerSec }, doc: "Most bytes per second that a comparison in the background takes from the source; -1: no bound."},
		{name: "mirror.watch.source.ms", def: "5000", rule: longs(-1), bind: func(b *Broker) any { return &b.Mirror.WatchSourceMs }, doc: "Time between two looks at the old source after a failover, for writes that it still takes (split brain); -1: none."},
		{name: "mirror.kip1279.enable", def: "false", rule: boolean(), bind: func(b *Broker) any { return &b.Mirror.KIP1279 }, doc: "Serves ListClusterMirrors and DescribeClusterMirrors as the prototype of KIP-1279 has them (keys 98 and 99), so that a cluster that speaks it can ask for the last mirrored epoch; and mirrors ask sources that offer both, and tell no timelines, what they mirrored from here. A mirror may have a value of its own for the asking. Neither is final."},
		{name: "gap.policy", def: "fail", rule: words("fail", "continue"), bind: func(b *Broker) any { return &b.Mirror.GapPolicy }, doc: "What a mirror does when the source's log start has passed its end (R28)."},
		{name: "vault.dir", def: "", rule: text(), bind: func(b *Broker) any { return &b.Vault.Dir }, doc: "Folder of the vault; empty: vault/ in the first log dir. On the log's file system whole segments are linked, not copied."},
		{name: "vault.max.bytes", def: "-1", rule: longs(-1), bind: func(b *Broker) any { return &b.Vault.MaxBytes }, doc: "Bound of the vault; -1: none. A full vault stops cuts (R29)."},
		{name: "vault.max.age.ms", def: "-1", rule: longs(-1), bind: func(b *Broker) any { return &b.Vault.MaxAgeMs }, doc: "Age at which vault entries are purged; -1: never."},
	}
	for i := range keys {
		keys[i].own = true
	}
	return keys
}
