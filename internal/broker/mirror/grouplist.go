package mirror

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"tidemark/internal/clock"
	"tidemark/internal/core/types"
)

// Groups tells of each mirrored group offset: the source's, ours, what became of
// the difference, and how old that is. Groups that another node coordinates are left to it.
func (m *Mirrors) Groups(ctx context.Context, name string) ([]GroupSync, error) {
	if _, ok := m.o.Node.Image().Mirror(name); !ok {
		return nil, fmt.Errorf("%w: %s", ErrUnknownMirror, name)
	}
	r := m.run(name)
	if r == nil {
		return []GroupSync{}, nil
	}
	return r.groups.list(ctx), nil
}

// clampNote is the last time that an offset was taken back.
type clampNote struct {
	from, to types.Offset
	at       types.Millis
	reason   string
}

type groupPartition struct {
	group string
	tp    types.TopicPartition
}

// notes finds in the event log which offsets of the mirror were taken back; it outlives restarts.
func (g *groupSync) notes() map[groupPartition]clampNote {
	out := map[groupPartition]clampNote{}
	for _, e := range g.run.m.events.list() {
		if e.Group == "" || e.Mirror != g.run.name {
			continue
		}
		n := clampNote{from: e.To, to: e.From, at: e.At, reason: groupCut}
		if e.Kind == GroupClamped {
			n.reason = groupClamped
		}
		out[groupPartition{e.Group, types.TopicPartition{Topic: e.Topic, Partition: e.Partition}}] = n
	}
	return out
}

// list gives what is known of the groups.
func (g *groupSync) list(ctx context.Context) []GroupSync {
	notes := g.notes()
	g.mu.Lock()
	known := make(map[string]syncedGroup, len(g.groups))
	for name, s := range g.groups {
		known[name] = *s
	}
	g.mu.Unlock()
	for at := range notes {
		if _, ok := known[at.group]; !ok { // from before the last start
			known[at.group] = syncedGroup{}
		}
	}
	out := []GroupSync{}
	for _, name := range slices.Sorted(maps.Keys(known)) {
		s := known[name]
		if s.elsewhere {
			continue
		}
		here := map[types.TopicPartition]types.Offset{}
		committed, err := g.run.m.o.Groups.ListCommitted(ctx, name)
		for _, o := range committed {
			here[o.TopicPartition] = o.Offset
		}
		if err != nil && s.err == "" {
			s.err = err.Error()
		}
		out = append(out, describeGroup(name, s, here, notes, clock.Now(g.run.ctx))...)
	}
	return out
}

func describeGroup(name string, s syncedGroup, here map[types.TopicPartition]types.Offset, notes map[groupPartition]clampNote, now time.Time) []GroupSync {
	tps := slices.Collect(maps.Keys(s.source))
	for at := range notes {
		if _, ok := s.source[at.tp]; at.group == name && !ok {
			tps = append(tps, at.tp)
		}
	}
	slices.SortFunc(tps, comparePartitions)
	var out []GroupSync
	for _, tp := range tps {
		e := GroupSync{Group: name, Type: s.kind, Topic: tp.Topic, Partition: tp.Partition, Source: types.NoOffset, Standby: types.NoOffset, Clamped: types.NoOffset, AgeMs: -1}
		if o, ok := s.source[tp]; ok {
			e.Source = o.Offset
		}
		if o, ok := here[tp]; ok {
			e.Standby = o
		}
		if !s.at.IsZero() {
			e.AgeMs = now.Sub(s.at).Milliseconds()
		}
		note, taken := notes[groupPartition{name, tp}]
		if taken {
			e.Clamped, e.ClampedAt = note.from, note.at
		}
		switch {
		case s.hasMembers:
			e.Reason = groupLocalMembers
		case s.err != "":
			e.Reason = s.err
		case s.pending[tp]:
			e.Reason = groupPending
		case taken && e.Standby == note.to:
			e.Reason = note.reason
		case e.Source >= 0 && e.Source != e.Standby:
			e.Reason = groupDiffers
		}
		out = append(out, e)
	}
	return out
}
