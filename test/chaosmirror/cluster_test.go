//go:build chaos && linux

package chaosmirror_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"tidemark/internal/await"
	"tidemark/internal/broker/mirror"
	"tidemark/internal/compare"
	"tidemark/internal/console"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/internal/history"
	"tidemark/test/chaos/links"
	"tidemark/test/chaos/nodes"
)

// cluster is one of the clusters, as its operator sees it.
type cluster struct {
	t     testing.TB
	name  string
	nodes []*nodes.Node
	net   links.Network
	seeds []string
	adm   *kadm.Client
	side  compare.Side
	log   func(format string, args ...any)
	// roots are the lineages of a cluster that knows none; nil: it tells them.
	roots map[types.TopicPartition]history.Lineage

	mu         sync.Mutex   // guards the following
	asleep     map[int]bool // nodes that are down until the test says otherwise
	leaderless time.Time    // since when a partition has been without a leader while its nodes were ready; zero: none is
	operated   int          // unclean elections that the operator asked for
}

// options are those of every kgo client: impatient, so that a fault is noticed within the run.
func (c *cluster) options(more ...kgo.Opt) []kgo.Opt {
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		return c.net.Dial(ctx, network, address)
	}
	return append([]kgo.Opt{
		kgo.SeedBrokers(c.seeds...), kgo.Dialer(dial), kgo.MetadataMinAge(200 * time.Millisecond),
		kgo.RetryBackoffFn(func(int) time.Duration { return 100 * time.Millisecond }), kgo.RequestTimeoutOverhead(3 * time.Second),
	}, more...)
}

// connect makes the clients for reading and administration.
func (c *cluster) connect() {
	c.t.Helper()
	cl, err := kgo.NewClient(c.options(kgo.RetryTimeout(20 * time.Second))...)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(cl.Close)
	c.adm, c.side = kadm.NewClient(cl), compare.Side{Name: c.name, Client: cl}
}

func (c *cluster) sleeping(id int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.asleep[id]
}

// awake lists the nodes that are to run.
func (c *cluster) awake() []*nodes.Node {
	return slices.DeleteFunc(slices.Clone(c.nodes), func(n *nodes.Node) bool { return c.sleeping(n.ID) })
}

// api gives a client of one node's API.
func (c *cluster) api(n *nodes.Node) *console.Client {
	cl, err := console.NewClient("http://"+n.Place.HTTP, console.Credentials{})
	if err != nil {
		c.t.Fatal(err)
	}
	return cl.Over(n.HTTP)
}

// ask has the nodes asked one after the other until one answers without an error.
func (c *cluster) ask(ctx context.Context, limit time.Duration, f func(context.Context, *console.Client) error) error {
	err := errors.New("no node runs")
	for _, n := range c.awake() {
		if n.Ready() != nil {
			continue
		}
		err = func() error {
			ctx, cancel := context.WithTimeout(ctx, limit)
			defer cancel()
			return f(ctx, c.api(n))
		}()
		if err == nil || ctx.Err() != nil {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("%s: %w", c.name, err)
	}
	return nil
}

// internal are the topics of groups and of transactions, each of one partition.
var internal = []string{"__consumer_offsets", "__transaction_state"}

// records are the partitions of the test's topics, by the newest image of any node.
type records struct {
	revision   meta.Revision
	partitions map[types.TopicPartition]*meta.PartitionRecord
	internal   map[types.TopicPartition]*meta.PartitionRecord // of the internal topics that are there
	brokers    map[types.BrokerID]types.BrokerEpoch           // those that are registered
}

// isLed reports whether a partition's leader leads in its present registration (R10).
func (r *records) isLed(rec *meta.PartitionRecord) bool {
	epoch, registered := r.brokers[rec.Leader]
	return registered && epoch == rec.LeaderBrokerEpoch
}

// look reads the metadata at every node that answers, and takes the newest.
func (c *cluster) look(ctx context.Context) (records, error) {
	var mu sync.Mutex
	var all sync.WaitGroup
	newest, err := records{revision: -1}, fmt.Errorf("%s: no node shows its metadata", c.name)
	for _, n := range c.awake() {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
			defer cancel()
			raw, e := c.api(n).Meta(ctx, "")
			var r records
			if e == nil {
				r, e = parseRecords(raw)
			}
			mu.Lock()
			defer mu.Unlock()
			if e == nil && r.revision > newest.revision {
				newest, err = r, nil
			}
		})
	}
	all.Wait()
	return newest, err
}

func parseRecords(raw []byte) (records, error) {
	var d struct {
		Revision meta.Revision `json:"revision"`
		Entries  []struct {
			Key     string          `json:"key"`
			Created meta.Revision   `json:"created"`
			Record  json.RawMessage `json:"record"`
		} `json:"entries"`
	}
	if err := json.Unmarshal(raw, &d); err != nil {
		return records{}, err
	}
	r := records{revision: d.Revision, partitions: map[types.TopicPartition]*meta.PartitionRecord{}, internal: map[types.TopicPartition]*meta.PartitionRecord{}, brokers: map[types.BrokerID]types.BrokerEpoch{}}
	at := map[string]json.RawMessage{}
	for _, e := range d.Entries {
		at[e.Key] = e.Record
		if id, ok := strings.CutPrefix(e.Key, "brokers/"); ok {
			n, err := strconv.ParseInt(id, 10, 32)
			if err != nil {
				return r, err
			}
			r.brokers[types.BrokerID(n)] = types.BrokerEpoch(e.Created)
		}
	}
	all := maps.Clone(partitionsOf)
	for _, topic := range internal {
		all[topic] = 1
	}
	for topic, n := range all {
		var name meta.NameRecord
		if raw := at["names/"+topic]; raw == nil {
			continue
		} else if err := json.Unmarshal(raw, &name); err != nil {
			return r, err
		}
		for p := range n {
			raw := at[fmt.Sprintf("partitions/%s/%d", name.ID, p)]
			if raw == nil {
				continue
			}
			rec := &meta.PartitionRecord{}
			if err := json.Unmarshal(raw, rec); err != nil {
				return r, err
			}
			of := r.partitions
			if slices.Contains(internal, topic) {
				of = r.internal
			}
			of[types.TopicPartition{Topic: topic, Partition: p}] = rec
		}
	}
	return r, nil
}

// lineageOf gives a partition's lineage.
func (c *cluster) lineageOf(ctx context.Context, tp types.TopicPartition) (history.Lineage, error) {
	if c.roots != nil {
		return c.roots[tp], nil
	}
	r, err := c.look(ctx)
	if err != nil {
		return nil, err
	}
	rec := r.partitions[tp]
	if rec == nil {
		return nil, fmt.Errorf("%s has no %s", c.name, tp)
	}
	return lineage(rec), nil
}

// lineage is a record's list in the judge's words.
func lineage(rec *meta.PartitionRecord) history.Lineage {
	out := history.Lineage{}
	for _, e := range rec.Timelines {
		out = append(out, history.Timeline{ID: e.ID, FirstEpoch: e.FirstEpoch, FirstOffset: e.FirstOffset})
	}
	return out
}

// supervise starts what ended.
func (c *cluster) supervise() {
	for _, n := range c.awake() {
		n.Start()
	}
}

// whole says what a cluster lacks that should be in order by itself, and has its
// operator elect leaders where nothing else will (R11: all in-sync and eligible
// replicas ended without a clean shutdown).
func (c *cluster) whole() error {
	ctx, cancel := context.WithTimeout(c.t.Context(), 2*callTimeout)
	defer cancel()
	for _, n := range c.awake() {
		if err := n.Ready(); err != nil {
			c.calm()
			return fmt.Errorf("%s, node %d: %w", c.name, n.ID, err)
		}
	}
	r, err := c.look(ctx)
	if err != nil {
		return err
	}
	var lacks error
	if len(r.partitions) < len(partitions()) {
		lacks = fmt.Errorf("%s has %d partitions of %d", c.name, len(r.partitions), len(partitions()))
	}
	orphans := kadm.TopicsSet{}
	all := maps.Clone(r.partitions)
	maps.Copy(all, r.internal)
	for tp, rec := range all {
		if !r.isLed(rec) {
			orphans.Add(tp.Topic, tp.Partition)
		}
		if !r.isLed(rec) || len(rec.ISR) < len(c.awake()) {
			lacks = fmt.Errorf("%s: %s: leader %d, in sync %v, eligible %v, epoch %d, %s", c.name, tp, rec.Leader, rec.ISRIDs(), rec.ELRIDs(), rec.LeaderEpoch, mirrorText(rec))
		}
	}
	c.operate(ctx, orphans)
	return lacks
}

func mirrorText(rec *meta.PartitionRecord) string {
	switch {
	case rec.Fence != nil:
		return "fenced"
	case rec.IsMirror():
		return rec.Mirror.State + " " + rec.Mirror.Reason
	case rec.Writable:
		return "writable"
	}
	return "neither writable nor a mirror"
}

func (c *cluster) calm() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leaderless = time.Time{}
}

// operatorWaits is how long partitions stay without a leader before the operator acts: longer than a lease.
const operatorWaits = leaseTime + time.Second

// operate asks for unclean elections, as an operator would who sees that all nodes are back.
func (c *cluster) operate(ctx context.Context, orphans kadm.TopicsSet) {
	c.mu.Lock()
	due := false
	switch {
	case len(orphans) == 0:
		c.leaderless = time.Time{}
	case c.leaderless.IsZero():
		c.leaderless = time.Now()
	case time.Since(c.leaderless) > operatorWaits:
		c.leaderless, due = time.Time{}, true
	}
	c.mu.Unlock()
	if !due {
		return
	}
	results, err := c.adm.ElectLeaders(ctx, kadm.ElectLiveReplica, orphans)
	c.log("  the operator of %s elects leaders of %v: %v", c.name, orphans.IntoList(), err)
	for _, ps := range results {
		for _, r := range ps {
			if r.Err == nil {
				c.mu.Lock()
				c.operated++
				c.mu.Unlock()
			} else {
				c.log("    %s-%d: %v", r.Topic, r.Partition, r.Err)
			}
		}
	}
}

// status is the mirror's.
func (c *cluster) status(ctx context.Context) (st mirror.Status, err error) {
	err = c.ask(ctx, callTimeout, func(ctx context.Context, cl *console.Client) (err error) {
		st, err = cl.Status(ctx, mirrorName)
		return err
	})
	return st, err
}

// eventually asks f until it gives nil, and fails the test with its last answer.
func eventually(t testing.TB, limit time.Duration, what string, f func() error) {
	t.Helper()
	await.NoError(t, limit, what, f)
}
