package mirror

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tidemark/internal/core/epoch"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/modellog"
	"tidemark/internal/core/replica"
	"tidemark/internal/core/timeline"
	"tidemark/internal/core/types"
	"tidemark/internal/vectors"
)

type vectorRun struct {
	Epoch  types.LeaderEpoch
	Origin string
	From   types.Offset
	To     types.Offset
}

type vectorSide struct {
	Records []vectorRun
	History [][2]int64
	LogEnd  types.Offset `json:"log_end"`
}

type lmleVector struct {
	ID, Kind, Title string
	Tags            []string

	// resync
	LMLE        types.LeaderEpoch `json:"last_mirrored_leader_epoch"`
	LogStart    types.Offset      `json:"log_start"`
	Destination vectorSide
	Source      vectorSide

	// may_start
	ISR       []types.BrokerID
	Truncated []types.BrokerID
	MinISR    int `json:"min_isr"`

	// epoch_bump, adoption, promotion
	LocalLeaderEpoch  types.LeaderEpoch  `json:"local_leader_epoch"`
	LastBatchEpoch    types.LeaderEpoch  `json:"last_batch_epoch"`
	LastListEpoch     *types.LeaderEpoch `json:"last_list_epoch"`
	SourceLeaderEpoch types.LeaderEpoch  `json:"source_leader_epoch"`
	SourceList        timeline.List      `json:"source_list"`
	PromotionStep     int32              `json:"promotion_step"`
	LogEnd            types.Offset       `json:"log_end"`
	HighWatermark     types.Offset       `json:"high_watermark"`

	// first_cut
	Applied timeline.List
	Record  timeline.List
	History [][2]int64

	Expect json.RawMessage
}

func expect[T any](t *testing.T, v *lmleVector) T {
	t.Helper()
	var out T
	if err := json.Unmarshal(v.Expect, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestVectorMirrorLMLE runs mirror_lmle.json.
func TestVectorMirrorLMLE(t *testing.T) {
	kinds := map[string]func(*testing.T, *lmleVector){
		"resync": resync, "may_start": mayStart, "epoch_bump": epochBump, "adoption": adoption, "promotion": promotion, "first_cut": firstCut,
	}
	for _, v := range vectors.Load[lmleVector](t, "mirror_lmle") {
		t.Run(v.ID, func(t *testing.T) {
			run, ok := kinds[v.Kind]
			if !ok {
				t.Fatalf("unknown kind %s", v.Kind)
			}
			run(t, &v)
		})
	}
}

func historyOf(t *testing.T, pairs [][2]int64) epoch.History {
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

func (s *vectorSide) log(t *testing.T, start types.Offset) modellog.Log {
	t.Helper()
	l := modellog.Log{Start: start, End: s.LogEnd, HighWatermark: s.LogEnd, History: historyOf(t, s.History)}
	for _, r := range s.Records {
		for o := r.From; o < r.To; o++ {
			l.Records = append(l.Records, modellog.Record{Offset: o, Epoch: r.Epoch, Tag: r.Origin})
		}
	}
	return l
}

type resyncExpect struct {
	LMLETruncateTo   types.Offset `json:"lmle_truncate_to"`
	HistoryAfterLMLE [][2]int64   `json:"history_after_lmle"`
	TruncationPoint  types.Offset `json:"truncation_point"`
	RecordsRemoved   int64        `json:"records_removed"`
	FinalLogEnd      types.Offset `json:"final_log_end"`
	Without          []int64      `json:"diverged_offsets_without_lmle"`
	Stuck            bool         `json:"stuck_without_lmle"`
}

// resync plays KIP-1279's own procedure: the cut above the last mirrored epoch,
// then our follower's fetches. The result must be the source's log.
func resync(t *testing.T, v *lmleVector) {
	want := expect[resyncExpect](t, v)
	source, own := v.Source.log(t, v.LogStart), v.Destination.log(t, v.LogStart)
	cut := own.Start
	if e, ok := own.History.Next(v.LMLE); ok {
		cut = e.Start
	} else if v.LMLE >= 0 {
		cut = own.End
	}
	own.Cut(cut)
	own.History.TruncateFromEnd(cut)
	if cut != want.LMLETruncateTo {
		t.Errorf("cut at %d, want %d", cut, want.LMLETruncateTo)
	}
	if diff := cmp.Diff(want.HistoryAfterLMLE, historyPairs(&own.History)); diff != "" {
		t.Errorf("history after the cut: -want +got\n%s", diff)
	}
	if !follow(&source, &own) {
		t.Fatal("does not converge")
	}
	point := pointOfAgreement(t, v)
	if point != want.TruncationPoint || int64(v.Destination.LogEnd-point) != want.RecordsRemoved {
		t.Errorf("truncated at %d, want %d", point, want.TruncationPoint)
	}
	if own.End != want.FinalLogEnd || modellog.Print(own.Records) != modellog.Print(source.Records) {
		t.Errorf("final log %v, want %v", &own, &source)
	}
	withoutCut(t, v, want)
}

// withoutCut shows the damage if step one is left out: the check can fail.
func withoutCut(t *testing.T, v *lmleVector, want resyncExpect) {
	source, own := v.Source.log(t, v.LogStart), v.Destination.log(t, v.LogStart)
	own.History.BecomeFollower(own.End)
	if !follow(&source, &own) || want.Stuck {
		return // Kafka is stuck there; R5's clamp isn't
	}
	var diverged []int64
	for _, r := range own.Records {
		if s, ok := source.At(r.Offset); !ok || s != r {
			diverged = append(diverged, int64(r.Offset))
		}
	}
	if len(diverged) != len(want.Without) {
		t.Errorf("without the cut %v differ, want %v", diverged, want.Without)
	}
}

// pointOfAgreement repeats the two cuts and gives where they end.
func pointOfAgreement(t *testing.T, v *lmleVector) types.Offset {
	source, own := v.Source.log(t, v.LogStart), v.Destination.log(t, v.LogStart)
	if e, ok := own.History.Next(v.LMLE); ok {
		own.Cut(e.Start)
	} else if v.LMLE < 0 {
		own.Cut(own.Start)
	}
	lowest := own.End
	followFrom(&source, &own, &lowest, false)
	return lowest
}

// follow copies source to own with the follower, as its verdicts say.
func follow(source, own *modellog.Log) bool {
	lowest := own.End
	return followFrom(source, own, &lowest, true)
}

func followFrom(source, own *modellog.Log, lowest *types.Offset, data bool) bool {
	leaderEpoch := types.LeaderEpoch(100)
	src := modelSource{Log: *source, epoch: leaderEpoch}
	var f replica.Follower
	f.Begin(replica.Session{Generation: 1, LeaderEpoch: leaderEpoch, LocalEpoch: leaderEpoch})
	for range 50 {
		view := view(own)
		reply, sent := src.answer(f.Next(&view), 4)
		reply.LogStart = src.Start
		verdict := f.Receive(&view, reply)
		switch verdict.Kind {
		case replica.VerdictCut:
			own.Cut(verdict.At)
			own.History.TruncateFromEnd(verdict.At)
			*lowest = min(*lowest, own.End)
		case replica.VerdictRestart:
			own.Restart(verdict.At)
			*lowest = verdict.At
		case replica.VerdictAccept, replica.VerdictVouch:
			if !data || verdict.Append == 0 {
				return true
			}
			for _, r := range sent[:verdict.Append] {
				own.Append(r)
			}
		default:
			return false
		}
	}
	return false
}

func historyPairs(h *epoch.History) [][2]int64 {
	out := [][2]int64{}
	for _, e := range h.Entries() {
		out = append(out, [2]int64{int64(e.Epoch), int64(e.Start)})
	}
	return out
}

func mayStart(t *testing.T, v *lmleVector) {
	want := expect[struct {
		May bool `json:"may_start_mirroring"`
	}](t, v)
	rec := meta.PartitionRecord{MinISR: v.MinISR, Replicas: []types.BrokerID{0, 1, 2, 3, 4}}
	fetched := true
	for _, id := range v.ISR {
		rec.ISR = append(rec.ISR, meta.ISRMember{ID: id})
		cut := false
		for _, c := range v.Truncated {
			cut = cut || c == id
		}
		fetched = fetched && cut
	}
	if got, why := MayMirror(&rec, fetched); got != want.May {
		t.Errorf("%s: got %v (%s)", v.Title, got, why)
	}
}

func epochBump(t *testing.T, v *lmleVector) {
	want := expect[struct {
		Failover types.LeaderEpoch `json:"smallest_failover_epoch"`
		Local    types.LeaderEpoch `json:"smallest_local_epoch_while_mirroring"`
	}](t, v)
	if got := promoteVector(t, v, 1).Made.PromotedEpoch; got != want.Failover {
		t.Errorf("smallest epoch of a failover: got %d, want %d", got, want.Failover)
	}
	if got := RaisedEpoch(v.LocalLeaderEpoch, v.LastBatchEpoch, 0); got != max(want.Local, v.LocalLeaderEpoch) {
		t.Errorf("leader epoch while mirroring: got %d, want %d", got, want.Local)
	}
}

func adoption(t *testing.T, v *lmleVector) {
	want := expect[struct {
		Epoch types.LeaderEpoch `json:"local_leader_epoch"`
		Error string
	}](t, v)
	rec := meta.PartitionRecord{LeaderEpoch: v.LocalLeaderEpoch, Mirror: NewMirrored("m", "s1")}
	src := Source{ClusterID: "A", TopicID: testTopic, LeaderEpoch: v.SourceLeaderEpoch, Timelines: v.SourceList}
	out, a := Adopt(&rec, testPolicy(), src, &Own{}, 5)
	if (a.Refused.Reason != "") != (want.Error != "") {
		t.Fatalf("refused %v, want %q", a.Refused, want.Error)
	}
	if want.Error == "" && out.LeaderEpoch != want.Epoch {
		t.Errorf("leader epoch %d, want %d", out.LeaderEpoch, want.Epoch)
	}
}

// promoteVector promotes a mirror that is as the vector says.
func promoteVector(t *testing.T, v *lmleVector, step int32) Promotion {
	t.Helper()
	rec := meta.PartitionRecord{LeaderEpoch: v.LocalLeaderEpoch, MinISR: 1, Mirror: NewMirrored("m", "s1"), Timelines: timeline.List{{ID: "r"}}}
	if v.LastListEpoch != nil && *v.LastListEpoch > 0 {
		rec.Timelines = append(rec.Timelines, timeline.Entry{ID: "p", FirstEpoch: *v.LastListEpoch})
	}
	own := Own{HasCheckpoint: true, Checkpoint: timeline.Checkpoint{List: rec.Timelines}}
	if v.LastBatchEpoch >= 0 {
		own.LogEnd = max(v.LogEnd, 1)
		own.History = historyOf(t, [][2]int64{{int64(v.LastBatchEpoch), 0}})
		rec.LeaderEpoch = max(rec.LeaderEpoch, 0)
	}
	own.HighWatermark = min(v.HighWatermark, own.LogEnd)
	if v.LastBatchEpoch > rec.LeaderEpoch {
		// Such a state can't arise (R21); the formula must hold all the same.
		made, err := promotionRecord(&rec, PromoteRequest{Step: step, Own: &own}, Facts{LeaderEpoch: v.SourceLeaderEpoch})
		if err != nil {
			t.Fatal(err)
		}
		return Promotion{Made: made}
	}
	p, err := Promote(&rec, PromoteRequest{Step: step, TimelineID: "P", Own: &own, Facts: &Facts{LeaderEpoch: v.SourceLeaderEpoch}})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func promotion(t *testing.T, v *lmleVector) {
	want := expect[struct {
		Epoch       types.LeaderEpoch `json:"epoch"`
		FirstOffset types.Offset      `json:"first_offset"`
		LMO         types.Offset      `json:"last_mirrored_offset"`
	}](t, v)
	p := promoteVector(t, v, v.PromotionStep)
	last, _ := p.Record.Timelines.Last()
	if last.FirstEpoch != want.Epoch || last.FirstOffset != want.FirstOffset || p.Record.LeaderEpoch != want.Epoch || LastMirroredOffset(p.Made) != want.LMO {
		t.Errorf("got %v, epoch %d, last mirrored offset %d; want %+v", last, p.Record.LeaderEpoch, LastMirroredOffset(p.Made), want)
	}
}

func firstCut(t *testing.T, v *lmleVector) {
	want := expect[struct {
		CutOffset      *types.Offset `json:"cut_offset"`
		RecordsRemoved int64         `json:"records_removed"`
	}](t, v)
	h := historyOf(t, v.History)
	owed := timeline.FirstCut(timeline.Replica{Applied: timeline.Checkpoint{List: v.Applied}, HasApplied: true, History: &h, LogStart: v.LogStart, LogEnd: v.LogEnd},
		v.Record, 1<<30)
	got, removed := (*types.Offset)(nil), int64(0)
	if owed.Kind == timeline.CutAt {
		got, removed = &owed.At, int64(v.LogEnd-owed.At)
	}
	if diff := cmp.Diff(want.CutOffset, got); diff != "" || removed != want.RecordsRemoved {
		t.Errorf("%d removed, want %d; cut -want +got\n%s", removed, want.RecordsRemoved, diff)
	}
}
