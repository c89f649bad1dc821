package api

import "tidemark/internal/wire"

// groupAPIs is the table of the group APIs: one row per file of a group API key.
func groupAPIs() []entry {
	return []entry{
		on(wire.KeyOffsetCommit, offsetCommit),
		on(wire.KeyOffsetFetch, offsetFetch),
		on(wire.KeyFindCoordinator, findCoordinator),
		on(wire.KeyJoinGroup, joinGroup),
		on(wire.KeyHeartbeat, heartbeat),
		on(wire.KeyLeaveGroup, leaveGroup),
		on(wire.KeySyncGroup, syncGroup),
		on(wire.KeyDescribeGroups, describeGroups),
		on(wire.KeyListGroups, listGroups),
		on(wire.KeyDeleteGroups, deleteGroups),
		on(wire.KeyOffsetDelete, offsetDelete),
		on(wire.KeyConsumerGroupHeartbeat, consumerGroupHeartbeat),
		on(wire.KeyConsumerGroupDescribe, consumerGroupDescribe),
	}
}
