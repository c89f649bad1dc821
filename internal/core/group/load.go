package group

import (
	"maps"
	"slices"

	"tidemark/internal/core/types"
)

// Replay takes one record of the log, in log order, before the first Step.
func (t *Table) Replay(r Record) {
	switch r := r.(type) {
	case OffsetRecord:
		t.replayOffset(r)
	case GroupRecord:
		t.replayGroup(r)
	case ConsumerRecord:
		t.replayConsumer(r)
	}
}

func (t *Table) replayOffset(r OffsetRecord) {
	if r.Value == nil {
		if g := t.group(r.Group); g != nil {
			delete(g.offsets, r.TopicPartition)
			if g.isVacant() && g.protocolType == "" && g.consumer == nil {
				t.drop(g)
			}
		}
		return
	}
	g := t.open(r.Group)
	g.persisted = true
	if g.offsets == nil {
		g.offsets = map[types.TopicPartition]*offset{}
	}
	v := *r.Value
	t.order++
	g.offsets[r.TopicPartition] = &offset{durable: &v, high: v.Offset, order: t.order}
}

func (t *Table) replayGroup(r GroupRecord) {
	if r.Value == nil {
		if g := t.group(r.Group); g != nil {
			offsets, pending, members := g.offsets, g.pending, g.consumer
			t.drop(g)
			// Kafka writes their tombstones first; what is left is a simple group's, or one of the new protocol.
			if len(offsets)+len(pending) > 0 || members != nil {
				g = t.open(r.Group)
				g.offsets, g.pending, g.consumer, g.persisted = offsets, pending, members, true
			}
		}
		return
	}
	before := t.open(r.Group)
	g := newGroup(r.Group)
	g.timers, g.offsets, g.pending, g.persisted = &t.timers, before.offsets, before.pending, true
	t.groups[r.Group] = g
	v := r.Value
	g.protocolType, g.protocol, g.generation, g.stateSince = v.ProtocolType, v.Protocol, v.Generation, v.StateSince
	for _, m := range v.Members {
		g.add(&member{
			id: m.MemberID, instance: m.InstanceID, clientID: m.ClientID, clientHost: m.ClientHost,
			session: m.SessionTimeout, rebalance: m.RebalanceTimeout, assignment: m.Assignment,
			protocols: []Protocol{{Name: v.Protocol, Metadata: m.Subscription}},
		})
	}
	g.protocolType = v.ProtocolType
	if len(g.members) > 0 {
		g.state = Stable
		if g.members[v.Leader] != nil {
			g.leader = v.Leader
		}
	}
	g.readTopics()
}

// Loaded ends the replay: members' sessions begin anew, as their heartbeats
// went to nobody meanwhile.
func (t *Table) Loaded(now types.Millis, out *Effects) {
	for _, id := range slices.Sorted(maps.Keys(t.groups)) {
		g := t.groups[id]
		for _, m := range g.inOrder() {
			g.keepAlive(m, now)
		}
		t.loadedConsumer(g, now)
		if len(g.members) > t.cfg.MaxSize {
			t.prepareRebalance(g, now, out)
		}
		g.check()
	}
}
