package broker

import (
	"iter"

	"github.com/prometheus/client_golang/prometheus"

	"tidemark/internal/telemetry"
)

// newPartitionCollector makes the gauges of this node's partitions.
func newPartitionCollector(b *Broker) prometheus.Collector {
	return telemetry.NewPartitionCollector(func() iter.Seq[telemetry.PartitionStat] {
		image := b.Image()
		return func(yield func(telemetry.PartitionStat) bool) {
			for p := range b.Partitions() {
				s := p.serving.Load()
				st := telemetry.PartitionStat{TopicPartition: p.tp, LeaderEpoch: s.epoch, Leader: s.err == nil, Offline: s.err != nil}
				if v, ok := p.View(); ok {
					st.SizeBytes, st.Segments = v.Size, v.Segments
					st.LogStart, st.LogEnd, st.HighWatermark = v.LogStart, v.LogEnd, v.HighWatermark
				}
				if r, _ := image.Partition(p.id, p.tp.Partition); r != nil && st.Leader {
					st.UnderReplicated = len(r.ISR) < len(r.Replicas)
					st.UnderMinISR = len(r.ISR) < r.MinISR
				}
				if !yield(st) {
					return
				}
			}
		}
	})
}
