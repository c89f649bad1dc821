// Package statelog is what the coordinators of groups and of transactions have in
// common: the internal topic that is their log (its creation, the partition of a
// key), the reading of a partition when it is loaded, the queue and the clock of
// the loop that owns it.
//
// It knows nothing of what the records mean, and decides nothing.
//
// Tested by the coordinators' own tests, over partitions in memory.
package statelog
