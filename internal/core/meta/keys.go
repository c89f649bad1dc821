package meta

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"tidemark/internal/core/types"
)

// Keys builds and reads the keys of one cluster: everything below
// /tidemark/<cluster id>/ (docs/format/meta-keys.md).
type Keys struct{ root string }

// KeysOf gives the keys of the cluster with this id. The id must be valid (ValidClusterID).
func KeysOf(clusterID string) Keys { return Keys{root: "/tidemark/" + clusterID + "/"} }

// Root is the prefix of all keys of the cluster; one watch of it feeds the image.
func (k Keys) Root() string { return k.root }

// Cluster is the key of the ClusterRecord, written once.
func (k Keys) Cluster() string { return k.root + "cluster" }

// Broker is the key of a broker's registration; its create revision is the broker epoch.
func (k Keys) Broker(id types.BrokerID) string {
	return k.root + "brokers/" + strconv.Itoa(int(id))
}

// Topic is the key of a TopicRecord.
func (k Keys) Topic(id types.TopicID) string { return k.root + "topics/" + id.String() }

// Name is the key that reserves a topic's name.
func (k Keys) Name(topic string) string { return k.root + "names/" + topic }

// Partition is the key of a PartitionRecord.
func (k Keys) Partition(id types.TopicID, partition int32) string {
	return k.Partitions(id) + strconv.Itoa(int(partition))
}

// Partitions is the prefix of all partition records of a topic.
func (k Keys) Partitions(id types.TopicID) string {
	return k.root + "partitions/" + id.String() + "/"
}

// Controller is the election key of the controller; its create revision fences the controller's writes.
func (k Keys) Controller() string { return k.root + "controller" }

// Mirror is the key of a MirrorRecord.
func (k Keys) Mirror(name string) string { return k.root + "mirrors/" + name }

// BrokerConfig is the key of one broker's dynamic configs, or with NoBroker of
// those of all brokers.
func (k Keys) BrokerConfig(id types.BrokerID) string {
	if id == types.NoBroker {
		return k.root + "configs/brokers/default"
	}
	return k.root + "configs/brokers/" + strconv.Itoa(int(id))
}

// ProducerIDs is the key of the ProducerIDsRecord.
func (k Keys) ProducerIDs() string { return k.root + "producer-ids" }

// Node is the key of a NodeRecord.
func (k Keys) Node(id types.BrokerID) string { return k.root + "nodes/" + strconv.Itoa(int(id)) }

// Features is the key of the FeaturesRecord.
func (k Keys) Features() string { return k.root + "features" }

// Report is the key of a broker's ReportRecord.
func (k Keys) Report(id types.BrokerID) string { return k.root + "reports/" + strconv.Itoa(int(id)) }

// DefaultClusterKey holds the id of the first cluster of a store: the one that
// a node belongs to which knows none of its own.
const DefaultClusterKey = "/tidemark/default-cluster"

// KeyKind says which record a key holds.
type KeyKind int8

// The kinds of key. KeyForeign is one that this version doesn't know: it is
// left alone.
const (
	KeyForeign KeyKind = iota
	KeyCluster
	KeyBroker
	KeyTopic
	KeyName
	KeyPartition
	KeyController
	KeyMirror
	KeyBrokerConfig
	KeyProducerIDs
	KeyReport
	KeyNode
	KeyFeatures
	KeyACL
	KeyScram
	KeyDrill
)

// Key is a key taken apart. Only the fields of its kind are set.
type Key struct {
	Kind      KeyKind
	Broker    types.BrokerID // KeyBroker, KeyNode, KeyReport; KeyBrokerConfig, where NoBroker means the default for all
	TopicID   types.TopicID  // KeyTopic, KeyPartition
	Partition int32          // KeyPartition
	Name      string         // KeyName, KeyMirror, KeyDrill; KeyACL: the id of the binding
	Scram     ScramID        // KeyScram
}

// ErrKey is returned for a key that looks like one of ours but can't be read.
var ErrKey = errors.New("malformed metadata key")

// Parse takes a key apart. A key of a kind that this version doesn't know is
// KeyForeign without an error; a malformed one of a known kind is ErrKey.
func (k Keys) Parse(key string) (Key, error) {
	rest, ours := strings.CutPrefix(key, k.root)
	if !ours {
		return Key{}, fmt.Errorf("%q is not below %s: %w", key, k.root, ErrKey)
	}
	kind, arg, _ := strings.Cut(rest, "/")
	switch kind {
	case "cluster", "controller", "features", "producer-ids":
		return parseSingle(key, kind, rest)
	case "brokers":
		id, err := parseNumber(key, arg)
		return Key{Kind: KeyBroker, Broker: types.BrokerID(id)}, err
	case "nodes":
		id, err := parseNumber(key, arg)
		return Key{Kind: KeyNode, Broker: types.BrokerID(id)}, err
	case "reports":
		id, err := parseNumber(key, arg)
		return Key{Kind: KeyReport, Broker: types.BrokerID(id)}, err
	case "topics":
		id, err := parseTopicID(key, arg)
		return Key{Kind: KeyTopic, TopicID: id}, err
	case "names":
		return parseName(key, KeyName, arg)
	case "mirrors":
		return parseName(key, KeyMirror, arg)
	case "drills":
		return parseName(key, KeyDrill, arg)
	case "partitions":
		return parsePartition(key, arg)
	case "configs":
		return parseConfigKey(key, arg)
	case "acls":
		return parseName(key, KeyACL, arg)
	case "scram":
		return parseScramKey(key, arg)
	}
	return Key{Kind: KeyForeign}, nil
}

func parseSingle(key, kind, rest string) (Key, error) {
	if kind != rest {
		return Key{}, fmt.Errorf("%q: %w", key, ErrKey)
	}
	switch kind {
	case "cluster":
		return Key{Kind: KeyCluster}, nil
	case "controller":
		return Key{Kind: KeyController}, nil
	case "features":
		return Key{Kind: KeyFeatures}, nil
	}
	return Key{Kind: KeyProducerIDs}, nil
}

func parseName(key string, kind KeyKind, arg string) (Key, error) {
	if arg == "" || strings.Contains(arg, "/") {
		return Key{}, fmt.Errorf("%q: %w", key, ErrKey)
	}
	return Key{Kind: kind, Name: arg}, nil
}

func parsePartition(key, arg string) (Key, error) {
	topic, number, _ := strings.Cut(arg, "/")
	id, err := parseTopicID(key, topic)
	if err != nil {
		return Key{}, err
	}
	n, err := parseNumber(key, number)
	return Key{Kind: KeyPartition, TopicID: id, Partition: n}, err
}

func parseConfigKey(key, arg string) (Key, error) {
	scope, entity, _ := strings.Cut(arg, "/")
	if scope != "brokers" {
		return Key{Kind: KeyForeign}, nil
	}
	if entity == "default" {
		return Key{Kind: KeyBrokerConfig, Broker: types.NoBroker}, nil
	}
	id, err := parseNumber(key, entity)
	return Key{Kind: KeyBrokerConfig, Broker: types.BrokerID(id)}, err
}

// parseNumber takes only the canonical decimal form, so that no two keys name one thing.
func parseNumber(key, s string) (int32, error) {
	n, err := strconv.ParseInt(s, 10, 32)
	if err != nil || n < 0 || strconv.FormatInt(n, 10) != s {
		return 0, fmt.Errorf("%q: %q is not a number from 0 up: %w", key, s, ErrKey)
	}
	return int32(n), nil
}

func parseTopicID(key, s string) (types.TopicID, error) {
	id, err := types.ParseTopicID(s)
	if err != nil {
		return id, fmt.Errorf("%q: %w: %w", key, ErrKey, err)
	}
	if id.String() != s {
		return id, fmt.Errorf("%q: %q is not in canonical form: %w", key, s, ErrKey)
	}
	return id, nil
}

// ValidClusterID reports whether s may be a cluster id: 1 to 64 characters of
// [a-zA-Z0-9_-]. Kafka makes them 22 characters of URL-safe base64.
func ValidClusterID(s string) bool {
	if s == "" || len(s) > 64 {
		return false
	}
	return strings.IndexFunc(s, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-')
	}) < 0
}
