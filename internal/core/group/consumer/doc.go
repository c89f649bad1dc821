// Package consumer is the pure state machine of one consumer group of the new
// protocol (KIP-848): members and their epochs, the group's epoch, the target
// assignment that a server-side assignor computes, and each member's way from
// what it has to what it is to have.
//
// A Group takes heartbeats (File) and answers them (Answer); several that are filed
// together share one target. Every change of it is a Record, in the terms of Kafka's own
// log: what is written is what was changed, and a group that is loaded from its records is
// the group that wrote them. Changes gather (Changes) until the log has them (Keep) or
// may not have them (Drop). Its owner has one write under way at a time.
//
// It never reads a clock (each call carries the time), starts no goroutine and
// draws no random number. Topics are what a Topics says: names, ids and numbers
// of partitions.
//
// Tested by f-tests for each refusal, tables for the assignors, and a random
// walk that holds what members may read against each other, and is itself tried on broken groups (I-380 to I-383).
package consumer
