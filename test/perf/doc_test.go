//go:build kafka

// Package perf measures clusters of three processes on one machine: Tidemark, and beside it Apache Kafka under the same load.
//
// Each test is one figure and prints a table; none asserts a speed. A ratio is made of the medians of runs that took turns (Kafka,
// Tidemark, Kafka, ...), so that what else the machine does weighs on both. docs/perf/README.md says how to run them and what came out.
package perf_test
