// Package coordinator drives the group coordinator: it carries out what
// internal/core/group decides, one goroutine for each partition of
// __consumer_offsets that this node leads.
//
// It owns the offsets topic (its creation, its record format, which is Kafka's
// own, so that readers of that topic understand it), the loading of a
// partition's groups when this node becomes its leader, their timers, and the
// requests that wait. What must be durable is appended through the broker's
// partition and answered when that append is acknowledged.
//
// It never decides anything about a group, never touches a log file and holds
// no lock while it waits. A loop that breaks an invariant answers its clients
// with COORDINATOR_NOT_AVAILABLE and loads its groups anew; the others go on.
//
// For mirrors it brings in offsets of the source's groups (SyncOffsets) and
// takes back those above a cut (ClampOffsets), see DESIGN §6.3.
//
// Tested by goldens of the record bytes against kmsg, and over an in-memory
// partition: loading, restarts, failed and slow appends, mirrored offsets.
package coordinator
