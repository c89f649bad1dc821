// Package log is one partition's log on disk, in Apache Kafka's formats.
//
// It owns a folder <topic>-<partition>/ with its segments (.log, .index,
// .timeindex, .txnindex), producer snapshots (.snapshot), the epoch history
// (leader-epoch-checkpoint), partition.metadata and timeline-checkpoint, and it
// owns the formats of the files that a log directory keeps for all of its
// partitions (Checkpoints, MetaProperties, clean-shutdown file).
//
// It never speaks the wire protocol, never decides who leads, never moves the
// high watermark by itself, and never renumbers a record.
//
// One owner calls the methods marked W, one at a time. Methods marked R may be
// called from any goroutine at any time: they take one consistent View under a
// lock that is never held across I/O and then work on files that stay readable
// until they are released.
//
// Tests: the project's vectors, tables of named corruptions per file format, a
// loop that fails the n-th I/O operation of every procedure, a crash at every
// step of a cut, a state machine against a small model, and compaction against
// a map.
package log
