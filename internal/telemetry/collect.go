package telemetry

import (
	"iter"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"tidemark/internal/core/types"
)

// PartitionStat is what a scrape tells of one partition.
type PartitionStat struct {
	types.TopicPartition
	SizeBytes        int64
	Segments         int
	LogStart, LogEnd types.Offset
	HighWatermark    types.Offset
	LeaderEpoch      types.LeaderEpoch
	Leader           bool // this broker leads it
	UnderReplicated  bool
	UnderMinISR      bool
	AtMinISR         bool
	Lag              int64 // records that the leader has committed and this follower lacks
	Leaderless       bool  // nobody leads it
	Offline          bool  // its log dir, or it alone, has failed on this broker
}

// MirrorStat is what a scrape tells of one mirrored partition.
type MirrorStat struct {
	Mirror string
	types.TopicPartition
	State              string
	SourceEnd, LogEnd  types.Offset
	LagRecords         int64
	LagBytes, LagMs    int64
	SourceEpoch, Epoch types.LeaderEpoch
	// LossMs is how long before now the oldest write was made that a failover may lack; -1 if not known.
	LossMs int64
}

// partitionCollector turns PartitionStats into gauges at scrape time.
type partitionCollector struct {
	walk func() iter.Seq[PartitionStat]

	size, segments, start, end, hw, epoch *prometheus.Desc
	partitions, leaders, under, minISR    *prometheus.Desc
	leaderless, offline, atMinISR, lag    *prometheus.Desc
}

// NewPartitionCollector makes the collector of the partitions that walk yields.
func NewPartitionCollector(walk func() iter.Seq[PartitionStat]) prometheus.Collector {
	by := []string{"topic", "partition"}
	d := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	return &partitionCollector{
		walk:       walk,
		size:       d("kafka_log_log_size", "Bytes of a partition's segments.", by...),
		segments:   d("kafka_log_log_numlogsegments", "Segments of a partition.", by...),
		start:      d("kafka_log_log_logstartoffset", "First offset of a partition.", by...),
		end:        d("kafka_log_log_logendoffset", "Next offset of a partition.", by...),
		hw:         d("kafka_cluster_partition_highwatermark", "High watermark of a partition.", by...),
		epoch:      d("kafka_cluster_partition_leaderepoch", "Leader epoch of a partition.", by...),
		partitions: d("kafka_server_replicamanager_partitioncount", "Partitions on this broker."),
		leaders:    d("kafka_server_replicamanager_leadercount", "Partitions that this broker leads."),
		under:      d("kafka_server_replicamanager_underreplicatedpartitions", "Partitions led here whose ISR lacks a replica."),
		minISR:     d("kafka_server_replicamanager_underminisrpartitioncount", "Partitions led here whose ISR is below its minimum."),
		atMinISR:   d("kafka_server_replicamanager_atminisrpartitioncount", "Partitions led here whose ISR is just its minimum: one replica less stops acks=all writes."),
		lag:        d("kafka_server_replicafetchermanager_maxlag", "Most committed records that a replica here lacks of its leader's, as the leader said last."),
		leaderless: d("kafka_controller_kafkacontroller_offlinepartitionscount", "Partitions of this broker that nobody leads."),
		offline:    d("kafka_server_replicamanager_offlinereplicacount", "Replicas of this broker that have failed."),
	}
}

// Describe implements prometheus.Collector.
func (c *partitionCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.size, c.segments, c.start, c.end, c.hw, c.epoch, c.partitions, c.leaders, c.under, c.minISR, c.leaderless, c.offline, c.atMinISR, c.lag} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *partitionCollector) Collect(ch chan<- prometheus.Metric) {
	var partitions, leaders, under, minISR, leaderless, offline, atMinISR, lag float64
	one := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	for s := range c.walk() {
		n := strconv.Itoa(int(s.Partition))
		one(c.size, float64(s.SizeBytes), s.Topic, n)
		one(c.segments, float64(s.Segments), s.Topic, n)
		one(c.start, float64(s.LogStart), s.Topic, n)
		one(c.end, float64(s.LogEnd), s.Topic, n)
		one(c.hw, float64(s.HighWatermark), s.Topic, n)
		one(c.epoch, float64(s.LeaderEpoch), s.Topic, n)
		partitions++
		leaders += asFloat(s.Leader)
		under += asFloat(s.UnderReplicated)
		minISR += asFloat(s.UnderMinISR)
		atMinISR += asFloat(s.AtMinISR)
		lag = max(lag, float64(s.Lag))
		leaderless += asFloat(s.Leaderless)
		offline += asFloat(s.Offline)
	}
	one(c.partitions, partitions)
	one(c.leaders, leaders)
	one(c.under, under)
	one(c.minISR, minISR)
	one(c.atMinISR, atMinISR)
	one(c.lag, lag)
	one(c.leaderless, leaderless)
	one(c.offline, offline)
}

func asFloat(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// mirrorCollector turns MirrorStats into gauges at scrape time.
type mirrorCollector struct {
	walk func() iter.Seq[MirrorStat]

	records, bytes, age, state, sourceEnd, end, sourceEpoch, loss *prometheus.Desc
}

// NewMirrorCollector makes the collector of the mirrored partitions that walk yields.
func NewMirrorCollector(walk func() iter.Seq[MirrorStat]) prometheus.Collector {
	by := []string{"mirror", "topic", "partition"}
	d := func(name, help string, more ...string) *prometheus.Desc {
		return prometheus.NewDesc("tidemark_mirror_"+name, help, append(by[:len(by):len(by)], more...), nil)
	}
	return &mirrorCollector{
		walk:        walk,
		records:     d("lag_records", "Records of the source that this node lacks (offsets between the two ends)."),
		bytes:       d("lag_bytes", "Bytes of the source that this node lacks, estimated from what was mirrored."),
		age:         d("lag_seconds", "Age of the oldest source record that this node lacks, by when its existence was first seen."),
		state:       d("state", "1 for the state that the partition is in.", "state"),
		sourceEnd:   d("source_end_offset", "The source's high watermark as last seen."),
		end:         d("end_offset", "Next offset of the mirrored partition here."),
		sourceEpoch: d("source_leader_epoch", "The source's leader epoch as last seen."),
		loss:        d("loss_seconds", "A failover now has every write that the source took earlier than so many seconds ago; -1: not known."),
	}
}

// Describe implements prometheus.Collector.
func (c *mirrorCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.records, c.bytes, c.age, c.state, c.sourceEnd, c.end, c.sourceEpoch, c.loss} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *mirrorCollector) Collect(ch chan<- prometheus.Metric) {
	for s := range c.walk() {
		labels := []string{s.Mirror, s.Topic, strconv.Itoa(int(s.Partition))}
		one := func(d *prometheus.Desc, v float64, more ...string) {
			ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, append(labels[:3:3], more...)...)
		}
		one(c.records, float64(s.LagRecords))
		one(c.bytes, float64(s.LagBytes))
		one(c.age, seconds(s.LagMs))
		one(c.state, 1, s.State)
		one(c.sourceEnd, float64(s.SourceEnd))
		one(c.end, float64(s.LogEnd))
		one(c.sourceEpoch, float64(s.SourceEpoch))
		one(c.loss, seconds(s.LossMs))
	}
}

// seconds gives milliseconds in the unit of metrics; what isn't known stays -1.
func seconds(ms int64) float64 {
	if ms < 0 {
		return -1
	}
	return float64(ms) / 1000
}
