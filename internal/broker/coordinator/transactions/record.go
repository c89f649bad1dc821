package transactions

import (
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/core/transaction"
	"tidemark/internal/core/types"
)

// valueVersion is what is written: the first with room for the ids before and after
// the present one (KIP-890). Versions up to it are read.
const valueVersion = 1

// errOtherRecord is a record of a kind that isn't ours to read: it is passed over.
var errOtherRecord = errors.New("record of another kind")

// encodeRecord gives the key and value of a record as Kafka writes them; a nil value is a tombstone.
func encodeRecord(r transaction.Record) (key, value []byte) {
	k := kmsg.NewTxnMetadataKey()
	k.TransactionalID = r.ID
	key = k.AppendTo(nil)
	if r.Value == nil {
		return key, nil
	}
	m := r.Value
	v := kmsg.NewTxnMetadataValue()
	v.Version = valueVersion
	v.ProducerID, v.ProducerEpoch, v.TimeoutMillis = int64(m.ProducerID), m.Epoch, int32(m.Timeout)
	v.State = kmsg.TransactionState(m.State)
	v.LastUpdateTimestamp, v.StartTimestamp = int64(m.UpdatedAt), int64(m.StartedAt)
	v.PreviousProducerID, v.NextProducerID = int64(m.PrevProducerID), int64(m.NextProducerID)
	if m.Bumps {
		v.ClientTransactionVersion = 2
	}
	for _, tp := range m.Partitions {
		n := len(v.Topics)
		if n == 0 || v.Topics[n-1].Topic != tp.Topic {
			v.Topics = append(v.Topics, kmsg.TxnMetadataValueTopic{Topic: tp.Topic})
			n++
		}
		v.Topics[n-1].Partitions = append(v.Topics[n-1].Partitions, tp.Partition)
	}
	return key, v.AppendTo(nil)
}

// decodeRecord reads a record. errOtherRecord means that it is none of ours.
func decodeRecord(key, value []byte) (transaction.Record, error) {
	if len(key) < 2 {
		return transaction.Record{}, fmt.Errorf("key of %d bytes", len(key))
	}
	if version := int16(key[0])<<8 | int16(key[1]); version != 0 {
		return transaction.Record{}, fmt.Errorf("%w: key version %d", errOtherRecord, version)
	}
	k := kmsg.NewTxnMetadataKey()
	if err := k.ReadFrom(key); err != nil {
		return transaction.Record{}, fmt.Errorf("key: %w", err)
	}
	r := transaction.Record{ID: k.TransactionalID}
	if value == nil {
		return r, nil
	}
	if len(value) < 2 {
		return r, fmt.Errorf("value of %d bytes", len(value))
	}
	if version := int16(value[0])<<8 | int16(value[1]); version < 0 || version > valueVersion {
		return r, fmt.Errorf("%w: value version %d", errOtherRecord, version)
	}
	v := kmsg.NewTxnMetadataValue()
	if err := v.ReadFrom(value); err != nil {
		return r, fmt.Errorf("value: %w", err)
	}
	m := metadataOf(&v)
	if !m.State.IsKnown() || m.ProducerID < 0 || m.Epoch < transaction.NoEpoch || m.Timeout < 0 {
		return r, fmt.Errorf("transactional id %q: producer %d, epoch %d, time-out %d, state %s", r.ID, m.ProducerID, m.Epoch, m.Timeout, m.State)
	}
	r.Value = &m
	return r, nil
}

func metadataOf(v *kmsg.TxnMetadataValue) transaction.Metadata {
	m := transaction.Metadata{
		ProducerID: types.ProducerID(v.ProducerID), Epoch: v.ProducerEpoch, LastEpoch: transaction.NoEpoch,
		PrevProducerID: types.ProducerID(v.PreviousProducerID), NextProducerID: types.ProducerID(v.NextProducerID),
		Timeout: types.Millis(v.TimeoutMillis), State: transaction.State(v.State),
		StartedAt: types.Millis(v.StartTimestamp), UpdatedAt: types.Millis(v.LastUpdateTimestamp), Bumps: v.ClientTransactionVersion >= 2,
	}
	for _, t := range v.Topics {
		for _, p := range t.Partitions {
			m.Partitions = append(m.Partitions, types.TopicPartition{Topic: t.Topic, Partition: p})
		}
	}
	m.SortPartitions()
	return m
}
