package config

// keysNode lists identity, folders, network and logging of the process.
func keysNode() []key {
	return []key{
		{name: "node.id", def: "1", rule: int32s(0), bind: func(b *Broker) any { return &b.NodeID },
			doc: "This node's id; written into each log dir's meta.properties and checked at each start."},
		{name: "broker.id", rule: int32s(0), alias: "node.id", unit: 1, doc: "Older name of node.id."},
		{name: "cluster.id", def: "", rule: text(), bind: func(b *Broker) any { return &b.ClusterID }, own: true,
			doc: "The cluster id this node expects; empty takes the one in meta.properties or makes one."},
		{name: "broker.rack", def: "", rule: text(), bind: func(b *Broker) any { return &b.Rack }, doc: "Rack of this node (KIP-36)."},
		{name: "log.dirs", def: "tidemark-data", rule: someOf(), bind: func(b *Broker) any { return &b.LogDirs },
			doc: "Folders that hold partitions, separated by commas."},
		{name: "log.dir", rule: someOf(), alias: "log.dirs", doc: "One folder; log.dirs goes first."},
		{name: "metadata", def: "embedded", rule: text(), bind: func(b *Broker) any { return &b.Metadata }, own: true,
			doc: "Where metadata lives: embedded, or etcd://host:port[,host:port...]."},
		{name: "metadata.dir", def: "", rule: text(), bind: func(b *Broker) any { return &b.MetadataDir }, own: true,
			doc: "Folder of the embedded metadata store; empty: metadata/ in the first log dir."},
		{name: "metadata.join", def: "", rule: text(), bind: func(b *Broker) any { return &b.MetadataJoin }, own: true,
			doc: "HOST:PORT of the HTTP API of a node whose cluster this one joins at its first start."},
		{name: "metadata.host", def: "", rule: text(), bind: func(b *Broker) any { return &b.MetadataHost }, own: true,
			doc: "Host where other members of the embedded store reach this one; empty: the first advertised listener's. Nothing listens before a second node joins."},
		{name: "metadata.peer.port", def: "0", rule: int32s(0), bind: func(b *Broker) any { return &b.MetadataPeerPort }, own: true,
			doc: "Port for other members of the embedded store; 0: any free one, kept from then on."},
		{name: "metadata.client.port", def: "0", rule: int32s(0), bind: func(b *Broker) any { return &b.MetadataClientPort }, own: true,
			doc: "Port for brokers that are no members of the embedded store; 0: any free one, kept from then on."},
		{name: "metadata.ssl.keystore.location", def: "", rule: text(), bind: func(b *Broker) any { return &b.MetadataSSLKeystoreLocation }, own: true,
			doc: "PEM file with this node's certificate chain and, unless metadata.ssl.key.location names another file, its private key, for connections between members of the embedded store, or to an etcd that asks for one. The authority should sign for this cluster's nodes alone."},
		{name: "metadata.ssl.key.location", def: "", rule: text(), bind: func(b *Broker) any { return &b.MetadataSSLKeyLocation }, own: true,
			doc: "PEM file with the private key of metadata.ssl.keystore.location."},
		{name: "metadata.ssl.truststore.location", def: "", rule: text(), bind: func(b *Broker) any { return &b.MetadataSSLTruststoreLocation }, own: true,
			doc: "PEM file with the authorities that sign the certificates of the other members, or of the etcd. Set: connections speak TLS."},
		{name: "metadata.plaintext", def: "false", rule: boolean(), bind: func(b *Broker) any { return &b.MetadataPlaintext }, own: true,
			doc: "Whether members of the embedded store may listen without TLS where other machines reach them: only on a network that nobody but the nodes reaches."},
		{name: "metadata.username", def: "", rule: text(), bind: func(b *Broker) any { return &b.MetadataUsername }, own: true,
			doc: "User for metadata=etcd://, if that etcd asks."},
		{name: "metadata.password", def: "", rule: text(), bind: func(b *Broker) any { return &b.MetadataPassword }, own: true, sensitive: true,
			doc: "Password of metadata.username."},
		{name: "broker.session.timeout.ms", def: "9000", rule: longs(1000), bind: func(b *Broker) any { return &b.MetadataTTLMs },
			doc: "How long a registration outlives the last sign of life of its broker."},
		{name: "auto.leader.rebalance.enable", def: "true", rule: boolean(), bind: func(b *Broker) any { return &b.AutoLeaderRebalance },
			doc: "Whether leaders go back to preferred replicas by themselves."},
		{name: "leader.imbalance.check.interval.seconds", def: "300", rule: longs(1), bind: func(b *Broker) any { return &b.LeaderImbalanceCheckSeconds },
			doc: "Time between two looks for leaders that are not where they should be."},
		{name: "leader.imbalance.per.broker.percentage", def: "10", rule: ints(0, 100), bind: func(b *Broker) any { return &b.LeaderImbalancePercent },
			doc: "Part of a broker's preferred partitions that may be led elsewhere before leaders go back."},
		{name: "controlled.shutdown.enable", def: "true", rule: boolean(), bind: func(b *Broker) any { return &b.ControlledShutdown },
			doc: "Whether a broker that stops hands its leaders over first."},
		{name: "log.level", def: "info", rule: words("debug", "info", "warn", "error"), bind: func(b *Broker) any { return &b.LogLevel }, own: true,
			doc: "Least severity that is written to the process log."},
		{name: "log.format", def: "text", rule: words("text", "json"), bind: func(b *Broker) any { return &b.LogFormat }, own: true,
			doc: "Form of the process log: text or json."},
	}
}

// keysNet lists sockets, their bounds, and TLS.
func keysNet() []key {
	return []key{
		{name: "listeners", def: "PLAINTEXT://127.0.0.1:9092", rule: someOf(),
			doc: "Sockets to open, NAME://host:port. The default is loopback: a node that others should reach says so."},
		{name: "advertised.listeners", def: "", rule: listOf(), doc: "Addresses told to clients; empty: as listeners."},
		{name: "listener.security.protocol.map", def: "PLAINTEXT:PLAINTEXT,SSL:SSL", rule: listOf(),
			doc: "Security protocol of each listener name: PLAINTEXT or SSL."},
		{name: "socket.request.max.bytes", def: "104857600", rule: int32s(1), bind: func(b *Broker) any { return &b.SocketRequestMaxBytes },
			doc: "Largest request in bytes; a larger one closes its connection."},
		{name: "queued.max.request.bytes", def: "268435456", rule: longs(-1), bind: func(b *Broker) any { return &b.QueuedMaxRequestBytes },
			doc: "Bytes of requests held in memory at a time over all connections; -1: no bound. Kafka's default is -1; a bound is kinder."},
		{name: "max.connections", def: "2147483647", rule: int32s(0), bind: func(b *Broker) any { return &b.MaxConnections },
			doc: "Connections at a time on this node."},
		{name: "max.connections.per.ip", def: "2147483647", rule: int32s(0), bind: func(b *Broker) any { return &b.MaxConnectionsPerIP },
			doc: "Connections at a time from one address."},
		{name: "connections.max.idle.ms", def: "600000", rule: longs(1), bind: func(b *Broker) any { return &b.ConnectionsMaxIdleMs },
			doc: "A connection without a request for so long is closed."},
		{name: "http.listener", def: "127.0.0.1:9644", rule: text(), bind: func(b *Broker) any { return &b.HTTPListener }, own: true,
			doc: "host:port of the HTTP admin API; empty: none."},
		{name: "ssl.keystore.location", def: "", rule: text(), bind: func(b *Broker) any { return &b.SSLKeystoreLocation },
			doc: "PEM file with the certificate chain and, unless ssl.key.location names another file, the private key."},
		{name: "ssl.key.location", def: "", rule: text(), bind: func(b *Broker) any { return &b.SSLKeyLocation }, own: true,
			doc: "PEM file with the private key."},
		{name: "ssl.truststore.location", def: "", rule: text(), bind: func(b *Broker) any { return &b.SSLTruststoreLocation },
			doc: "PEM file with the authorities that may sign clients' certificates."},
		{name: "ssl.client.auth", def: "none", rule: words("none", "requested", "required"), bind: func(b *Broker) any { return &b.SSLClientAuth },
			doc: "Whether clients must show a certificate."},
	}
}

// keysFetch lists the bounds of fetches.
func keysFetch() []key {
	return []key{
		{name: "fetch.max.bytes", def: "57671680", rule: int32s(1024), bind: func(b *Broker) any { return &b.FetchMaxBytes },
			doc: "Bytes of records in one fetch answer, whatever the client asks."},
		{name: "max.incremental.fetch.session.cache.slots", def: "1000", rule: int32s(0), bind: func(b *Broker) any { return &b.FetchSessionCacheSlots },
			doc: "Incremental fetch sessions kept at a time (KIP-227)."},
	}
}
