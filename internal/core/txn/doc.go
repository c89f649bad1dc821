// Package txn is the producer state of one log: idempotence and transactions.
//
// It owns the rules by which a batch of an idempotent producer is new, a
// repetition or out of order (KIP-98), which transactions are open, which were
// aborted, and where the last stable offset stands, and it owns the bytes of a
// producer snapshot (Kafka's .snapshot, version 1). It is pure: no I/O, no
// clock, no lock. The log calls it with the headers of batches in offset order;
// the state equals a replay of those headers, so that a cut is "forget, replay
// what is left".
//
// Tests: the producer_state vectors, a state machine against a replay, and a
// fuzz of the snapshot parser.
package txn
