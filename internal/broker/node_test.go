package broker

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"tidemark/internal/await"
	"tidemark/internal/batch"
	"tidemark/internal/broker/api"
	"tidemark/internal/config"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/internal/metastore/mem"
	"tidemark/internal/vfs"
	"tidemark/internal/wire"
)

func TestMain(m *testing.M) { await.NoLeaks(m) }

// world is what outlives a node in a test: its disk and its metadata.
type world struct {
	t     *testing.T
	fs    vfs.FS
	store *mem.Store
	set   []config.Setting
	// features are what the program is said to support; nil: as it does.
	features meta.Features
	logger   *slog.Logger // nil: nowhere
}

func newWorld(t *testing.T, settings ...string) *world {
	w := &world{t: t, fs: vfs.NewMem(), store: mem.New()}
	t.Cleanup(func() { _ = w.store.Close() })
	for _, s := range append([]string{"listeners=PLAINTEXT://127.0.0.1:0", "log.dirs=/data", "num.shards=2"}, settings...) {
		one, err := config.ParseSet(s)
		if err != nil {
			t.Fatal(err)
		}
		w.set = append(w.set, one)
	}
	return w
}

// heard is a node's log, which can be read while it is written.
type heard struct {
	mu   sync.Mutex // guards the following
	text strings.Builder
}

// hear keeps what the nodes of the world log from now on.
func (w *world) hear() *heard {
	h := &heard{}
	w.logger = slog.New(slog.NewTextHandler(h, nil))
	return h
}

func (h *heard) Write(b []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.text.Write(b)
}

func (h *heard) count(words string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Count(h.text.String(), words)
}

func (h *heard) says(words string) bool { return h.count(words) > 0 }

func (w *world) with(settings ...string) *world {
	next := *w
	for _, s := range settings {
		one, err := config.ParseSet(s)
		if err != nil {
			w.t.Fatal(err)
		}
		next.set = append(next.set[:len(next.set):len(next.set)], one)
	}
	return &next
}

func (w *world) try() (*Broker, error) {
	w.t.Helper()
	cfg, _, err := config.Resolve(w.set)
	if err != nil {
		w.t.Fatal(err)
	}
	b, err := Open(testContext(w.t), cfg, Options{FS: w.fs, Store: w.store, Features: w.features, Logger: w.logger})
	if err == nil {
		w.t.Cleanup(func() { _ = b.Close(context.Background()) })
	}
	return b, err
}

func (w *world) open() *Broker {
	w.t.Helper()
	b, err := w.try()
	if err != nil {
		w.t.Fatal(err)
	}
	return b
}

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func closeNode(t *testing.T, b *Broker) {
	t.Helper()
	if err := b.Close(testContext(t)); err != nil {
		t.Fatal(err)
	}
}

func createTopic(t *testing.T, b *Broker, name string, partitions int32, configs ...string) types.TopicID {
	t.Helper()
	r := api.CreateTopic{Name: name, Partitions: partitions, ReplicationFactor: 1, Configs: map[string]*string{}}
	for i := 0; i+1 < len(configs); i += 2 {
		r.Configs[configs[i]] = &configs[i+1]
	}
	made, err := b.Topics().Create(testContext(t), r)
	if err != nil {
		t.Fatalf("create %s: %v", name, err)
	}
	return made.ID
}

func mustPartition(t *testing.T, b *Broker, topic string, n int32) *Partition {
	t.Helper()
	p, ok := b.PartitionByName(topic, n)
	if !ok {
		t.Fatalf("no partition %s-%d", topic, n)
	}
	return p
}

func oneBatch(t *testing.T, values ...string) []byte {
	t.Helper()
	bld := batch.NewBuilder(batch.BuilderOptions{})
	for _, v := range values {
		bld.Append(types.Millis(time.Now().UnixMilli()), nil, []byte(v))
	}
	raw, err := bld.Build()
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func appendTo(t *testing.T, p *Partition, acks int16, values ...string) (api.AppendResult, error) {
	t.Helper()
	return p.Append(testContext(t), oneBatch(t, values...), api.AppendRequest{Acks: acks, Timeout: 10 * time.Second, LeaderEpoch: types.NoLeaderEpoch, RequestVersion: 9})
}

func mustAppend(t *testing.T, p *Partition, values ...string) types.Offset {
	t.Helper()
	r, err := appendTo(t, p, -1, values...)
	if err != nil {
		t.Fatalf("append to %s: %v", p.Name(), err)
	}
	return r.BaseOffset
}

// read gives the number of bytes that a consumer gets from an offset on.
func read(p *Partition, from types.Offset) (api.ReadResult, error) {
	var out api.ReadResult
	err := p.Read(from, api.ReadRequest{
		CurrentLeaderEpoch: types.NoLeaderEpoch, LastFetchedEpoch: types.NoLeaderEpoch, MaxBytes: 1 << 20, MinOne: true, Replica: types.NoBroker, ReplicaEpoch: types.NoBrokerEpoch,
	}, &out)
	if out.Release != nil {
		out.Release()
	}
	return out, err
}

func logEnd(t *testing.T, p *Partition) types.Offset {
	t.Helper()
	v, ok := p.View()
	if !ok {
		t.Fatalf("%s isn't open", p.Name())
	}
	return v.LogEnd
}

func wantCode(t *testing.T, what string, err error, code wire.ErrCode) {
	t.Helper()
	if api.CodeOf(err) != code {
		t.Errorf("%s: %v, want %s", what, err, code)
	}
}

// eventually waits for a condition.
var eventually = await.True
