package sim

import (
	"context"
	"fmt"
	"time"

	"tidemark/internal/broker"
	"tidemark/internal/broker/mirror"
	"tidemark/internal/config"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	src "tidemark/internal/source"
)

// site is what a cluster has beside others.
type site struct {
	id     string // of the cluster
	prefix string // of its brokers' and its store's names; empty where there is one cluster
	number int    // among the world's sites
	world  *mirrors
	judged eye
}

// eye is what watches a cluster.
type eye interface {
	// look looks at one partition of a process after the process has done something.
	look(m *machine, h *held)
	// lost takes note of the end of a machine's process; power: unsynced bytes may be gone.
	lost(m *machine, power bool)
	// acked takes note of an acknowledgement with acks=all.
	acked(m *machine, id meta.PartitionID, base types.Offset, raw []byte)
	// stored looks at what the store holds; false if nothing has changed.
	stored() bool
}

func (c *cluster) eye() eye {
	if c.world == nil {
		return c.check
	}
	return c.judged
}

func (c *cluster) storeName() string { return c.prefix + "store" }

// watchName is the store as it sends watches: cut off, a broker's image alone stands still.
func (c *cluster) watchName() string { return c.storeName() + " watch" }

// configure sets what the world of several clusters wants of a broker.
func (c *cluster) configure(cfg *config.Broker) {
	if c.world == nil {
		return
	}
	o := c.world.o
	m := &cfg.Mirror
	m.MetadataRefreshMs, m.GroupSyncMs, m.ConfigSyncMs, m.WatchSourceMs = 1500, 1000, 20_000, 5000
	m.RetryBackoffMs, m.RetryBackoffMaxMs, m.FetchMaxWaitMs, m.RequestTimeoutMs = 100, 2000, 500, 5000
	m.EpochHeadroom, m.PartitionFetchBytes, m.ReplicationFactor = o.Headroom, int32(o.FetchBytes), int16(c.o.Replicas)
	m.GapPolicy, m.PromotionStep = "fail", o.PromotionStep
	if o.ContinueOverGap {
		m.GapPolicy = "continue"
	}
	m.KIP1279 = o.KIP1279
	if o.GroupSync > 0 {
		m.GroupSyncMs = types.Millis(o.GroupSync.Milliseconds())
	}
	cfg.Vault.MaxBytes = o.VaultBytes
	cfg.Offsets.TopicPartitions, cfg.Offsets.TopicReplicationFactor = 1, int16(c.o.Replicas)
}

// mirrorsOf are the connections of a machine's mirrors; nil where there is one cluster.
func (c *cluster) mirrorsOf(m *machine) *broker.VirtualMirrors {
	if c.world == nil {
		return nil
	}
	p := m.p
	var addresses []string
	for _, other := range c.machines {
		addresses = append(addresses, fmt.Sprintf("%s-%d:9092", c.id, other.id))
	}
	return &broker.VirtualMirrors{
		Connect:   func(cfg *src.Config, _ string) mirror.Source { return c.world.connect(m, p, cfg) },
		Ask:       m.askPeer,
		Addresses: addresses,
		Jitter:    func(n int64) int64 { return m.k.dice("jitter " + m.name).Int64N(n) },
	}
}

// askPeer has another broker of the cluster do its part of a verb. Its answer may
// come late: then what was asked may happen long after.
func (m *machine) askPeer(ctx context.Context, id types.BrokerID, verb string, body []byte, patience time.Duration) ([]byte, error) {
	at := m.c.machine(id)
	return m.askVerb(ctx, m.p, at, verb, body, patience)
}

// askVerb asks a broker, here or of another cluster, for a verb's part.
func (m *machine) askVerb(ctx context.Context, p *process, at *machine, verb string, body []byte, patience time.Duration) ([]byte, error) {
	var out []byte
	var fault error
	lost := m.askFor(ctx, p, at, "verb "+verb, patience, func(reply func(arrived func())) {
		at.task(func() {
			v := at.node.Mirrors()
			if v == nil {
				return
			}
			raw, err := v.Verb(at.node.Context(), verb, body)
			reply(func() { out, fault = raw, err })
		})
	})
	if lost != nil {
		return nil, lost
	}
	return out, fault
}

// askFor sends a request to a machine and waits for its answer. serve runs there
// once it answers requests, and may keep reply.
func (m *machine) askFor(ctx context.Context, p *process, at *machine, what string, patience time.Duration, serve func(reply func(arrived func()))) error {
	return m.c.world.exchange(ctx, p, m.name, at.name, what, patience, func(reply func(func())) {
		if at.serves() {
			at.p.do(func() { serve(reply) })
		}
	})
}

// exchange is a request over the network from within a task, and the wait for its answer.
func (w *mirrors) exchange(ctx context.Context, p *process, from, to, what string, patience time.Duration, serve func(reply func(arrived func()))) error {
	settled, lost := false, false
	once := func(f func()) {
		if !settled && !p.dead {
			p.do(func() { settled = true; f() })
		}
	}
	w.net.call(from, to, what, patience, func(reply func(func())) {
		serve(func(f func()) { reply(func() { once(f) }) })
	}, func() { once(func() { lost = true }) })
	if err := p.until(ctx, func() bool { return settled }); err != nil {
		settled = true
		return err
	}
	if lost {
		return &src.Error{Kind: src.ErrUnreachable, Sentence: what + " to " + to + ": no answer in time"}
	}
	return nil
}
