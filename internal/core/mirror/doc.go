// Package mirror is one mirrored partition: what the leader of a read-only copy
// does to keep it equal to a partition of another cluster, and how that copy
// becomes writable.
//
// It owns the states (DESIGN §6.2), identity (R26), the adoption of the source's
// timelines (R18), the two cuts (R19, R20), the raise of the leader epoch (R21),
// gaps (R28), the promotion (R23) and the lag. What it does with the answer to
// a fetch is core/replica's follower, which follows leaders of this cluster, too.
// Every change of the partition record is computed here, record in, record out.
//
// It never talks to a source, a log, a store or a clock: Partition.Step takes an
// event and appends effects. Record bytes never enter it.
//
// Tests: the vectors of mirror_lmle; scripts in testdata that tell a mirror's
// life and print every effect; a random model of a source with unclean elections
// and its mirror that compares contents after every accepted fetch and that
// finds each rule when it is switched off.
package mirror

// How a driver uses Partition:
//
//   - It owns the partition while it calls Step, gives the log as it is now with
//     every event, and carries the effects out in order. Log effects of one
//     partition are carried out one after another. Effects that take time
//     (look-ups, fetches, probes, proposals, backoff) must not block the
//     partition: their answers come as later events.
//   - Every effect that is answered carries a Ticket. The driver puts it into the
//     answer unchanged. An answer whose ticket has been overtaken is dropped
//     here, so that late ones need no care.
//   - At most one asking effect is outstanding at any time. A new one replaces
//     it, whatever it was.
//   - After Propose the record that came of it is shown first (RecordShown), then
//     the outcome (Proposed), only once it is certain (R8).
