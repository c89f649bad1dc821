// Package exhaust tries every order of every operation on two clusters of two
// replicas each, to the depth that time and memory allow, over the pure core:
// what core/{epoch,timeline,replica,mirror,control,meta} decide is the product's own.
//
// A state holds both clusters' partition records, each replica's log
// (core/modellog), checkpoint and vault, what each process knows, transactions and
// answers on their way, and how often each operation may still happen. A world
// (world.go) says where the search begins and how often that is.
// A step is one operation from outside (a write, a crash, an election, a verb) or
// one piece of work that a broker does by itself. It calls the core as the
// broker's shard does, in its order: broker/serve.go, lead.go, firstcut.go,
// following.go, mirror/copier.go, carry.go, failover.go, failback.go, abandon.go.
// Whoever changes those files changes steps.go, mirror.go and verbs.go here.
//
// Common successions are one step: a follower fetches until it has everything, a
// mirror copies until nothing is left, a transaction is written and shown to
// all. What may come in between is a step of its own, as often as the world
// says: a single fetch, a copier that stops after its first write, an answer or a
// transaction that comes late, an image that lags, a loss of power between two steps of R1.
//
// The search is breadth-first, so that a counterexample is as short as can be.
// States are recognised by 64-bit fingerprints of a canonical text in which
// replicas of a cluster are interchangeable; values, timelines and starts are
// named by where they came from, so that no order of names tells states apart. What is
// kept of a state is its fingerprint and four bytes of the tree of steps: states
// are made again by walking the tree (search.go).
//
// Checks (check.go) look at every state; convergence is tried from a sample of
// them (converge.go). Mutations switch one rule off each and must be found (mutation.go).
package exhaust
