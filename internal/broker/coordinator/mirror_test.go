package coordinator

import (
	"context"
	"errors"
	"testing"

	"tidemark/internal/core/types"
	"tidemark/internal/wire"
)

func sourceOffset(partition int32, o types.Offset) OffsetAndMeta {
	return OffsetAndMeta{TopicPartition: types.TopicPartition{Topic: "data", Partition: partition}, Offset: o, LeaderEpoch: 2, Metadata: "src"}
}

// Mirrored offsets wait for the log end, and stay out of groups with members.
func TestSyncOffsets(t *testing.T) {
	n, ctx := newFakeNode(2), testContext(t)
	c := n.start(t)
	n.lead(t, c)
	n.setLogEnd(0, 10)
	elsewhere := OffsetAndMeta{TopicPartition: types.TopicPartition{Topic: "unknown"}, Offset: 1}
	r, err := c.SyncOffsets(ctx, "g", []OffsetAndMeta{sourceOffset(0, 11), sourceOffset(1, 0), elsewhere})
	if err != nil || len(r.Applied) != 0 || len(r.Pending) != 3 {
		t.Fatalf("beyond the log end: %+v, %v", r, err)
	}
	n.setLogEnd(0, 11)
	r, err = c.SyncOffsets(ctx, "g", []OffsetAndMeta{sourceOffset(0, 11)})
	if err != nil || len(r.Applied) != 1 || r.Applied[0] != sourceOffset(0, 11) {
		t.Fatalf("at the log end: %+v, %v", r, err)
	}
	r, err = c.SyncOffsets(ctx, "g", []OffsetAndMeta{sourceOffset(0, 11)})
	if err != nil || r.Unchanged != 1 {
		t.Fatalf("again: %+v, %v", r, err)
	}
	all, err := c.ListCommitted(ctx, "g")
	if err != nil || len(all) != 1 || all[0] != sourceOffset(0, 11) {
		t.Fatalf("committed: %+v, %v", all, err)
	}
	member(t, ctx, c, "g")
	r, err = c.SyncOffsets(ctx, "g", []OffsetAndMeta{sourceOffset(0, 5)})
	if err != nil || !r.HasMembers || len(r.Applied) != 0 || committed(t, ctx, c, "g") != 11 {
		t.Fatalf("into a group with members: %+v, %v", r, err)
	}
}

// What a source had committed before a promotion, and comes after it, doesn't pass the
// records that are the promoted log's own: it waits, or takes what the failover took.
func TestSyncOffsetsAfterAPromotion(t *testing.T) {
	n, ctx := newFakeNode(2), testContext(t)
	c := n.start(t)
	n.lead(t, c)
	n.promoted = true
	n.setTopics(true)
	n.setLogEnd(0, 30) // promoted at 20
	late := []OffsetAndMeta{sourceOffset(0, 25)}
	if r, err := c.SyncOffsets(ctx, "g", late); err != nil || len(r.Pending) != 1 {
		t.Fatalf("read before the promotion: %+v, %v", r, err)
	}
	taken := map[types.TopicPartition]types.Offset{late[0].TopicPartition: 20}
	if r, err := c.SyncOffsetsWithin(ctx, "g", late, taken); err != nil || len(r.Pending) != 1 {
		t.Fatalf("beyond what was taken: %+v, %v", r, err)
	}
	if r, err := c.SyncOffsetsWithin(ctx, "g", []OffsetAndMeta{sourceOffset(0, 20)}, taken); err != nil || len(r.Applied) != 1 {
		t.Fatalf("as far as was taken: %+v, %v", r, err)
	}
}

// The first mirrored offset makes the offsets topic; the sync says "later" until it is led.
func TestSyncOffsetsMakesTopic(t *testing.T) {
	n, ctx := newFakeNode(1), testContext(t)
	c := n.start(t)
	n.setLogEnd(0, 10)
	if _, err := c.SyncOffsets(ctx, "g", []OffsetAndMeta{sourceOffset(0, 1)}); !errors.Is(err, wire.ErrNotCoordinator) {
		t.Fatalf("before the election: %v", err)
	}
	c.Elected(0, 1)
	// It waits for the load.
	if r, err := c.SyncOffsets(ctx, "g", []OffsetAndMeta{sourceOffset(0, 1)}); err != nil || len(r.Applied) != 1 {
		t.Fatalf("after the election: %+v, %v", r, err)
	}
}

// A cut takes back every committed offset above it, in all groups, and what
// was being written when it came.
func TestClampOffsets(t *testing.T) {
	n, ctx := newFakeNode(4), testContext(t)
	c := n.start(t)
	n.lead(t, c)
	n.setLogEnd(0, 100)
	j := member(t, ctx, c, "members")
	mustCommit(t, ctx, c, commit("members", j.MemberID, 1, 90))
	mustCommit(t, ctx, c, commit("below", "", -1, 50))
	hold, entered := make(chan struct{}), make(chan struct{}, 10)
	for _, p := range n.parts {
		p.setOnAppend(func(context.Context, []byte) error {
			entered <- struct{}{}
			<-hold
			return nil
		})
	}
	synced := make(chan error, 1)
	go func() {
		_, err := c.SyncOffsets(ctx, "mirrored", []OffsetAndMeta{sourceOffset(0, 100)})
		synced <- err
	}()
	waitFor(t, entered)
	n.setLogEnd(0, 60) // the cut
	type outcome struct {
		lowered []Lowered
		err     error
	}
	clamped := make(chan outcome, 1)
	go func() {
		lowered, err := c.ClampOffsets(ctx, types.TopicPartition{Topic: "data", Partition: 0}, 60)
		clamped <- outcome{lowered, err}
	}()
	close(hold)
	if err := waitFor(t, synced); err != nil {
		t.Fatal(err)
	}
	r := waitFor(t, clamped)
	if r.err != nil || len(r.lowered) != 2 {
		t.Fatalf("clamped %+v, %v", r.lowered, r.err)
	}
	for _, g := range []string{"members", "mirrored"} {
		if o := committed(t, ctx, c, g); o != 60 {
			t.Errorf("group %s at %d", g, o)
		}
	}
	if o := committed(t, ctx, c, "below"); o != 50 {
		t.Errorf("group below at %d", o)
	}
	all, _ := c.Offsets(ctx, "members")
	if all[0].LeaderEpoch != types.NoLeaderEpoch || all[0].Metadata != "md" {
		t.Errorf("clamped offset %+v", all[0])
	}
	// It is in the log.
	c.Close()
	c = n.start(t)
	n.lead(t, c)
	if o := committed(t, ctx, c, "mirrored"); o != 60 {
		t.Errorf("after a restart: %d", o)
	}
}

// A clamp that can't be written is an error, to be called again.
func TestClampFails(t *testing.T) {
	n, ctx := newFakeNode(1), testContext(t)
	c := n.start(t)
	n.lead(t, c)
	mustCommit(t, ctx, c, commit("g", "", -1, 50))
	n.parts[0].setOnAppend(func(context.Context, []byte) error { return wire.ErrNotEnoughReplicas })
	tp := types.TopicPartition{Topic: "data", Partition: 0}
	if lowered, err := c.ClampOffsets(ctx, tp, 10); !errors.Is(err, wire.ErrCoordinatorNotAvailable) || len(lowered) != 0 {
		t.Fatalf("%+v, %v", lowered, err)
	}
	n.parts[0].setOnAppend(nil)
	if lowered, err := c.ClampOffsets(ctx, tp, 10); err != nil || len(lowered) != 1 || lowered[0].From != 50 || lowered[0].To != 10 {
		t.Fatalf("%+v, %v", lowered, err)
	}
	if lowered, err := c.ClampOffsets(ctx, tp, 10); err != nil || len(lowered) != 0 {
		t.Fatalf("again: %+v, %v", lowered, err)
	}
}
