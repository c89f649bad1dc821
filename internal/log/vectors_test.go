package log

import (
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tidemark/internal/batch"
	"tidemark/internal/core/types"
	"tidemark/internal/vectors"
)

type batchVector struct {
	ID                string            `json:"id"`
	Kind              string            `json:"kind"`
	Title             string            `json:"title"`
	Hex               string            `json:"hex"`
	LogEnd            types.Offset      `json:"log_end_offset"`
	LeaderEpoch       types.LeaderEpoch `json:"leader_epoch"`
	MaxMessageBytes   int               `json:"max_message_bytes"`
	History           [][2]int64        `json:"history"`
	RequestEpoch      types.LeaderEpoch `json:"request_leader_epoch"`
	SegmentBaseOffset types.Offset      `json:"segment_base_offset"`
	Either            string            `json:"either"`
	Expect            struct {
		BaseOffset      types.Offset `json:"base_offset"`
		LogEnd          types.Offset `json:"log_end_offset"`
		StoredHex       string       `json:"stored_hex"`
		Error           string       `json:"error"`
		BatchesAppended int          `json:"batches_appended"`
		BytesAppended   int          `json:"bytes_appended"`
		History         [][2]int64   `json:"history"`
		Batches         int          `json:"batches"`
		ValidBytes      int64        `json:"valid_bytes"`
	} `json:"expect"`
}

func batchVectors(t *testing.T, kind string, run func(*testing.T, batchVector, []byte)) {
	ran := 0
	for _, v := range vectors.Load[batchVector](t, "record_batch") {
		if v.Kind != kind {
			continue
		}
		ran++
		t.Run(v.ID, func(t *testing.T) {
			raw, err := hex.DecodeString(v.Hex)
			if err != nil {
				t.Fatal(err)
			}
			run(t, v, raw)
		})
	}
	if ran == 0 {
		t.Fatalf("no vector of kind %s", kind)
	}
}

// TestClientAppendVectors runs record_batch's client_append against the log.
func TestClientAppendVectors(t *testing.T) {
	batchVectors(t, "client_append", func(t *testing.T, v batchVector, raw []byte) {
		fsys := memFS(t)
		o := options(fsys)
		o.LogStart = v.LogEnd
		o.Config.MaxMessageBytes, o.Config.SegmentBytes = v.MaxMessageBytes, 1<<20
		l, _ := mustOpen(t, o)
		if err := l.AssignEpoch(v.LeaderEpoch); err != nil {
			t.Fatal(err)
		}
		a, err := l.AppendAsLeader(slices.Clone(raw), v.LeaderEpoch, LeaderAppend{})
		if v.Expect.Error != "" {
			if err == nil || !slices.Contains(strings.Split(v.Expect.Error, "|"), kafkaName(err)) {
				t.Fatalf("%s: error %v (%s), want %s", v.Title, err, kafkaName(err), v.Expect.Error)
			}
			if got := l.View(); got.LogEnd != v.LogEnd || got.Size != 0 {
				t.Fatalf("a refused batch left %+v", got)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if a.First != v.Expect.BaseOffset || l.View().LogEnd != v.Expect.LogEnd {
			t.Errorf("base offset %d, log end %d", a.First, l.View().LogEnd)
		}
		if got := hex.EncodeToString(get(t, fsys, join(testDir, FileName(v.LogEnd, ".log")))); got != v.Expect.StoredHex {
			t.Errorf("stored\n%s, want\n%s", got, v.Expect.StoredHex)
		}
	})
}

// kafkaName is the error's meaning in Kafka's words.
func kafkaName(err error) string {
	for _, e := range []struct {
		is   error
		name string
	}{
		{batch.ErrCRC, "CORRUPT_MESSAGE"}, {batch.ErrShort, "CORRUPT_MESSAGE"}, {batch.ErrLength, "CORRUPT_MESSAGE"}, {batch.ErrCorrupt, "CORRUPT_MESSAGE"},
		{batch.ErrInvalidRecord, "INVALID_RECORD"}, {batch.ErrMagic, "INVALID_RECORD"}, {batch.ErrTooLarge, "MESSAGE_TOO_LARGE"},
	} {
		if errors.Is(err, e.is) {
			return e.name
		}
	}
	return "UNKNOWN"
}

// TestFollowerAppendVectors runs record_batch's follower_append against the log.
func TestFollowerAppendVectors(t *testing.T) {
	batchVectors(t, "follower_append", func(t *testing.T, v batchVector, raw []byte) {
		o := options(memFS(t))
		o.Config.SegmentBytes = 1 << 20
		l, _ := mustOpen(t, o)
		if len(v.History) > 0 { // a record of the last epoch, up to the log end
			last := v.History[len(v.History)-1]
			if _, err := l.Restart(types.Offset(v.History[0][1]), CutReason{Cause: CauseRestart}); err != nil {
				t.Fatal(err)
			}
			for i, e := range v.History {
				end := v.LogEnd
				if i+1 < len(v.History) {
					end = types.Offset(v.History[i+1][1])
				}
				follow(t, l, spec{base: types.Offset(e[1]), n: int(end - types.Offset(e[1])), epoch: types.LeaderEpoch(e[0])})
			}
			if got := pairsOf(l.View().History.Entries()); !cmp.Equal(got, v.History) || l.View().LogEnd != v.LogEnd || last[1] < 0 {
				t.Fatalf("set-up gave %v, log end %d", got, l.View().LogEnd)
			}
		}
		a, err := l.AppendAsFollower(raw, v.RequestEpoch)
		if err != nil {
			t.Fatal(err)
		}
		if a.Batches != v.Expect.BatchesAppended || a.Bytes != v.Expect.BytesAppended || l.View().LogEnd != v.Expect.LogEnd {
			t.Errorf("%s: %+v, log end %d", v.Title, a, l.View().LogEnd)
		}
		if (a.Bytes < len(raw)) != (a.StoppedBy != nil) {
			t.Errorf("%d of %d bytes, stopped by %v", a.Bytes, len(raw), a.StoppedBy)
		}
		if got := pairsOf(l.View().History.Entries()); !cmp.Equal(got, v.Expect.History) {
			t.Errorf("history %v, want %v", got, v.Expect.History)
		}
	})
}

// TestRecoveryVectors runs record_batch's recovery: the file is a segment after a crash.
func TestRecoveryVectors(t *testing.T) {
	batchVectors(t, "recovery", func(t *testing.T, v batchVector, raw []byte) {
		for _, clean := range []bool{false, true} { // a clean mark must not hide a broken tail (KAFKA-21000)
			fsys := memFS(t)
			if err := fsys.MkdirAll(testDir); err != nil {
				t.Fatal(err)
			}
			name := join(testDir, FileName(v.SegmentBaseOffset, ".log"))
			put(t, fsys, name, raw)
			o := options(fsys)
			o.LogStart, o.CleanShutdown = v.SegmentBaseOffset, clean
			l, r := mustOpen(t, o)
			if got := int64(len(get(t, fsys, name))); got != v.Expect.ValidBytes || l.View().LogEnd != v.Expect.LogEnd {
				t.Errorf("%s (clean %t): %d bytes left, log end %d, want %d and %d; %+v", v.Title, clean, got, l.View().LogEnd, v.Expect.ValidBytes, v.Expect.LogEnd, r)
			}
			if got := pairsOf(l.View().History.Entries()); !cmp.Equal(got, append([][2]int64{}, v.Expect.History...)) {
				t.Errorf("history %v, want %v", got, v.Expect.History)
			}
			follow(t, l, spec{base: v.Expect.LogEnd, epoch: 50}) // and it goes on
		}
	})
}
