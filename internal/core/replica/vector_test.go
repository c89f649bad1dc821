package replica

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"tidemark/internal/core/epoch"
	"tidemark/internal/core/types"
	"tidemark/internal/vectors"
)

// vectorLog is a log as the vectors describe it: numbers only.
type vectorLog struct {
	Epoch         types.LeaderEpoch
	History       [][2]int64
	LogStart      types.Offset `json:"log_start"`
	LogEnd        types.Offset `json:"log_end"`
	HighWatermark types.Offset `json:"high_watermark"`
}

func (v *vectorLog) log(t *testing.T) Log {
	t.Helper()
	return Log{LogStart: v.LogStart, LogEnd: v.LogEnd, HighWatermark: v.HighWatermark, History: history(t, v.History)}
}

func history(t *testing.T, pairs [][2]int64) epoch.History {
	t.Helper()
	var entries []epoch.Entry
	for _, p := range pairs {
		entries = append(entries, epoch.Entry{Epoch: types.LeaderEpoch(p[0]), Start: types.Offset(p[1])})
	}
	h, err := epoch.FromEntries(entries)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func pairs(h *epoch.History) [][2]int64 {
	out := [][2]int64{}
	for _, e := range h.Entries() {
		out = append(out, [2]int64{int64(e.Epoch), int64(e.Start)})
	}
	return out
}

type vectorFetch struct {
	Offset             types.Offset
	LastFetchedEpoch   types.LeaderEpoch `json:"last_fetched_epoch"`
	CurrentLeaderEpoch types.LeaderEpoch `json:"current_leader_epoch"`
}

func (f vectorFetch) request() Request {
	return Request{Offset: f.Offset, LastEpoch: f.LastFetchedEpoch, LeaderEpoch: f.CurrentLeaderEpoch}
}

type vectorResponse struct {
	Kind      string
	Epoch     types.LeaderEpoch
	EndOffset types.Offset `json:"end_offset"`
	Error     string
}

// say gives an answer in the vectors' words.
func say(a Answer) vectorResponse {
	switch a.Kind {
	case AnswerData:
		return vectorResponse{Kind: "ok"}
	case AnswerDiverging:
		return vectorResponse{Kind: "diverging", Epoch: a.Diverging.Epoch, EndOffset: a.Diverging.End}
	}
	codes := map[AnswerKind]string{AnswerOutOfRange: "OFFSET_OUT_OF_RANGE", AnswerFenced: "FENCED_LEADER_EPOCH", AnswerUnknownEpoch: "UNKNOWN_LEADER_EPOCH"}
	return vectorResponse{Kind: "error", Error: codes[a.Kind]}
}

type truncationVector struct {
	ID, Kind, Title string
	Leader          vectorLog
	Follower        vectorLog
	Fetch           vectorFetch
	Rounds          []struct {
		Fetch         *vectorFetch
		Response      *vectorResponse
		Action        string
		TruncateTo    *types.Offset `json:"truncate_to"`
		RestartAt     *types.Offset `json:"restart_at"`
		FollowerAfter *vectorLog    `json:"follower_after"`
	}
	Expect struct {
		vectorResponse
		TruncationPoint     types.Offset `json:"truncation_point"`
		RecordsRemoved      int64        `json:"records_removed"`
		HistoryAtTruncation [][2]int64   `json:"history_at_truncation"`
		FinalLogEnd         types.Offset `json:"final_log_end"`
		FinalHistory        [][2]int64   `json:"final_history"`
		Rebuild             *vectorLog
	}
}

// TestVectorTruncationOnFetch runs truncation_on_fetch.json: R5's answers, and the
// follower fetching and cutting until the logs agree and copying the rest.
func TestVectorTruncationOnFetch(t *testing.T) {
	for _, v := range vectors.Load[truncationVector](t, "truncation_on_fetch") {
		t.Run(v.ID, func(t *testing.T) {
			switch v.Kind {
			case "leader_response":
				leader := v.Leader.log(t)
				if diff := cmp.Diff(v.Expect.vectorResponse, say(AnswerRequest(&leader, v.Leader.Epoch, v.Fetch.request()))); diff != "" {
					t.Errorf("%s: -want +got\n%s", v.Title, diff)
				}
			case "converge":
				v.converge(t)
			default:
				t.Fatalf("unknown kind %s", v.Kind)
			}
		})
	}
}

// converge plays the follower against the leader, round by round.
func (v *truncationVector) converge(t *testing.T) {
	leader, own := v.Leader.log(t), v.Follower.log(t)
	own.History.BecomeFollower(own.LogEnd)
	var f Follower
	f.Begin(Session{Generation: 1, LeaderEpoch: v.Leader.Epoch, LocalEpoch: v.Leader.Epoch})
	begin := own.LogEnd
	for i, round := range v.Rounds {
		r := f.Next(&own)
		a := AnswerRequest(&leader, v.Leader.Epoch, r)
		if round.Fetch != nil {
			if diff := cmp.Diff(*round.Fetch, vectorFetch{r.Offset, r.LastEpoch, r.LeaderEpoch}); diff != "" {
				t.Fatalf("round %d fetch: -want +got\n%s", i, diff)
			}
		}
		if diff := cmp.Diff(*round.Response, say(a)); diff != "" {
			t.Fatalf("round %d response: -want +got\n%s", i, diff)
		}
		verdict := f.Receive(&own, Reply{To: r, Kind: a.Kind, Diverging: a.Diverging, LogStart: leader.LogStart, HighWatermark: leader.HighWatermark})
		switch round.Action {
		case "truncate":
			if verdict.Kind != VerdictCut || verdict.At != *round.TruncateTo {
				t.Fatalf("round %d: %v at %d, want cut at %d", i, verdict.Kind, verdict.At, *round.TruncateTo)
			}
			own = own.CutTo(verdict.At)
		case "truncate_fully":
			if verdict.Kind != VerdictRestart || verdict.At != *round.RestartAt {
				t.Fatalf("round %d: %v at %d, want restart at %d", i, verdict.Kind, verdict.At, *round.RestartAt)
			}
			own = Log{LogStart: verdict.At, LogEnd: verdict.At, HighWatermark: verdict.At}
		case "fetch_ok":
			if verdict.Kind != VerdictAccept && verdict.Kind != VerdictVouch {
				t.Fatalf("round %d: %v, want accept", i, verdict.Kind)
			}
		default:
			t.Fatalf("unknown action %s", round.Action)
		}
		if after := round.FollowerAfter; after != nil {
			if diff := cmp.Diff(after.History, pairs(&own.History)); diff != "" || own.LogEnd != after.LogEnd {
				t.Fatalf("round %d: log end %d, want %d; history -want +got\n%s", i, own.LogEnd, after.LogEnd, diff)
			}
		}
	}
	v.checkEnd(t, &leader, &own, begin)
}

func (v *truncationVector) checkEnd(t *testing.T, leader, own *Log, begin types.Offset) {
	if own.LogEnd != v.Expect.TruncationPoint {
		t.Errorf("truncation point %d, want %d", own.LogEnd, v.Expect.TruncationPoint)
	}
	if removed := int64(begin - min(own.LogEnd, begin)); removed != v.Expect.RecordsRemoved && own.LogStart == v.Follower.LogStart {
		t.Errorf("%d records removed, want %d", removed, v.Expect.RecordsRemoved)
	}
	if diff := cmp.Diff(v.Expect.HistoryAtTruncation, pairs(&own.History)); diff != "" {
		t.Errorf("history at the truncation: -want +got\n%s", diff)
	}
	copyRest(t, leader, own)
	if own.LogEnd != v.Expect.FinalLogEnd {
		t.Errorf("final log end %d, want %d", own.LogEnd, v.Expect.FinalLogEnd)
	}
	if diff := cmp.Diff(v.Expect.FinalHistory, pairs(&own.History)); diff != "" {
		t.Errorf("final history: -want +got\n%s", diff)
	}
}

// copyRest raises the log start and appends the leader's records one by one, as
// their epochs say.
func copyRest(t *testing.T, leader, own *Log) {
	t.Helper()
	if leader.LogStart >= own.LogEnd {
		own.History.Clear()
	}
	own.History.TruncateFromStart(max(leader.LogStart, own.LogStart))
	for own.LogEnd < leader.LogEnd {
		e, ok := leader.History.EpochForOffset(own.LogEnd)
		if !ok {
			t.Fatalf("the leader has no epoch for %d", own.LogEnd)
		}
		if _, err := own.History.AppendedBatch(e, own.LogEnd); err != nil {
			t.Fatal(err)
		}
		own.LogEnd++
	}
}
