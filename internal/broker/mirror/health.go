package mirror

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"tidemark/internal/core/types"
)

// The syncs whose health is kept; fetchers have one each beside them.
const (
	syncMetadata = "metadata"
	syncTopics   = "topics"
	syncConfigs  = "configs"
	syncGroups   = "groups"
)

// healthBook keeps, for each sync, when it last went well and what went wrong since.
type healthBook struct {
	mu    sync.Mutex
	syncs map[string]*health // guarded by mu
}

type health struct {
	ok  time.Time
	err string
}

func newHealthBook() *healthBook { return &healthBook{syncs: map[string]*health{}} }

func (b *healthBook) get(name string) *health {
	h := b.syncs[name]
	if h == nil {
		h = &health{}
		b.syncs[name] = h
	}
	return h
}

// ok notes a success and reports whether an error ended.
func (b *healthBook) ok(name string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	h := b.get(name)
	ended := h.err != ""
	h.ok, h.err = time.Now(), ""
	return ended
}

// failed notes an error and reports whether it is another one than before.
func (b *healthBook) failed(name string, err error) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	h := b.get(name)
	text := err.Error()
	isNew := h.err != text
	h.err = text
	return isNew
}

// last gives the present error of a sync and whether it ever went well.
func (b *healthBook) last(name string) (err string, everOK bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	h := b.get(name)
	return h.err, !h.ok.IsZero()
}

// list gives all syncs by name.
func (b *healthBook) list() []SyncHealth {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := []SyncHealth{}
	for name, h := range b.syncs {
		s := SyncHealth{Name: name, AgeMs: -1, Error: h.err}
		if !h.ok.IsZero() {
			s.LastSuccess, s.AgeMs = types.Millis(h.ok.UnixMilli()), time.Since(h.ok).Milliseconds()
		}
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b SyncHealth) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// journal keeps the newest events in memory. What an operator must know goes to
// the process log too; what happens to each partition alike (a start, an outage,
// an election, a failover) does at debug level, and as one line of its cause.
type journal struct {
	mu     sync.Mutex
	events []Event // guarded by mu; oldest first
}

// journalMax bounds the events kept.
const journalMax = 2000

func newJournal() *journal { return &journal{} }

// lost are the kinds that an operator must see even where only warnings are logged.
var lost = []string{"CUT", "LOG_RESET", "FAILED", "GROUP_CUT", "GAP_ACCEPTED", "COMPACTION_GAP", "DROPPED_UNVAULTED"}

// routine are the kinds that many partitions have at once.
var routine = []string{"ADOPTED", "PROMOTED", "EPOCH_FENCING", "SOURCE_UNREACHABLE", "WAITING"}

// add keeps and logs an event. A full journal forgets routine first: an outage
// of 10,000 partitions must not push out what was cut.
func (j *journal) add(l *slog.Logger, e Event) {
	j.mu.Lock()
	j.events = append(j.events, e)
	if len(j.events) > journalMax {
		i := max(0, slices.IndexFunc(j.events, func(e Event) bool { return slices.Contains(routine, e.Kind) }))
		j.events = slices.Delete(j.events, i, i+1)
	}
	j.mu.Unlock()
	level := slog.LevelInfo
	switch {
	case slices.Contains(lost, e.Kind):
		level = slog.LevelWarn
	case slices.Contains(routine, e.Kind):
		level = slog.LevelDebug
	}
	l.Log(context.Background(), level, e.Message, "mirror", e.Mirror, "kind", e.Kind, "topic", e.Topic, "partition", e.Partition, "from", e.From, "to", e.To, "vault", e.VaultID)
}

func (j *journal) list() []Event {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.events)
}
