package mirror

import (
	"log/slog"
	"strings"
	"testing"

	core "tidemark/internal/core/mirror"
	"tidemark/internal/core/types"
	"tidemark/internal/log"
	"tidemark/internal/vault"
)

// paperVault lists what a test wants a vault to hold.
type paperVault []vault.Entry

func (v paperVault) List() ([]vault.Entry, error) { return v, nil }

// numberedNode is a paperNode with an id.
type numberedNode struct{ *paperNode }

func (numberedNode) NodeID() types.BrokerID { return 2 }

// TestCutsSayWhoOrderedThem: a follower's cut of a mirrored partition, which only the
// vault tells of, can be told from a cut against the source.
func TestCutsSayWhoOrderedThem(t *testing.T) {
	entry := func(id string, o log.Order) vault.Entry {
		return vault.Entry{ID: id, Topic: "t", TopicID: paperTopic, Cause: log.CauseDivergence, OrderedBy: o, From: 5, To: 9, Records: 4, At: 1}
	}
	m := &Mirrors{
		o: Options{Node: numberedNode{newPaperNode(t, 1)}, Vault: paperVault{
			entry("leader", log.OrderedByLeader), entry("metadata", log.OrderedByMetadata), entry("old", ""), entry("source", log.OrderedBySource),
			entry("told", log.OrderedBySource), // the journal has it: not listed twice
		}},
		log: slog.New(slog.DiscardHandler), ctx: t.Context(), events: newJournal(2, nil, nil, nil),
	}
	m.events.add(m.log, Event{Kind: string(core.CutDone), VaultID: "told", OrderedBy: log.OrderedBySource})
	got := map[string]Event{}
	for _, e := range m.Events() {
		if _, twice := got[e.VaultID]; twice {
			t.Errorf("twice: %+v", e)
		}
		got[e.VaultID] = e
	}
	f := func(id string, o log.Order, words string) {
		t.Helper()
		e, ok := got[id]
		if !ok || e.Kind != string(core.CutDone) || e.Mirror != "m" || e.OrderedBy != o || !strings.Contains(e.Message, words) {
			t.Errorf("%s: %+v; want it ordered by %q and %q said", id, e, o, words)
		}
	}
	f("leader", log.OrderedByLeader, "ordered by the leader in this cluster, not by a source")
	f("metadata", log.OrderedByMetadata, "ordered by the partition's timelines")
	f("old", "", "ordered by whom was not noted")
	f("source", log.OrderedBySource, "ordered by the source")
	if len(got) != 5 {
		t.Errorf("%d events, want 5: %+v", len(got), got)
	}
}
