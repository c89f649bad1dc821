// Package sim runs the product's own code in a world where everything around it
// is simulated, from one seed: network, clocks, disks, crashes, the metadata
// store's faults, leases, a source cluster, clients and operators. The same seed
// gives the same run, event for event.
//
// What runs is production code: the shard's partition (broker.Inline), the
// mirror's copier (mirror.Stepper) with core/mirror and core/replica below it, the
// log and the vault on a file system with a crash model, core/control and core/meta
// on metastore/mem. What is simulated, and written here, is what a node does off its
// shards: calls to the source, transactions, timers, start and end of the process.
// The source is a model of a Kafka cluster (source.go) that shares no code
// with what is tested.
//
// A run is single-threaded: an event heap with virtual time and nothing else. No
// goroutine, no wall clock, no result that depends on the order of a map. Every
// random choice comes from a stream of its own name, so that switching one
// fault off leaves the others as they were; that is what the shrinker lives on.
//
// Everything from outside (what clients write, what operators order, what breaks)
// is a plan made before the run (plan.go). After it comes the liveness phase:
// faults end, and within bounded virtual time the copies are equal. The checkers
// (check*.go) know the source's whole history and believe nothing that the system
// says. Each is tested by mutations: rules switched off (mutation.go).
//
// There are three systems. The mirror's is one standby and a source (world.go). The
// cluster's (cluster*.go) is three to five brokers that replicate: each is the
// production node (broker.Virtual), whose code blocks as it always does. It runs as
// tasks (tasks.go), coroutines that wait through the clock of their process; so
// registration, controller, fetchers, shards and chores are the product's own, and
// only the Kafka protocol between brokers is not. clustercheck.go knows every batch
// that any leader wrote and everything that anybody was promised.
//
// The third (mirrors*.go) is several such clusters that mirror each other, with
// operators at all of them; mirrorscheck.go knows every batch of all of them.
//
// docs/TESTING.md tells how to replay, search and read a story.
package sim
