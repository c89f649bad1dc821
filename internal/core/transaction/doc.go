// Package transaction decides what a transaction coordinator does: what its
// producers are told, what is written to __transaction_state, which markers go
// where (KIP-98, KIP-360, KIP-890).
//
// A Table holds the transactional ids of one partition of __transaction_state. It
// takes events (requests, completions, time) and gives effects: records to be
// written, answers, markers to be sent. It is pure: no I/O, clock, goroutine or
// randomness. internal/broker/transactions drives it.
//
// The life of an id, by the states that Kafka writes:
//
//	Empty ── Add ──▶ Ongoing ── End ──▶ PrepareCommit / PrepareAbort
//	  ▲                 │ too old, or its producer begins anew: PrepareAbort, epoch + 1
//	  │                                      │ all markers are written
//	InitProducerId ◀── CompleteCommit / CompleteAbort ◀┘ (Add begins the next one)
//
// A decision is durable before it is answered or any marker is sent: from Prepare
// on there is no way back. One change of an id is on its way to the log at a time.
// A write of unknown outcome ends the table: what was decided is what the log
// says, so the driver loads it anew.
//
// Tested by scripts of whole lives, and by a random walk that compares every
// answer and marker with what the records alone imply.
package transaction
