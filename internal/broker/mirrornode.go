package broker

import (
	"context"
	"errors"
	"path/filepath"

	"tidemark/internal/broker/mirror"
	"tidemark/internal/core/control"
	"tidemark/internal/core/types"
	"tidemark/internal/journal"
	"tidemark/internal/telemetry"
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

// mirrorPartition is a partition as its mirror sees it.
type mirrorPartition struct{ *Partition }

// Do implements mirror.Partition.
func (p mirrorPartition) Do(ctx context.Context, f func(mirror.Owned) error) error {
	return p.Partition.Do(ctx, func(o *Owned) error { return f(o) })
}

// startMirrors starts the mirrors that the metadata knows.
func (b *Broker) startMirrors(groups mirror.Groups) (*mirror.Mirrors, error) {
	events, history, err := journal.Open(journal.Options{FS: b.fs, Dir: filepath.Join(b.dirs[0].path, eventsFolder), Logger: b.logger})
	if err != nil {
		return nil, err
	}
	b.events = events
	m := mirror.New(mirror.Options{
		Node: mirrorNode{b}, Groups: groups, Config: b.cfg, Logger: b.logger, Metrics: b.metrics, Version: b.opts.Version,
		FS: b.fs, ReportDir: filepath.Join(b.dirs[0].path, reportsFolder),
		Events: events, EventHistory: history, Vault: b.vault,
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
