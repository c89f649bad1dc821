package embed_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"tidemark/internal/core/control"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/internal/metastore"
	"tidemark/internal/metastore/embed"
)

// node is a broker's view of the embedded store, as far as the benchmark needs one.
type node struct {
	b     *testing.B
	store metastore.Store
	image *meta.Image
	me    control.Me
}

func (n *node) load() {
	kvs, revision, err := n.store.Range(context.Background(), meta.KeysOf("bench").Root())
	if err != nil {
		n.b.Fatal(err)
	}
	n.image, _ = meta.Load("bench", kvs, revision)
}

func (n *node) commit(plans []meta.Plan) {
	if _, _, err := metastore.CommitAll(context.Background(), n.store, plans); err != nil {
		n.b.Fatal(err)
	}
}

func (n *node) register(incarnation string) {
	plans, err := control.RegisterBroker(n.image, meta.BrokerRecord{ID: 1, DirectoryID: "d", Incarnation: incarnation, CleanShutdownEpoch: -1,
		Endpoints: []meta.Endpoint{{Listener: "P", Host: "h", Port: 1, Security: "P"}}}, 0)
	if err != nil {
		n.b.Fatal(err)
	}
	n.commit(plans)
	n.load()
	epoch, _ := n.image.BrokerEpoch(1)
	n.me = control.Me{ID: 1, Epoch: epoch}
}

func (n *node) limits() control.Limits { return control.Limits{Ops: n.store.MaxTxnOps()} }

// BenchmarkPartitions measures a node's metadata with mirrored partitions, 24
// to a topic: creation, restart of the server, loading, election of everything.
func BenchmarkPartitions(b *testing.B) {
	for _, partitions := range []int{1_000, 10_000} {
		b.Run(fmt.Sprint(partitions), func(b *testing.B) {
			for b.Loop() {
				measurePartitions(b, partitions)
			}
		})
	}
}

func measurePartitions(b *testing.B, partitions int) {
	dir := b.TempDir()
	report := func(what string, since time.Time) { b.ReportMetric(float64(time.Since(since).Milliseconds()), what) }
	open := func() *embed.Server {
		s, err := embed.Start(context.Background(), embed.Options{Dir: dir, Name: "node-1"})
		if err != nil {
			b.Fatal(err)
		}
		return s
	}
	s := open()
	n := &node{b: b, store: s.Store(), image: meta.Empty("bench")}
	n.register("first")

	began := time.Now()
	for i := 0; i*24 < partitions; i++ {
		r := control.CreateTopicRequest{Name: fmt.Sprintf("orders-%d", i), ID: types.TopicID{1, byte(i >> 8), byte(i)}, Partitions: 24, ReplicationFactor: 1,
			Mirrors: make([]meta.MirrorState, 24)}
		for p := range r.Mirrors {
			r.Mirrors[p] = meta.MirrorState{Name: "standby", State: meta.MirrorLogAlignment, StartID: "Yk2m9r0sQ2m6b8H1xw3u7A", SourceClusterID: "MkU3OEVBNTcwNTJENDM2Qg", SourceTopicID: r.ID}
		}
		plans, err := control.CreateTopic(n.image, r, n.me, n.limits())
		if err != nil {
			b.Fatal(err)
		}
		n.commit(plans)
	}
	report("create-ms", began)
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}

	began = time.Now()
	s = open()
	defer s.Close()
	report("restart-ms", began)
	n.store = s.Store()
	began = time.Now()
	n.load()
	report("load-ms", began)
	n.register("second")
	began = time.Now()
	elections, plans := control.ElectAll(n.image, 1, nil, n.me, n.limits())
	n.commit(plans)
	report("elect-ms", began)
	b.ReportMetric(float64(len(plans)), "elect-txns")
	if len(elections) < partitions {
		b.Fatalf("%d elections", len(elections))
	}
}

// BenchmarkTxn measures one compare-and-set of a partition record, and how long until a watch shows it.
func BenchmarkTxn(b *testing.B) {
	s, err := embed.Start(context.Background(), embed.Options{Dir: b.TempDir(), Name: "node-1"})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	value := make([]byte, 400)
	w := s.Store().Watch(context.Background(), "/", 0)
	defer w.Close()
	var at metastore.Revision
	for b.Loop() {
		plan := meta.Plan{Why: "bench", If: []meta.Compare{meta.ModRevisionIs("/k", at)}, Then: []meta.Op{meta.Put("/k", value)}}
		if at, err = metastore.Commit(context.Background(), s.Store(), plan); err != nil {
			b.Fatal(err)
		}
		for {
			events, err := w.Next(context.Background())
			if err != nil {
				b.Fatal(err)
			}
			if events.Revision >= at {
				break
			}
		}
	}
}
