package mirror

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"tidemark/internal/broker/coordinator"
	"tidemark/internal/clock"
	"tidemark/internal/core/types"
	"tidemark/internal/source"
	"tidemark/internal/wire"
)

// groupSync copies the offsets that groups commit at the source (DESIGN §6.3): only into
// groups without members here, and never beyond our log end.
type groupSync struct {
	run *run

	mu sync.Mutex
	// guards the following
	groups map[string]*syncedGroup
	told   toldEnds

	owed owedCuts
}

// syncedGroup is one group as last seen at the source and written here.
type syncedGroup struct {
	kind       string    // as the source says: classic, consumer
	at         time.Time // when the source's offsets were last read and offered here
	offered    time.Time // when they were last offered to the coordinator here
	elsewhere  bool      // another node coordinates the group here
	source     map[types.TopicPartition]source.CommittedOffset
	pending    map[types.TopicPartition]bool // beyond our log end
	written    bool                          // everything but pending is here
	hasMembers bool
	err        string
}

// The reasons of GroupSync.
const (
	groupPending      = "PENDING"       // our log hasn't got there
	groupLocalMembers = "LOCAL_MEMBERS" // the group is in use here: it is left alone
	groupCut          = "GROUP_CUT"     // the log was cut below it
	groupClamped      = "CLAMPED"       // a failover took the log with less
	groupDiffers      = "DIFFERS"       // something else wrote it here
)

// groupOfferedAnew is how often offsets are offered that haven't changed. What was
// written may be gone since: lowered by a cut that the log has long passed again,
// or near the end of its retention, which the source still waits for.
const groupOfferedAnew = time.Minute

// isCurrent reports whether a group's offsets need not be offered now.
func (s *syncedGroup) isCurrent(offsets map[types.TopicPartition]source.CommittedOffset, now time.Time) bool {
	return s != nil && s.written && len(s.pending) == 0 && now.Sub(s.offered) < groupOfferedAnew && maps.Equal(s.source, offsets)
}

// groupsPerRound bounds the groups that one OffsetFetch round asks about at a time.
const groupsPerRound = 1000

func newGroupSync(r *run) *groupSync { return &groupSync{run: r, groups: map[string]*syncedGroup{}} }

// loop syncs every mirror.group.sync.ms while the mirror runs.
func (g *groupSync) loop() {
	fails := 0
	for pause(g.run.ctx, millis(g.run.settings.Load().GroupSyncMs)) {
		if !g.run.isRunning() || g.run.client == nil {
			continue
		}
		if _, met := g.run.health.last(syncMetadata); !met {
			continue // the source has not been reached yet
		}
		if err := g.sync(g.run.ctx); err != nil {
			fails++
			g.run.noteFault(syncGroups, err)
			pause(g.run.ctx, g.run.backoff(fails))
			continue
		}
		fails = 0
		g.run.health.ok(syncGroups)
	}
}

// sync is one round: which groups there are, what they have committed, and what of it is new.
func (g *groupSync) sync(ctx context.Context) error {
	listed, err := g.run.client.Groups(ctx)
	if err != nil {
		return err
	}
	f := g.run.filter.Load()
	var names []string
	for _, l := range listed {
		if f.group(l.ID) && !strings.EqualFold(l.Type, "share") && !strings.EqualFold(l.Type, "streams") {
			names = append(names, l.ID)
			g.note(l.ID, func(s *syncedGroup) { s.kind = strings.ToLower(l.Type) })
		}
	}
	g.forgetOthers(names)
	g.beginRound()
	var faults []string
	for chunk := range slices.Chunk(names, groupsPerRound) {
		fetched := g.run.client.GroupOffsets(ctx, chunk)
		for _, name := range slices.Sorted(maps.Keys(fetched)) {
			if err := g.take(ctx, name, fetched[name]); err != nil {
				faults = append(faults, fmt.Sprintf("group %s: %v", name, err))
			}
		}
	}
	if err := g.settleDoubts(ctx); err != nil {
		faults = append(faults, err.Error())
	}
	if len(faults) > 0 {
		slices.Sort(faults)
		return errors.New(strings.Join(faults[:min(len(faults), 5)], "; "))
	}
	return nil
}

// forgetOthers drops what is known of groups that the source no longer lists.
// Their offsets here stay: a group that is gone at the source may live on here.
func (g *groupSync) forgetOthers(names []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for name := range g.groups {
		if _, ok := slices.BinarySearch(names, name); !ok {
			delete(g.groups, name)
		}
	}
}

// take writes what a group has committed at the source, as far as it is new.
func (g *groupSync) take(ctx context.Context, name string, at source.GroupOffsets) error {
	if at.Err != nil {
		g.note(name, func(s *syncedGroup) { s.err = at.Err.Error() })
		return at.Err
	}
	f := g.run.filter.Load()
	maps.DeleteFunc(at.Offsets, func(tp types.TopicPartition, _ source.CommittedOffset) bool { return !f.topic(tp.Topic) })
	g.mu.Lock()
	s := g.groups[name]
	now := clock.Now(g.run.ctx)
	current := s.isCurrent(at.Offsets, now)
	if current {
		s.at, s.err = now, ""
	}
	g.mu.Unlock()
	if current || len(at.Offsets) == 0 {
		return nil
	}
	return g.write(ctx, name, at.Offsets)
}

// write offers offsets to the coordinator.
func (g *groupSync) write(ctx context.Context, name string, offsets map[types.TopicPartition]source.CommittedOffset) error {
	list := make([]coordinator.OffsetAndMeta, 0, len(offsets))
	for _, tp := range inOrder(offsets, itself) {
		o := offsets[tp]
		list = append(list, coordinator.OffsetAndMeta{TopicPartition: tp, Offset: o.Offset, LeaderEpoch: o.Epoch, Metadata: o.Metadata})
	}
	res, err := g.offer(ctx, name, list)
	elsewhere := errors.Is(err, wire.ErrNotCoordinator)
	if elsewhere {
		err = nil // the node that coordinates the group does it; or, at a start, the next round
	}
	g.note(name, func(s *syncedGroup) {
		s.elsewhere = elsewhere
		s.source, s.written, s.hasMembers, s.err = offsets, err == nil && !elsewhere, res.HasMembers, ""
		if s.written {
			s.at = clock.Now(g.run.ctx)
			s.offered = s.at
		}
		s.pending = map[types.TopicPartition]bool{}
		if err != nil {
			s.err = err.Error()
		}
		if res.HasMembers {
			s.written = false // to be tried again once they are gone
		}
		for _, p := range res.Pending {
			s.pending[p.TopicPartition] = true
		}
	})
	return err
}

func (g *groupSync) note(name string, f func(*syncedGroup)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.groups[name]
	if s == nil {
		s = &syncedGroup{}
		g.groups[name] = s
	}
	f(s)
}

// clampEvent says that a failover took less of a log than a group had read.
func (g *groupSync) clampEvent(name string, tp types.TopicPartition, from, to types.Offset) Event {
	return Event{
		At: g.run.m.o.Node.Now(), Mirror: g.run.name, Kind: GroupClamped, Group: name, Topic: tp.Topic, Partition: tp.Partition, From: to, To: from,
		Message: fmt.Sprintf("group %s was at offset %d of %s at the source; the failover took the log up to %d: its committed offset is %d", name, from, tp, to, to),
	}
}

// tellLowered tells each offset that a cut took back.
func (m *Mirrors) tellLowered(name string, list []coordinator.Lowered) {
	for _, l := range list {
		m.events.add(m.log, Event{
			At: m.o.Node.Now(), Mirror: name, Kind: "GROUP_CUT", Group: l.Group, Topic: l.TopicPartition.Topic, Partition: l.TopicPartition.Partition, From: l.To, To: l.From,
			Message: fmt.Sprintf("group %s was at offset %d of %s, which was cut at %d: its committed offset is now %d", l.Group, l.From, l.TopicPartition, l.Cut, l.To),
		})
	}
}

func (g *groupSync) tellLowered(list []coordinator.Lowered) {
	g.run.m.tellLowered(g.run.name, list)
}

// writeWaiting writes the offsets of the groups coordinated here that waited for data of
// promoted logs, as far as those go.
func (g *groupSync) writeWaiting(ctx context.Context, ends map[types.TopicPartition]types.Offset) error {
	g.mu.Lock()
	waiting := map[string]map[types.TopicPartition]source.CommittedOffset{}
	for name, s := range g.groups {
		for tp := range s.pending {
			if _, taken := ends[tp]; taken && !s.hasMembers {
				waiting[name] = s.source
			}
		}
	}
	g.mu.Unlock()
	var faults []error
	for _, name := range slices.Sorted(maps.Keys(waiting)) {
		if err := g.writeTaken(ctx, name, waiting[name], ends); err != nil {
			faults = append(faults, fmt.Errorf("group %s: %w", name, err))
		}
	}
	return errors.Join(faults...)
}

// writeTaken writes what a group has committed of promoted logs, at the most up to their ends.
func (g *groupSync) writeTaken(ctx context.Context, name string, offsets map[types.TopicPartition]source.CommittedOffset, ends map[types.TopicPartition]types.Offset) error {
	var list []coordinator.OffsetAndMeta
	var clamped []Event
	for _, tp := range inOrder(offsets, itself) {
		o := offsets[tp]
		end, ok := ends[tp]
		if !ok {
			continue
		}
		m := coordinator.OffsetAndMeta{TopicPartition: tp, Offset: o.Offset, LeaderEpoch: o.Epoch, Metadata: o.Metadata}
		if m.Offset > end {
			clamped = append(clamped, g.clampEvent(name, tp, m.Offset, end))
			m.Offset, m.LeaderEpoch = end, types.NoLeaderEpoch
		}
		list = append(list, m)
	}
	res, err := g.run.m.o.Groups.SyncOffsetsWithin(ctx, name, list, ends)
	switch {
	case errors.Is(err, wire.ErrNotCoordinator):
		return nil
	case err != nil || res.HasMembers:
		return err
	}
	for _, e := range clamped {
		g.run.m.events.add(g.run.m.log, e)
	}
	g.note(name, func(s *syncedGroup) {
		for _, o := range list {
			delete(s.pending, o.TopicPartition)
		}
		for _, o := range res.Pending {
			s.pending[o.TopicPartition] = true
		}
	})
	return nil
}
