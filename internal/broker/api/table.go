package api

import "tidemark/internal/wire"

// coreAPIs is the table of all APIs but the group APIs (table_groups.go): one
// row per file. What isn't here isn't advertised; skipped.md says why.
func coreAPIs() []entry {
	return []entry{
		on(wire.KeyProduce, (*Call).produce),
		{key: wire.KeyFetch, encode: fetch},
		on(wire.KeyListOffsets, (*Call).listOffsets),
		on(wire.KeyMetadata, (*Call).metadata),
		on(wire.KeyApiVersions, (*Call).apiVersions),
		on(wire.KeyCreateTopics, (*Call).createTopics),
		on(wire.KeyDeleteTopics, (*Call).deleteTopics),
		on(wire.KeyDeleteRecords, (*Call).deleteRecords),
		on(wire.KeyInitProducerId, (*Call).initProducerID),
		on(wire.KeyOffsetForLeaderEpoch, (*Call).offsetForLeaderEpoch),
		on(wire.KeyDescribeConfigs, (*Call).describeConfigs),
		on(wire.KeyAlterConfigs, (*Call).alterConfigs),
		on(wire.KeyDescribeLogDirs, (*Call).describeLogDirs),
		on(wire.KeyCreatePartitions, (*Call).createPartitions),
		on(wire.KeyElectLeaders, (*Call).electLeaders),
		on(wire.KeyAlterPartitionReassignments, (*Call).alterPartitionReassignments),
		on(wire.KeyListPartitionReassignments, (*Call).listPartitionReassignments),
		on(wire.KeyIncrementalAlterConfigs, (*Call).incrementalAlterConfigs),
		on(wire.KeyDescribeQuorum, (*Call).describeQuorum),
		on(wire.KeyUpdateFeatures, (*Call).updateFeatures),
		on(wire.KeyDescribeCluster, (*Call).describeCluster),
		on(wire.KeyUnregisterBroker, (*Call).unregisterBroker),
		on(wire.KeyDescribeTopicPartitions, (*Call).describeTopicPartitions),
	}
}
