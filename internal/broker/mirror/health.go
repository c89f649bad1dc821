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
	syncFailover = "failover"   // the end of one that was ordered
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
	// Of a trouble that lasts: its latest cause, since when, which texts were new in it
	// (textsMax at most), and when it is told again, every after that.
	cause  error
	since  time.Time
	texts  map[string]bool
	tellAt time.Time
	every  time.Duration
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

// A trouble that lasts is told again after a minute, and then after twice as long each
// time, up to once an hour.
const (
	tellAgainFirst = time.Minute
	tellAgainMax   = time.Hour
	textsMax       = 64
)

// ok notes a success and reports whether an error ended.
func (b *healthBook) ok(name string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	h := b.get(name)
	ended := h.err != ""
	h.ok, h.err, h.cause, h.texts = clock.Now(b.ctx), "", nil, nil
	return ended
}

// failed notes an error and reports whether it is a new one in this trouble: what
// brokers that are asked in turns say differs each time, and is no news.
func (b *healthBook) failed(name string, err error) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	h := b.get(name)
	if h.err == "" || len(h.texts) >= textsMax {
		h.texts = map[string]bool{}
	}
	if h.err == "" {
		h.since = clock.Now(b.ctx)
		h.tellAt, h.every = h.since.Add(tellAgainFirst), tellAgainFirst
	}
	h.err, h.cause = err.Error(), err
	isNew := !h.texts[h.err]
	h.texts[h.err] = true
	return isNew
}

// isToldAgain reports whether a trouble that lasts is to be told again, and notes that it is.
func (b *healthBook) isToldAgain(name string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	h, now := b.get(name), clock.Now(b.ctx)
	if h.err == "" || now.Before(h.tellAt) {
		return false
	}
	h.every = min(2*h.every, tellAgainMax)
	h.tellAt = now.Add(h.every)
	return true
}

// lasting gives a sync's present trouble, and for how long it has lasted; nil and 0 without any.
func (b *healthBook) lasting(name string) (time.Duration, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	h := b.get(name)
	if h.err == "" {
		return 0, nil
	}
	return clock.Since(b.ctx, h.since), h.cause
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

// forget drops a sync that is over.
func (b *healthBook) forget(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.syncs, name)
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
