package coordinator

import (
	"context"
	"encoding/hex"
	"time"

	"tidemark/internal/broker/coordinator/statelog"
	"tidemark/internal/clock"
	"tidemark/internal/core/errcode"
	"tidemark/internal/core/group"
	"tidemark/internal/core/types"
)

// submit has the loop take an event and waits for the answer. With patient it
// waits for a loop that is loading; else that is an answer by itself.
func submit[R group.Response](ctx context.Context, l *loop, patient bool, event func(id group.RequestID) group.Event) (R, errcode.Code) {
	var none R
	r, code := l.ask(ctx, patient, func(id group.RequestID) { l.step(event(id)) })
	if code != errcode.None {
		return none, code
	}
	if typed, ok := r.(R); ok {
		return typed, errcode.None
	}
	return none, r.(group.CodeResponse).Code
}

// submitTo is submit for the loop of a group; members have none in the group without a name.
func submitTo[R group.Response](ctx context.Context, c *Coordinator, groupID string, event func(id group.RequestID) group.Event) (R, errcode.Code) {
	if groupID == "" {
		var none R
		return none, errcode.InvalidGroupID
	}
	return submit[R](ctx, c.home(groupID), false, event)
}

// ask has the loop do a task and waits for its answer; no loop is an answer too.
func (l *loop) ask(ctx context.Context, patient bool, do statelog.Task[group.RequestID]) (group.Response, errcode.Code) {
	if l == nil {
		return nil, errcode.NotCoordinator
	}
	return l.inbox.Ask(ctx, patient, do)
}

// look runs f on the loop's table and waits for it.
func (l *loop) look(ctx context.Context, f func(t *group.Table)) errcode.Code {
	r, code := l.ask(ctx, false, func(id group.RequestID) {
		f(l.table)
		l.inbox.Answer(id, group.CodeResponse{Code: errcode.None})
	})
	if code != errcode.None {
		return code
	}
	return r.(group.CodeResponse).Code
}

// post has the loop take an event that nobody waits for.
func (l *loop) post(ctx context.Context, ev group.Event) {
	l.inbox.Post(ctx, func(group.RequestID) { l.step(ev) })
}

// Join implements api.Groups.
func (c *Coordinator) Join(ctx context.Context, ev group.Join) group.JoinResponse {
	ev.FreshMemberID = c.freshMemberID(ev)
	r, code := submitTo[group.JoinResponse](ctx, c, ev.Group, func(id group.RequestID) group.Event {
		ev.Request = id
		return ev
	})
	if code != errcode.None {
		return group.JoinResponse{Code: code, MemberID: ev.MemberID, Generation: -1}
	}
	return r
}

// freshMemberID makes a member id as Kafka does: who it is, and a random UUID.
func (c *Coordinator) freshMemberID(ev group.Join) string {
	name := ev.ClientID
	if ev.InstanceID != "" {
		name = ev.InstanceID
	}
	var b [16]byte
	c.o.Random(b[:])
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	h := hex.EncodeToString(b[:])
	return name + "-" + h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

// Sync implements api.Groups.
func (c *Coordinator) Sync(ctx context.Context, ev group.Sync) group.SyncResponse {
	r, code := submitTo[group.SyncResponse](ctx, c, ev.Group, func(id group.RequestID) group.Event {
		ev.Request = id
		return ev
	})
	if code != errcode.None {
		return group.SyncResponse{Code: code}
	}
	return r
}

// Heartbeat implements api.Groups.
func (c *Coordinator) Heartbeat(ctx context.Context, ev group.Heartbeat) errcode.Code {
	r, code := submitTo[group.CodeResponse](ctx, c, ev.Group, func(id group.RequestID) group.Event {
		ev.Request = id
		return ev
	})
	if code == errcode.CoordinatorLoadInProgress {
		return errcode.None // Kafka parity: a member must not lose its place because its coordinator restarts
	}
	return oneOf(code, r.Code)
}

func oneOf(outer, inner errcode.Code) errcode.Code {
	if outer != errcode.None {
		return outer
	}
	return inner
}

// Leave implements api.Groups.
func (c *Coordinator) Leave(ctx context.Context, ev group.Leave) group.LeaveResponse {
	r, code := submitTo[group.LeaveResponse](ctx, c, ev.Group, func(id group.RequestID) group.Event {
		ev.Request = id
		return ev
	})
	return group.LeaveResponse{Code: oneOf(code, r.Code), Members: r.Members}
}

// Commit implements api.Groups.
func (c *Coordinator) Commit(ctx context.Context, ev group.Commit) group.CommitResponse {
	return c.change(ctx, ev.Group, func(id group.RequestID) group.Event {
		ev.Request = id
		return ev
	})
}

// DeleteOffsets implements api.Groups.
func (c *Coordinator) DeleteOffsets(ctx context.Context, ev group.DeleteOffsets) group.CommitResponse {
	return c.change(ctx, ev.Group, func(id group.RequestID) group.Event {
		ev.Request = id
		return ev
	})
}

// change has a group's committed offsets changed.
func (c *Coordinator) change(ctx context.Context, groupID string, event func(id group.RequestID) group.Event) group.CommitResponse {
	r, code := submit[group.CommitResponse](ctx, c.home(groupID), false, event)
	return group.CommitResponse{Code: oneOf(code, r.Code), Partitions: r.Partitions}
}

// DeleteGroup implements api.Groups.
func (c *Coordinator) DeleteGroup(ctx context.Context, groupID string) errcode.Code {
	r, code := submit[group.CodeResponse](ctx, c.home(groupID), false, func(id group.RequestID) group.Event {
		return group.DeleteGroup{Request: id, Group: groupID}
	})
	return oneOf(code, r.Code)
}

// Offset implements api.Groups.
func (c *Coordinator) Offset(ctx context.Context, groupID string, tps []types.TopicPartition) ([]group.OffsetEntry, errcode.Code) {
	entries := make([]group.OffsetEntry, len(tps))
	code := c.home(groupID).look(ctx, func(t *group.Table) {
		for i, tp := range tps {
			entries[i] = group.OffsetEntry{TopicPartition: tp, Committed: group.Committed{
				Offset: types.NoOffset, LeaderEpoch: types.NoLeaderEpoch,
			}}
			if v := t.Offset(groupID, tp); v != nil {
				entries[i].Committed = *v
			}
			entries[i].Unstable = t.IsUnstable(groupID, tp)
		}
	})
	if code != errcode.None {
		return nil, code // entries may still be written to by a loop that comes late
	}
	return entries, errcode.None
}

// Offsets implements api.Groups.
func (c *Coordinator) Offsets(ctx context.Context, groupID string) ([]group.OffsetEntry, errcode.Code) {
	return lookUp(ctx, c.home(groupID), func(t *group.Table) []group.OffsetEntry { return t.Offsets(groupID) })
}

// Describe implements api.Groups.
func (c *Coordinator) Describe(ctx context.Context, groupID string) (group.Description, errcode.Code) {
	return lookUp(ctx, c.home(groupID), func(t *group.Table) group.Description { return t.Describe(groupID) })
}

// List implements api.Groups.
func (c *Coordinator) List(ctx context.Context, states, groupTypes []string) ([]group.Listing, errcode.Code) {
	var all []group.Listing
	for _, l := range c.All() {
		some, code := lookUp(ctx, l, func(t *group.Table) []group.Listing { return t.List(states, groupTypes) })
		if code == errcode.NotCoordinator {
			continue // resigned meanwhile: another node lists these
		}
		if code != errcode.None {
			return nil, code
		}
		all = append(all, some...)
	}
	return all, errcode.None
}

// countPatience bounds how long a scrape waits for the loops together.
const countPatience = 2 * time.Second

// Count says how many groups there are here, of each kind. What a loop doesn't tell in
// time is left out.
func (c *Coordinator) Count(ctx context.Context) map[group.Kind]int {
	ctx, cancel := clock.WithTimeout(ctx, countPatience)
	defer cancel()
	all := make(map[group.Kind]int)
	for _, l := range c.Loops.All() {
		some, _ := lookUp(ctx, l, (*group.Table).Count) // one that has resigned or is loading counts nothing
		for k, n := range some {
			all[k] += n
		}
	}
	return all
}

// lookUp runs f on the loop's table and gives its result.
func lookUp[V any](ctx context.Context, l *loop, f func(t *group.Table) V) (V, errcode.Code) {
	var none V
	found := make(chan V, 1)
	if code := l.look(ctx, func(t *group.Table) { found <- f(t) }); code != errcode.None {
		return none, code
	}
	return <-found, errcode.None
}
