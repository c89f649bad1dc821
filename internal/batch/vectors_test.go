package batch_test

import (
	"encoding/hex"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"tidemark/internal/batch"
	"tidemark/internal/core/epoch"
	"tidemark/internal/core/types"
	"tidemark/internal/vectors"
)

type vector struct {
	ID, Kind, Title   string
	Hex               string
	LogEndOffset      types.Offset      `json:"log_end_offset"`
	LeaderEpoch       types.LeaderEpoch `json:"leader_epoch"`
	RequestEpoch      types.LeaderEpoch `json:"request_leader_epoch"`
	MaxMessageBytes   int               `json:"max_message_bytes"`
	SegmentBaseOffset types.Offset      `json:"segment_base_offset"`
	History           [][2]int64
	Either            string
	Expect            expectation
}

type expectation struct {
	Error        string
	LogEndOffset types.Offset `json:"log_end_offset"`
	StoredHex    string       `json:"stored_hex"`
	BaseOffset   types.Offset `json:"base_offset"`

	BatchesAppended int `json:"batches_appended"`
	BytesAppended   int `json:"bytes_appended"`
	Batches         int
	ValidBytes      int `json:"valid_bytes"`
	History         [][2]int64

	BatchLength     int32             `json:"batch_length"`
	LeaderEpoch     types.LeaderEpoch `json:"partition_leader_epoch"`
	Magic           int8
	CRC             uint32
	Attributes      int16
	LastOffsetDelta int32            `json:"last_offset_delta"`
	BaseTimestamp   types.Millis     `json:"base_timestamp"`
	MaxTimestamp    types.Millis     `json:"max_timestamp"`
	ProducerID      types.ProducerID `json:"producer_id"`
	ProducerEpoch   int16            `json:"producer_epoch"`
	BaseSequence    int32            `json:"base_sequence"`
	RecordsCount    int32            `json:"records_count"`
	Size            int
	LastOffset      types.Offset `json:"last_offset"`
	NextOffset      types.Offset `json:"next_offset"`
	Compression     string
	TimestampType   string `json:"timestamp_type"`
	Transactional   bool
	Control         bool
}

func TestVectorRecordBatch(t *testing.T) {
	for _, v := range vectors.Load[vector](t, "record_batch") {
		t.Run(v.ID, func(t *testing.T) {
			raw, err := hex.DecodeString(v.Hex)
			if err != nil {
				t.Fatal(err)
			}
			switch v.Kind {
			case "decode":
				checkDecode(t, raw, &v.Expect)
			case "client_append":
				checkClientAppend(t, raw, &v)
			case "follower_append":
				checkFollowerAppend(t, raw, &v)
			case "recovery":
				checkRecovery(t, raw, &v)
			default:
				t.Fatalf("unknown kind %q", v.Kind)
			}
		})
	}
}

func checkDecode(t *testing.T, raw []byte, want *expectation) {
	h, err := batch.ParseHeader(raw)
	if err != nil {
		t.Fatal(err)
	}
	timestampType := "CreateTime"
	if h.IsLogAppendTime() {
		timestampType = "LogAppendTime"
	}
	got := expectation{
		BaseOffset: h.BaseOffset, BatchLength: h.Length, LeaderEpoch: h.PartitionLeaderEpoch, Magic: h.Magic, CRC: h.CRC,
		Attributes: h.Attributes, LastOffsetDelta: h.LastOffsetDelta, BaseTimestamp: h.BaseTimestamp, MaxTimestamp: h.MaxTimestamp,
		ProducerID: h.ProducerID, ProducerEpoch: h.ProducerEpoch, BaseSequence: h.BaseSequence, RecordsCount: h.RecordsCount,
		Size: h.Size(), LastOffset: h.LastOffset(), NextOffset: h.NextOffset(), Compression: h.Compression().String(),
		TimestampType: timestampType, Transactional: h.IsTransactional(), Control: h.IsControl(),
	}
	if !slices.Equal(got.History, want.History) || got.Error != want.Error {
		t.Fatal("a decode vector with an unexpected field")
	}
	got.History, want.History = nil, nil
	if a, b := fields(got), fields(*want); a != b {
		t.Fatalf("\ngot  %s\nwant %s", a, b)
	}
	if err := batch.VerifyCRC(raw); err != nil {
		t.Fatal(err)
	}
	records := 0
	it := batch.Records(raw, nil)
	for it.Next() {
		records++
	}
	if it.Err() != nil || records != int(h.RecordsCount) {
		t.Fatal(records, it.Err())
	}
}

// meanings maps the protocol's error names to what this package returns.
var meanings = map[string][]error{
	"CORRUPT_MESSAGE":   {batch.ErrCorrupt, batch.ErrCRC, batch.ErrShort, batch.ErrLength},
	"INVALID_RECORD":    {batch.ErrInvalidRecord, batch.ErrMagic},
	"MESSAGE_TOO_LARGE": {batch.ErrTooLarge},
}

func checkClientAppend(t *testing.T, raw []byte, v *vector) {
	_, err := batch.ValidateForProduce(raw, batch.ProduceRules{MaxBytes: v.MaxMessageBytes, BeforeMax: -1, AfterMax: -1}, nil)
	if v.Expect.Error != "" {
		for _, name := range strings.Split(v.Expect.Error, "|") {
			if slices.ContainsFunc(meanings[name], func(kind error) bool { return errors.Is(err, kind) }) {
				return
			}
		}
		t.Fatalf("%s: %v, expected %s", v.Title, err, v.Expect.Error)
	}
	if err != nil {
		t.Fatalf("%s: %v", v.Title, err)
	}
	batch.Stamp(raw, v.LogEndOffset, v.LeaderEpoch)
	h, err := batch.ParseHeader(raw)
	if err != nil || h.BaseOffset != v.Expect.BaseOffset || h.NextOffset() != v.Expect.LogEndOffset {
		t.Fatal(h, err)
	}
	if got := hex.EncodeToString(raw); got != v.Expect.StoredHex {
		t.Fatalf("%s: stored\n%s, expected\n%s", v.Title, got, v.Expect.StoredHex)
	}
	if err := batch.VerifyCRC(raw); err != nil {
		t.Fatal("stamping broke the checksum:", err)
	}
}

func historyOf(t *testing.T, pairs [][2]int64) epoch.History {
	t.Helper()
	entries := make([]epoch.Entry, 0, len(pairs))
	for _, p := range pairs {
		entries = append(entries, epoch.Entry{Epoch: types.LeaderEpoch(p[0]), Start: types.Offset(p[1])})
	}
	h, err := epoch.FromEntries(entries)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// accept runs the one walk and keeps the history as a log would.
func accept(t *testing.T, raw []byte, from batch.Chain, maxEpoch types.LeaderEpoch, h *epoch.History) batch.Accepted {
	t.Helper()
	return batch.Accept(raw, from, maxEpoch, func(header *batch.Header, _ []byte, before batch.Chain) error {
		_, err := h.AppendedBatch(header.PartitionLeaderEpoch, before.LogEnd)
		return err
	})
}

func checkFollowerAppend(t *testing.T, raw []byte, v *vector) {
	h := historyOf(t, v.History)
	from := batch.Chain{LogEnd: v.LogEndOffset, LastEpoch: types.NoLeaderEpoch}
	if latest, ok := h.Latest(); ok {
		from.LastEpoch = latest.Epoch
	}
	a := accept(t, raw, from, v.RequestEpoch, &h)
	want := historyOf(t, v.Expect.History)
	if a.Batches != v.Expect.BatchesAppended || a.Bytes != v.Expect.BytesAppended || a.Chain.LogEnd != v.Expect.LogEndOffset || !h.Equal(&want) {
		t.Fatalf("%s: %+v with history %v, expected %+v", v.Title, a, &h, v.Expect)
	}
	if (a.Bytes == len(raw)) != (a.Stopped == nil) {
		t.Fatalf("%s: stopped %v after %d of %d bytes", v.Title, a.Stopped, a.Bytes, len(raw))
	}
}

func checkRecovery(t *testing.T, raw []byte, v *vector) {
	var h epoch.History
	a := accept(t, raw, batch.Chain{LogEnd: v.SegmentBaseOffset, LastEpoch: types.NoLeaderEpoch}, math.MaxInt32, &h)
	want := historyOf(t, v.Expect.History)
	if a.Batches != v.Expect.Batches || a.Bytes != v.Expect.ValidBytes || a.Chain.LogEnd != v.Expect.LogEndOffset || !h.Equal(&want) {
		t.Fatalf("%s: %+v with history %v, expected %+v", v.Title, a, &h, v.Expect)
	}
}
