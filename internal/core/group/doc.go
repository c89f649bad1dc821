// Package group is the pure state machine behind consumer groups: the classic
// rebalance protocol (join, sync, heartbeat, leave, static members of KIP-345)
// and the bookkeeping of committed offsets with their retention.
//
// A Table holds every group whose id hashes to one partition of
// __consumer_offsets. It takes events and appends effects: answers to parked
// requests and records to write. It owns the truth about members, generations
// and offsets; it never reads a clock (each event carries the time), starts no
// goroutine, draws no random number (fresh member ids come with the event) and
// knows no encoding: records are values that internal/broker/coordinator
// writes in Kafka's format.
//
// Member metadata and assignments are opaque bytes. The one exception is the
// list of topics in the subscription of protocol type "consumer", which Kafka
// also reads, for the retention and the deletion of offsets.
//
// Tested by scripts with golden output (testdata), by f-tests for each error
// code, and by a random walk that checks the invariants I-70 to I-77 after
// each step.
package group
