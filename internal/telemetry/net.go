package telemetry

import "github.com/prometheus/client_golang/prometheus"

// NetStat is what a scrape tells of the network server; all but Open only rise.
type NetStat struct {
	Open, Accepted, Refused             int64
	Requests, BytesIn, BytesOut         int64
	Faulty, Idle, Stalled, Panics, Wait int64
}

// netCollector turns a NetStat into metrics at scrape time.
type netCollector struct {
	read func() NetStat
	rows []netRow
}

type netRow struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(*NetStat) int64
}

// NewNetCollector makes the collector of the server that read looks at.
func NewNetCollector(read func() NetStat) prometheus.Collector {
	const p = "kafka_server_socketservermetrics_"
	c := &netCollector{read: read}
	add := func(kind prometheus.ValueType, name, help string, value func(*NetStat) int64) {
		c.rows = append(c.rows, netRow{prometheus.NewDesc(p+name, help, nil, nil), kind, value})
	}
	add(prometheus.GaugeValue, "connection_count", "Open connections.", func(s *NetStat) int64 { return s.Open })
	add(prometheus.CounterValue, "connection_creation_total", "Connections let in.", func(s *NetStat) int64 { return s.Accepted })
	add(prometheus.CounterValue, "connection_refused_total", "Connections closed at once for a limit.", func(s *NetStat) int64 { return s.Refused })
	add(prometheus.CounterValue, "request_total", "Requests received whole.", func(s *NetStat) int64 { return s.Requests })
	add(prometheus.CounterValue, "incoming_byte_total", "Bytes of requests received.", func(s *NetStat) int64 { return s.BytesIn })
	add(prometheus.CounterValue, "outgoing_byte_total", "Bytes of answers written.", func(s *NetStat) int64 { return s.BytesOut })
	add(prometheus.CounterValue, "expired_connections_killed_total", "Connections closed for being idle.", func(s *NetStat) int64 { return s.Idle })
	add(prometheus.CounterValue, "stalled_connections_killed_total", "Connections closed in the middle of a frame or an answer.", func(s *NetStat) int64 { return s.Stalled })
	add(prometheus.CounterValue, "malformed_total", "Connections closed for what the client sent.", func(s *NetStat) int64 { return s.Faulty })
	add(prometheus.CounterValue, "handler_panics_total", "Panics of request handlers, each a bug.", func(s *NetStat) int64 { return s.Panics })
	add(prometheus.CounterValue, "memorypool_waits_total", "Requests that waited for room in the request memory.", func(s *NetStat) int64 { return s.Wait })
	return c
}

// Describe implements prometheus.Collector.
func (c *netCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, r := range c.rows {
		ch <- r.desc
	}
}

// Collect implements prometheus.Collector.
func (c *netCollector) Collect(ch chan<- prometheus.Metric) {
	s := c.read()
	for _, r := range c.rows {
		ch <- prometheus.MustNewConstMetric(r.desc, r.kind, float64(r.value(&s)))
	}
}
