package wire

import (
	"strconv"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// API is one row of the table of APIs.
type API struct {
	Key  Key
	Name string
	// Min and Max are the version range of Apache Kafka 4.4. What a broker
	// serves is a part of it.
	Min, Max int16
	// FlexibleFrom is the first version with compact types and tagged fields
	// (KIP-482); NeverFlexible if there is none.
	FlexibleFrom int16
}

// NeverFlexible is a version that no API has.
const NeverFlexible int16 = 1<<15 - 1

// Key is an API key, the first field of a request.
type Key int16

// String gives the API's name, or its number if the table has none.
func (k Key) String() string {
	if a, ok := LookupAPI(k); ok {
		return a.Name
	}
	return "api " + strconv.Itoa(int(k))
}

// HasVersion reports whether version lies in the API's range.
func (a API) HasVersion(version int16) bool { return a.Min <= version && version <= a.Max }

// IsFlexible reports whether version uses compact types and tagged fields.
func (a API) IsFlexible(version int16) bool { return version >= a.FlexibleFrom }

// LookupAPI finds a key's row, of Kafka's APIs or of our own. It reports false
// for every other key that a broker (not a controller) of Kafka 4.4 doesn't know.
func LookupAPI(k Key) (API, bool) {
	for _, a := range ownAPIs {
		if a.Key == k {
			return a, true
		}
	}
	for _, a := range draftAPIs {
		if a.Key == k {
			return a, true
		}
	}
	if k < 0 || int(k) >= len(apiByKey) || apiByKey[k].Name == "" {
		return API{}, false
	}
	return apiByKey[k], true
}

// OwnAPIs lists the APIs that Kafka doesn't have: keys from 32,000 up, shown only
// to clients that call themselves SoftwareName (DESIGN §6). Their messages
// are this package's own (docs/format/lineage-api.md).
func OwnAPIs() []API { return ownAPIs[:] }

var ownAPIs = [...]API{
	{Key: KeyDescribeLineage, Name: "DescribeLineage", Min: 0, Max: 0, FlexibleFrom: 0},
	{Key: KeyMirrorVerb, Name: "MirrorVerb", Min: 0, Max: 0, FlexibleFrom: 0},
	{Key: KeyDescribeScramKeys, Name: "DescribeScramKeys", Min: 0, Max: 0, FlexibleFrom: 0},
	{Key: KeyWakeFetch, Name: "WakeFetch", Min: 0, Max: 0, FlexibleFrom: 0},
}

// The API keys of our own.
const (
	KeyDescribeLineage Key = 32000
	KeyMirrorVerb      Key = 32001
)

// KeyWakeFetch is used between the brokers of one cluster.
const KeyWakeFetch Key = 32010

// NewRequest makes an empty request of a key, nil if nobody knows its messages.
func NewRequest(k Key) kmsg.Request {
	switch k {
	case KeyDescribeLineage:
		return &LineageRequest{}
	case KeyMirrorVerb:
		return &MirrorVerbRequest{}
	case KeyDescribeScramKeys:
		return &ScramKeysRequest{}
	case KeyListClusterMirrors:
		return &ListClusterMirrorsRequest{}
	case KeyDescribeClusterMirrors:
		return &DescribeClusterMirrorsRequest{}
	}
	if k == KeyWakeFetch {
		return &WakeFetchRequest{}
	}
	return kmsg.RequestForKey(int16(k))
}

// APIs lists every row of Kafka's table in the order of keys.
func APIs() []API {
	var all []API
	for _, a := range apiByKey {
		if a.Name != "" {
			all = append(all, a)
		}
	}
	return all
}

// The API keys that this project names in code.
const (
	KeyProduce                      Key = 0
	KeyFetch                        Key = 1
	KeyListOffsets                  Key = 2
	KeyMetadata                     Key = 3
	KeyOffsetCommit                 Key = 8
	KeyOffsetFetch                  Key = 9
	KeyFindCoordinator              Key = 10
	KeyJoinGroup                    Key = 11
	KeyHeartbeat                    Key = 12
	KeyLeaveGroup                   Key = 13
	KeySyncGroup                    Key = 14
	KeyDescribeGroups               Key = 15
	KeyListGroups                   Key = 16
	KeySaslHandshake                Key = 17
	KeyApiVersions                  Key = 18
	KeyCreateTopics                 Key = 19
	KeyDeleteTopics                 Key = 20
	KeyDeleteRecords                Key = 21
	KeyInitProducerId               Key = 22
	KeyOffsetForLeaderEpoch         Key = 23
	KeyAddPartitionsToTxn           Key = 24
	KeyAddOffsetsToTxn              Key = 25
	KeyEndTxn                       Key = 26
	KeyWriteTxnMarkers              Key = 27
	KeyTxnOffsetCommit              Key = 28
	KeyDescribeAcls                 Key = 29
	KeyCreateAcls                   Key = 30
	KeyDeleteAcls                   Key = 31
	KeyDescribeConfigs              Key = 32
	KeyAlterConfigs                 Key = 33
	KeyAlterReplicaLogDirs          Key = 34
	KeyDescribeLogDirs              Key = 35
	KeySaslAuthenticate             Key = 36
	KeyCreatePartitions             Key = 37
	KeyDeleteGroups                 Key = 42
	KeyElectLeaders                 Key = 43
	KeyIncrementalAlterConfigs      Key = 44
	KeyAlterPartitionReassignments  Key = 45
	KeyListPartitionReassignments   Key = 46
	KeyOffsetDelete                 Key = 47
	KeyDescribeClientQuotas         Key = 48
	KeyAlterClientQuotas            Key = 49
	KeyDescribeUserScramCredentials Key = 50
	KeyAlterUserScramCredentials    Key = 51
	KeyDescribeQuorum               Key = 55
	KeyUpdateFeatures               Key = 57
	KeyDescribeCluster              Key = 60
	KeyDescribeProducers            Key = 61
	KeyUnregisterBroker             Key = 64
	KeyDescribeTransactions         Key = 65
	KeyListTransactions             Key = 66
	KeyConsumerGroupHeartbeat       Key = 68
	KeyConsumerGroupDescribe        Key = 69
	KeyGetTelemetrySubscriptions    Key = 71
	KeyPushTelemetry                Key = 72
	KeyListConfigResources          Key = 74
	KeyDescribeTopicPartitions      Key = 75
)

// apiByKey is the table: Apache Kafka 4.4's ranges, from its message files.
var apiByKey = [...]API{
	KeyProduce:                      {Key: KeyProduce, Name: "Produce", Min: 3, Max: 13, FlexibleFrom: 9},
	KeyFetch:                        {Key: KeyFetch, Name: "Fetch", Min: 4, Max: 18, FlexibleFrom: 12},
	KeyListOffsets:                  {Key: KeyListOffsets, Name: "ListOffsets", Min: 1, Max: 11, FlexibleFrom: 6},
	KeyMetadata:                     {Key: KeyMetadata, Name: "Metadata", Min: 0, Max: 13, FlexibleFrom: 9},
	KeyOffsetCommit:                 {Key: KeyOffsetCommit, Name: "OffsetCommit", Min: 2, Max: 10, FlexibleFrom: 8},
	KeyOffsetFetch:                  {Key: KeyOffsetFetch, Name: "OffsetFetch", Min: 1, Max: 10, FlexibleFrom: 6},
	KeyFindCoordinator:              {Key: KeyFindCoordinator, Name: "FindCoordinator", Min: 0, Max: 6, FlexibleFrom: 3},
	KeyJoinGroup:                    {Key: KeyJoinGroup, Name: "JoinGroup", Min: 0, Max: 9, FlexibleFrom: 6},
	KeyHeartbeat:                    {Key: KeyHeartbeat, Name: "Heartbeat", Min: 0, Max: 4, FlexibleFrom: 4},
	KeyLeaveGroup:                   {Key: KeyLeaveGroup, Name: "LeaveGroup", Min: 0, Max: 5, FlexibleFrom: 4},
	KeySyncGroup:                    {Key: KeySyncGroup, Name: "SyncGroup", Min: 0, Max: 5, FlexibleFrom: 4},
	KeyDescribeGroups:               {Key: KeyDescribeGroups, Name: "DescribeGroups", Min: 0, Max: 6, FlexibleFrom: 5},
	KeyListGroups:                   {Key: KeyListGroups, Name: "ListGroups", Min: 0, Max: 5, FlexibleFrom: 3},
	KeySaslHandshake:                {Key: KeySaslHandshake, Name: "SaslHandshake", Min: 0, Max: 1, FlexibleFrom: NeverFlexible},
	KeyApiVersions:                  {Key: KeyApiVersions, Name: "ApiVersions", Min: 0, Max: 5, FlexibleFrom: 3},
	KeyCreateTopics:                 {Key: KeyCreateTopics, Name: "CreateTopics", Min: 2, Max: 7, FlexibleFrom: 5},
	KeyDeleteTopics:                 {Key: KeyDeleteTopics, Name: "DeleteTopics", Min: 1, Max: 6, FlexibleFrom: 4},
	KeyDeleteRecords:                {Key: KeyDeleteRecords, Name: "DeleteRecords", Min: 0, Max: 2, FlexibleFrom: 2},
	KeyInitProducerId:               {Key: KeyInitProducerId, Name: "InitProducerId", Min: 0, Max: 5, FlexibleFrom: 2},
	KeyOffsetForLeaderEpoch:         {Key: KeyOffsetForLeaderEpoch, Name: "OffsetForLeaderEpoch", Min: 2, Max: 4, FlexibleFrom: 4},
	KeyAddPartitionsToTxn:           {Key: KeyAddPartitionsToTxn, Name: "AddPartitionsToTxn", Min: 0, Max: 5, FlexibleFrom: 3},
	KeyAddOffsetsToTxn:              {Key: KeyAddOffsetsToTxn, Name: "AddOffsetsToTxn", Min: 0, Max: 4, FlexibleFrom: 3},
	KeyEndTxn:                       {Key: KeyEndTxn, Name: "EndTxn", Min: 0, Max: 5, FlexibleFrom: 3},
	KeyWriteTxnMarkers:              {Key: KeyWriteTxnMarkers, Name: "WriteTxnMarkers", Min: 1, Max: 2, FlexibleFrom: 1},
	KeyTxnOffsetCommit:              {Key: KeyTxnOffsetCommit, Name: "TxnOffsetCommit", Min: 0, Max: 6, FlexibleFrom: 3},
	KeyDescribeAcls:                 {Key: KeyDescribeAcls, Name: "DescribeAcls", Min: 1, Max: 3, FlexibleFrom: 2},
	KeyCreateAcls:                   {Key: KeyCreateAcls, Name: "CreateAcls", Min: 1, Max: 3, FlexibleFrom: 2},
	KeyDeleteAcls:                   {Key: KeyDeleteAcls, Name: "DeleteAcls", Min: 1, Max: 3, FlexibleFrom: 2},
	KeyDescribeConfigs:              {Key: KeyDescribeConfigs, Name: "DescribeConfigs", Min: 1, Max: 4, FlexibleFrom: 4},
	KeyAlterConfigs:                 {Key: KeyAlterConfigs, Name: "AlterConfigs", Min: 0, Max: 2, FlexibleFrom: 2},
	KeyAlterReplicaLogDirs:          {Key: KeyAlterReplicaLogDirs, Name: "AlterReplicaLogDirs", Min: 1, Max: 2, FlexibleFrom: 2},
	KeyDescribeLogDirs:              {Key: KeyDescribeLogDirs, Name: "DescribeLogDirs", Min: 1, Max: 5, FlexibleFrom: 2},
	KeySaslAuthenticate:             {Key: KeySaslAuthenticate, Name: "SaslAuthenticate", Min: 0, Max: 2, FlexibleFrom: 2},
	KeyCreatePartitions:             {Key: KeyCreatePartitions, Name: "CreatePartitions", Min: 0, Max: 3, FlexibleFrom: 2},
	KeyDeleteGroups:                 {Key: KeyDeleteGroups, Name: "DeleteGroups", Min: 0, Max: 3, FlexibleFrom: 2},
	KeyElectLeaders:                 {Key: KeyElectLeaders, Name: "ElectLeaders", Min: 0, Max: 2, FlexibleFrom: 2},
	KeyIncrementalAlterConfigs:      {Key: KeyIncrementalAlterConfigs, Name: "IncrementalAlterConfigs", Min: 0, Max: 1, FlexibleFrom: 1},
	KeyAlterPartitionReassignments:  {Key: KeyAlterPartitionReassignments, Name: "AlterPartitionReassignments", Min: 0, Max: 1, FlexibleFrom: 0},
	KeyListPartitionReassignments:   {Key: KeyListPartitionReassignments, Name: "ListPartitionReassignments", Min: 0, Max: 0, FlexibleFrom: 0},
	KeyOffsetDelete:                 {Key: KeyOffsetDelete, Name: "OffsetDelete", Min: 0, Max: 0, FlexibleFrom: NeverFlexible},
	KeyDescribeClientQuotas:         {Key: KeyDescribeClientQuotas, Name: "DescribeClientQuotas", Min: 0, Max: 1, FlexibleFrom: 1},
	KeyAlterClientQuotas:            {Key: KeyAlterClientQuotas, Name: "AlterClientQuotas", Min: 0, Max: 1, FlexibleFrom: 1},
	KeyDescribeUserScramCredentials: {Key: KeyDescribeUserScramCredentials, Name: "DescribeUserScramCredentials", Min: 0, Max: 0, FlexibleFrom: 0},
	KeyAlterUserScramCredentials:    {Key: KeyAlterUserScramCredentials, Name: "AlterUserScramCredentials", Min: 0, Max: 0, FlexibleFrom: 0},
	KeyDescribeQuorum:               {Key: KeyDescribeQuorum, Name: "DescribeQuorum", Min: 0, Max: 2, FlexibleFrom: 0},
	KeyUpdateFeatures:               {Key: KeyUpdateFeatures, Name: "UpdateFeatures", Min: 0, Max: 2, FlexibleFrom: 0},
	KeyDescribeCluster:              {Key: KeyDescribeCluster, Name: "DescribeCluster", Min: 0, Max: 2, FlexibleFrom: 0},
	KeyDescribeProducers:            {Key: KeyDescribeProducers, Name: "DescribeProducers", Min: 0, Max: 0, FlexibleFrom: 0},
	KeyUnregisterBroker:             {Key: KeyUnregisterBroker, Name: "UnregisterBroker", Min: 0, Max: 0, FlexibleFrom: 0},
	KeyDescribeTransactions:         {Key: KeyDescribeTransactions, Name: "DescribeTransactions", Min: 0, Max: 0, FlexibleFrom: 0},
	KeyListTransactions:             {Key: KeyListTransactions, Name: "ListTransactions", Min: 0, Max: 2, FlexibleFrom: 0},
	KeyConsumerGroupHeartbeat:       {Key: KeyConsumerGroupHeartbeat, Name: "ConsumerGroupHeartbeat", Min: 0, Max: 1, FlexibleFrom: 0},
	KeyConsumerGroupDescribe:        {Key: KeyConsumerGroupDescribe, Name: "ConsumerGroupDescribe", Min: 0, Max: 1, FlexibleFrom: 0},
	KeyGetTelemetrySubscriptions:    {Key: KeyGetTelemetrySubscriptions, Name: "GetTelemetrySubscriptions", Min: 0, Max: 0, FlexibleFrom: 0},
	KeyPushTelemetry:                {Key: KeyPushTelemetry, Name: "PushTelemetry", Min: 0, Max: 0, FlexibleFrom: 0},
	KeyListConfigResources:          {Key: KeyListConfigResources, Name: "ListConfigResources", Min: 0, Max: 1, FlexibleFrom: 0},
	KeyDescribeTopicPartitions:      {Key: KeyDescribeTopicPartitions, Name: "DescribeTopicPartitions", Min: 0, Max: 0, FlexibleFrom: 0},
}
