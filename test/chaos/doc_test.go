//go:build chaos

// Package chaos_test kills and freezes the brokers of a cluster under load.
//
// Three `tidemark serve` processes on loopback hold topics with three replicas
// and min.insync.replicas 2. Producers and group consumers of two client
// libraries work while a nemesis, whose plan is drawn from a seed, ends brokers
// with kill -9 (one, or all at once), freezes them for longer than their lease,
// and restarts them in order. Then everything is healed and read from the start
// to the end, and internal/history judges: what the clients saw, and the bytes
// in the three folders.
//
// The plan follows from the seed; what happens in between does not, so that a
// seed repeats the faults and not the run. Each run prints what it injected and
// what it saw. `make chaos` runs it; docs/TESTING.md says how to read a failure.
package chaos_test
