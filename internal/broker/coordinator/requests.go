package coordinator

import (
	"context"
	"crypto/rand"
	"encoding/hex"

	"tidemark/internal/core/group"
	"tidemark/internal/core/types"
)

// submit has the loop take an event and waits for the answer. With patient it
// waits for a loop that is loading; else that is an answer by itself.
func submit[R group.Response](ctx context.Context, l *loop, patient bool, event func(id group.RequestID, l *loop) group.Event) (R, group.ErrorCode) {
	var none R
	if code := l.admit(ctx, patient); code != group.None {
		return none, code
	}
	answer := make(chan group.Response, 1)
	select {
	case l.inbox <- task{event: event, answer: answer}:
	case <-l.ended:
		return none, group.NotCoordinator
	case <-ctx.Done():
		return none, group.CoordinatorNotAvailable
	}
	var r group.Response
	select {
	case r = <-answer:
	case <-ctx.Done():
		return none, group.CoordinatorNotAvailable
	case <-l.ended:
		select {
		case r = <-answer:
		default:
			return none, group.NotCoordinator
		}
	}
	if !l.leads() {
		return none, group.NotCoordinator // another one may have answered more than this one knows
	}
	if typed, ok := r.(R); ok {
		return typed, group.None
	}
	return none, r.(group.CodeResponse).Code
}

// admit checks that a loop is there and has its groups.
func (l *loop) admit(ctx context.Context, patient bool) group.ErrorCode {
	switch {
	case l == nil:
		return group.NotCoordinator
	case l.isReady() && !l.leads():
		return group.NotCoordinator
	case l.isReady():
		return group.None
	case !patient:
		return group.CoordinatorLoadInProgress
	}
	select {
	case <-l.ready:
		return group.None
	case <-l.ended:
		return group.NotCoordinator
	case <-ctx.Done():
		return group.CoordinatorLoadInProgress
	}
}

// leads reports whether this node serves the partition right now: a node that is
// cut off from the metadata hears of no other leader, and its lease must tell it
// that there may be one (R10). What it knows was true at that moment only if it
// is asked after the answer was made.
func (l *loop) leads() bool {
	topic, ok := l.c.o.Image().TopicByName(OffsetsTopic)
	if !ok {
		return false
	}
	_, err := l.c.o.Partitions.Get(topic.Record.ID, l.partition)
	return err == nil
}

// look runs f on the loop's table and waits for it.
func (l *loop) look(ctx context.Context, f func(t *group.Table)) group.ErrorCode {
	if code := l.admit(ctx, false); code != group.None {
		return code
	}
	looked := make(chan struct{})
	select {
	case l.inbox <- task{look: f, looked: looked}:
	case <-l.ended:
		return group.NotCoordinator
	case <-ctx.Done():
		return group.CoordinatorNotAvailable
	}
	select {
	case <-looked:
		if !l.leads() {
			return group.NotCoordinator
		}
		return group.None
	case <-l.ended:
		return group.NotCoordinator
	case <-ctx.Done():
		return group.CoordinatorNotAvailable
	}
}

// post has the loop take an event that nobody waits for.
func (l *loop) post(ctx context.Context, ev group.Event) {
	select {
	case l.inbox <- task{event: func(group.RequestID, *loop) group.Event { return ev }}:
	case <-l.ended:
	case <-ctx.Done():
	}
}

// Join implements api.Groups.
func (c *Coordinator) Join(ctx context.Context, ev group.Join) group.JoinResponse {
	if ev.Group == "" {
		return group.JoinResponse{Code: group.InvalidGroupID, MemberID: ev.MemberID, Generation: -1}
	}
	ev.FreshMemberID = freshMemberID(ev)
	r, code := submit[group.JoinResponse](ctx, c.home(ev.Group), false, func(id group.RequestID, _ *loop) group.Event {
		ev.Request = id
		return ev
	})
	if code != group.None {
		return group.JoinResponse{Code: code, MemberID: ev.MemberID, Generation: -1}
	}
	return r
}

// freshMemberID makes a member id as Kafka does: who it is, and a random UUID.
func freshMemberID(ev group.Join) string {
	name := ev.ClientID
	if ev.InstanceID != "" {
		name = ev.InstanceID
	}
	var b [16]byte
	rand.Read(b[:]) // never fails (Go 1.24)
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	h := hex.EncodeToString(b[:])
	return name + "-" + h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

// Sync implements api.Groups.
func (c *Coordinator) Sync(ctx context.Context, ev group.Sync) group.SyncResponse {
	if ev.Group == "" {
		return group.SyncResponse{Code: group.InvalidGroupID}
	}
	r, code := submit[group.SyncResponse](ctx, c.home(ev.Group), false, func(id group.RequestID, _ *loop) group.Event {
		ev.Request = id
		return ev
	})
	if code != group.None {
		return group.SyncResponse{Code: code}
	}
	return r
}

// Heartbeat implements api.Groups.
func (c *Coordinator) Heartbeat(ctx context.Context, ev group.Heartbeat) group.ErrorCode {
	if ev.Group == "" {
		return group.InvalidGroupID
	}
	r, code := submit[group.CodeResponse](ctx, c.home(ev.Group), false, func(id group.RequestID, _ *loop) group.Event {
		ev.Request = id
		return ev
	})
	if code == group.CoordinatorLoadInProgress {
		return group.None // Kafka parity: a member must not lose its place because its coordinator restarts
	}
	return oneOf(code, r.Code)
}

func oneOf(outer, inner group.ErrorCode) group.ErrorCode {
	if outer != group.None {
		return outer
	}
	return inner
}

// Leave implements api.Groups.
func (c *Coordinator) Leave(ctx context.Context, ev group.Leave) group.LeaveResponse {
	if ev.Group == "" {
		return group.LeaveResponse{Code: group.InvalidGroupID}
	}
	r, code := submit[group.LeaveResponse](ctx, c.home(ev.Group), false, func(id group.RequestID, _ *loop) group.Event {
		ev.Request = id
		return ev
	})
	return group.LeaveResponse{Code: oneOf(code, r.Code), Members: r.Members}
}

// Commit implements api.Groups.
func (c *Coordinator) Commit(ctx context.Context, ev group.Commit) group.CommitResponse {
	if ev.Group == "" {
		return group.CommitResponse{Code: group.InvalidGroupID}
	}
	r, code := submit[group.CommitResponse](ctx, c.home(ev.Group), false, func(id group.RequestID, _ *loop) group.Event {
		ev.Request = id
		return ev
	})
	return group.CommitResponse{Code: oneOf(code, r.Code), Partitions: r.Partitions}
}

// DeleteOffsets implements api.Groups.
func (c *Coordinator) DeleteOffsets(ctx context.Context, ev group.DeleteOffsets) group.CommitResponse {
	if ev.Group == "" {
		return group.CommitResponse{Code: group.InvalidGroupID}
	}
	r, code := submit[group.CommitResponse](ctx, c.home(ev.Group), false, func(id group.RequestID, _ *loop) group.Event {
		ev.Request = id
		return ev
	})
	return group.CommitResponse{Code: oneOf(code, r.Code), Partitions: r.Partitions}
}

// DeleteGroup implements api.Groups.
func (c *Coordinator) DeleteGroup(ctx context.Context, groupID string) group.ErrorCode {
	if groupID == "" {
		return group.InvalidGroupID
	}
	r, code := submit[group.CodeResponse](ctx, c.home(groupID), false, func(id group.RequestID, _ *loop) group.Event {
		return group.DeleteGroup{Request: id, Group: groupID}
	})
	return oneOf(code, r.Code)
}

// Offset implements api.Groups.
func (c *Coordinator) Offset(ctx context.Context, groupID string, tps []types.TopicPartition) ([]group.OffsetEntry, group.ErrorCode) {
	entries := make([]group.OffsetEntry, len(tps))
	code := c.home(groupID).look(ctx, func(t *group.Table) {
		for i, tp := range tps {
			entries[i] = group.OffsetEntry{TopicPartition: tp, Committed: group.Committed{
				Offset: types.NoOffset, LeaderEpoch: types.NoLeaderEpoch,
			}}
			if v := t.Offset(groupID, tp); v != nil {
				entries[i].Committed = *v
			}
		}
	})
	if code != group.None {
		return nil, code // entries may still be written to by a loop that comes late
	}
	return entries, group.None
}

// Offsets implements api.Groups.
func (c *Coordinator) Offsets(ctx context.Context, groupID string) ([]group.OffsetEntry, group.ErrorCode) {
	return lookUp(ctx, c.home(groupID), func(t *group.Table) []group.OffsetEntry { return t.Offsets(groupID) })
}

// Describe implements api.Groups.
func (c *Coordinator) Describe(ctx context.Context, groupID string) (group.Description, group.ErrorCode) {
	return lookUp(ctx, c.home(groupID), func(t *group.Table) group.Description { return t.Describe(groupID) })
}

// List implements api.Groups.
func (c *Coordinator) List(ctx context.Context, states, groupTypes []string) ([]group.Listing, group.ErrorCode) {
	var all []group.Listing
	for _, l := range c.all() {
		some, code := lookUp(ctx, l, func(t *group.Table) []group.Listing { return t.List(states, groupTypes) })
		if code == group.NotCoordinator {
			continue // resigned meanwhile: another node lists these
		}
		if code != group.None {
			return nil, code
		}
		all = append(all, some...)
	}
	return all, group.None
}

// lookUp runs f on the loop's table and gives its result.
func lookUp[V any](ctx context.Context, l *loop, f func(t *group.Table) V) (V, group.ErrorCode) {
	var none V
	found := make(chan V, 1)
	if code := l.look(ctx, func(t *group.Table) { found <- f(t) }); code != group.None {
		return none, code
	}
	return <-found, group.None
}
