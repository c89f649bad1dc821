//go:build chaos && linux

// Package chaosmirror_test changes sides between mirrored clusters, again and
// again, while it harms them, and judges every timeline.
//
// Two clusters A and B of three `tidemark serve` processes each mirror each other
// in turn, and C, of one, mirrors B: seven processes at places of a network that
// can be cut (test/chaos/links, test/chaos/nodes). A round goes: the standby falls
// behind or doesn't, is failed over or switched over to, clients write on both
// sides, the old primary is previewed and fails back by its plan, and may be
// abandoned halfway; C is failed over and back as well; replicas sleep through
// whole rounds. Meanwhile processes are killed, frozen and lose power, and links
// within and between clusters are cut and slowed, during the verbs too.
//
// The test keeps its own list of what was written on which timeline, and of what
// each failback must cut (history.Mirrored). After the last round everything is
// healed: all replicas of all clusters must be byte-equal, every acknowledged
// record in them or in the vaults, and the vaults hold exactly what was cut.
//
// Rounds and faults follow from the seed; what happens in between does not.
// `make chaos-mirror` runs it; docs/TESTING.md says how to read a failure.
package chaosmirror_test
