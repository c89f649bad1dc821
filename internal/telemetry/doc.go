// Package telemetry makes the process log and the metrics that operators read.
//
// It owns the names: where Kafka has a metric, the name is the one that the
// usual JMX exporter rules (Strimzi's) give it, so that existing dashboards
// find it; what Kafka hasn't got begins with tidemark_. Counters are plain
// structs made by New and handed to their users; there is no global registry.
// Per-partition gauges aren't stored at all: a collector walks the partitions
// when somebody scrapes, so that 10,000 idle partitions cost nothing.
//
// It never decides anything, and knows partitions only through the small
// structs PartitionStat and MirrorStat.
//
// Tests scrape a registry and compare names, labels and values, and check that
// every metric has a help text and an allowed prefix.
package telemetry
