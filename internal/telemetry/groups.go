package telemetry

import "github.com/prometheus/client_golang/prometheus"

// GroupStat counts the groups of one type in one state.
type GroupStat struct {
	Type, State string // as ListGroups names them
	Groups      int
}

// groupCollector turns GroupStats into gauges at scrape time.
type groupCollector struct {
	count func() []GroupStat
	desc  *prometheus.Desc
}

// NewGroupCollector makes the collector of the groups that a broker coordinates. A
// state that count leaves out is not shown.
func NewGroupCollector(count func() []GroupStat) prometheus.Collector {
	return &groupCollector{count: count, desc: prometheus.NewDesc("tidemark_groups",
		"Groups that this broker coordinates, by type (classic, or consumer: KIP-848) and state.", []string{"type", "state"}, nil)}
}

// Describe implements prometheus.Collector.
func (c *groupCollector) Describe(ch chan<- *prometheus.Desc) { ch <- c.desc }

// Collect implements prometheus.Collector.
func (c *groupCollector) Collect(ch chan<- prometheus.Metric) {
	for _, s := range c.count() {
		ch <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, float64(s.Groups), s.Type, s.State)
	}
}
