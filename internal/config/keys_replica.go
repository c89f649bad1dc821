package config

// The values of replica.selector.class, by Kafka's names of its classes.
const (
	RackAwareSelector = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
	leaderSelector    = "org.apache.kafka.common.replica.LeaderSelector"
)

// keysReplica lists what brokers of a cluster copy from each other with.
func keysReplica() []key {
	return []key{
		{name: "inter.broker.listener.name", def: "", rule: text(), bind: func(b *Broker) any { return &b.InterBrokerListener },
			doc: "Listener by which brokers reach each other; empty: that of security.inter.broker.protocol, else the first of listeners."},
		{name: "security.inter.broker.protocol", def: "", rule: words("", "PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"), bind: func(b *Broker) any { return &b.InterBrokerProtocol },
			doc: "The listener of this name is the one by which brokers reach each other; inter.broker.listener.name must be empty then, as in Kafka. Kafka's default is PLAINTEXT."},
		{name: "replica.fetch.max.bytes", def: "1048576", rule: int32s(1024), bind: func(b *Broker) any { return &b.Replica.FetchMaxBytes },
			doc: "Bytes of one partition in a follower's fetch; a larger first batch comes whole."},
		{name: "replica.fetch.min.bytes", def: "1", rule: int32s(0), bind: func(b *Broker) any { return &b.Replica.FetchMinBytes },
			doc: "Bytes that a follower's fetch waits for at the leader."},
		{name: "replica.fetch.wait.max.ms", def: "500", rule: longs(1), bind: func(b *Broker) any { return &b.Replica.FetchWaitMaxMs },
			doc: "Longest wait of a follower's fetch at the leader."},
		{name: "replica.fetch.response.max.bytes", def: "10485760", rule: int32s(1024), bind: func(b *Broker) any { return &b.Replica.FetchResponseMaxBytes },
			doc: "Bytes of one answer to a follower over all partitions."},
		{name: "replica.fetch.backoff.ms", def: "1000", rule: longs(0), bind: func(b *Broker) any { return &b.Replica.FetchBackoffMs },
			doc: "Longest pause after a fetch that failed; the first ones are shorter."},
		{name: "replica.socket.timeout.ms", def: "30000", rule: longs(100), bind: func(b *Broker) any { return &b.Replica.SocketTimeoutMs },
			doc: "How long a follower waits for an answer beyond the fetch's own wait."},
		{name: "replica.selector.class", def: "", rule: rule{kind: KindString, oneOf: []string{"", RackAwareSelector, leaderSelector}}, bind: func(b *Broker) any { return &b.Replica.Selector },
			doc: "RackAwareReplicaSelector: consumers with client.rack read from an in-sync follower of their own rack (KIP-392). Empty: from leaders."},
	}
}
