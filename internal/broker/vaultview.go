package broker

import (
	"context"

	"tidemark/internal/broker/api"
	"tidemark/internal/core/replica"
	"tidemark/internal/core/txn"
	"tidemark/internal/core/types"
	"tidemark/internal/vault"
	"tidemark/internal/wire"
)

// vaultView is one partition of a topic __vault.<topic>: what this broker's vault
// keeps of a partition that it leads. Leadership and its epoch are the
// partition's: a batch of the vault never has a higher one (R21).
type vaultView struct {
	of    *Partition
	vault *vault.Vault
}

var _ api.Partition = vaultView{}

// TopicID implements api.Partition.
func (v vaultView) TopicID() types.TopicID { return api.ViewID(v.of.TopicID()) }

// Name implements api.Partition.
func (v vaultView) Name() types.TopicPartition {
	tp := v.of.Name()
	return types.TopicPartition{Topic: api.ViewPrefix + tp.Topic, Partition: tp.Partition}
}

var errViewReadOnly = wire.Errorf(wire.ErrPolicyViolation, "This topic shows what cuts removed and is read-only; tidemark vault purge removes entries.")

// Append implements api.Partition.
func (v vaultView) Append(context.Context, []byte, api.AppendRequest) (api.AppendResult, error) {
	return api.AppendResult{}, errViewReadOnly
}

// Guard implements api.Partition.
func (v vaultView) Guard(context.Context, types.ProducerID, int16) (api.TxnGuard, bool, error) {
	return 0, false, errViewReadOnly
}

// Producers implements api.Partition: a view has none.
func (v vaultView) Producers(context.Context) ([]txn.Producer, error) { return nil, nil }

// DeleteRecords implements api.Partition.
func (v vaultView) DeleteRecords(context.Context, types.Offset) (types.Offset, error) {
	return 0, errViewReadOnly
}

// fence checks the asker's leader epoch; a partition that isn't led here says so.
func (v vaultView) fence(asked types.LeaderEpoch) error {
	now, err := v.of.LeaderEpoch()
	switch {
	case err != nil:
		return err
	case asked >= 0 && asked < now:
		return wire.ErrFencedLeaderEpoch
	case asked > now:
		return wire.ErrUnknownLeaderEpoch
	}
	return nil
}

// Read implements api.Partition.
func (v vaultView) Read(from types.Offset, req api.ReadRequest, out *api.ReadResult) error {
	if err := v.fence(req.CurrentLeaderEpoch); err != nil {
		return err
	}
	if req.Replica != types.NoBroker {
		return wire.ErrNotLeaderOrFollower // nobody holds a copy
	}
	tp := v.of.Name()
	start, end := v.vault.ViewRange(tp.Topic, tp.Partition)
	if from < start || from > end {
		return wire.ErrOffsetOutOfRange
	}
	out.HighWatermark, out.LastStable, out.LogStart = end, end, start
	if from == end || (req.MaxBytes <= 0 && !req.MinOne) {
		return nil
	}
	data, err := v.vault.ReadView(tp.Topic, tp.Partition, from, req.MaxBytes, req.MinOne)
	if err != nil {
		return err
	}
	if len(data) > 0 {
		out.Records, out.Bytes = append(out.Records[:0], wire.Piece{Mem: data}), len(data)
	}
	return nil
}

// OnProgress implements api.Partition.
func (v vaultView) OnProgress(f func()) (cancel func()) {
	ends := []func(){v.vault.OnChange(f), v.of.OnProgress(f)}
	return func() {
		for _, end := range ends {
			end()
		}
	}
}

// Readers implements api.Partition: nobody else has this vault.
func (v vaultView) Readers() []replica.Reader { return nil }

// Leader implements api.Partition.
func (v vaultView) Leader() (types.BrokerID, types.LeaderEpoch) { return v.of.Leader() }

// ListOffset implements api.Partition.
func (v vaultView) ListOffset(q api.OffsetQuery) (api.OffsetAnswer, error) {
	if err := v.fence(q.CurrentLeaderEpoch); err != nil {
		return api.OffsetAnswer{}, err
	}
	_, epoch := v.of.Leader()
	tp := v.of.Name()
	start, end := v.vault.ViewRange(tp.Topic, tp.Partition)
	none := api.OffsetAnswer{Offset: types.NoOffset, Timestamp: types.NoTimestamp, LeaderEpoch: types.NoLeaderEpoch}
	at := none
	switch {
	case q.Timestamp == api.TimestampLatest:
		at.Offset, at.LeaderEpoch = end, epoch
	case q.Timestamp == api.TimestampEarliest, q.Timestamp == api.TimestampEarliestLocal:
		at.Offset, at.LeaderEpoch = start, epoch
	case q.Timestamp >= 0:
		offset, ts, e, ok, err := v.vault.ViewAt(tp.Topic, tp.Partition, q.Timestamp)
		if err != nil || !ok {
			return none, err
		}
		at = api.OffsetAnswer{Offset: offset, Timestamp: ts, LeaderEpoch: e}
	}
	return at, nil
}

// EpochEnd implements api.Partition: what was kept is no history, every epoch ends where the view does.
func (v vaultView) EpochEnd(current, asked types.LeaderEpoch) (types.LeaderEpoch, types.Offset, error) {
	if err := v.fence(current); err != nil {
		return types.NoLeaderEpoch, types.NoOffset, err
	}
	tp := v.of.Name()
	_, end := v.vault.ViewRange(tp.Topic, tp.Partition)
	return asked, end, nil
}

// LastEpoch implements api.Partition.
func (v vaultView) LastEpoch(current types.LeaderEpoch) (types.LeaderEpoch, error) {
	return types.NoLeaderEpoch, v.fence(current)
}

// viewInstead gives the view of a partition's vault where a partition of the id
// is unknown and the id is a view's; else err.
func (b *Broker) viewInstead(id types.TopicID, number int32, err error) (api.Partition, error) {
	of, is := api.IsView(b.Image(), id)
	if !is || b.vault == nil {
		return nil, err
	}
	p, err := b.get(of, number)
	if err != nil {
		return nil, err
	}
	return vaultView{of: p, vault: b.vault}, nil
}
