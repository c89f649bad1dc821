package broker

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"tidemark/internal/broker/api"
	"tidemark/internal/core/types"
	"tidemark/internal/telemetry"
	"tidemark/internal/vfs"
	"tidemark/internal/wire"
)

// served is the broker as the handlers see its partitions (api.Partitions).
type served Broker

// Get implements api.Partitions.
func (s *served) Get(id types.TopicID, number int32) (api.Partition, error) {
	p, err := (*Broker)(s).get(id, number)
	if err != nil {
		return (*Broker)(s).viewInstead(id, number, err)
	}
	return p, nil
}

// GetReplica implements api.Partitions.
func (s *served) GetReplica(id types.TopicID, number int32) (api.Partition, error) {
	p, err := (*Broker)(s).getReplica(id, number)
	if err != nil {
		return (*Broker)(s).viewInstead(id, number, err)
	}
	return p, nil
}

// LogDirs implements api.Partitions.
func (s *served) LogDirs() []api.LogDir {
	b := (*Broker)(s)
	dirs := append(b.dirs[:len(b.dirs):len(b.dirs)], b.lost...)
	out := make([]api.LogDir, len(dirs))
	index := make(map[*logDir]int, len(dirs))
	for i, d := range dirs {
		out[i] = api.LogDir{Path: d.path, TotalBytes: -1, UsableBytes: -1}
		index[d] = i
		if d.failure() != nil {
			out[i].Err = wire.ErrKafkaStorageError
			continue
		}
		if free, err := d.fs.FreeBytes(d.path); err == nil {
			out[i].UsableBytes = free
		}
		if sized, ok := d.fs.(vfs.Sized); ok {
			if total, err := sized.TotalBytes(d.path); err == nil {
				out[i].TotalBytes = total
			}
		}
	}
	for p := range b.Partitions() {
		v, ok := p.View()
		if i, known := index[p.dir]; ok && known {
			out[i].Partitions = append(out[i].Partitions, api.LogDirPartition{
				TopicPartition: p.tp, SizeBytes: v.Size, OffsetLag: max(0, int64(v.HighWatermark-v.LogEnd)),
			})
		}
	}
	return out
}

// apiMetrics counts what goes through the handlers, with the counters of each topic at hand.
type apiMetrics struct {
	m      *telemetry.Metrics
	topics sync.Map // topic → *topicCounters
}

type topicCounters struct{ produces, fetches, messages, bytesIn, bytesOut prometheus.Counter }

func newAPIMetrics(m *telemetry.Metrics) *apiMetrics { return &apiMetrics{m: m} }

func (a *apiMetrics) of(topic string) *topicCounters {
	if c, ok := a.topics.Load(topic); ok {
		return c.(*topicCounters)
	}
	t := a.m.Topics
	c := &topicCounters{
		produces: t.ProduceRequests.WithLabelValues(topic), fetches: t.FetchRequests.WithLabelValues(topic),
		messages: t.MessagesIn.WithLabelValues(topic), bytesIn: t.BytesIn.WithLabelValues(topic), bytesOut: t.BytesOut.WithLabelValues(topic),
	}
	a.topics.Store(topic, c)
	return c
}

// forget drops the counters of a topic that is gone; one made anew begins at 0.
func (a *apiMetrics) forget(topic string) {
	a.topics.Delete(topic)
	a.m.Topics.Forget(topic)
}

// Produced implements api.Metrics.
func (a *apiMetrics) Produced(topic string, bytes, records int) {
	c := a.of(topic)
	c.produces.Inc()
	c.bytesIn.Add(float64(bytes))
	c.messages.Add(float64(records))
}

// Fetched implements api.Metrics.
func (a *apiMetrics) Fetched(topic string, bytes int) {
	c := a.of(topic)
	c.fetches.Inc()
	c.bytesOut.Add(float64(bytes))
}

// Replicated implements api.Metrics.
func (a *apiMetrics) Replicated(bytes int) { a.m.Replication.BytesOut.Add(float64(bytes)) }

// Failed implements api.Metrics.
func (a *apiMetrics) Failed(key wire.Key, code wire.ErrCode) {
	switch code {
	case wire.ErrCorruptMessage:
		a.m.Topics.InvalidCRC.Inc()
	case wire.ErrInvalidTimestamp:
		a.m.Topics.InvalidTimestamp.Inc()
	}
	switch key {
	case wire.KeyProduce:
		a.m.Topics.FailedProduce.WithLabelValues(code.String()).Inc()
	case wire.KeyFetch:
		a.m.Topics.FailedFetch.WithLabelValues(code.String()).Inc()
	}
}
