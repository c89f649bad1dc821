package broker

import (
	"errors"
	"iter"

	"github.com/prometheus/client_golang/prometheus"

	"tidemark/internal/core/group"
	"tidemark/internal/core/types"
	"tidemark/internal/telemetry"
	"tidemark/internal/wire"
)

// newPartitionCollector makes the gauges of this node's partitions.
func newPartitionCollector(b *Broker) prometheus.Collector {
	return telemetry.NewPartitionCollector(func() iter.Seq[telemetry.PartitionStat] {
		image := b.Image()
		return func(yield func(telemetry.PartitionStat) bool) {
			for p := range b.Partitions() {
				s := p.serving.Load()
				st := telemetry.PartitionStat{TopicPartition: p.tp, LeaderEpoch: s.epoch, Leader: s.err == nil, Offline: errors.Is(s.err, wire.ErrKafkaStorageError)}
				if v, ok := p.View(); ok {
					st.SizeBytes, st.Segments = v.Size, v.Segments
					st.LogStart, st.LogEnd, st.HighWatermark = v.LogStart, v.LogEnd, v.HighWatermark
				}
				if r, _ := image.Partition(p.id, p.tp.Partition); r != nil {
					st.Leaderless = r.Leader == types.NoBroker
					st.UnderReplicated = st.Leader && len(r.ISR) < len(r.Replicas)
					st.UnderMinISR = st.Leader && len(r.ISR) < r.MinISRNow()
					st.AtMinISR = st.Leader && len(r.ISR) == r.MinISRNow()
					st.Lag = p.behind.Load()
				}
				if !yield(st) {
					return
				}
			}
		}
	})
}

// newGroupCollector makes the gauges of the groups that this node coordinates.
func newGroupCollector(b *Broker) prometheus.Collector {
	return telemetry.NewGroupCollector(func() []telemetry.GroupStat {
		var list []telemetry.GroupStat
		s := b.services.Load()
		if s == nil {
			return nil
		}
		n := s.groups.Count(b.ctx)
		for _, k := range group.Kinds() {
			list = append(list, telemetry.GroupStat{Type: k.Type, State: k.State.String(), Groups: n[k]})
		}
		return list
	})
}

// newNetCollector makes the metrics of this node's listeners.
func newNetCollector(b *Broker) prometheus.Collector {
	return telemetry.NewNetCollector(func() telemetry.NetStat {
		s := b.server.Stats()
		return telemetry.NetStat{
			Open: s.Open.Load(), Accepted: s.Accepted.Load(), Refused: s.Refused.Load(),
			Requests: s.Requests.Load(), BytesIn: s.BytesIn.Load(), BytesOut: s.BytesOut.Load(),
			Faulty: s.Faulty.Load(), Idle: s.Idle.Load(), Stalled: s.Stalled.Load(), Panics: s.Panics.Load(), Wait: s.MemoryWaits.Load(),
		}
	})
}
