package coordinator

import (
	"context"

	"tidemark/internal/core/errcode"
	"tidemark/internal/core/group"
	"tidemark/internal/core/types"
)

// OffsetAndMeta is one committed offset of a mirrored group, as the source has it.
type OffsetAndMeta struct {
	types.TopicPartition
	Offset      types.Offset
	LeaderEpoch types.LeaderEpoch // types.NoLeaderEpoch if the source doesn't say
	Metadata    string
}

// SyncResult says what became of mirrored offsets.
type SyncResult struct {
	// HasMembers: the group has members here (or ids given to members to be)
	// and was left alone.
	HasMembers bool
	Applied    []OffsetAndMeta // written now, durable
	Unchanged  int             // held already
	// Pending offsets are beyond the local log end, or of partitions that
	// aren't here or are no mirrors any more: to be offered again, and to be
	// clamped at a failover.
	Pending []OffsetAndMeta
}

// SyncOffsets writes a source group's committed offsets into the group of the
// same name, if it has no local members, and none beyond the log end of its
// partition (DESIGN §6.3, invariant GroupNotAhead), and none into a partition that was
// promoted meanwhile. The log ends are read when
// the loop takes the request, so that a ClampOffsets that follows a cut sees
// whatever was written before it. It waits while the groups load. The errors
// are wire codes: NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE and so on: try again later.
func (c *Coordinator) SyncOffsets(ctx context.Context, groupID string, offsets []OffsetAndMeta) (SyncResult, error) {
	return c.SyncOffsetsWithin(ctx, groupID, offsets, nil)
}

// SyncOffsetsWithin is SyncOffsets for partitions of which this node may hold no
// replica, or that were promoted: ends are log ends that their leaders have told, at
// which these were mirrors or were promoted.
func (c *Coordinator) SyncOffsetsWithin(ctx context.Context, groupID string, offsets []OffsetAndMeta, ends map[types.TopicPartition]types.Offset) (SyncResult, error) {
	if _, err := c.topic.Ensure(ctx); err != nil {
		return SyncResult{}, err
	}
	r, code := submit[group.MirrorOffsetsResponse](ctx, c.home(groupID), true, func(id group.RequestID) group.Event {
		return group.MirrorOffsets{Request: id, Group: groupID, Offsets: c.withLogEnds(offsets, ends)}
	})
	switch code = oneOf(code, r.Code); code {
	case errcode.None:
	case errcode.NonEmptyGroup:
		return SyncResult{HasMembers: true}, nil
	default:
		return SyncResult{}, code
	}
	var out SyncResult
	for i, o := range offsets {
		switch r.Results[i] {
		case group.MirrorApplied:
			out.Applied = append(out.Applied, o)
		case group.MirrorUnchanged:
			out.Unchanged++
		case group.MirrorPending:
			out.Pending = append(out.Pending, o)
		}
	}
	return out, nil
}

func (c *Coordinator) withLogEnds(offsets []OffsetAndMeta, told map[types.TopicPartition]types.Offset) []group.MirrorOffset {
	image := c.o.Image()
	all := make([]group.MirrorOffset, len(offsets))
	for i, o := range offsets {
		m := group.MirrorOffset{
			Topic: o.Topic, Partition: o.Partition, Offset: o.Offset, LeaderEpoch: o.LeaderEpoch,
			Metadata: o.Metadata, LogEnd: types.NoOffset,
		}
		if t, ok := image.TopicByName(o.Topic); ok {
			m.TopicID = t.Record.ID
			end, here := c.o.LogEnd(t.Record.ID, o.Partition)
			if here = here && c.isMirrored(t.Record.ID, o.Partition); here {
				m.LogEnd = end
			} else if end, ok := told[o.TopicPartition]; ok {
				m.LogEnd = end
			}
		}
		all[i] = m
	}
	return all
}

// isMirrored reports whether what the log of a partition held a moment ago was the
// source's: a promoted one may go on with records of its own, and a source's offset
// that was read before the promotion, and comes late, would pass these. A log has none
// of them before this node's image shows the promotion.
func (c *Coordinator) isMirrored(id types.TopicID, partition int32) bool {
	rec, _ := c.o.Image().Partition(id, partition)
	return rec == nil || !rec.Writable
}

// Cut says that a partition's log was cut and now ends at Offset.
type Cut = group.Cut

// Lowered is a committed offset that was taken back to a cut.
type Lowered = group.Lowered

// ClampOffsets sets every committed offset of tp above o to o, in all groups
// that this node coordinates, with members or without (DESIGN §6.3, GROUP_CUT),
// and gives the ones that it changed. To be called after the cut; on an error
// it is to be called again.
func (c *Coordinator) ClampOffsets(ctx context.Context, tp types.TopicPartition, o types.Offset) ([]Lowered, error) {
	return c.ClampAll(ctx, []Cut{{TopicPartition: tp, Offset: o}})
}

// ClampAll is ClampOffsets for many partitions in one go.
func (c *Coordinator) ClampAll(ctx context.Context, cuts []Cut) ([]Lowered, error) {
	return clamp(ctx, c.All(), cuts)
}

func clamp(ctx context.Context, loops []*loop, cuts []Cut) ([]Lowered, error) {
	var lowered []Lowered
	for _, l := range loops {
		r, code := submit[group.ClampResponse](ctx, l, true, func(id group.RequestID) group.Event {
			return group.Clamp{Request: id, Cuts: cuts}
		})
		lowered = append(lowered, r.Lowered...)
		if code = oneOf(code, r.Code); code != errcode.None {
			return lowered, code
		}
	}
	return lowered, nil
}

// Past gives what ClampAll would lower, and changes nothing.
func (c *Coordinator) Past(ctx context.Context, cuts []Cut) ([]Lowered, error) {
	at := make(map[types.TopicPartition]types.Offset, len(cuts))
	for _, cut := range cuts {
		at[cut.TopicPartition] = cut.Offset
	}
	listed, code := c.List(ctx, nil, nil)
	if code != errcode.None {
		return nil, code
	}
	var past []Lowered
	for _, l := range listed {
		entries, code := c.Offsets(ctx, l.Group)
		if code != errcode.None {
			continue // gone, or moved to another node meanwhile
		}
		for _, e := range entries {
			if to, ok := at[e.TopicPartition]; ok && e.Offset > to {
				past = append(past, Lowered{Group: l.Group, TopicPartition: e.TopicPartition, From: e.Offset, To: to, Cut: to})
			}
		}
	}
	return past, nil
}

// ListCommitted gives all committed offsets of a group, ordered by topic and partition.
func (c *Coordinator) ListCommitted(ctx context.Context, groupID string) ([]OffsetAndMeta, error) {
	entries, code := c.Offsets(ctx, groupID)
	if code != errcode.None {
		return nil, code
	}
	all := make([]OffsetAndMeta, 0, len(entries))
	for _, e := range entries {
		all = append(all, OffsetAndMeta{TopicPartition: e.TopicPartition, Offset: e.Offset, LeaderEpoch: e.LeaderEpoch, Metadata: e.Metadata})
	}
	return all, nil
}
