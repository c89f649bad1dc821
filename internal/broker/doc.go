// Package broker is one node: it drives the pure core, carries its effects out
// on logs and metadata, and puts all other packages together.
//
// It owns the event loops (shards), each of which owns many partitions: all
// writes of a partition go through its shard, one at a time, and reads go
// straight to the log. It owns the log dirs, the image of the metadata that one
// watch keeps moving, the registration, the elections after a restart, topic
// changes, and the clocks of retention, compaction, flushing and checkpoints.
// Every goroutine has an owner that stops it and waits for it.
//
// It never decides what replication means: core/replica, core/timeline,
// core/control and core/mirror do. It doesn't speak the protocol: broker/api
// does, over the interfaces that Partition, topics and producerIDs implement.
//
// A failed assertion takes the partition it happened in offline; the node
// goes on with the others.
//
// Tests: shards, partitions and log dirs over memory file systems and the
// in-memory metadata store here; whole nodes with real clients in test/e2e.
// goleak watches all of them.
package broker
