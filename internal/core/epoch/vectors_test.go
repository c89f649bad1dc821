package epoch_test

import (
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"tidemark/internal/core/epoch"
	"tidemark/internal/core/types"
	"tidemark/internal/vectors"
)

type pair [2]int64

type step struct {
	Op             string
	Epoch          *types.LeaderEpoch
	StartOffset    types.Offset      `json:"start_offset"`
	LogStartOffset types.Offset      `json:"log_start_offset"`
	LogEndOffset   types.Offset      `json:"log_end_offset"`
	CurrentEpoch   types.LeaderEpoch `json:"current_leader_epoch"`
	Writable       *bool
	Offset         types.Offset
	Start, End     types.Offset
	Content        string
	Batches        []struct {
		BaseOffset types.Offset  `json:"base_offset"`
		LastOffset *types.Offset `json:"last_offset"`
		Epoch      types.LeaderEpoch
	}
	Expect map[string]json.RawMessage
}

func TestVectorEpochHistory(t *testing.T) {
	type vector struct {
		ID, Title string
		Steps     []step
	}
	for _, v := range vectors.Load[vector](t, "epoch_history") {
		t.Run(v.ID, func(t *testing.T) {
			r := runner{t: t}
			for i, s := range v.Steps {
				r.step = i
				r.run(&s)
			}
			if t.Failed() {
				t.Log(v.Title)
			}
		})
	}
}

// runner carries out the steps of one vector.
type runner struct {
	t      *testing.T
	step   int
	h      epoch.History
	logEnd types.Offset // as far as batches told

	recovering bool // reloaded, and no open_log yet: the log begins at its first batch
}

func (r *runner) run(s *step) {
	r.t.Helper()
	switch s.Op {
	case "assign", "become_leader", "append_batches", "become_follower", "truncate_from_end",
		"truncate_from_start", "clear", "reload", "reload_from_file", "open_log", "entries_in_range":
		r.mutate(s)
	case "end_offset_for", "offset_for_leader_epoch", "epoch_for_offset", "checkpoint_text":
		r.ask(s)
	case "latest", "earliest", "entry", "previous", "previous_entry", "next":
		r.lookUp(s)
	default:
		r.t.Fatalf("step %d: unknown op %q", r.step, s.Op)
	}
}

func (r *runner) mutate(s *step) {
	r.t.Helper()
	h := &r.h
	switch s.Op {
	case "assign":
		changed, err := h.Assign(*s.Epoch, s.StartOffset)
		if _, want := s.Expect["error"]; want != (err != nil) || (err != nil && !errors.Is(err, epoch.ErrInvalid)) {
			r.t.Fatalf("step %d: error %v", r.step, err)
		}
		if want, ok := s.Expect["changed"]; ok && string(want) != jsonOf(changed) {
			r.t.Fatalf("step %d: changed %v, expected %s", r.step, changed, want)
		}
	case "become_leader":
		if s.Writable == nil || *s.Writable { // R6: a mirror doesn't record its elections
			r.must(h.Assign(*s.Epoch, s.LogEndOffset))
		}
		r.logEnd = s.LogEndOffset
	case "append_batches":
		r.appendBatches(s)
	case "become_follower":
		h.BecomeFollower(s.LogEndOffset)
	case "truncate_from_end":
		h.TruncateFromEnd(s.Offset)
		r.logEnd = min(r.logEnd, max(0, s.Offset))
	case "truncate_from_start":
		h.TruncateFromStart(s.Offset)
	case "clear":
		h.Clear()
	case "reload":
		r.reload(epoch.FormatCheckpoint(h.Entries()))
	case "reload_from_file":
		r.reload([]byte(s.Content))
		r.recovering = true
	case "open_log":
		h.Reconcile(s.LogStartOffset, s.LogEndOffset)
		r.recovering = false
		r.logEnd = s.LogEndOffset
	case "entries_in_range":
		r.compare(s, h.EntriesInRange(s.Start, s.End))
		return
	}
	r.compare(s, h.Entries())
}

func (r *runner) must(_ bool, err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatalf("step %d: %v", r.step, err)
	}
}

// appendBatches assigns at the old log end: without last_offset a batch ends where the next begins.
func (r *runner) appendBatches(s *step) {
	r.t.Helper()
	if r.recovering {
		r.logEnd = s.Batches[0].BaseOffset
	}
	for i, b := range s.Batches {
		r.must(r.h.AppendedBatch(b.Epoch, r.logEnd))
		switch {
		case b.LastOffset != nil:
			r.logEnd = *b.LastOffset + 1
		case i+1 < len(s.Batches):
			r.logEnd = s.Batches[i+1].BaseOffset
		default:
			r.logEnd = b.BaseOffset + 1
		}
	}
}

func (r *runner) reload(content []byte) {
	r.t.Helper()
	entries, err := epoch.ParseCheckpoint(content)
	if err != nil {
		r.t.Fatalf("step %d: %v", r.step, err)
	}
	if r.h, err = epoch.FromEntries(entries); err != nil {
		r.t.Fatalf("step %d: %v", r.step, err)
	}
}

func (r *runner) compare(s *step, got []epoch.Entry) {
	r.t.Helper()
	raw, ok := s.Expect["entries"]
	if !ok {
		r.t.Fatalf("step %d: %s without expected entries", r.step, s.Op)
	}
	if want := entriesOf(r.t, raw); !slices.Equal(got, want) {
		r.t.Fatalf("step %d %s: got %v, expected %v", r.step, s.Op, got, want)
	}
}

func (r *runner) ask(s *step) {
	r.t.Helper()
	switch s.Op {
	case "end_offset_for":
		e, end := r.h.EndOffsetFor(*s.Epoch, s.LogStartOffset, s.LogEndOffset)
		r.same(s, "epoch", e)
		r.same(s, "end_offset", end)
	case "offset_for_leader_epoch":
		e, end := r.h.OffsetForLeaderEpoch(*s.Epoch, s.CurrentEpoch, s.LogStartOffset, s.LogEndOffset)
		r.same(s, "epoch", e)
		r.same(s, "end_offset", end)
	case "epoch_for_offset":
		e, ok := r.h.EpochForOffset(s.Offset)
		r.same(s, "epoch", orNull(e, ok))
	case "checkpoint_text":
		r.same(s, "content", string(epoch.FormatCheckpoint(r.h.Entries())))
	}
}

func (r *runner) lookUp(s *step) {
	r.t.Helper()
	h := &r.h
	asked := types.LeaderEpoch(math.MaxInt32)
	if latest, ok := h.Latest(); ok {
		asked = latest.Epoch // previous without epoch means previous to the latest
	}
	if s.Epoch != nil {
		asked = *s.Epoch
	}
	var e epoch.Entry
	var ok bool
	switch s.Op {
	case "latest":
		e, ok = h.Latest()
	case "earliest":
		e, ok = h.Earliest()
	case "entry":
		e, ok = h.Entry(asked)
	case "previous", "previous_entry":
		e, ok = h.Previous(asked)
	case "next":
		e, ok = h.Next(asked)
	}
	if _, wantsEntry := s.Expect["entry"]; wantsEntry {
		r.same(s, "entry", orNull(pair{int64(e.Epoch), int64(e.Start)}, ok))
		return
	}
	r.same(s, "epoch", orNull(e.Epoch, ok))
}

// same compares one expected value by its JSON text.
func (r *runner) same(s *step, field string, got any) {
	r.t.Helper()
	var want any
	if err := json.Unmarshal(s.Expect[field], &want); err != nil {
		r.t.Fatalf("step %d: expect.%s: %v", r.step, field, err)
	}
	if compact(string(s.Expect[field])) != jsonOf(got) {
		r.t.Fatalf("step %d %s: %s is %s, expected %s", r.step, s.Op, field, jsonOf(got), s.Expect[field])
	}
}

func compact(s string) string {
	var v any
	d := json.NewDecoder(strings.NewReader(s))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return s
	}
	return jsonOf(v)
}

func orNull[T any](v T, ok bool) any {
	if !ok {
		return nil
	}
	return v
}

func jsonOf(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

func entriesOf(t *testing.T, raw json.RawMessage) []epoch.Entry {
	t.Helper()
	var pairs []pair
	if err := json.Unmarshal(raw, &pairs); err != nil {
		t.Fatal(err)
	}
	out := make([]epoch.Entry, 0, len(pairs))
	for _, p := range pairs {
		out = append(out, epoch.Entry{Epoch: types.LeaderEpoch(p[0]), Start: types.Offset(p[1])})
	}
	return out
}

func TestVectorCheckpointFile(t *testing.T) {
	type vector struct {
		ID, Kind, Title, Content, Either string
		Entries                          json.RawMessage
		Expect                           struct {
			Content          string
			Error            epoch.ErrorKind
			Entries, History json.RawMessage
		}
	}
	for _, v := range vectors.Load[vector](t, "checkpoint_file") {
		t.Run(v.ID, func(t *testing.T) {
			if v.Kind == "write" {
				if got := string(epoch.FormatCheckpoint(entriesOf(t, v.Entries))); got != v.Expect.Content {
					t.Fatalf("got %q, expected %q", got, v.Expect.Content)
				}
				return
			}
			entries, err := epoch.ParseCheckpoint([]byte(v.Content))
			if v.Expect.Error != "" {
				var bad *epoch.CheckpointError
				if !errors.As(err, &bad) || bad.Kind != v.Expect.Error || bad.Line < 1 {
					t.Fatalf("%s: got %v, expected %s", v.Title, err, v.Expect.Error)
				}
				return
			}
			if err != nil {
				if v.Either != "error" {
					t.Fatalf("%s: %v", v.Title, err)
				}
				return
			}
			if want := entriesOf(t, v.Expect.Entries); !slices.Equal(entries, want) {
				t.Fatalf("%s: got %v, expected %v", v.Title, entries, want)
			}
			h, err := epoch.FromEntries(entries)
			if want := entriesOf(t, v.Expect.History); err != nil || !slices.Equal(h.Entries(), want) {
				t.Fatalf("%s: history %v (%v), expected %v", v.Title, h.String(), err, want)
			}
		})
	}
}
