//go:build chaos && linux

// Package chaos_test harms a cluster under load and judges what it kept.
//
// Three to five `tidemark serve` processes, each at a place of its own in a
// network that can be cut (package links), hold topics with three replicas.
// Producers, of transactions too, and group consumers of two client libraries
// work while three lanes of faults run side by side: processes are killed,
// frozen, restarted and lose what their disks had not synced; links are cut and
// slowed, disks fill up, slow down and fail, clocks jump; partitions move, leaders
// change, topics come and go and minima change. Then everything is healed and read
// from the start to the end, and internal/history judges: what the clients saw,
// and the bytes in all folders.
//
// The schedule follows from the seed; what happens in between does not, so that
// a seed repeats the faults and not the run. Each run prints what it injected
// and what it saw. `make chaos` runs it; docs/TESTING.md says how to read a
// failure.
package chaos_test
