package sim

import (
	"bytes"
	"fmt"

	"tidemark/internal/batch"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/timeline"
	"tidemark/internal/core/types"
)

// grain is one batch that was ever written anywhere, as its leader wrote it. Its
// parent is the one below it in that log: a log is a path, and every unclean
// election, failover or write on both sides a fork.
type grain struct {
	part       meta.PartitionID
	base, next types.Offset
	epoch      types.LeaderEpoch
	raw        []byte
	parent     *grain
	timeline   string     // on which it was written
	site       int        // where it was written, -1 for the Kafka cluster
	node       *batchNode // of the Kafka cluster's model
	// committed says at which sites it lay below a serving leader's high watermark.
	committed uint8
	// marked says it of leaders that don't answer clients at the moment, too: committed
	// offsets are yet to follow a cut.
	marked uint8
}

// String is base-next@epoch, and where it was written.
func (g *grain) String() string {
	if g == nil {
		return "nothing"
	}
	where := "kafka"
	if g.site >= 0 {
		where = siteNames[g.site : g.site+1]
	}
	return fmt.Sprintf("%d-%d@%d(%s)", g.base, g.next-1, g.epoch, where)
}

// isAbove reports whether a is on the path to g, itself included.
func (g *grain) isAbove(a *grain) bool {
	for n := g; n != nil && (a == nil || n.next >= a.next); n = n.parent {
		if n == a {
			return true
		}
	}
	return a == nil
}

// grainKey is what compaction leaves of a batch's identity.
type grainKey struct {
	part       meta.PartitionID
	base, last types.Offset
	epoch      types.LeaderEpoch
	producer   types.ProducerID
	sequence   int32
}

func keyOf(part meta.PartitionID, h *batch.Header) grainKey {
	return grainKey{part, h.BaseOffset, h.LastOffset(), h.PartitionLeaderEpoch, h.ProducerID, h.BaseSequence}
}

// orchard holds all grains.
type orchard struct {
	w      *mirrors
	grains map[grainKey][]*grain
	nodes  map[*batchNode]*grain
	count  int
}

func newOrchard(w *mirrors) *orchard {
	return &orchard{w: w, grains: map[grainKey][]*grain{}, nodes: map[*batchNode]*grain{}}
}

func (o *orchard) add(g *grain, h *batch.Header) {
	k := keyOf(g.part, h)
	o.grains[k] = append(o.grains[k], g)
	o.count++
}

// find gives the grain that a log holds behind prev, and those of its bytes that
// were written behind something else.
func (o *orchard) find(part meta.PartitionID, b *shadowBatch, prev *grain) (g *grain, others []*grain) {
	h, err := batch.ParseHeader(b.raw)
	if err != nil {
		return nil, nil
	}
	candidates := o.grains[keyOf(part, &h)]
	if n := o.kafkaNode(part, b); n != nil {
		candidates = append(candidates[:len(candidates):len(candidates)], o.ofNode(part, n))
	}
	for _, c := range candidates {
		if !bytes.Equal(c.raw, b.raw) && !(o.w.o.Compacted && isPartOf(b.raw, c.raw)) {
			continue
		}
		if prev == nil || c.parent == prev || o.w.o.Compacted && c.isAbove(prev) {
			return c, nil
		}
		others = append(others, c)
	}
	return nil, others
}

// isPartOf reports whether compaction may have made one batch of another: its
// records are among the other's.
func isPartOf(part, whole []byte) bool {
	left := batch.Records(whole, nil)
	for it := batch.Records(part, nil); it.Next(); {
		for {
			if !left.Next() {
				return false
			}
			if left.Record.Offset == it.Record.Offset {
				break
			}
		}
		if !bytes.Equal(left.Record.Key, it.Record.Key) || !bytes.Equal(left.Record.Value, it.Record.Value) {
			return false
		}
	}
	return true
}

func (o *orchard) kafkaNode(part meta.PartitionID, b *shadowBatch) *batchNode {
	if o.w.kafka == nil {
		return nil
	}
	return o.w.kafka.src.find(part.Topic, part.Number, b.base, b.epoch, b.raw)
}

// ofNode gives the grain of a batch of the Kafka cluster.
func (o *orchard) ofNode(part meta.PartitionID, n *batchNode) *grain {
	if n == nil {
		return nil
	}
	if g := o.nodes[n]; g != nil {
		return g
	}
	root := timeline.Root(o.w.kafka.src.id, part.Topic)
	g := &grain{part: part, base: n.base, next: n.next, epoch: n.epoch, raw: n.raw, site: -1, node: n, timeline: root.ID, parent: o.ofNode(part, n.parent)}
	o.nodes[n] = g
	if h, err := batch.ParseHeader(n.raw); err == nil {
		o.add(g, &h)
	}
	return g
}

// isCommitted reports whether a grain was ever below a high watermark of the cluster.
func (g *grain) isCommitted(far farCluster) bool {
	if f, ok := far.(tideFar); ok {
		return g.committed&(1<<f.c.number) != 0
	}
	return g.node != nil && g.node.committed
}
