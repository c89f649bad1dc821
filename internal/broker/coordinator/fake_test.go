package coordinator

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tidemark/internal/await"
	"tidemark/internal/batch"
	"tidemark/internal/broker/api"
	"tidemark/internal/broker/coordinator/statelog"
	"tidemark/internal/core/group"
	"tidemark/internal/core/group/consumer"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/timeline"
	"tidemark/internal/core/types"
	"tidemark/internal/wire"
)

func TestMain(m *testing.M) { await.NoLeaks(m) }

const testCluster = "cluster0cluster0cluste"

var (
	offsetsTopicID = types.TopicID{15: 1}
	dataTopicID    = types.TopicID{15: 2}
)

// memPartition is a partition of the offsets topic in memory.
type memPartition struct {
	api.Partition // whatever isn't below panics
	tp            types.TopicPartition

	mu      sync.Mutex
	raw     []byte
	end     types.Offset
	hw      types.Offset // reads see up to here
	lag     bool         // appends don't move hw
	epoch   types.LeaderEpoch
	appends int
	watch   map[int]func()
	nextID  int
	// onAppend, if set, decides about an append before it is made.
	onAppend func(ctx context.Context, raw []byte) error
}

func (p *memPartition) setOnAppend(f func(ctx context.Context, raw []byte) error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.onAppend = f
}

func (p *memPartition) Append(ctx context.Context, raw []byte, req api.AppendRequest) (api.AppendResult, error) {
	p.mu.Lock()
	decide := p.onAppend
	p.mu.Unlock()
	if decide != nil {
		if err := decide(ctx, raw); err != nil {
			return api.AppendResult{}, err
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if req.LeaderEpoch != p.epoch {
		return api.AppendResult{}, wire.ErrFencedLeaderEpoch
	}
	p.write(raw)
	return api.AppendResult{BaseOffset: p.end - 1}, nil
}

// write appends one batch; mu is held.
func (p *memPartition) write(raw []byte) {
	raw = append([]byte{}, raw...)
	batch.Stamp(raw, p.end, p.epoch)
	h, err := batch.ParseHeader(raw)
	if err != nil {
		panic(err)
	}
	p.raw = append(p.raw, raw...)
	p.end = h.NextOffset()
	p.appends++
	if !p.lag {
		p.hw = p.end
	}
}

func (p *memPartition) seed(raws ...[]byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, raw := range raws {
		p.write(raw)
	}
}

// catchUp moves the high watermark to the log end and tells.
func (p *memPartition) catchUp() {
	p.mu.Lock()
	p.hw, p.lag = p.end, false
	watchers := make([]func(), 0, len(p.watch))
	for _, f := range p.watch {
		watchers = append(watchers, f)
	}
	p.mu.Unlock()
	for _, f := range watchers {
		f()
	}
}

func (p *memPartition) Read(from types.Offset, req api.ReadRequest, out *api.ReadResult) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	out.Records = out.Records[:0]
	size := 0
	for it := batch.Iterate(p.raw); it.Next(); {
		if it.Header.LastOffset() < from || it.Header.NextOffset() > p.hw {
			continue
		}
		if size > 0 && size+len(it.Raw) > req.MaxBytes {
			break
		}
		size += len(it.Raw)
		out.Records = append(out.Records, wire.Piece{Mem: append([]byte{}, it.Raw...)})
	}
	out.HighWatermark = p.hw
	return nil
}

func (p *memPartition) ListOffset(q api.OffsetQuery) (api.OffsetAnswer, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if q.Timestamp == api.TimestampEarliest {
		return api.OffsetAnswer{Offset: 0}, nil
	}
	if q.Replica == types.NoBroker {
		return api.OffsetAnswer{Offset: p.hw}, nil
	}
	return api.OffsetAnswer{Offset: p.end}, nil
}

func (p *memPartition) OnProgress(f func()) func() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.watch == nil {
		p.watch = map[int]func(){}
	}
	id := p.nextID
	p.nextID++
	p.watch[id] = f
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.watch, id)
	}
}

// fakeNode is the broker around a coordinator.
type fakeNode struct {
	api.Topics
	image   atomic.Pointer[meta.Image]
	mu      sync.Mutex
	parts   map[int32]*memPartition
	refuse  error // what Get answers, if set
	logEnds map[types.TopicPartition]types.Offset
	created []api.CreateTopic
	cfg     Config
	// dataID is the id of the topic "data", zero if there is none; restored: the metadata came from a backup.
	dataID   types.TopicID
	promoted bool // the topic "data" is no mirror any more
	restored bool
	// fresh, if set, is what the image becomes when it has to be a fresh one.
	fresh func() error
}

func newFakeNode(partitions int32) *fakeNode {
	n := &fakeNode{parts: map[int32]*memPartition{}, logEnds: map[types.TopicPartition]types.Offset{}, dataID: dataTopicID, cfg: Config{
		Group: group.Config{
			MinSessionTimeout: 10, MaxSessionTimeout: 600000, MaxSize: 100, OffsetMetadataMaxBytes: 100, OffsetsRetention: 7 * 86400000,
			Consumer: consumer.Config{SessionTimeout: 45000, HeartbeatInterval: 5000, MaxSize: 100, Assignors: []string{consumer.Uniform, consumer.Range}},
		},
		TopicPartitions: partitions, TopicReplication: 1, TopicSegmentBytes: 100 << 20, CommitTimeout: 5 * time.Second,
		RetentionCheck: time.Hour, LoadBufferBytes: 512, ReloadAfterFailure: time.Millisecond,
	}}
	for i := range partitions {
		n.parts[i] = &memPartition{tp: types.TopicPartition{Topic: OffsetsTopic, Partition: i}, epoch: 1}
	}
	n.setTopics(false)
	return n
}

// setTopics makes an image with the topic "data", and the offsets topic if it is there.
func (n *fakeNode) setTopics(offsets bool) {
	keys := meta.KeysOf(testCluster)
	var kvs []meta.KV
	add := func(id types.TopicID, name string, partitions int32) {
		kvs = append(kvs,
			meta.KV{Key: keys.Topic(id), Value: meta.TopicRecord{ID: id, Name: name, Partitions: partitions}.Encode(), CreateRevision: 1, ModRevision: 1},
			meta.KV{Key: keys.Name(name), Value: meta.NameRecord{ID: id}.Encode(), CreateRevision: 1, ModRevision: 1})
		for i := range partitions {
			rec := meta.PartitionRecord{
				Replicas: []types.BrokerID{7}, ISR: []meta.ISRMember{{ID: 7, BrokerEpoch: 1}}, Leader: 7, LeaderBrokerEpoch: 1, LeaderEpoch: 1,
				MinISR: 1, Writable: id == offsetsTopicID || n.promoted, Timelines: timeline.List{{ID: "root"}},
			}
			kvs = append(kvs, meta.KV{Key: keys.Partition(id, i), Value: rec.Encode(), CreateRevision: 1, ModRevision: 1})
		}
	}
	if !n.dataID.IsZero() {
		add(n.dataID, "data", 2)
	}
	if n.restored {
		rec := meta.ClusterRecord{ID: testCluster, Restore: &meta.Restore{ID: "restore"}}
		kvs = append(kvs, meta.KV{Key: keys.Cluster(), Value: rec.Encode(), CreateRevision: 1, ModRevision: 1})
	}
	if offsets {
		add(offsetsTopicID, OffsetsTopic, n.cfg.TopicPartitions)
	}
	image, _ := meta.Load(testCluster, kvs, 5)
	n.image.Store(image)
}

func (n *fakeNode) Get(id types.TopicID, partition int32) (api.Partition, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.refuse != nil {
		return nil, n.refuse
	}
	return n.parts[partition], nil
}

func (n *fakeNode) GetReplica(id types.TopicID, partition int32) (api.Partition, error) {
	return n.Get(id, partition)
}

func (n *fakeNode) setRefuse(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.refuse = err
}

func (n *fakeNode) LogDirs() []api.LogDir { return nil }

func (n *fakeNode) Create(_ context.Context, t api.CreateTopic) (api.CreatedTopic, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.created = append(n.created, t)
	n.setTopics(true)
	return api.CreatedTopic{ID: offsetsTopicID}, nil
}

func (n *fakeNode) logEnd(id types.TopicID, partition int32) (types.Offset, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	end, ok := n.logEnds[types.TopicPartition{Topic: "data", Partition: partition}]
	return end, ok && id == dataTopicID
}

func (n *fakeNode) setLogEnd(partition int32, end types.Offset) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.logEnds[types.TopicPartition{Topic: "data", Partition: partition}] = end
}

func (n *fakeNode) freshImage(context.Context) (*meta.Image, error) {
	if n.fresh != nil {
		if err := n.fresh(); err != nil {
			return nil, err
		}
	}
	return n.image.Load(), nil
}

// start makes a coordinator; it is closed with the test.
func (n *fakeNode) start(t *testing.T) *Coordinator {
	t.Helper()
	c := New(Options{
		Node: statelog.Node{NodeID: 7, Image: n.image.Load, Partitions: n, Topics: n,
			Logger: slog.New(slog.DiscardHandler), Now: func() types.Millis { return types.Millis(time.Now().UnixMilli()) }},
		Config: n.cfg, Fresh: n.freshImage, LogEnd: n.logEnd,
	})
	t.Cleanup(c.Close)
	return c
}

// lead makes the topic, has the coordinator elected for all partitions and waits for the load.
func (n *fakeNode) lead(t *testing.T, c *Coordinator) {
	t.Helper()
	n.setTopics(true)
	for i, p := range n.parts {
		c.Elected(i, p.epoch)
	}
	for _, l := range c.All() {
		waitFor(t, l.Ready())
	}
}

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func waitFor[T any](t *testing.T, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(60 * time.Second):
		t.Fatal("waited for 20 s")
		panic("unreachable")
	}
}
