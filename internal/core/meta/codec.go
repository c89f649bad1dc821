package meta

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// ErrVersion is matched by the error of a value whose version this program doesn't know.
var ErrVersion = errors.New("unknown version")

// ErrValue is matched by the error of a value that can't be read.
var ErrValue = errors.New("malformed value")

// ValueError says which key holds what can't be read, and what to do about it.
type ValueError struct {
	Key string
	Err error
}

// Error names the key, the fault and the way out.
func (e *ValueError) Error() string {
	if errors.Is(e.Err, ErrVersion) {
		return fmt.Sprintf("metadata key %s: %v; a newer tidemark wrote it: start that version, or restore the metadata from before the upgrade", e.Key, e.Err)
	}
	if errors.Is(e.Err, ErrKey) {
		return fmt.Sprintf("metadata: %v; nothing of ours has such a key: delete it", e.Err)
	}
	return fmt.Sprintf("metadata key %s: %v; restore the metadata from a backup, or delete the topic or entry that the key belongs to", e.Key, e.Err)
}

// Unwrap gives the fault alone.
func (e *ValueError) Unwrap() error { return e.Err }

// checked is a record that can say what is wrong with itself.
type checked interface{ check() error }

// decode reads one value strictly: the version must be want, every field must
// be known (dropping one unseen would lose it on the next write), nothing may follow, and
// the record must hold together.
func decode[T any, P interface {
	*T
	checked
}](key string, data []byte, want int) (P, error) {
	v, err := versionOf(data, want)
	if err != nil {
		return nil, &ValueError{Key: key, Err: fmt.Errorf("%w: %w", ErrValue, err)}
	}
	if v != want {
		return nil, &ValueError{Key: key, Err: fmt.Errorf("%w %d (this tidemark reads %d)", ErrVersion, v, want)}
	}
	rec := P(new(T))
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(rec); err != nil {
		return nil, &ValueError{Key: key, Err: fmt.Errorf("%w: %w", ErrValue, err)}
	}
	if len(bytes.TrimSpace(data[dec.InputOffset():])) > 0 {
		return nil, &ValueError{Key: key, Err: fmt.Errorf("%w: something follows the record", ErrValue)}
	}
	if err := rec.check(); err != nil {
		return nil, &ValueError{Key: key, Err: fmt.Errorf("%w: %w", ErrValue, err)}
	}
	return rec, nil
}

// versionOf reads the field v. Records that this program wrote begin with it.
func versionOf(data []byte, want int) (int, error) {
	if bytes.HasPrefix(data, fmt.Appendf(nil, `{"v":%d,`, want)) {
		return want, nil
	}
	var head struct {
		V *int `json:"v"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return 0, err
	}
	if head.V == nil {
		return 0, errors.New("no version field v")
	}
	return *head.V, nil
}

// encode writes a record. Records are plain structs of our own, which json can always write.
func encode(rec any) []byte {
	data, err := json.Marshal(rec)
	if err != nil {
		panic("meta: encode " + err.Error())
	}
	return data
}

// Encode writes the record in its current version.
func (r PartitionRecord) Encode() []byte { r.V = PartitionVersion; return encode(r) }

// Encode writes the record in its current version.
func (r ClusterRecord) Encode() []byte { r.V = ClusterVersion; return encode(r) }

// Encode writes the record in its current version.
func (r BrokerRecord) Encode() []byte { r.V = BrokerVersion; return encode(r) }

// Encode writes the record in its current version.
func (r TopicRecord) Encode() []byte { r.V = TopicVersion; return encode(r) }

// Encode writes the record in its current version.
func (r NameRecord) Encode() []byte { r.V = NameVersion; return encode(r) }

// Encode writes the record in its current version.
func (r ControllerRecord) Encode() []byte { r.V = ControllerVersion; return encode(r) }

// Encode writes the record in its current version.
func (r MirrorRecord) Encode() []byte { r.V = MirrorVersion; return encode(r) }

// Encode writes the record in its current version.
func (r BrokerConfigRecord) Encode() []byte { r.V = BrokerConfigVersion; return encode(r) }

// Encode writes the record in its current version.
func (r ProducerIDsRecord) Encode() []byte { r.V = ProducerIDsVersion; return encode(r) }

// Encode writes the record in its current version.
func (r ReportRecord) Encode() []byte { r.V = ReportVersion; return encode(r) }

// Encode writes the record in its current version.
func (r NodeRecord) Encode() []byte { r.V = NodeVersion; return encode(r) }

// Encode writes the record in its current version.
func (r FeaturesRecord) Encode() []byte { r.V = FeaturesVersion; return encode(r) }

// DecodeNode reads the value of a node key.
func DecodeNode(key string, data []byte) (*NodeRecord, error) {
	return decode[NodeRecord](key, data, NodeVersion)
}

// DecodeFeatures reads the value of the features key.
func DecodeFeatures(key string, data []byte) (*FeaturesRecord, error) {
	return decode[FeaturesRecord](key, data, FeaturesVersion)
}

// DecodeReport reads the value of a report key.
func DecodeReport(key string, data []byte) (*ReportRecord, error) {
	return decode[ReportRecord](key, data, ReportVersion)
}

// DecodePartition reads the value of a partition key.
func DecodePartition(key string, data []byte) (*PartitionRecord, error) {
	return decode[PartitionRecord](key, data, PartitionVersion)
}

// DecodeCluster reads the value of the cluster key.
func DecodeCluster(key string, data []byte) (*ClusterRecord, error) {
	return decode[ClusterRecord](key, data, ClusterVersion)
}

// DecodeBroker reads the value of a broker key.
func DecodeBroker(key string, data []byte) (*BrokerRecord, error) {
	return decode[BrokerRecord](key, data, BrokerVersion)
}

// DecodeTopic reads the value of a topic key.
func DecodeTopic(key string, data []byte) (*TopicRecord, error) {
	return decode[TopicRecord](key, data, TopicVersion)
}

// DecodeName reads the value of a name key.
func DecodeName(key string, data []byte) (*NameRecord, error) {
	return decode[NameRecord](key, data, NameVersion)
}

// DecodeController reads the value of the controller key.
func DecodeController(key string, data []byte) (*ControllerRecord, error) {
	return decode[ControllerRecord](key, data, ControllerVersion)
}

// DecodeMirror reads the value of a mirror key.
func DecodeMirror(key string, data []byte) (*MirrorRecord, error) {
	return decode[MirrorRecord](key, data, MirrorVersion)
}

// DecodeBrokerConfig reads the value of a broker config key.
func DecodeBrokerConfig(key string, data []byte) (*BrokerConfigRecord, error) {
	return decode[BrokerConfigRecord](key, data, BrokerConfigVersion)
}

// DecodeProducerIDs reads the value of the producer-ids key.
func DecodeProducerIDs(key string, data []byte) (*ProducerIDsRecord, error) {
	return decode[ProducerIDsRecord](key, data, ProducerIDsVersion)
}
