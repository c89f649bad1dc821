package mirror

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"tidemark/internal/clock"
	"tidemark/internal/core/types"
)

// The syncs whose health is kept; fetchers have one each beside them.
const (
	syncMetadata = "metadata"
	syncTopics   = "topics"
	syncConfigs  = "configs"
	syncGroups   = "groups"
	syncACLs     = "acls"
	syncScram    = "scram"
	syncSwitch   = "switchover" // the way back of one that was given up
)

// healthBook keeps, for each sync, when it last went well and what went wrong since.
type healthBook struct {
	ctx   context.Context // for its clock
	mu    sync.Mutex
	syncs map[string]*health // guarded by mu
}

type health struct {
	ok  time.Time
	err string
	// detail says what the last round found.
	detail string
}

func newHealthBook(ctx context.Context) *healthBook {
	return &healthBook{ctx: ctx, syncs: map[string]*health{}}
}

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
	h.ok, h.err = clock.Now(b.ctx), ""
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

// say notes what a round found.
func (b *healthBook) say(name, detail string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.get(name).detail = detail
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
		s := SyncHealth{Name: name, AgeMs: -1, Error: h.err, Detail: h.detail}
		if !h.ok.IsZero() {
			s.LastSuccess, s.AgeMs = types.Millis(h.ok.UnixMilli()), clock.Since(b.ctx, h.ok).Milliseconds()
		}
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b SyncHealth) int { return strings.Compare(a.Name, b.Name) })
	return out
}
