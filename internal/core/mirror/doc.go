// Package mirror is one mirrored partition: what the leader of a read-only copy
// does to keep it equal to a partition of another cluster, and how that copy
// becomes writable.
//
// It owns the states (DESIGN §6.2), the checks of identity (R26), the adoption of
// the source's timelines (R18), the two cuts (R19, R20), the raise of the
// leader epoch before an append (R21), gaps (R28), the promotion (R23) and the
// lag. What it does with the answer to a fetch is core/replica's follower, the
// same one that follows a leader of this cluster.
//
// Every change of the partition record is computed here, record in, record out:
// the driver adds the compares of R7 and commits. The package never talks to a
// source, a log, a store or a clock: Partition.Step takes an event and appends
// effects, in the order in which they are to be carried out. Record bytes never
// enter it.
//
// How a driver uses it:
//
//   - It owns the partition while it calls Step, gives the log as it is now with
//     every event, carries the effects out in order, and turns what comes back
//     into events. Effects that take time (look-ups, fetches, probes,
//     proposals, backoff) must not block the partition: their answers come as
//     later events.
//   - Every effect that is answered carries a Ticket, a Fetch its Request. The
//     driver puts it into the answer unchanged. An answer whose ticket has been
//     overtaken is dropped here, so that late ones need no care.
//   - At most one asking effect is outstanding at any time, besides Tell.
//
// Tests: the vectors of mirror_lmle; scripts in testdata that tell a mirror's
// life and print every effect; a random model of a source with unclean elections
// and its mirror that compares contents after every accepted fetch and that
// finds each rule when it is switched off.
package mirror
