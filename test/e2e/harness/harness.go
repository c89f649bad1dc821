// Package harness starts whole nodes inside a test: real sockets on free
// loopback ports, a real folder, the embedded metadata store, and real clients.
//
// It owns the life of what it starts: every node and client ends with its
// test, and a node's log is shown when the test fails. It checks nothing by
// itself. Tests wait on conditions with Eventually, never by sleeping.
package harness

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"tidemark/internal/await"
	"tidemark/internal/broker"
	"tidemark/internal/config"
)

// Patience bounds every wait of a test.
const Patience = 60 * time.Second

// Broker is a node under test.
type Broker struct {
	*broker.Broker
	// Dir is the node's log dir; it outlives restarts.
	Dir string
	// Addr is the Kafka address, the same as KafkaAddr.
	Addr string

	o options
}

type options struct {
	dir      string
	settings []config.Setting
	broker   broker.Options
	racks    []string
}

// Option changes how a node is started.
type Option func(*options)

// WithSetting sets a key of server.properties.
func WithSetting(key, value string) Option {
	return func(o *options) { o.settings = append(o.settings, config.Flag("test", key, value)) }
}

// WithRacks puts the nodes of a cluster into racks, in the order of their ids.
func WithRacks(racks ...string) Option { return func(o *options) { o.racks = racks } }

// WithDir uses a folder that an earlier node left.
func WithDir(dir string) Option { return func(o *options) { o.dir = dir } }

// WithOptions replaces the broker's options (file system, clock, metadata store).
func WithOptions(b broker.Options) Option { return func(o *options) { o.broker = b } }

// Config is the configuration that StartBroker would use: quick and on free loopback ports.
func Config(t testing.TB, dir string, settings ...config.Setting) *config.Broker {
	t.Helper()
	all := append([]config.Setting{
		config.Flag("test", "listeners", "PLAINTEXT://127.0.0.1:0"),
		config.Flag("test", "http.listener", ""),
		config.Flag("test", "log.dirs", dir),
		config.Flag("test", "group.initial.rebalance.delay.ms", "0"),
		config.Flag("test", "offsets.topic.num.partitions", "4"),
	}, settings...)
	cfg, _, err := config.Resolve(all)
	if err != nil {
		t.Fatalf("configuration: %v", err)
	}
	return cfg
}

// StartBroker starts a node that ends with the test.
func StartBroker(t testing.TB, opts ...Option) *Broker {
	t.Helper()
	var o options
	for _, f := range opts {
		f(&o)
	}
	if o.dir == "" {
		o.dir = t.TempDir()
	}
	b, err := Open(t, o.dir, o)
	if err != nil {
		t.Fatalf("start the node: %v", err)
	}
	return b
}

// TryBroker starts a node that may refuse to: the error is the test's to judge.
func TryBroker(t testing.TB, opts ...Option) (*Broker, error) {
	t.Helper()
	var o options
	for _, f := range opts {
		f(&o)
	}
	if o.dir == "" {
		o.dir = t.TempDir()
	}
	return Open(t, o.dir, o)
}

// Open starts a node in a folder.
func Open(t testing.TB, dir string, o options) (*Broker, error) {
	t.Helper()
	if o.broker.Logger == nil {
		o.broker.Logger = Logger(t)
	}
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	b, err := broker.Open(ctx, Config(t, dir, o.settings...), o.broker)
	if err != nil {
		return nil, err
	}
	h := &Broker{Broker: b, Dir: dir, Addr: b.KafkaAddr(), o: o}
	t.Cleanup(func() { h.Stop(t) })
	return h, nil
}

// Stop closes the node cleanly; a second stop does nothing.
func (b *Broker) Stop(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	finish(t, "the node ends", func() {
		if err := b.Close(ctx); err != nil {
			t.Errorf("close the node: %v", err)
		}
	})
}

// Restart closes the node and starts another one on its folder. The port may differ.
func (b *Broker) Restart(t testing.TB) *Broker {
	t.Helper()
	b.Stop(t)
	next, err := Open(t, b.Dir, b.o)
	if err != nil {
		t.Fatalf("start the node again: %v", err)
	}
	return next
}

// Client connects a client that is closed with the test.
func (b *Broker) Client(t testing.TB, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	return Connect(t, append([]kgo.Opt{kgo.SeedBrokers(b.Addr), kgo.ClientID("e2e"), kgo.RetryTimeout(Patience)}, opts...)...)
}

// Admin connects an admin client that is closed with the test.
func (b *Broker) Admin(t testing.TB) *kadm.Client {
	t.Helper()
	return kadm.NewClient(b.Client(t))
}

// CreateTopic makes a topic of one replica.
func (b *Broker) CreateTopic(t testing.TB, name string, partitions int32, configs map[string]string) {
	t.Helper()
	values := make(map[string]*string, len(configs))
	for k, v := range configs {
		values[k] = kadm.StringPtr(v)
	}
	if _, err := b.Admin(t).CreateTopic(Context(t), partitions, 1, values, name); err != nil {
		t.Fatalf("create topic %s: %v", name, err)
	}
}

// Produce writes values to one partition of a topic and gives the offset of the first.
func (b *Broker) Produce(t testing.TB, topic string, partition int32, values ...string) int64 {
	t.Helper()
	c := b.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	first := int64(-1)
	for i, v := range values {
		r, err := c.ProduceSync(Context(t), &kgo.Record{Topic: topic, Partition: partition, Value: []byte(v)}).First()
		if err != nil {
			t.Fatalf("produce %q: %v", v, err)
		}
		if i == 0 {
			first = r.Offset
		}
	}
	return first
}

// Consume reads n values of one partition from an offset on.
func (b *Broker) Consume(t testing.TB, topic string, partition int32, from int64, n int) []string {
	t.Helper()
	c := b.Client(t, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {partition: kgo.NewOffset().At(from)}}))
	var out []string
	for ctx := Context(t); len(out) < n; {
		fetches := c.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			t.Fatalf("consume %s-%d: got %d of %d records: %v", topic, partition, len(out), n, err)
		}
		fetches.EachError(func(topic string, p int32, err error) { t.Fatalf("consume %s-%d: %v", topic, p, err) })
		fetches.EachRecord(func(r *kgo.Record) { out = append(out, string(r.Value)) })
	}
	return out
}

// Context ends with the test, or after its lifetime: a test may use one for everything
// that it does, which takes a slow machine longer than Patience.
func Context(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), lifetime)
	t.Cleanup(cancel)
	return ctx
}

// Eventually waits until ok says true, trying again as fast as ok allows but at
// most a hundred times a second; what names the condition in the failure.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	await.Within(t, Patience, what, ok)
}

// Logger shows what is logged if the test fails.
func Logger(t testing.TB) *slog.Logger {
	w := &lateWriter{t: t}
	t.Cleanup(w.show)
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelInfo}))
}

// lateWriter keeps a log until its test has ended.
type lateWriter struct {
	t  testing.TB
	mu sync.Mutex // guards the following
	b  strings.Builder
}

// Write implements io.Writer.
func (w *lateWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	const most = 1 << 20
	if w.b.Len() < most {
		w.b.Write(p)
	}
	return len(p), nil
}

func (w *lateWriter) show() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.t.Failed() {
		fmt.Fprintf(w.t.Output(), "--- the node's log\n%s", w.b.String())
	}
}
