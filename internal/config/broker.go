package config

import (
	"net"
	"strconv"

	"tidemark/internal/core/types"
)

// Broker is a node's complete configuration. Get one from Default or Resolve;
// a zero Broker is not valid. Fields carry the units of Kafka's keys: times in
// milliseconds, sizes in bytes. The doc of each key is in the tables keys_*.go.
type Broker struct {
	// Identity and folders.
	NodeID        types.BrokerID
	ClusterID     string // empty: made at the first start, then read from meta.properties
	Rack          string
	LogDirs       []string // at least one
	Metadata      string   // "embedded", or etcd://host:port,...
	MetadataDir   string   // folder of the embedded store; empty: <first log dir>/metadata
	MetadataTTLMs types.Millis
	MetadataJoin  string // HTTP address of a node whose cluster this one joins at its first start
	// Where the other members of the embedded store reach this one, once there are others.
	MetadataHost                         string // empty: the first advertised listener's
	MetadataPeerPort, MetadataClientPort int32  // 0: any free one, kept from then on
	// TLS of the members, or to an etcd of the user's own: PEM files.
	MetadataSSLKeystoreLocation, MetadataSSLKeyLocation, MetadataSSLTruststoreLocation string
	MetadataPlaintext                                                                  bool   // members may listen without TLS in the open
	MetadataUsername, MetadataPassword                                                 string // for an etcd that asks

	// Network.
	Listeners             []Listener
	AdvertisedListeners   []Listener // as many as Listeners, same names; port 0 means "as bound"
	ProtocolMap           map[string]string
	SocketRequestMaxBytes int32
	QueuedMaxRequestBytes int64 // -1: no bound
	MaxConnections        int32
	MaxConnectionsPerIP   int32
	ConnectionsMaxIdleMs  types.Millis
	HTTPListener          string // host:port of the admin API; empty: none
	HTTPTokenFile         string // the secret that it asks for; empty: none
	HTTPReadTokenFile     string // a second one, for reading alone; empty: none

	HTTPSSLKeystoreLocation, HTTPSSLKeyLocation, HTTPSSLTruststoreLocation string // PEM files of the admin API

	SSLKeystoreLocation   string // PEM: certificate chain and private key
	SSLKeyLocation        string // PEM private key, when not in the keystore file
	SSLTruststoreLocation string // PEM of the authorities that client certificates must come from
	SSLClientAuth         string // none, requested, required

	// Topics.
	NumPartitions              int32
	DefaultReplicationFactor   int16
	AutoCreateTopicsEnable     bool
	DeleteTopicEnable          bool
	MinInsyncReplicas          int32
	UncleanLeaderElection      bool
	ReplicaLagTimeMaxMs        types.Millis
	MessageMaxBytes            int32
	CompressionType            string
	MessageTimestampType       string
	MessageTimestampBeforeMs   types.Millis
	MessageTimestampAfterMs    types.Millis
	CreateTopicPolicyMaxPerReq int32

	// Cluster.
	AutoLeaderRebalance         bool
	LeaderImbalanceCheckSeconds int64
	LeaderImbalancePercent      int32
	ControlledShutdown          bool

	// Log.
	LogSegmentBytes             int32
	LogRollMs                   types.Millis
	LogRollJitterMs             types.Millis
	LogIndexSizeMaxBytes        int32
	LogIndexIntervalBytes       int32
	LogRetentionBytes           int64
	LogRetentionMs              types.Millis
	LogRetentionCheckIntervalMs types.Millis
	LogSegmentDeleteDelayMs     types.Millis
	LogCleanupPolicy            []string
	LogCleanerEnable            bool
	LogCleanerThreads           int32
	LogCleanerBackoffMs         types.Millis
	LogCleanerMinCleanableRatio float64
	LogCleanerMinLagMs          types.Millis
	LogCleanerMaxLagMs          types.Millis
	LogCleanerDeleteRetentionMs types.Millis
	LogCleanerDedupeBufferSize  int64
	LogFlushMessages            int64
	LogFlushMs                  types.Millis
	LogFlushSchedulerMs         types.Millis
	LogFlushCheckpointMs        types.Millis
	LogFlushAcks                bool // an acks=all answer waits for a group commit to disk
	LogPreallocate              bool
	NumRecoveryThreadsPerDir    int32
	NumShards                   int32

	// Fetch.
	FetchMaxBytes          int32
	FetchSessionCacheSlots int32

	// Replication.
	InterBrokerListener string // empty: the first one, unless InterBrokerProtocol names one
	InterBrokerProtocol string // security.inter.broker.protocol: the listener of that name; empty: none
	Replica             Replica

	// Producers and transactions.
	ProducerIDExpirationMs types.Millis
	Transactions           Transactions

	Group   Group
	Offsets Offsets
	Mirror  Mirror
	Vault   Vault

	Security Security

	LogLevel  string // debug, info, warn, error
	LogFormat string // text, json

	settings map[string]Setting // what was set explicitly, by key
}

// Replica holds the settings of fetches between the brokers of a cluster.
type Replica struct {
	FetchMaxBytes         int32
	FetchMinBytes         int32
	FetchWaitMaxMs        types.Millis
	FetchResponseMaxBytes int32
	FetchBackoffMs        types.Millis
	SocketTimeoutMs       types.Millis
	// Selector is RackAwareSelector, or one of the names for "leaders only".
	Selector string
}

// Transactions holds the settings of the transaction coordinators.
type Transactions struct {
	MaxTimeoutMs           types.Millis
	IDExpirationMs         types.Millis
	SweepIntervalMs        types.Millis
	TopicPartitions        int32
	TopicReplicationFactor int16
	TopicMinISR            int32
	TopicSegmentBytes      int32
	LoadBufferBytes        int32
}

// Group holds the settings of the group coordinators (classic and KIP-848).
type Group struct {
	MinSessionTimeoutMs     types.Millis
	MaxSessionTimeoutMs     types.Millis
	InitialRebalanceDelayMs types.Millis
	MaxSize                 int32

	ConsumerSessionTimeoutMs    types.Millis
	ConsumerHeartbeatIntervalMs types.Millis
	ConsumerMaxSize             int32
	ConsumerAssignors           []string
}

// Offsets holds the settings of committed group offsets and their topic.
type Offsets struct {
	TopicPartitions        int32
	TopicReplicationFactor int16
	TopicSegmentBytes      int32
	TopicCompressionCodec  int32
	RetentionMinutes       int32
	RetentionCheckMs       types.Millis
	MetadataMaxBytes       int32
	CommitTimeoutMs        types.Millis
	LoadBufferBytes        int32
}

// Mirror holds the defaults of mirrors on this node (DESIGN §6). A mirror's own
// record may say otherwise where it has such a field.
type Mirror struct {
	EpochHeadroom       int32 // R21
	PromotionStep       int32 // R23
	MetadataRefreshMs   types.Millis
	GroupSyncMs         types.Millis
	ConfigSyncMs        types.Millis
	ThrottleBytesPerSec int64 // -1: none
	FetchMaxBytes       int32
	PartitionFetchBytes int32
	FetchMinBytes       int32
	FetchMaxWaitMs      types.Millis
	FetchersPerSource   int32
	RequestTimeoutMs    types.Millis
	RetryBackoffMs      types.Millis
	RetryBackoffMaxMs   types.Millis
	GapPolicy           string // fail, continue (R28)
	KIP1279             bool   // serves KIP-1279's lists of mirrors
	ConfigExclude       []string
	ACLSyncMs           types.Millis // -1: ACLs aren't copied
	ACLInclude          []string
	ACLExclude          []string
	ScramSyncMs         types.Millis // -1: SCRAM credentials aren't copied
	MaxInflightBytes    int64
	ReplicationFactor   int16
	VerifyIntervalMs    types.Millis // -1: only on command
	VerifyBytesPerSec   int64        // -1: no bound
	WatchSourceMs       types.Millis // -1: the old source isn't watched after a failover
}

// Vault bounds what cuts leave behind (DESIGN §7, R29).
type Vault struct {
	Dir      string // empty: <first log dir>/vault
	MaxBytes int64  // -1: no bound
	MaxAgeMs types.Millis
}

// Listener is one socket that clients reach: "NAME://host:port".
type Listener struct {
	Name string
	Host string // empty: every interface (listeners), this host's name (advertised)
	Port int32  // 0: any free port
}

// String gives the text form of the key's value.
func (l Listener) String() string { return l.Name + "://" + l.Addr() }

// Addr gives host:port as net.Listen takes it.
func (l Listener) Addr() string { return net.JoinHostPort(l.Host, strconv.Itoa(int(l.Port))) }

// Protocol gives the security protocol of a listener's name.
func (b *Broker) Protocol(listener string) string {
	if p, ok := b.ProtocolMap[listener]; ok {
		return p
	}
	return listener
}
