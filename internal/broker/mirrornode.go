package broker

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"tidemark/internal/broker/coordinator/transactions"
	"tidemark/internal/broker/mirror"
	"tidemark/internal/core/control"
	"tidemark/internal/core/types"
	"tidemark/internal/journal"
	"tidemark/internal/telemetry"
	"tidemark/internal/wire"
)

// mirrorNode is this node as its mirrors see it.
type mirrorNode struct{ *Broker }

var _ mirror.Node = mirrorNode{}

// Me implements mirror.Node.
func (n mirrorNode) Me() control.Me { return n.me() }

// Limits implements mirror.Node.
func (n mirrorNode) Limits() control.Limits { return n.limits() }

// Partition implements mirror.Node.
func (n mirrorNode) Partition(id types.TopicID, number int32) (mirror.Partition, bool) {
	p, ok := n.Broker.Partition(id, number)
	return mirrorPartition{p}, ok
}

// AskPeer implements mirror.Node.
func (n mirrorNode) AskPeer(ctx context.Context, id types.BrokerID, verb string, body []byte, patience time.Duration) ([]byte, error) {
	if v := n.opts.virtual; v != nil {
		return v.Mirrors.Ask(ctx, id, verb, body, patience)
	}
	peer, ok := peers{n.Broker}.Peer(id)
	if !ok || n.peerClient == nil {
		return nil, fmt.Errorf("broker %d is not registered on the listener between brokers", id)
	}
	n.peerClient.SetBroker(peer)
	return n.peerClient.Verb(ctx, id, verb, body, patience)
}

// EndWithin implements mirror.Node.
func (n mirrorNode) EndWithin(ctx context.Context, tps []types.TopicPartition) []transactions.Within {
	if s := n.services.Load(); s != nil && s.txns != nil {
		return s.txns.EndWithin(ctx, tps)
	}
	return nil
}

// Addresses implements mirror.Node: where clients of the listener between brokers find this cluster.
func (n mirrorNode) Addresses() []string {
	if v := n.opts.virtual; v != nil {
		return v.Mirrors.Addresses
	}
	var list []string
	for e := range n.Image().Brokers() {
		if at, ok := (peers{n.Broker}).Peer(e.ID); ok {
			list = append(list, at.Address())
		}
	}
	return list
}

// verbs takes other brokers' requests for their part of a verb.
type verbs struct{ b *Broker }

// Verb implements api.Verbs.
func (v verbs) Verb(ctx context.Context, verb string, body []byte) ([]byte, error) {
	s := v.b.services.Load()
	if s == nil {
		return nil, wire.Errorf(wire.ErrBrokerNotAvailable, "the broker is starting")
	}
	return s.mirrors.Verb(ctx, verb, body)
}

// mirrorPartition is a partition as its mirror sees it.
type mirrorPartition struct{ *Partition }

// Do implements mirror.Partition.
func (p mirrorPartition) Do(ctx context.Context, f func(mirror.Owned) error) error {
	return p.Partition.Do(ctx, func(o *Owned) error { return f(o) })
}

// startMirrors starts the mirrors that the metadata knows.
func (b *Broker) startMirrors(groups mirror.Groups) (*mirror.Mirrors, error) {
	events, history, err := journal.Open(journal.Options{FS: b.dirs[0].forNotes(), Dir: filepath.Join(b.dirs[0].path, eventsFolder), Logger: b.logger})
	if err != nil {
		return nil, err
	}
	b.events = events
	m := mirror.New(mirror.Options{
		Node: mirrorNode{b}, Groups: groups, Config: b.cfg, Logger: b.logger, Metrics: b.metrics, Version: b.opts.Version,
		FS: b.dirs[0].forNotes(), ReportDir: filepath.Join(b.dirs[0].path, reportsFolder),
		Events: events, EventHistory: history, Vault: b.vault, IDs: b.fresh,
		Secured: b.cfg.Protocol(b.interBroker) != "PLAINTEXT",
	})
	vaultStat := func() telemetry.VaultStat {
		u := b.vault.Usage()
		return telemetry.VaultStat{Entries: u.Entries, Bytes: u.Bytes, MaxBytes: u.MaxBytes, DroppedRecords: u.DroppedRecords}
	}
	if err := errors.Join(b.metrics.Register(telemetry.NewMirrorCollector(m.Stats)), b.metrics.Register(telemetry.NewVaultCollector(vaultStat))); err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}
