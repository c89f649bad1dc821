package replica

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/internal/vectors"
)

type isrVector struct {
	ID, Kind, Title string
	Init            struct {
		Local         types.BrokerID
		Replicas      []types.BrokerID
		MinISR        int                                  `json:"min_isr"`
		LogStart      types.Offset                         `json:"log_start"`
		LogEnd        types.Offset                         `json:"log_end"`
		HighWatermark types.Offset                         `json:"high_watermark"`
		LagMs         *types.Millis                        `json:"lag_ms"`
		BrokerEpochs  map[types.BrokerID]types.BrokerEpoch `json:"broker_epochs"`
	}
	Steps []isrStep
}

type isrStep struct {
	Op                 string
	Now                types.Millis
	LeaderEpoch        types.LeaderEpoch  `json:"leader_epoch"`
	PartitionEpoch     int64              `json:"partition_epoch"`
	ISR                []types.BrokerID   `json:"isr"`
	Count              types.Offset       `json:"count"`
	Acks               int                `json:"acks"`
	Replica            types.BrokerID     `json:"replica"`
	Offset             types.Offset       `json:"offset"`
	CurrentLeaderEpoch *types.LeaderEpoch `json:"current_leader_epoch"`
	BrokerEpoch        *types.BrokerEpoch `json:"broker_epoch"`
	Diverging          bool               `json:"diverging"`
	Broker             types.BrokerID     `json:"broker"`
	State              string             `json:"state"`
	Error              string             `json:"error"`
	RequiredOffset     types.Offset       `json:"required_offset"`
	Which              string             `json:"which"`
	Reader             string             `json:"reader"`
	Expect             json.RawMessage    `json:"expect"`
}

func (s *isrStep) said() types.LeaderEpoch {
	if s.CurrentLeaderEpoch == nil {
		return types.NoLeaderEpoch
	}
	return *s.CurrentLeaderEpoch
}

var denials = map[Denial]string{
	Granted: "NONE", FencedLeaderEpoch: "FENCED_LEADER_EPOCH", UnknownLeaderEpoch: "UNKNOWN_LEADER_EPOCH", NotLeader: "NOT_LEADER_OR_FOLLOWER",
	OutOfRange: "OFFSET_OUT_OF_RANGE", OffsetNotAvailable: "OFFSET_NOT_AVAILABLE", NotEnoughReplicas: "NOT_ENOUGH_REPLICAS",
	NotEnoughAfterwards: "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
}

// leaderModel is the broker of one leader_state vector around the Leader.
type leaderModel struct {
	v         *isrVector
	l         Leader
	logEnd    types.Offset
	states    map[types.BrokerID]BrokerView
	lastEpoch types.LeaderEpoch // newest leader epoch
}

// TestVectorISRHighWatermark runs the kinds of isr_hw.json that are a replica's:
// leader_state and log_watermark. The controller's kinds are core/control's.
func TestVectorISRHighWatermark(t *testing.T) {
	for _, v := range vectors.Load[isrVector](t, "isr_hw") {
		switch v.Kind {
		case "leader_state":
			t.Run(v.ID, func(t *testing.T) { runLeaderState(t, &v) })
		case "log_watermark":
			t.Run(v.ID, func(t *testing.T) { runWatermark(t, &v) })
		case "isr_change_request", "election":
		default:
			t.Fatalf("%s: unknown kind %s", v.ID, v.Kind)
		}
	}
}

func runLeaderState(t *testing.T, v *isrVector) {
	m := &leaderModel{v: v, logEnd: v.Init.LogEnd, states: map[types.BrokerID]BrokerView{}}
	m.l.hw, m.l.logEnd = v.Init.HighWatermark, v.Init.LogEnd
	for id, e := range v.Init.BrokerEpochs {
		m.states[id] = BrokerView{Epoch: e}
		m.l.SetBroker(id, m.states[id])
	}
	for i, s := range v.Steps {
		var want map[string]any
		if err := json.Unmarshal(s.Expect, &want); err != nil {
			t.Fatal(err)
		}
		got := m.do(t, &s)
		if _, ok := want["state"]; ok {
			got["state"] = m.state()
		}
		if diff := cmp.Diff(want, normal(t, got)); diff != "" {
			t.Fatalf("%s: step %d %s: -want +got\n%s", v.Title, i, s.Op, diff)
		}
	}
}

// normal gives a value as JSON would read it back.
func normal(t *testing.T, v any) map[string]any {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var out map[string]any
	if err := json.Unmarshal(b, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func (m *leaderModel) state() map[string]any {
	isr := []types.BrokerID{}
	for _, x := range m.l.isr {
		isr = append(isr, x.ID)
	}
	maximal := m.l.MaximalISR()
	if maximal == nil {
		maximal = []types.BrokerID{}
	}
	return map[string]any{"high_watermark": m.l.HighWatermark(), "log_end": m.logEnd, "isr": isr, "maximal_isr": maximal, "pending": m.l.Pending() != nil}
}

func members(ids []types.BrokerID) []meta.ISRMember {
	var out []meta.ISRMember
	for _, id := range ids {
		out = append(out, meta.ISRMember{ID: id, BrokerEpoch: types.NoBrokerEpoch})
	}
	return out
}

func (m *leaderModel) do(t *testing.T, s *isrStep) map[string]any {
	switch s.Op {
	case "become_leader":
		return m.becomeLeader(s)
	case "become_follower":
		if !m.l.Resign(s.PartitionEpoch) {
			return map[string]any{"ignored": true}
		}
		rose := s.LeaderEpoch > m.lastEpoch
		m.lastEpoch = s.LeaderEpoch
		return map[string]any{"must_truncate": rose}
	case "append":
		return m.append(s)
	case "follower_fetch":
		return m.followerFetch(s)
	case "set_broker":
		view := m.states[s.Broker]
		if s.State != "" {
			view.Barred = s.State != "active"
		}
		if s.BrokerEpoch != nil {
			view.Epoch = *s.BrokerEpoch
		} else if _, known := m.states[s.Broker]; !known {
			view.Epoch = types.NoBrokerEpoch
		}
		m.states[s.Broker] = view
		m.l.SetBroker(s.Broker, view)
		return map[string]any{}
	case "maybe_shrink":
		change := m.l.Shrink(s.Now)
		if change == nil {
			return map[string]any{"proposed_isr": nil}
		}
		ids := []types.BrokerID{}
		for _, x := range change.ISR {
			ids = append(ids, x.ID)
		}
		return map[string]any{"proposed_isr": ids}
	case "alter_ok":
		return map[string]any{"applied": m.l.ISRCommitted(members(s.ISR), s.PartitionEpoch)}
	case "alter_fail":
		retry := s.Error == "NETWORK_EXCEPTION" // an unknown outcome stays pending (R8)
		if !retry {
			m.l.ISRRefused()
		}
		return map[string]any{"retry": retry}
	}
	return m.ask(t, s)
}

// ask does the operations that change nothing.
func (m *leaderModel) ask(t *testing.T, s *isrStep) map[string]any {
	switch s.Op {
	case "produce_status":
		done, d := m.l.ProduceStatus(s.RequiredOffset)
		if !done {
			return map[string]any{"done": false}
		}
		return map[string]any{"done": true, "error": denials[d]}
	case "list_offsets":
		if s.Which != "latest" {
			t.Fatalf("list_offsets %s", s.Which)
		}
		o, d := m.l.Latest(s.Reader == "replica", s.said())
		if d != Granted {
			return map[string]any{"error": denials[d]}
		}
		e, _ := m.l.LeaderEpoch()
		return map[string]any{"offset": o, "leader_epoch": e}
	case "consumer_fetch":
		bound, d := m.l.ConsumerBound(m.v.Init.LogStart, s.Offset, s.said())
		if d != Granted {
			return map[string]any{"error": denials[d]}
		}
		return map[string]any{"readable_up_to": bound, "records": bound - s.Offset}
	case "epoch_check":
		return map[string]any{"error": denials[m.l.CheckEpoch(s.said())]}
	}
	t.Fatalf("unknown operation %s", s.Op)
	return nil
}

func (m *leaderModel) becomeLeader(s *isrStep) map[string]any {
	lag := types.Millis(30000)
	if m.v.Init.LagMs != nil {
		lag = *m.v.Init.LagMs
	}
	isNew, ok := m.l.Lead(m.v.Init.Local, LeaderState{Revision: s.PartitionEpoch, LeaderEpoch: s.LeaderEpoch, Replicas: m.v.Init.Replicas,
		ISR: members(s.ISR), MinISR: m.v.Init.MinISR, LogEnd: m.logEnd, HighWatermark: m.l.hw, Now: s.Now, LagMax: lag})
	if !ok {
		return map[string]any{"ignored": true}
	}
	m.lastEpoch = s.LeaderEpoch
	return map[string]any{"new_leader": isNew, "epoch_start": m.l.EpochStart()}
}

func (m *leaderModel) append(s *isrStep) map[string]any {
	if d := m.l.CanAppend(s.Acks == -1); d != Granted {
		return map[string]any{"error": denials[d]}
	}
	base := m.logEnd
	m.logEnd += s.Count
	m.l.Appended(m.logEnd)
	return map[string]any{"base_offset": base, "last_offset": m.logEnd - 1}
}

func (m *leaderModel) followerFetch(s *isrStep) map[string]any {
	f := FollowerFetch{Replica: s.Replica, BrokerEpoch: types.NoBrokerEpoch, Offset: s.Offset, LeaderEpoch: s.said(), Diverging: s.Diverging, Now: s.Now}
	if s.BrokerEpoch != nil {
		f.BrokerEpoch = *s.BrokerEpoch
	}
	_, _, d := m.l.Fetched(f)
	got := map[string]any{}
	if d != Granted {
		got["error"] = denials[d]
	}
	if s.Diverging {
		got["diverging"] = true
	}
	return got
}

// runWatermark is one log's high watermark, as verdicts and cuts move it.
func runWatermark(t *testing.T, v *isrVector) {
	own := Log{LogStart: v.Init.LogStart, LogEnd: v.Init.LogEnd, HighWatermark: v.Init.HighWatermark}
	for i, s := range v.Steps {
		var want map[string]any
		if err := json.Unmarshal(s.Expect, &want); err != nil {
			t.Fatal(err)
		}
		got := watermarkStep(t, &own, &s)
		got["state"] = map[string]any{"log_start": own.LogStart, "log_end": own.LogEnd, "high_watermark": own.HighWatermark}
		if diff := cmp.Diff(want, normal(t, got)); diff != "" {
			t.Fatalf("%s: step %d %s: -want +got\n%s", v.Title, i, s.Op, diff)
		}
	}
}

func watermarkStep(t *testing.T, own *Log, s *isrStep) map[string]any {
	got := map[string]any{}
	set := func(to types.Offset) {
		got["changed"] = to != own.HighWatermark
		own.HighWatermark = to
	}
	switch s.Op {
	case "append":
		own.LogEnd += s.Count
	case "leader_raise":
		if s.Offset > own.LogEnd {
			got["error"] = "invalid_argument"
			break
		}
		set(max(own.HighWatermark, s.Offset))
	case "follower_update":
		var f Follower
		f.Begin(Session{Generation: 1, LeaderEpoch: 1, LocalEpoch: 1})
		r := f.Next(own)
		verdict := f.Receive(own, Reply{To: r, Kind: AnswerData, HighWatermark: s.Offset})
		set(verdict.HighWatermark)
	case "truncate":
		if s.Offset < 0 {
			got["error"] = "invalid_argument"
			break
		}
		*own = own.CutTo(s.Offset)
	case "truncate_fully":
		*own = Log{LogStart: s.Offset, LogEnd: s.Offset, HighWatermark: s.Offset}
	case "delete_records":
		to := s.Offset
		if to == -1 {
			to = own.HighWatermark
		}
		if to > own.HighWatermark {
			got["error"] = "OFFSET_OUT_OF_RANGE"
			break
		}
		own.LogStart = max(own.LogStart, to)
	default:
		t.Fatalf("unknown operation %s", s.Op)
	}
	return got
}
