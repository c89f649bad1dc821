package epoch_test

import (
	"errors"
	"testing"

	"pgregory.net/rapid"

	"tidemark/internal/core/epoch"
	"tidemark/internal/core/types"
)

// model is a history seen from the records: one epoch per offset from start to
// end, and the leader's election that has written nothing yet. It answers every
// question by counting records and shares no code with History.
type model struct {
	start, end int
	at         map[int]int32 // offset → epoch of the record, gaps included
	elected    []epochAt     // elections at the log end that wrote nothing, oldest first
}

type epochAt struct {
	epoch int32
	at    int
}

// entries is what the records and the empty elections imply, by looking at every offset.
func (m *model) entries() []epoch.Entry {
	var out []epoch.Entry
	add := func(e int32, at int) {
		for len(out) > 0 && (int32(out[len(out)-1].Epoch) >= e || int(out[len(out)-1].Start) >= at) {
			out = out[:len(out)-1]
		}
		out = append(out, epoch.Entry{Epoch: types.LeaderEpoch(e), Start: types.Offset(at)})
	}
	last := int32(-1)
	for o := m.start; o < m.end; o++ {
		if m.at[o] != last {
			last = m.at[o]
			add(last, o)
		}
	}
	for _, e := range m.elected {
		if e.at == m.end {
			add(e.epoch, e.at)
		}
	}
	return out
}

// endFor answers R5 by looking at the entries one by one.
func (m *model) endFor(asked int32) (int32, int) {
	all := m.entries()
	answer, end := asked, m.start
	if len(all) > 0 {
		end = int(all[0].Start)
	}
	for i, e := range all {
		if int32(e.Epoch) <= asked {
			answer, end = int32(e.Epoch), m.end
			if i+1 < len(all) {
				end = int(all[i+1].Start)
			}
		}
	}
	return answer, end
}

func (m *model) lastEpoch() int32 {
	if m.end == m.start {
		return 0
	}
	return m.at[m.end-1]
}

// TestHistoryFollowsTheRecords drives a log of at most a few dozen records through
// elections, copies, cuts and log starts, and compares after every step.
func TestHistoryFollowsTheRecords(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := &model{at: map[int]int32{}}
		var h epoch.History
		rt.Repeat(map[string]func(*rapid.T){
			"elect": func(rt *rapid.T) {
				e := m.lastEpoch() + int32(len(m.elected)) + rapid.Int32Range(1, 3).Draw(rt, "above")
				m.elected = append(m.elected, epochAt{e, m.end})
				_, err := h.Assign(types.LeaderEpoch(e), types.Offset(m.end))
				noError(rt, err)
			},
			"copy": func(rt *rapid.T) {
				e := m.lastEpoch() + rapid.Int32Range(0, 2).Draw(rt, "raise")
				n := rapid.IntRange(1, 4).Draw(rt, "records and gap")
				_, err := h.AppendedBatch(types.LeaderEpoch(e), types.Offset(m.end))
				noError(rt, err)
				m.elected = nil
				for range n {
					m.at[m.end] = e
					m.end++
				}
			},
			"copy falling": func(rt *rapid.T) {
				if m.end == m.start || m.lastEpoch() == 0 {
					return
				}
				before := h.Clone()
				e := rapid.Int32Range(0, m.lastEpoch()-1).Draw(rt, "epoch")
				if _, err := h.AppendedBatch(types.LeaderEpoch(e), types.Offset(m.end)); !errors.Is(err, epoch.ErrEpochFalls) {
					rt.Fatalf("epoch %d after %d: %v", e, m.lastEpoch(), err)
				}
				if !h.Equal(&before) {
					rt.Fatal("a refused batch changed the history")
				}
			},
			"cut": func(rt *rapid.T) {
				o := rapid.IntRange(m.start, m.end).Draw(rt, "at")
				h.TruncateFromEnd(types.Offset(o))
				m.end, m.elected = o, nil
			},
			"raise start": func(rt *rapid.T) {
				if m.end == m.start {
					return
				}
				o := rapid.IntRange(m.start, m.end-1).Draw(rt, "at")
				h.TruncateFromStart(types.Offset(o))
				m.start = o
			},
			"restart": func(rt *rapid.T) {
				o := m.end + rapid.IntRange(0, 5).Draw(rt, "gap")
				h.Clear()
				*m = model{start: o, end: o, at: map[int]int32{}}
			},
			"follow": func(rt *rapid.T) {
				h.BecomeFollower(types.Offset(m.end))
				m.elected = nil
			},
			"reload": func(rt *rapid.T) {
				entries, err := epoch.ParseCheckpoint(epoch.FormatCheckpoint(h.Entries()))
				noError(rt, err)
				h, err = epoch.FromEntries(entries)
				noError(rt, err)
			},
			"": func(rt *rapid.T) { compareToModel(rt, m, &h) },
		})
	})
}

func noError(t *rapid.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func compareToModel(t *rapid.T, m *model, h *epoch.History) {
	want, err := epoch.FromEntries(m.entries())
	noError(t, err)
	if !h.Equal(&want) {
		t.Fatalf("history %v, records imply %v", h, &want)
	}
	for asked := int32(0); asked <= m.lastEpoch()+5; asked++ {
		e, end := h.EndOffsetFor(types.LeaderEpoch(asked), types.Offset(m.start), types.Offset(m.end))
		wantEpoch, wantEnd := m.endFor(asked)
		if int32(e) != wantEpoch || int(end) != wantEnd {
			t.Fatalf("end of %d: (%d, %d), model says (%d, %d), history %v", asked, e, end, wantEpoch, wantEnd, h)
		}
	}
	for o := m.start; o < m.end; o++ {
		if e, ok := h.EpochForOffset(types.Offset(o)); !ok || int32(e) != m.at[o] {
			t.Fatalf("epoch of %d: %d %v, record has %d", o, e, ok, m.at[o])
		}
	}
}
