// Package mirror drives mirrors: it carries out what core/mirror decides.
//
// It owns, for each mirror, the client to the source cluster, one fetcher for
// each of the source's brokers, the discovery of topics and partitions, the
// copies of topic configs and group offsets, and the operator's verbs: create,
// start, pause, resume, failover, verify, status, delete. For each partition
// that this node leads it owns the core machine and steps it on the partition's shard,
// where the log effects are carried out at once; whatever takes time (look-ups,
// fetches, comparisons, metadata transactions, back-off) happens outside and
// comes back as an event.
//
// It never decides what a difference between two logs means, never writes to the
// source and never touches a log outside the partition's shard. Truth about a
// partition is its record in the metadata and its log alone: what is kept
// here is lost with the process and found again at the next start.
//
// Fairness and bounds: the memory of fetched records is bounded for each source
// broker; a partition that fails is taken out of its fetch session and backs off
// on its own, so that it delays no other.
//
// Tests: settings, throttle, probes and reports here; whole mirrors against
// kfake and against other brokers of this kind in test/e2e.
package mirror
