package transactions

import (
	"errors"
	"reflect"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/core/transaction"
	"tidemark/internal/core/types"
)

// The records are Kafka's: kmsg reads what is written, and reads it back.
func TestRecords(t *testing.T) {
	m := transaction.Metadata{
		ProducerID: 5, Epoch: 2, PrevProducerID: 4, NextProducerID: 6, LastEpoch: transaction.NoEpoch, Timeout: 60_000, State: transaction.PrepareCommit,
		Partitions: []types.TopicPartition{{Topic: "a"}, {Topic: "a", Partition: 3}, {Topic: "b", Partition: 1}}, StartedAt: 100, UpdatedAt: 200, Bumps: true,
	}
	key, value := encodeRecord(transaction.Record{ID: "id", Value: &m})
	k, v := kmsg.NewTxnMetadataKey(), kmsg.NewTxnMetadataValue()
	if err := errors.Join(k.ReadFrom(key), v.ReadFrom(value)); err != nil {
		t.Fatal(err)
	}
	if k.TransactionalID != "id" || v.ProducerID != 5 || v.ProducerEpoch != 2 || v.State != 2 || len(v.Topics) != 2 || len(v.Topics[0].Partitions) != 2 ||
		v.PreviousProducerID != 4 || v.NextProducerID != 6 || v.ClientTransactionVersion != 2 || v.TimeoutMillis != 60_000 {
		t.Errorf("kmsg reads %+v, %+v", k, v)
	}
	back, err := decodeRecord(key, value)
	if err != nil || back.ID != "id" || !reflect.DeepEqual(*back.Value, m) {
		t.Errorf("read back %+v, %v", back, err)
	}
	key, value = encodeRecord(transaction.Record{ID: "id"})
	if back, err := decodeRecord(key, value); err != nil || value != nil || back.ID != "id" || back.Value != nil {
		t.Errorf("tombstone %v, read back %+v, %v", value, back, err)
	}
	v.Version = 0 // as Kafka writes before transaction.version 1
	if back, err := decodeRecord(key, v.AppendTo(nil)); err != nil || back.Value.NextProducerID != types.NoProducer || back.Value.ProducerID != 5 {
		t.Errorf("version 0: %+v, %v", back, err)
	}
}

func TestBadRecords(t *testing.T) {
	key, _ := encodeRecord(transaction.Record{ID: "id"})
	bad := kmsg.NewTxnMetadataValue()
	bad.ProducerID, bad.State = 1, 6
	f := func(name string, key, value []byte, other bool) {
		t.Helper()
		if _, err := decodeRecord(key, value); err == nil || errors.Is(err, errOtherRecord) != other {
			t.Errorf("%s: %v", name, err)
		}
	}
	f("no key", nil, nil, false)
	f("a key of another kind", []byte{0, 9, 0, 0}, nil, true)
	f("a key that is cut short", key[:3], nil, false)
	f("an empty value", key, []byte{}, false)
	f("a newer value", key, []byte{0, 9}, true)
	f("a value that is cut short", key, []byte{0, 1, 0}, false)
	f("a state that is never written", key, bad.AppendTo(nil), false)
}

func FuzzDecodeRecord(f *testing.F) {
	key, value := encodeRecord(transaction.Record{ID: "id", Value: &transaction.Metadata{ProducerID: 1, Partitions: []types.TopicPartition{{Topic: "t"}}}})
	f.Add(key, value)
	f.Fuzz(func(t *testing.T, key, value []byte) {
		r, err := decodeRecord(key, value)
		if err != nil {
			return
		}
		if _, err := decodeRecord(encodeRecord(r)); err != nil {
			t.Fatalf("%+v can't be read back: %v", r, err)
		}
	})
}
