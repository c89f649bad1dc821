package source

import (
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/wire"
)

// apiRange is the range of versions this client speaks of one API.
type apiRange struct {
	key      int16
	name     string
	min, max int16
	required bool
}

// The APIs of a mirror. The required minima are those of Apache Kafka 2.1
// (KIP-320: leader epochs in Fetch, ListOffsets, Metadata and OffsetForLeaderEpoch).
var apis = []apiRange{
	{1, "Fetch", 10, 18, true},
	{2, "ListOffsets", 4, 10, true},
	{3, "Metadata", 7, 13, true},
	{9, "OffsetFetch", 1, 9, false},
	{10, "FindCoordinator", 0, 6, false},
	{16, "ListGroups", 0, 5, false},
	{17, "SaslHandshake", 1, 1, false},
	{18, "ApiVersions", 0, 3, false},
	{23, "OffsetForLeaderEpoch", 2, 4, true},
	{32, "DescribeConfigs", 0, 4, false},
	{36, "SaslAuthenticate", 0, 2, false},
	{int16(wire.KeyAddPartitionsToTxn), "AddPartitionsToTxn", 4, 5, false},
	{int16(wire.KeyWriteTxnMarkers), "WriteTxnMarkers", 1, 2, false},
	{keyDescribeProducers, "DescribeProducers", 0, 0, false},
	{int16(wire.KeyListClusterMirrors), "ListClusterMirrors", 0, 0, false},
	{int16(wire.KeyDescribeClusterMirrors), "DescribeClusterMirrors", 0, 0, false},
	{int16(wire.KeyDescribeLineage), "DescribeLineage", 0, 0, false},
	{int16(wire.KeyMirrorVerb), "MirrorVerb", 0, 0, false},
	{int16(wire.KeyWakeFetch), "WakeFetch", 0, 0, false},
	{int16(wire.KeyDescribeAcls), "DescribeAcls", 1, 3, false},
	{int16(wire.KeyDescribeUserScramCredentials), "DescribeUserScramCredentials", 0, 0, false},
	{int16(wire.KeyDescribeScramKeys), "DescribeScramKeys", 0, 0, false},
}

// versionTable holds what a broker offers, by API key.
type versionTable map[int16]versionRange

type versionRange struct{ min, max int16 }

func apiOf(key int16) apiRange {
	for _, a := range apis {
		if a.key == key {
			return a
		}
	}
	return apiRange{key: key, name: fmt.Sprintf("API %d", key)}
}

// choose gives the highest version both sides speak.
func (t versionTable) choose(broker string, key int16) (int16, error) {
	a, offer := apiOf(key), t[key]
	if _, ok := t[key]; !ok {
		return 0, &Error{Kind: ErrTooOld, Broker: broker, Op: a.name, Sentence: "the source doesn't offer this API", Code: CodeUnsupportedVersion}
	}
	v := min(a.max, offer.max)
	if v < a.min || v < offer.min {
		return 0, &Error{Kind: ErrTooOld, Broker: broker, Op: a.name, Code: CodeUnsupportedVersion,
			Sentence: fmt.Sprintf("the source offers versions %d to %d, a mirror speaks %d to %d", offer.min, offer.max, a.min, a.max)}
	}
	return v, nil
}

// checkRequired refuses a broker that is too old to be mirrored (DESIGN §6: Apache Kafka 2.1 and up).
func (t versionTable) checkRequired(broker string) error {
	var lacks []string
	for _, a := range apis {
		if !a.required {
			continue
		}
		offer, ok := t[a.key]
		switch {
		case !ok:
			lacks = append(lacks, a.name+" is not offered")
		case offer.max < a.min:
			lacks = append(lacks, fmt.Sprintf("%s goes up to version %d, needed is %d", a.name, offer.max, a.min))
		case offer.min > a.max:
			lacks = append(lacks, fmt.Sprintf("%s starts at version %d, known are versions up to %d", a.name, offer.min, a.max))
		}
	}
	if len(lacks) == 0 {
		return nil
	}
	return &Error{Kind: ErrTooOld, Broker: broker, Code: CodeUnsupportedVersion,
		Sentence: "the source can't be mirrored: " + strings.Join(lacks, "; ") + " (Apache Kafka 2.1 or later is needed)"}
}

func tableFrom(keys []kmsg.ApiVersionsResponseApiKey) versionTable {
	t := make(versionTable, len(keys))
	for _, k := range keys {
		if k.MinVersion >= 0 && k.MaxVersion >= k.MinVersion {
			t[k.ApiKey] = versionRange{k.MinVersion, k.MaxVersion}
		}
	}
	return t
}
