package log

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"tidemark/internal/batch"
	"tidemark/internal/core/types"
	"tidemark/internal/vectors"
)

type producerState struct {
	LogEnd        types.Offset `json:"log_end"`
	HighWatermark types.Offset `json:"high_watermark"`
	LastStable    types.Offset `json:"last_stable_offset"`
	Open          [][2]int64   `json:"open"`
	Aborted       [][3]int64   `json:"aborted"`
	Producers     [][3]int64   `json:"producers"`
}

type producerVector struct {
	ID    string `json:"id"`
	Title string `json:"title"`
	Steps []struct {
		Op     string       `json:"op"`
		PID    int64        `json:"pid"`
		PE     int16        `json:"pe"`
		Seq    int32        `json:"seq"`
		N      int          `json:"n"`
		Txn    bool         `json:"txn"`
		Type   string       `json:"type"`
		CE     int32        `json:"ce"`
		Offset types.Offset `json:"offset"`
		Expect struct {
			BaseOffset *types.Offset `json:"base_offset"`
			Duplicate  bool          `json:"duplicate"`
			Error      string        `json:"error"`
			State      producerState `json:"state"`
		} `json:"expect"`
	} `json:"steps"`
}

// TestProducerStateLogVectors runs producer_state against a log on disk, and
// after each step also against the same log opened after a crash.
func TestProducerStateLogVectors(t *testing.T) {
	for _, v := range vectors.Load[producerVector](t, "producer_state") {
		t.Run(v.ID, func(t *testing.T) {
			fsys := memFS(t)
			o := options(fsys)
			l, _ := mustOpen(t, o)
			if err := l.AssignEpoch(3); err != nil {
				t.Fatal(err)
			}
			for i, s := range v.Steps {
				var a Appended
				var err error
				switch s.Op {
				case "append":
					b := spec{n: s.N, pid: types.ProducerID(s.PID), pe: s.PE, seq: s.Seq, txn: s.Txn, ts: 5}
					if s.PID < 0 {
						b.pid = 0
					}
					a, err = l.AppendAsLeader(b.build(t), 3, LeaderAppend{})
				case "marker":
					kind := map[string]batch.MarkerKind{"commit": batch.Commit, "abort": batch.Abort}[s.Type]
					a, err = l.AppendAsLeader(batch.NewMarker(kind, types.ProducerID(s.PID), s.PE, s.CE, 6), 3, LeaderAppend{Origin: OriginCoordinator})
				case "high_watermark":
					l.SetHighWatermark(max(s.Offset, l.View().HighWatermark))
				case "truncate":
					if _, err = l.Cut(s.Offset, CutReason{Cause: CauseDivergence}); err == nil {
						err = l.AssignEpoch(3)
					}
				}
				if s.Expect.Error != "" {
					if err == nil || err.Error() != s.Expect.Error {
						t.Fatalf("%s, step %d: %v, want %s", v.Title, i, err, s.Expect.Error)
					}
				} else if err != nil {
					t.Fatalf("%s, step %d: %v", v.Title, i, err)
				} else if want := s.Expect.BaseOffset; want != nil && (a.First != *want || a.Duplicate != s.Expect.Duplicate) {
					t.Fatalf("%s, step %d: %+v, want base offset %d", v.Title, i, a, *want)
				}
				if d := cmp.Diff(s.Expect.State, producerStateOf(l)); d != "" {
					t.Fatalf("%s, step %d (%s) (-want +got):\n%s", v.Title, i, s.Op, d)
				}
				again := o
				again.HighWatermark = l.View().HighWatermark
				reopened, _, err := Open(again)
				if err != nil {
					t.Fatal(err)
				}
				want := s.Expect.State
				got := producerStateOf(reopened)
				want.LastStable = got.LastStable // ended transactions hold it only in the run that saw the marker
				if d := cmp.Diff(want, got); d != "" {
					t.Fatalf("%s, step %d, reopened (-want +got):\n%s", v.Title, i, d)
				}
				reopened.CloseUnclean()
			}
		})
	}
}

func producerStateOf(l *Log) producerState {
	v := l.View()
	p := producerState{v.LogEnd, v.HighWatermark, v.LastStable, [][2]int64{}, [][3]int64{}, [][3]int64{}}
	for _, x := range l.OpenTransactions() {
		p.Open = append(p.Open, [2]int64{int64(x.ProducerID), int64(x.FirstOffset)})
	}
	for _, s := range l.segs {
		for _, a := range s.aborted {
			p.Aborted = append(p.Aborted, [3]int64{int64(a.ProducerID), int64(a.FirstOffset), int64(a.LastOffset)})
		}
	}
	for _, x := range l.Producers() {
		p.Producers = append(p.Producers, [3]int64{int64(x.ID), int64(x.Epoch), int64(x.LastSequence)})
	}
	return p
}
