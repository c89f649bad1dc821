package txn

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tidemark/internal/core/types"
	"tidemark/internal/vectors"
)

type vectorState struct {
	LogEnd        types.Offset `json:"log_end"`
	HighWatermark types.Offset `json:"high_watermark"`
	LastStable    types.Offset `json:"last_stable_offset"`
	Open          [][2]int64   `json:"open"`
	Aborted       [][3]int64   `json:"aborted"`
	Producers     [][3]int64   `json:"producers"`
}

type vectorStep struct {
	Op     string       `json:"op"`
	PID    int64        `json:"pid"`
	PE     int16        `json:"pe"`
	Seq    int32        `json:"seq"`
	N      int32        `json:"n"`
	Txn    bool         `json:"txn"`
	Type   string       `json:"type"`
	CE     int32        `json:"ce"`
	Offset types.Offset `json:"offset"`
	Expect struct {
		BaseOffset *types.Offset `json:"base_offset"`
		Duplicate  bool          `json:"duplicate"`
		Error      string        `json:"error"`
		State      vectorState   `json:"state"`
	} `json:"expect"`
}

type vector struct {
	ID    string       `json:"id"`
	Title string       `json:"title"`
	Steps []vectorStep `json:"steps"`
}

// appended is one thing that the vector's log holds: what a replay needs.
type appended struct {
	batch  *Batch
	marker *Marker
}

// modelLog is the log around the state: it knows offsets and replays on a cut.
type modelLog struct {
	state   *State
	held    []appended
	aborted []Aborted
	end     types.Offset
	high    types.Offset
}

func (m *modelLog) do(s vectorStep) (base types.Offset, dup bool, err error) {
	switch s.Op {
	case "append":
		b := Batch{ProducerID: types.ProducerID(s.PID), ProducerEpoch: s.PE, FirstSequence: s.Seq, LastSequence: s.Seq,
			FirstOffset: m.end, LastOffset: m.end + types.Offset(s.N) - 1, Transactional: s.Txn}
		if s.PID >= 0 {
			b.LastSequence = int32((int64(s.Seq) + int64(s.N) - 1) & (1<<31 - 1))
		}
		v, err := m.state.Check(b)
		if err != nil || v.Duplicate {
			return v.FirstOffset, v.Duplicate, err
		}
		m.take(appended{batch: &b})
		return b.FirstOffset, false, nil
	case "marker":
		mk := Marker{ProducerID: types.ProducerID(s.PID), ProducerEpoch: s.PE, CoordinatorEpoch: s.CE, Abort: s.Type == "abort", Offset: m.end}
		if err := m.state.CheckMarker(mk); err != nil {
			return 0, false, err
		}
		m.take(appended{marker: &mk})
		return mk.Offset, false, nil
	case "high_watermark":
		m.high = max(m.high, min(s.Offset, m.end))
	case "truncate":
		m.truncate(s.Offset)
	default:
		return 0, false, fmt.Errorf("unknown op %q", s.Op)
	}
	return 0, false, nil
}

func (m *modelLog) take(a appended) {
	m.held = append(m.held, a)
	if a.batch != nil {
		m.state.Append(*a.batch)
		m.end = a.batch.LastOffset + 1
		return
	}
	if ab, ok := m.state.AppendMarker(*a.marker); ok {
		m.aborted = append(m.aborted, ab)
	}
	m.end = a.marker.Offset + 1
}

func (m *modelLog) truncate(o types.Offset) {
	held := m.held
	high := min(m.high, o)
	*m = modelLog{state: New(0), high: high}
	for _, a := range held {
		if (a.batch != nil && a.batch.LastOffset < o) || (a.marker != nil && a.marker.Offset < o) {
			m.take(a)
		}
	}
}

func (m *modelLog) picture() vectorState {
	p := vectorState{LogEnd: m.end, HighWatermark: m.high, LastStable: m.state.Stable(0, m.high), Open: [][2]int64{}, Aborted: [][3]int64{}, Producers: [][3]int64{}}
	for _, t := range m.state.Open() {
		p.Open = append(p.Open, [2]int64{int64(t.ProducerID), int64(t.FirstOffset)})
	}
	for _, a := range m.aborted {
		p.Aborted = append(p.Aborted, [3]int64{int64(a.ProducerID), int64(a.FirstOffset), int64(a.LastOffset)})
	}
	for _, x := range m.state.Producers() {
		p.Producers = append(p.Producers, [3]int64{int64(x.ID), int64(x.Epoch), int64(x.LastSequence)})
	}
	return p
}

// TestProducerStateVectors runs every vector of producer_state. After each step
// the state also survives its own snapshot, up to what a snapshot holds.
func TestProducerStateVectors(t *testing.T) {
	for _, v := range vectors.Load[vector](t, "producer_state") {
		t.Run(v.ID, func(t *testing.T) {
			m := &modelLog{state: New(0)}
			for i, s := range v.Steps {
				base, dup, err := m.do(s)
				where := fmt.Sprintf("%s, step %d (%s)", v.Title, i, s.Op)
				if want := s.Expect.Error; want != "" {
					if err == nil || err.Error() != want {
						t.Fatalf("%s: error %v, want %s", where, err, want)
					}
				} else if err != nil {
					t.Fatalf("%s: %v", where, err)
				} else if want := s.Expect.BaseOffset; want != nil && (base != *want || dup != s.Expect.Duplicate) {
					t.Fatalf("%s: base offset %d duplicate %t, want %d %t", where, base, dup, *want, s.Expect.Duplicate)
				}
				if d := cmp.Diff(s.Expect.State, m.picture()); d != "" {
					t.Fatalf("%s: state (-want +got):\n%s", where, d)
				}
				checkSnapshot(t, m)
			}
		})
	}
}

func checkSnapshot(t *testing.T, m *modelLog) {
	t.Helper()
	b := m.state.EncodeSnapshot()
	s, err := DecodeSnapshot(b, m.end)
	if err != nil {
		t.Fatalf("own snapshot: %v", err)
	}
	if d := cmp.Diff(m.state.Producers(), s.Producers()); d != "" {
		t.Fatalf("snapshot (-state +read back):\n%s", d)
	}
	if !slices.Equal(m.state.Open(), s.Open()) {
		t.Fatalf("open transactions %v, read back %v", m.state.Open(), s.Open())
	}
	if again := s.EncodeSnapshot(); string(again) != string(b) {
		t.Fatalf("snapshot of the snapshot differs")
	}
}

func TestSnapshotDamage(t *testing.T) {
	s := New(0)
	s.Append(Batch{ProducerID: 7, ProducerEpoch: 1, FirstSequence: 0, LastSequence: 4, FirstOffset: 10, LastOffset: 14, MaxTimestamp: 99, Transactional: true})
	whole := s.EncodeSnapshot()
	if _, err := DecodeSnapshot(whole, 15); err != nil {
		t.Fatal(err)
	}
	for i := range whole { // every single damaged byte and every shorter length is noticed
		b := append([]byte{}, whole...)
		b[i] ^= 0x40
		if _, err := DecodeSnapshot(b, 15); !errors.Is(err, ErrSnapshot) {
			t.Errorf("byte %d damaged: %v", i, err)
		}
		if _, err := DecodeSnapshot(whole[:i], 15); !errors.Is(err, ErrSnapshot) {
			t.Errorf("cut to %d bytes: %v", i, err)
		}
	}
	if _, err := DecodeSnapshot(whole, 14); !errors.Is(err, ErrSnapshot) {
		t.Errorf("a snapshot that reaches beyond its name was taken: %v", err)
	}
	if got := len(whole); got != headSize+countSize+entrySize {
		t.Errorf("one producer takes %d bytes", got)
	}
}

// TestSnapshotGolden pins the bytes, computed by hand from Kafka's layout.
func TestSnapshotGolden(t *testing.T) {
	s := New(0)
	s.Append(Batch{ProducerID: 1, ProducerEpoch: 2, FirstSequence: 3, LastSequence: 4, FirstOffset: 5, LastOffset: 6, MaxTimestamp: 7})
	s.AppendMarker(Marker{ProducerID: 1, ProducerEpoch: 2, CoordinatorEpoch: 8, Offset: 7, Timestamp: 9})
	got := s.EncodeSnapshot()
	want := []byte{0, 1, got[2], got[3], got[4], got[5], 0, 0, 0, 1,
		0, 0, 0, 0, 0, 0, 0, 1, 0, 2, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 1,
		0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 8, 255, 255, 255, 255, 255, 255, 255, 255}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestExpireSparesOpenTransactions(t *testing.T) {
	s := New(0)
	s.Append(Batch{ProducerID: 1, FirstOffset: 0, LastOffset: 0, MaxTimestamp: 100})
	s.Append(Batch{ProducerID: 2, FirstOffset: 1, LastOffset: 1, MaxTimestamp: 100, Transactional: true})
	s.Append(Batch{ProducerID: 3, FirstOffset: 2, LastOffset: 2, MaxTimestamp: 150})
	if n := s.Expire(200, 100); n != 1 || s.Len() != 2 {
		t.Errorf("%d expired, %d left", n, s.Len())
	}
}

func FuzzDecodeSnapshot(f *testing.F) {
	s := New(0)
	s.Append(Batch{ProducerID: 7, FirstOffset: 10, LastOffset: 14, LastSequence: 4, Transactional: true})
	f.Add(s.EncodeSnapshot())
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := DecodeSnapshot(b, 1<<40)
		if err == nil && len(s.EncodeSnapshot()) != len(b) {
			t.Fatal("what was read is not what is written")
		}
	})
}
