package mirror

import (
	"cmp"
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/internal/source"
)

// Source is a client of a mirror's source, as source.Client describes each call.
type Source interface {
	Config() *source.Config
	// Pin ends connections that lead to another cluster.
	Pin(clusterID string)
	Close()
	Metadata(ctx context.Context, topics []string) (*source.Metadata, error)
	TopicConfigs(ctx context.Context, topics []string) (map[string]source.TopicConfigs, error)
	ListOffsets(ctx context.Context, broker types.BrokerID, queries []source.OffsetQuery) (map[types.TopicPartition]source.OffsetAnswer, error)
	EpochEnds(ctx context.Context, broker types.BrokerID, queries []source.EpochQuery) (map[types.TopicPartition]source.EpochAnswer, error)
	Lineage(ctx context.Context, broker types.BrokerID, queries []source.LineageQuery) (map[types.TopicPartition]source.Lineage, error)
	// Mirrored asks a source that speaks KIP-1279 what it mirrored of cluster ours; nil from any other.
	Mirrored(ctx context.Context, broker types.BrokerID, ours string, queries []source.MirroredQuery) (map[types.TopicPartition]source.Mirrored, error)
	Producers(ctx context.Context, broker types.BrokerID, list []types.TopicPartition) (map[types.TopicPartition][]source.Producer, error)
	FetchAt(ctx context.Context, broker types.BrokerID, p source.FetchPartition) (*source.FetchedPartition, *source.FetchAnswer, error)
	Groups(ctx context.Context) ([]source.GroupListing, error)
	GroupOffsets(ctx context.Context, groups []string) map[string]source.GroupOffsets
	Verb(ctx context.Context, broker types.BrokerID, verb string, body []byte, patience time.Duration) ([]byte, error)
	// NewSession makes a fetch session with a broker.
	NewSession(broker types.BrokerID, o source.SessionOptions) Session
}

// Session is a fetch session with one broker of the source, as source.Session describes it.
type Session interface {
	Set(p source.FetchPartition)
	Remove(tp types.TopicPartition)
	Fetch(ctx context.Context, lim source.FetchLimits) (*source.FetchAnswer, error)
}

// kafka is the client over the Kafka protocol.
type kafka struct{ *source.Client }

var _ Source = kafka{}

// NewSession implements Source.
func (k kafka) NewSession(broker types.BrokerID, o source.SessionOptions) Session {
	return k.Client.NewSession(broker, o)
}

// connect makes the client of a source, pinned to a cluster unless the id is empty.
func (m *Mirrors) connect(cfg *source.Config, clusterID string) Source {
	if m.o.Connect != nil {
		return m.o.Connect(cfg, clusterID)
	}
	return kafka{source.Open(cfg, source.Options{Logger: m.log, SoftwareVersion: m.o.Version, ClusterID: clusterID})}
}

// draw gives a random number in [0, n).
func (m *Mirrors) draw(n int64) int64 {
	if m.o.Jitter != nil {
		return m.o.Jitter(n)
	}
	return rand.Int64N(n)
}

// alone is a context for what the end of the run doesn't end.
func (r *run) alone() context.Context {
	if r.ctx == nil {
		return context.Background()
	}
	return context.WithoutCancel(r.ctx)
}

// inOrder gives a map's keys in the order of the partitions that they stand for:
// no order of a map decides what happens first.
func inOrder[K comparable, V any](m map[K]V, of func(K) types.TopicPartition) []K {
	return slices.SortedFunc(maps.Keys(m), func(a, b K) int { return comparePartitions(of(a), of(b)) })
}

func itself(tp types.TopicPartition) types.TopicPartition { return tp }

func comparePartitionIDs(a, b meta.PartitionID) int {
	return cmp.Or(slices.Compare(a.Topic[:], b.Topic[:]), cmp.Compare(a.Number, b.Number))
}
