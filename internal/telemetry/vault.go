package telemetry

import "github.com/prometheus/client_golang/prometheus"

// VaultStat is what a scrape tells of the vault.
type VaultStat struct {
	Entries         int
	Bytes, MaxBytes int64 // MaxBytes below 0: no bound
	DroppedRecords  int64 // since the start
}

type vaultCollector struct {
	look                           func() VaultStat
	entries, bytes, limit, dropped *prometheus.Desc
}

// NewVaultCollector makes the collector of how full the vault is.
func NewVaultCollector(look func() VaultStat) prometheus.Collector {
	d := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("tidemark_vault_"+name, help, nil, nil)
	}
	return &vaultCollector{
		look:    look,
		entries: d("entries", "Cuts whose records the vault keeps."),
		bytes:   d("bytes", "Bytes that the vault keeps."),
		limit:   d("max_bytes", "Bound of the vault (vault.max.bytes); -1: none. A full vault stops cuts (R29)."),
		dropped: d("dropped_records_total", "Uncommitted records dropped unkept since the start, because the vault was full (R29)."),
	}
}

// Describe implements prometheus.Collector.
func (c *vaultCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.entries, c.bytes, c.limit, c.dropped} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *vaultCollector) Collect(ch chan<- prometheus.Metric) {
	s := c.look()
	one := func(d *prometheus.Desc, kind prometheus.ValueType, v float64) {
		ch <- prometheus.MustNewConstMetric(d, kind, v)
	}
	one(c.entries, prometheus.GaugeValue, float64(s.Entries))
	one(c.bytes, prometheus.GaugeValue, float64(s.Bytes))
	one(c.limit, prometheus.GaugeValue, float64(s.MaxBytes))
	one(c.dropped, prometheus.CounterValue, float64(s.DroppedRecords))
}
