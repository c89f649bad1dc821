// Package scenario plays failover stories, one after another, on the product's
// own code: the broker's partition and the mirror's copier with their shard in
// line, real logs and vaults on the file system with a crash model, and each
// cluster's metadata in a store in memory, written by core/control's plans.
//
// A story (scenarios.json) is a list of operations on small clusters; nothing
// moves between two of them. After each one the player compares what every
// replica holds, byte for byte where the story says that replicas are equal, and at the
// end histories, timelines, vaults, promotion records, committed offsets and what the operator
// was told. Rules are switched off one at a time: a story that names a rule must
// fail without it.
//
// Of the product it leaves out what has no part in a story: the network, the
// Kafka protocol, the controller's timing and the group coordinator. It has no
// code but tests.
package scenario
