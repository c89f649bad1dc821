package broker

import (
	"context"
	"time"

	"tidemark/internal/broker/coordinator"
	"tidemark/internal/broker/mirror"
	"tidemark/internal/core/timeline"
	"tidemark/internal/core/types"
	"tidemark/internal/log"
	"tidemark/internal/source"
)

// VirtualMirrors are what the mirrors of a virtual node have in place of connections.
type VirtualMirrors struct {
	// Connect makes the client of a mirror's source.
	Connect func(cfg *source.Config, clusterID string) mirror.Source
	// Ask has another broker of the cluster do its part of a verb.
	Ask func(ctx context.Context, id types.BrokerID, verb string, body []byte, patience time.Duration) ([]byte, error)
	// Addresses are the cluster's, for a mirror of it elsewhere.
	Addresses []string
	// Jitter draws from [0, n).
	Jitter func(n int64) int64
}

// MirrorRules are rules of mirroring that the simulator switches off.
type MirrorRules struct {
	Mirror mirror.Rules
	// FirstCut is R19's, at brokers that don't lead the mirror.
	FirstCut timeline.Rules
	// FirstCutInSync (R19): only in-sync replicas make their first cut.
	FirstCutInSync bool
	// NoCutBeforeLeading (R19): a leader that clients write to serves without its first cut.
	NoCutBeforeLeading bool
	// GroupsStay (DESIGN §6.3): a cut lowers no group's committed offset.
	GroupsStay bool
	// CutsUnawaited (DESIGN §6.3): clients are answered before committed offsets have followed a cut.
	CutsUnawaited bool
	// Keeper, if not nil, takes the vault's place at the logs.
	Keeper func(vault log.Keeper) log.Keeper
}

// firstCutRules are all on but in tests of the rules themselves.
func (p *Partition) firstCutRules() timeline.Rules {
	r := p.env.rules.Mirrors
	switch {
	case p.env.firstCut != nil:
		return *p.env.firstCut
	case r.FirstCutInSync && !p.record.InISR(p.env.nodeID), r.NoCutBeforeLeading && p.leading:
		return timeline.Rules{NoCut: true}
	}
	return r.FirstCut
}

// virtualMirrors makes the mirrors of a virtual node; nil for one that has none.
func (b *Broker) virtualMirrors(groups *coordinator.Coordinator) *mirror.Mirrors {
	v := b.opts.virtual
	if v.Mirrors == nil {
		return nil
	}
	var of mirror.Groups = groups
	if b.env.rules.Mirrors.GroupsStay {
		of = unlowered{groups}
	}
	return mirror.New(mirror.Options{
		Node: mirrorNode{b}, Groups: of, Config: b.cfg, Logger: b.logger, Metrics: b.metrics, Version: b.opts.Version, FS: b.fs, Vault: b.vault,
		Context: v.context(context.Background()), Connect: v.Mirrors.Connect, Jitter: v.Mirrors.Jitter, IDs: b.fresh, Rules: b.env.rules.Mirrors.Mirror,
	})
}

// unlowered are groups whose offsets no cut takes back.
type unlowered struct{ mirror.Groups }

// ClampAt implements mirror.Groups.
func (unlowered) ClampAt(context.Context, []coordinator.Cut, []coordinator.Office) ([]coordinator.Lowered, error) {
	return nil, nil
}

// ClampAll implements mirror.Groups.
func (unlowered) ClampAll(context.Context, []coordinator.Cut) ([]coordinator.Lowered, error) {
	return nil, nil
}

// Mirrors are the node's mirrors; nil until it has started. Their methods block.
func (v *Virtual) Mirrors() *mirror.Mirrors {
	if s := v.b.services.Load(); s != nil {
		return s.mirrors
	}
	return nil
}

// freshTopicID is a new topic's; a virtual node draws it from a source of its own, for the
// order of topics is that of their ids.
func (b *Broker) freshTopicID() types.TopicID {
	v := b.opts.virtual
	if v == nil {
		return b.fresh.FreshTopic()
	}
	var id types.TopicID
	v.Random(id[:])
	id[0] |= 1 // none of Kafka's own
	return id
}
