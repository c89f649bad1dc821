package mirror

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"tidemark/internal/core/meta"
	core "tidemark/internal/core/mirror"
	"tidemark/internal/core/types"
	"tidemark/internal/log"
	"tidemark/internal/telemetry"
	"tidemark/internal/vault"
)

// EventSink keeps events over restarts. It must not block.
type EventSink interface {
	Append(line []byte)
}

// VaultLister is the vault, as far as the event log reads it.
type VaultLister interface {
	List() ([]vault.Entry, error)
}

// journal keeps the newest events in memory and hands those that aren't routine
// to a sink that outlives the process. What an operator must know goes to the
// process log too; what happens to each partition alike (a start, an outage, an
// election, a failover) does at debug level, and as one line of its cause.
type journal struct {
	node    types.BrokerID
	sink    EventSink // nil: memory only
	metrics *telemetry.Events

	mu sync.Mutex
	// guards the following
	events []Event // oldest first
	seq    int64
}

// journalMax bounds the events kept in memory.
const journalMax = 10_000

// newJournal begins with what an earlier process left; lines that say nothing are passed over.
func newJournal(node types.BrokerID, sink EventSink, history [][]byte, m *telemetry.Events) *journal {
	j := &journal{node: node, sink: sink, metrics: m}
	for _, line := range history {
		var e Event
		if json.Unmarshal(line, &e) != nil || e.Kind == "" {
			continue
		}
		j.events = append(j.events, e)
		j.seq = max(j.seq, e.Seq)
	}
	if n := len(j.events); n > journalMax {
		j.events = slices.Delete(j.events, 0, n-journalMax)
	}
	return j
}

func eventMetrics(m *telemetry.Metrics) *telemetry.Events {
	if m == nil {
		return nil
	}
	return m.Events
}

// lost are the kinds that an operator must see even where only warnings are logged.
var lost = []string{"CUT", "LOG_RESET", "FAILED", "GROUP_CUT", "GAP_ACCEPTED", "COMPACTION_GAP", "DROPPED_UNVAULTED", SplitBrain, SourceAhead, VerifyDiffers, SourceLeftClosed}

// routine are the kinds that many partitions have at once. They are kept in
// memory only: promotions are in the metadata, the rest says itself again.
var routine = []string{"ADOPTED", "PROMOTED", "EPOCH_FENCING", "SOURCE_UNREACHABLE", "WAITING"}

// Kinds of events that the core doesn't tell.
const (
	// SplitBrain: the old source of a promoted partition takes writes or elects on.
	SplitBrain = "SPLIT_BRAIN"
	// SourceAhead: the old source, seen again after a failover, has records that were not taken.
	SourceAhead = "SOURCE_AHEAD"
	// VerifyDone and VerifyDiffers: a comparison of both sides ended.
	VerifyDone    = "VERIFIED"
	VerifyDiffers = "VERIFY_DIFFERS"
	// Promoted: a partition was made writable here.
	Promoted = "PROMOTED"
	// SwitchoverReturned: a switchover whose node died was given up, and its source is open again.
	SwitchoverReturned = "SWITCHOVER_RETURNED"
	// SourceLeftClosed: such a source could not be asked to open, and an operator must.
	SourceLeftClosed = "SOURCE_LEFT_CLOSED"
	// ClosedToWrites and OpenedToWrites: another cluster's mirror, or an operator, closed
	// partitions of this one for a switchover, or opened them again.
	ClosedToWrites = "CLOSED_FOR_SWITCHOVER"
	OpenedToWrites = "OPENED_AGAIN"
	// GroupClamped: at a failover a group's offset was beyond the promoted log.
	GroupClamped = "GROUP_CLAMPED"
)

// add keeps and logs an event. A full journal forgets routine first: an outage
// of 10,000 partitions must not push out what was cut.
func (j *journal) add(l *slog.Logger, e Event) {
	isRoutine := slices.Contains(routine, e.Kind)
	j.mu.Lock()
	j.seq = max(j.seq+1, int64(e.At)*1000) // rises over restarts too
	e.Seq, e.Node = j.seq, j.node
	j.events = append(j.events, e)
	if len(j.events) > journalMax+journalMax/4 { // seldom, so that a flood costs each event little
		j.trimLocked()
	}
	j.mu.Unlock()
	if j.metrics != nil {
		j.metrics.Count.WithLabelValues(e.Kind).Inc()
	}
	if j.sink != nil && !isRoutine {
		if line, err := json.Marshal(e); err == nil {
			j.sink.Append(line)
		}
	}
	level := slog.LevelInfo
	switch {
	case slices.Contains(lost, e.Kind):
		level = slog.LevelWarn
	case isRoutine:
		level = slog.LevelDebug
	}
	l.Log(context.Background(), level, e.Message, "mirror", e.Mirror, "kind", e.Kind, "topic", e.Topic, "partition", e.Partition, "from", e.From, "to", e.To, "vault", e.VaultID)
}

// trimLocked forgets the oldest events beyond journalMax, routine first.
func (j *journal) trimLocked() {
	surplus := len(j.events) - journalMax
	drop := func(only func(*Event) bool) {
		kept := j.events[:0]
		for i := range j.events {
			if surplus > 0 && only(&j.events[i]) {
				surplus--
				continue
			}
			kept = append(kept, j.events[i])
		}
		clear(j.events[len(kept):])
		j.events = kept
	}
	if surplus > 0 {
		drop(func(e *Event) bool { return slices.Contains(routine, e.Kind) })
		drop(func(*Event) bool { return true })
	}
}

func (j *journal) list() []Event {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.trimLocked()
	return slices.Clone(j.events)
}

// Events gives the event log, oldest first: what the journal has, and beside it
// every cut that the vault knows and every promotion that the metadata knows: a
// crash may have come before their line was written, and cuts within the cluster have no other.
func (m *Mirrors) Events() []Event {
	list := m.events.list()
	inVault, promoted := map[string]bool{}, map[promotionKey]bool{}
	for _, e := range list {
		if e.VaultID != "" {
			inVault[e.VaultID] = true
		}
		if e.Kind == Promoted {
			promoted[promotionKey{e.Topic, e.Partition, e.To}] = true
		}
	}
	image := m.o.Node.Image()
	if m.o.Vault != nil {
		entries, err := m.o.Vault.List()
		if err != nil {
			m.log.Warn("the vault can't be listed for the event log", "err", err)
		}
		for i := range entries {
			if e := &entries[i]; !inVault[e.ID] && e.Damaged == "" {
				list = append(list, m.cutEvent(image, e))
			}
		}
	}
	for t := range image.TopicsByName() {
		for p := range image.PartitionsOf(t.ID) {
			if p.Record != nil && p.Record.Leader == m.o.Node.NodeID() {
				list = append(list, m.promotionEvents(t.Record.Name, p, promoted)...)
			}
		}
	}
	slices.SortStableFunc(list, func(a, b Event) int { return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Seq, b.Seq)) })
	return list
}

// promotionKey tells one promotion of a partition from another.
type promotionKey struct {
	topic     string
	partition int32
	end       types.Offset
}

// cutEvent is what a manifest says of its cut.
func (m *Mirrors) cutEvent(image *meta.Image, e *vault.Entry) Event {
	name := types.TopicPartition{Topic: e.Topic, Partition: e.Partition}
	out := Event{
		Seq: int64(e.At) * 1000, Node: m.o.Node.NodeID(), At: e.At, Kind: string(core.CutDone), Topic: e.Topic, Partition: e.Partition,
		From: e.From, To: e.To, Records: e.Records, VaultID: e.ID, OrderedBy: e.OrderedBy,
		Message: fmt.Sprintf("%s: %d records (offsets %d to %d) were cut because of %s, %s; vault entry %s", name, e.Records, e.From, e.To-1, e.Cause, orderText(e.OrderedBy), e.ID),
	}
	if rec, _ := image.Partition(e.TopicID, e.Partition); rec != nil && rec.Mirror != nil {
		out.Mirror = rec.Mirror.Name
	}
	return out
}

// orderText says who ordered a cut. Cuts within the cluster and against the source
// differ in what becomes of the records: the first take what may come again.
func orderText(o log.Order) string {
	switch o {
	case log.OrderedBySource:
		return "ordered by the source: it has another history"
	case log.OrderedByLeader:
		return "ordered by the leader in this cluster, not by a source: what the leader has, or gets from the source, comes again"
	case log.OrderedByMetadata:
		return "ordered by the partition's timelines in this cluster's metadata"
	case "":
		return "ordered by whom was not noted"
	}
	return "ordered by " + string(o)
}

// promotionEvents are the promotions of a partition that known lacks.
func (m *Mirrors) promotionEvents(topic string, p *meta.Partition, known map[promotionKey]bool) []Event {
	var out []Event
	for _, made := range p.Record.Promotions {
		if known[promotionKey{topic, p.ID.Number, made.LogEnd}] {
			continue
		}
		name := types.TopicPartition{Topic: topic, Partition: p.ID.Number}
		out = append(out, Event{
			Seq: int64(made.At) * 1000, Node: m.o.Node.NodeID(), At: made.At, Mirror: made.Mirror, Kind: Promoted,
			Topic: topic, Partition: p.ID.Number, From: made.LogEnd, To: made.LogEnd,
			Message: fmt.Sprintf("%s: promoted at offset %d in epoch %d", name, made.LogEnd, made.PromotedEpoch),
		})
	}
	return out
}
