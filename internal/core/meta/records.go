package meta

import (
	"tidemark/internal/core/timeline"
	"tidemark/internal/core/types"
)

// Versions of the records that this program writes and reads. A reader refuses what
// it doesn't know, so that a field which came later is written only from a feature level on: its
// tag level names it, and without one it is as old as the levels (levels_test.go).
const (
	ClusterVersion      = 1
	BrokerVersion       = 1
	TopicVersion        = 1
	NameVersion         = 1
	ControllerVersion   = 1
	MirrorVersion       = 1
	BrokerConfigVersion = 1
	ProducerIDsVersion  = 1
	ReportVersion       = 1
	NodeVersion         = 1
	FeaturesVersion     = 1
)

// LevelCuts is the level of FeatureMetadata from which consistent cuts (cut,
// endBefore) and the growth of topics (grownTo) are written.
const LevelCuts = 2

// ClusterRecord is written by the first broker, and again by a restore alone:
// whoever finds another id below its keys has the wrong store.
type ClusterRecord struct {
	V         int          `json:"v"`
	ID        string       `json:"id"`
	CreatedAt types.Millis `json:"createdAt"`
	// Restore says that this metadata came from a backup; nil if it never did.
	Restore *Restore `json:"restore,omitempty"`
}

// Restore tells of the last time that the metadata came from a backup, or went
// back in time in another way that an operator has settled.
type Restore struct {
	// ID is fresh for each restore: revisions before and after it can't be compared.
	ID string `json:"id"`
	// Revision is the backup's, taken at TakenAt.
	Revision Revision     `json:"revision"`
	TakenAt  types.Millis `json:"takenAt"`
	At       types.Millis `json:"at"`
}

// RestoreID is the id of the restore that this metadata came from, empty if from none.
func (r *ClusterRecord) RestoreID() string {
	if r == nil || r.Restore == nil {
		return ""
	}
	return r.Restore.ID
}

// NodeRecord is what the cluster remembers of a node beyond its registration:
// whose id it is. It has no lease.
type NodeRecord struct {
	V  int            `json:"v"`
	ID types.BrokerID `json:"id"`
	// Directories are the ids of the data folders that are the node's. None: the
	// next folder that registers takes the id (a replaced node).
	Directories []string `json:"directories,omitempty"`
	// Replaced are folders that were the node's and must not come back under its id.
	Replaced []string `json:"replaced,omitempty"`
}

// FeaturesRecord holds the finalized levels of the cluster's features (KIP-584).
type FeaturesRecord struct {
	V int `json:"v"`
	// Levels are by feature name. A feature that is missing has the level that
	// Feature.Absent says.
	Levels map[string]int16 `json:"levels"`
}

// Endpoint is one address that a broker tells its clients.
type Endpoint struct {
	Listener string `json:"listener"` // listener's name, such as PLAINTEXT
	Host     string `json:"host"`
	Port     int32  `json:"port"`
	Security string `json:"security"` // security protocol: PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL
}

// BrokerRecord is the registration of a broker, bound to its lease. The create
// revision of its key is the broker epoch.
type BrokerRecord struct {
	V         int            `json:"v"`
	ID        types.BrokerID `json:"id"`
	Endpoints []Endpoint     `json:"endpoints"`
	// HTTP is the address of the admin API, empty if there is none.
	HTTP  string   `json:"http,omitempty"`
	Rack  string   `json:"rack,omitempty"`
	Roles []string `json:"roles,omitempty"`
	// DirectoryID names the data folder (directory.id of meta.properties). A
	// registration with the same id and folder is the same broker, restarted.
	DirectoryID string `json:"directoryId"`
	// Directories are the ids of all of its data folders, DirectoryID included;
	// empty if that is the only one.
	Directories []string `json:"directories,omitempty"`
	// Features are the levels that the program supports.
	Features Features `json:"features,omitempty"`
	// Incarnation is fresh for every start of the process and every registration.
	Incarnation string `json:"incarnation"`
	// CleanShutdownEpoch is the broker epoch of the registration that this
	// data folder's last process closed cleanly, or the one before of this
	// process, which only lapsed; NoBrokerEpoch if something may be lost since:
	// the mark that R11 asks for (KIP-966).
	CleanShutdownEpoch types.BrokerEpoch `json:"cleanShutdownEpoch"`
	// Draining: the broker is shutting down in order. The controller moves its
	// leaders to others and takes it out of every ISR that can spare it.
	Draining bool `json:"draining,omitempty"`
	// Software is the program and version, for people.
	Software  string       `json:"software,omitempty"`
	StartedAt types.Millis `json:"startedAt"`
}

// TopicRecord names a topic. It is the commit point of what is done to many
// partitions: a partition whose number is not below Partitions, or whose topic has no record, doesn't exist yet.
type TopicRecord struct {
	V          int           `json:"v"`
	ID         types.TopicID `json:"id"`
	Name       string        `json:"name"`
	Partitions int32         `json:"partitions"`
	// Configs are the topic's own settings, by Kafka's names; what is not here has its default.
	Configs map[string]string `json:"configs,omitempty"`
	// Internal marks a topic of the broker's own, such as __consumer_offsets.
	Internal bool `json:"internal,omitempty"`
	// GrownTo is the number of replicas that the controller has given each partition of
	// a topic of the broker's own as brokers joined; 0 if it never had to. What an operator takes away below it stays away.
	GrownTo int `json:"grownTo,omitempty" level:"2"`
	// Drill is set for a topic that a drill made: it exists while that run of the drill is ready.
	Drill *DrillMark `json:"drill,omitempty" level:"3"`
}

// NameRecord reserves a topic's name.
type NameRecord struct {
	V  int           `json:"v"`
	ID types.TopicID `json:"id"`
}

// ControllerRecord is held by the broker that is the controller, bound to its lease.
type ControllerRecord struct {
	V           int               `json:"v"`
	Broker      types.BrokerID    `json:"broker"`
	BrokerEpoch types.BrokerEpoch `json:"brokerEpoch"`
}

// ReportRecord is what a broker says of its logs of partitions that only an
// unclean election can help (R11), bound to its lease: whoever elects takes the
// best of the live replicas.
type ReportRecord struct {
	V      int            `json:"v"`
	Broker types.BrokerID `json:"broker"`
	// BrokerEpoch is the registration in which it reports.
	BrokerEpoch types.BrokerEpoch `json:"brokerEpoch"`
	Logs        []LogReport       `json:"logs"`
}

// LogReport is one replica's log after the cut that it owes to the record's timelines (R19).
type LogReport struct {
	Topic     types.TopicID `json:"topic"`
	Partition int32         `json:"partition"`
	// Revision is the mod revision of the partition record that the report answers to.
	Revision Revision `json:"revision"`
	// LastEpoch is the epoch of the last record, NoLeaderEpoch if there is none.
	LastEpoch types.LeaderEpoch `json:"lastEpoch"`
	LogEnd    types.Offset      `json:"logEnd"`
	// Offline: the log can't be opened, or its history can't be cut: it may not lead.
	Offline bool `json:"offline,omitempty"`
	// Restored is set if the record came from a backup: the log is then told as it
	// is, without a cut, because the record may be older than what was cut already.
	Restored *RestoredLog `json:"restored,omitempty"`
}

// RestoredLog is what a replica knows that a record from a backup may not know (R19).
type RestoredLog struct {
	// EpochMax is the highest leader epoch in the log's history and its timeline checkpoint.
	EpochMax types.LeaderEpoch `json:"epochMax"`
	// Timelines is the list that the replica has applied; empty if none.
	Timelines timeline.List `json:"timelines,omitempty"`
}

// Equal reports whether both say the same.
func (l LogReport) Equal(o LogReport) bool {
	a, b := l.Restored, o.Restored
	l.Restored, o.Restored = nil, nil
	if l != o || (a == nil) != (b == nil) {
		return false
	}
	return a == nil || a.EpochMax == b.EpochMax && a.Timelines.Equal(b.Timelines)
}

// What a mirror is asked to do.
const (
	WantCreated = "created" // exists, never started
	WantRunning = "running"
	WantPaused  = "paused"
	WantStopped = "stopped" // failed over: its partitions are promoted or about to be
)

var mirrorWants = []string{WantCreated, WantRunning, WantPaused, WantStopped}

// MirrorRecord is a mirror as the operator asked for it. What became of each
// partition is in the partition records.
type MirrorRecord struct {
	V    int    `json:"v"`
	Name string `json:"name"`
	// Bootstrap are addresses of the source, HOST:PORT.
	Bootstrap []string `json:"bootstrap"`
	// ClientConfig are the source client's properties by Kafka's names. They may hold secrets.
	ClientConfig map[string]string `json:"clientConfig,omitempty"`
	// Topics, Exclude and Groups are RE2 expressions that match whole names.
	Topics  string `json:"topics,omitempty"`
	Exclude string `json:"exclude,omitempty"`
	Groups  string `json:"groups,omitempty"`
	// SourceClusterID is the source's cluster id since the first connect (R26).
	SourceClusterID string `json:"sourceClusterId,omitempty"`
	// Want is one of the Want… constants.
	Want string `json:"want"`
	// StartID is fresh with every start (R23).
	StartID string `json:"startId,omitempty"`
	// Settings are the mirror's own settings, such as gap.policy and mirror.epoch.headroom.
	Settings  map[string]string `json:"settings,omitempty"`
	CreatedAt types.Millis      `json:"createdAt"`
	// Cut is the one of the last consistent failover, nil if there was none. It counts for the start that it names alone.
	Cut *ConsistentCut `json:"cut,omitempty" level:"2"`
	// Switch is the newest switchover, nil if there was none since LevelAttempts.
	Switch *Switchover `json:"switch,omitempty" level:"4"`
}

// ConsistentCut says at which offsets partitions are promoted, so that no
// transaction is half mirrored (docs/adr/0011).
type ConsistentCut struct {
	// ID names the facts that the cut stands on, as a preview told it.
	ID      string       `json:"id"`
	StartID string       `json:"startId"`
	At      types.Millis `json:"at"`
	// Offsets are by topic id and partition number; -1: not a partition of this failover.
	Offsets map[string][]types.Offset `json:"offsets"`
	// Compacted are the partitions, by topic id, of which the operator was told that
	// their compaction has reached beyond the cut (docs/adr/0027).
	Compacted map[string][]int32 `json:"compacted,omitempty"`
}

// BrokerConfigRecord holds dynamic settings of one broker, or of all.
type BrokerConfigRecord struct {
	V       int               `json:"v"`
	Configs map[string]string `json:"configs"`
}

// ProducerIDsRecord is the counter that blocks of producer ids come from: an
// id is High above 32 counting bits (R30).
type ProducerIDsRecord struct {
	V int `json:"v"`
	// High are the 31 random bits of this cluster's range, 0 to 2³¹-1.
	High uint32 `json:"high"`
	// Next is the first count not handed out yet, 0 to 2³² (then the range is used up).
	Next uint64 `json:"next"`
	// Broker and BrokerEpoch say who took the last block, so that one writer's
	// block is never mistaken for another's.
	Broker      types.BrokerID    `json:"broker"`
	BrokerEpoch types.BrokerEpoch `json:"brokerEpoch"`
}
