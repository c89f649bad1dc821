package group

import (
	"cmp"
	"maps"
	"slices"

	"tidemark/internal/core/errcode"
	"tidemark/internal/core/types"
)

// deleteOffsets removes committed offsets at an operator's wish: of any
// partition in an empty group, and of topics that nobody subscribes to in a
// consumer group with members (KIP-496).
func (t *Table) deleteOffsets(ev DeleteOffsets, out *Effects) {
	fail := func(code errcode.Code) { out.reply(ev.Request, CommitResponse{Code: code}) }
	if ev.Group == "" {
		fail(errcode.InvalidGroupID)
		return
	}
	g, code := t.present(ev.Group)
	if code != errcode.None {
		fail(code)
		return
	}
	if g.state != Empty && g.protocolType != consumerProtocolType {
		fail(errcode.NonEmptyGroup)
		return
	}
	codes := make([]errcode.Code, len(ev.Partitions))
	var tps []types.TopicPartition
	for i, tp := range ev.Partitions {
		if g.subscribes(tp.Topic) {
			codes[i] = errcode.GroupSubscribedToTopic
		} else if o := g.offsets[tp]; o != nil && o.mayBeInLog() {
			tps = append(tps, tp)
		}
	}
	if len(tps) == 0 {
		out.reply(ev.Request, CommitResponse{Partitions: codes})
		return
	}
	t.writeOffsets(g, removals(tps), out, func(_ types.Millis, code errcode.Code, out *Effects) {
		if code != errcode.None {
			out.reply(ev.Request, CommitResponse{Code: offsetWriteFailed(code)})
			return
		}
		out.reply(ev.Request, CommitResponse{Partitions: codes})
	})
}

// present gives a group that is there and isn't being deleted.
func (t *Table) present(id string) (*group, errcode.Code) {
	g := t.group(id)
	if g == nil || g.deleting {
		return nil, errcode.GroupIDNotFound
	}
	return g, errcode.None
}

// subscribes reports whether a member may read the topic: also when the
// group's subscription isn't known (before its first completed join).
func (g *group) subscribes(topic string) bool {
	if g.consumer != nil {
		return g.consumer.Subscribes(topic)
	}
	if g.state == Empty {
		return false
	}
	if g.topics == nil {
		return true
	}
	_, ok := g.topics[topic]
	return ok
}

func (t *Table) deleteGroup(ev DeleteGroup, out *Effects) {
	fail := func(code errcode.Code) { out.reply(ev.Request, CodeResponse{Code: code}) }
	g, code := t.present(ev.Group)
	if code != errcode.None {
		fail(code)
		return
	}
	if !g.isEmpty() || len(g.pending) > 0 {
		fail(errcode.NonEmptyGroup)
		return
	}
	t.removeGroup(g, out, func(code errcode.Code, out *Effects) {
		out.reply(ev.Request, CodeResponse{Code: groupDeletion(code)})
	})
}

func groupDeletion(code errcode.Code) errcode.Code {
	if code == errcode.None {
		return errcode.None
	}
	return groupWriteFailed(code)
}

// removeGroup writes tombstones for a group's offsets and the group itself, and
// forgets it once they are durable. Meanwhile the group takes nothing new.
func (t *Table) removeGroup(g *group, out *Effects, done func(errcode.Code, *Effects)) {
	g.deleting = true
	g.persisted = true // from here on the log may speak of it
	clear(g.pendingJoin)
	var records []Record
	for _, tp := range g.keptInLog() {
		records = append(records, OffsetRecord{Group: g.id, TopicPartition: tp})
	}
	records = append(records, g.consumerTombstones()...)
	records = append(records, GroupRecord{Group: g.id})
	t.append(records, out, func(_ types.Millis, code errcode.Code, out *Effects) {
		g.deleting = false
		if code == errcode.None {
			t.drop(g)
		}
		done(code, out)
	})
}

// forgetTopics removes the offsets of topics that were deleted, so that a topic
// of the same name doesn't begin at the old one's offsets.
func (t *Table) forgetTopics(ev ForgetTopics, out *Effects) {
	for _, id := range slices.Sorted(maps.Keys(t.groups)) {
		g := t.groups[id]
		tps := slices.DeleteFunc(g.held(), func(tp types.TopicPartition) bool {
			return !slices.ContainsFunc(ev.Topics, func(d DeletedTopic) bool { return d.had(tp, g.offsets[tp].latest()) })
		})
		if len(tps) > 0 && !g.deleting {
			t.writeOffsets(g, removals(tps), out, func(types.Millis, errcode.Code, *Effects) {})
		}
	}
}

// CommittedTopics gives the topics that groups have offsets of, by name and id, in
// order; the zero id is of those that say none.
func (t *Table) CommittedTopics() []DeletedTopic {
	seen := map[DeletedTopic]bool{}
	for _, g := range t.groups {
		for tp, o := range g.offsets {
			if c := o.latest(); c != nil {
				seen[DeletedTopic{Name: tp.Topic, ID: c.TopicID}] = true
			}
		}
	}
	return slices.SortedFunc(maps.Keys(seen), func(a, b DeletedTopic) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), slices.Compare(a.ID[:], b.ID[:]))
	})
}

// sweep removes offsets whose retention is over and groups that hold nothing.
func (t *Table) sweep(now types.Millis, out *Effects) {
	now = t.wall(now)
	for _, id := range slices.Sorted(maps.Keys(t.groups)) {
		g := t.groups[id]
		if g.deleting || len(g.pending) > 0 {
			continue // a transaction is about to bring it offsets
		}
		var tps []types.TopicPartition
		kept := false
		for _, tp := range g.held() {
			if t.isExpired(g, tp, now) {
				tps = append(tps, tp)
			} else {
				kept = true
			}
		}
		switch {
		case !kept && g.isEmpty() && len(g.pendingJoin) == 0 && !g.writing():
			t.removeGroup(g, out, func(errcode.Code, *Effects) {})
		case len(tps) > 0:
			t.writeOffsets(g, removals(tps), out, func(types.Millis, errcode.Code, *Effects) {})
		}
	}
}

func (g *group) writing() bool {
	for _, o := range g.offsets {
		if o.inFlight > 0 {
			return true
		}
	}
	return false
}

// isExpired applies Kafka's retention rules (KIP-211): from when the group
// became empty; in a live consumer group from the commit, for topics that it
// no longer reads; for a group that only keeps offsets from the commit. An
// offset whose commit is on its way is not old.
func (t *Table) isExpired(g *group, tp types.TopicPartition, now types.Millis) bool {
	o := g.offsets[tp]
	if o.inFlight > 0 {
		return false
	}
	v := o.durable
	since := v.CommittedAt
	switch {
	case g.consumer != nil && g.subscribes(tp.Topic):
		return false
	case g.consumer != nil && g.isEmpty():
		since = max(since, g.consumer.Since(), g.stateSince)
	case g.consumer != nil:
	case g.protocolType == "":
	case g.state == Empty:
		if g.stateSince != types.NoTimestamp {
			since = max(since, g.stateSince)
		}
	case g.protocolType == consumerProtocolType && g.topics != nil && g.state == Stable:
		if g.subscribes(tp.Topic) {
			return false
		}
	default:
		return false
	}
	if v.ExpiresAt != types.NoTimestamp {
		return v.ExpiresAt <= now
	}
	return now-since >= t.cfg.OffsetsRetention
}
