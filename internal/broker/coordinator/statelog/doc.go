// Package statelog is what the coordinators of groups and of transactions have in
// common: the internal topic that is their log (its creation, the partition of a
// key), and one loop for each of its partitions that this node leads. A Term is such
// a loop's partition and leader epoch, with the load and the fresh starts; Loops are
// all of a coordinator's; an Inbox holds the requests of one, a Steady its time.
//
// It knows nothing of what the records mean, and decides nothing.
//
// Tested by loops without a state, and by the coordinators' own tests, over partitions in memory.
package statelog
