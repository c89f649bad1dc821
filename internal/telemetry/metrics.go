package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// Metrics is all that a node counts. Make it with New; every field is safe for
// use by any goroutine.
type Metrics struct {
	Topics   *Topics
	Requests *Requests
	Log      *Log
	Meta     *Meta
	Mirror   *Mirror
	Events   *Events
	// Replication counts what goes between the brokers of a cluster.
	Replication *Replication
	// Security counts log-ins and refusals; Audit counts in it.
	Security *Security
	registry *prometheus.Registry
}

// New makes the metrics of one node in a registry of their own, with the Go
// runtime's and the process's beside them.
func New() *Metrics {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return &Metrics{
		Topics:      newTopics(r),
		Requests:    newRequests(r),
		Log:         newLog(r),
		Meta:        newMeta(r),
		Mirror:      newMirror(r),
		Replication: newReplication(r),
		Security:    newSecurity(r),
		Events:      &Events{Count: counterVec(r, "tidemark_events_total", "Events of the event log, by kind.", "kind")},
		registry:    r,
	}
}

// Gatherer is what a /metrics handler serves.
func (m *Metrics) Gatherer() prometheus.Gatherer { return m.registry }

// Register adds a collector, e.g. NewPartitionCollector; a second one of the same kind is refused.
func (m *Metrics) Register(c prometheus.Collector) error { return m.registry.Register(c) }

// Topics counts what clients write and read, by topic (BrokerTopicMetrics).
type Topics struct {
	MessagesIn, BytesIn, BytesOut  *prometheus.CounterVec // topic
	ProduceRequests, FetchRequests *prometheus.CounterVec // topic
	FailedProduce, FailedFetch     *prometheus.CounterVec // error
	InvalidTimestamp, InvalidCRC   prometheus.Counter
}

func counterVec(r prometheus.Registerer, name, help string, labels ...string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	r.MustRegister(c)
	return c
}

func counter(r prometheus.Registerer, name, help string) prometheus.Counter {
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	r.MustRegister(c)
	return c
}

func gaugeVec(r prometheus.Registerer, name, help string, labels ...string) *prometheus.GaugeVec {
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	r.MustRegister(g)
	return g
}

func gauge(r prometheus.Registerer, name, help string) prometheus.Gauge {
	g := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	r.MustRegister(g)
	return g
}

func newTopics(r prometheus.Registerer) *Topics {
	const p = "kafka_server_brokertopicmetrics_"
	return &Topics{
		MessagesIn:       counterVec(r, p+"messagesin_total", "Records that clients wrote, by topic.", "topic"),
		BytesIn:          counterVec(r, p+"bytesin_total", "Bytes of record batches that clients wrote, by topic.", "topic"),
		BytesOut:         counterVec(r, p+"bytesout_total", "Bytes of record batches that clients read, by topic.", "topic"),
		ProduceRequests:  counterVec(r, p+"totalproducerequests_total", "Partitions' parts of Produce requests, by topic.", "topic"),
		FetchRequests:    counterVec(r, p+"totalfetchrequests_total", "Partitions' parts of Fetch requests that had records, by topic.", "topic"),
		FailedProduce:    counterVec(r, p+"failedproducerequests_total", "Partitions' parts of Produce requests that failed, by error.", "error"),
		FailedFetch:      counterVec(r, p+"failedfetchrequests_total", "Partitions' parts of Fetch requests that failed, by error.", "error"),
		InvalidTimestamp: counter(r, p+"invalidtimestamprecords_total", "Batches refused for their time."),
		InvalidCRC:       counter(r, p+"invalidmessagecrcrecords_total", "Batches refused for their checksum."),
	}
}

// Forget drops the counters of a topic that is gone.
func (t *Topics) Forget(topic string) {
	for _, v := range []*prometheus.CounterVec{t.MessagesIn, t.BytesIn, t.BytesOut, t.ProduceRequests, t.FetchRequests} {
		v.DeleteLabelValues(topic)
	}
}

// Requests counts requests by API name (RequestMetrics).
type Requests struct {
	Count  *prometheus.CounterVec   // request, version
	Closed *prometheus.CounterVec   // request: answered by closing the connection
	TimeMs *prometheus.HistogramVec // request
}

func newRequests(r prometheus.Registerer) *Requests {
	const p = "kafka_network_requestmetrics_"
	q := &Requests{
		Count:  counterVec(r, p+"requests_total", "Requests, by API and version.", "request", "version"),
		Closed: counterVec(r, p+"closed_total", "Requests answered by closing the connection, by API.", "request"),
		TimeMs: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: p + "totaltimems", Help: "Time a request was handled, its waiting included, in milliseconds, by API.",
			Buckets: []float64{0.1, 0.5, 1, 5, 10, 50, 100, 500, 1000, 5000, 30000},
		}, []string{"request"}),
	}
	r.MustRegister(q.TimeMs)
	return q
}

// Log counts what storage does.
type Log struct {
	FlushMs          prometheus.Histogram
	OfflineDirs      prometheus.Gauge
	CompactionRuns   prometheus.Counter
	CompactedBytes   prometheus.Counter
	CompactionErrors prometheus.Counter
	RetentionRemoved prometheus.Counter
	NoSpace          prometheus.Counter
	CutRecords       *prometheus.CounterVec // cause, ordered_by
}

func newLog(r prometheus.Registerer) *Log {
	l := &Log{
		FlushMs: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "kafka_log_logflushstats_logflushtimems", Help: "Time of a partition's flush to disk in milliseconds.",
			Buckets: []float64{0.1, 0.5, 1, 2, 5, 10, 20, 50, 100, 500, 1000},
		}),
		OfflineDirs:      gauge(r, "kafka_log_logmanager_offlinelogdirectorycount", "Log dirs that failed and are offline."),
		CompactionRuns:   counter(r, "kafka_log_logcleaner_runs_total", "Compactions that ended well."),
		CompactedBytes:   counter(r, "kafka_log_logcleaner_bytes_read_total", "Bytes read by compactions."),
		CompactionErrors: counter(r, "kafka_log_logcleaner_uncleanable_total", "Compactions that failed."),
		RetentionRemoved: counter(r, "tidemark_log_retention_segments_removed_total", "Segments that retention removed."),
		NoSpace:          counter(r, "tidemark_log_no_space_total", "Appends refused because the disk was full."),
		CutRecords:       counterVec(r, "tidemark_log_cut_records_total", "Records that cuts removed, by cause and by who ordered the cut: SOURCE, LEADER (in this cluster) or METADATA.", "cause", "ordered_by"),
	}
	r.MustRegister(l.FlushMs)
	return l
}

// Meta counts metadata transactions.
type Meta struct {
	TxnSeconds prometheus.Histogram
	Unknown    prometheus.Counter
	Refused    prometheus.Counter
	Revision   prometheus.Gauge
}

func newMeta(r prometheus.Registerer) *Meta {
	m := &Meta{
		TxnSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "tidemark_metadata_txn_seconds", Help: "Time of a metadata transaction.",
			Buckets: []float64{0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5},
		}),
		Unknown:  counter(r, "tidemark_metadata_txn_unknown_total", "Metadata transactions whose outcome had to be looked up."),
		Refused:  counter(r, "tidemark_metadata_txn_refused_total", "Metadata transactions that found another state than they were judged against."),
		Revision: gauge(r, "tidemark_metadata_image_revision", "Revision of this node's metadata image."),
	}
	r.MustRegister(m.TxnSeconds)
	return m
}

// Mirror counts what mirrors do. Lag and state are gauges of NewMirrorCollector.
type Mirror struct {
	Bytes, Batches *prometheus.CounterVec // mirror, topic
	Cuts           *prometheus.CounterVec // mirror, cause
	Failures       *prometheus.CounterVec // mirror, reason
	Promotions     *prometheus.CounterVec // mirror
	EpochRaises    *prometheus.CounterVec // mirror

	// Of comparisons with the source: when the last one ended (seconds since 1970),
	// what it found, and what all compared.
	VerifyEnd, VerifyDifferent, VerifyUnproved *prometheus.GaugeVec   // mirror
	VerifyBytes                                *prometheus.CounterVec // mirror
	// SplitBrain counts the partitions whose old source moved after their failover.
	SplitBrain *prometheus.GaugeVec // mirror
}

func newMirror(r prometheus.Registerer) *Mirror {
	const p = "tidemark_mirror_"
	return &Mirror{
		Bytes:           counterVec(r, p+"bytes_total", "Bytes of record batches mirrored, by mirror and topic.", "mirror", "topic"),
		Batches:         counterVec(r, p+"batches_total", "Record batches mirrored, by mirror and topic.", "mirror", "topic"),
		Cuts:            counterVec(r, p+"cuts_total", "Cuts that the source's history asked for, by cause.", "mirror", "cause"),
		Failures:        counterVec(r, p+"failures_total", "Times a partition went to FAILED, by reason.", "mirror", "reason"),
		Promotions:      counterVec(r, p+"promotions_total", "Partitions promoted.", "mirror"),
		VerifyEnd:       gaugeVec(r, p+"verify_last_end_seconds", "When the last comparison with the source ended, in seconds since 1970.", "mirror"),
		VerifyDifferent: gaugeVec(r, p+"verify_different_partitions", "Partitions in which the last comparison found a difference.", "mirror"),
		VerifyUnproved:  gaugeVec(r, p+"verify_unproved_partitions", "Partitions that the last comparison could not finish.", "mirror"),
		VerifyBytes:     counterVec(r, p+"verify_bytes_total", "Bytes compared with the source.", "mirror"),
		SplitBrain:      gaugeVec(r, p+"split_brain_partitions", "Partitions failed over whose old source has taken writes or elected since.", "mirror"),
		EpochRaises:     counterVec(r, p+"epoch_raises_total", "Local leader epochs raised because a batch's epoch had passed them.", "mirror"),
	}
}

// Events counts what the event log tells.
type Events struct {
	Count *prometheus.CounterVec // kind
}
