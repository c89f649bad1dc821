package sim

import (
	"fmt"
	"slices"
	"time"

	"tidemark/internal/core/errcode"
	"tidemark/internal/core/group"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
)

// groupLedger is what the checkers know of one group.
type groupLedger struct {
	// owners are those of each partition, by generation.
	owners map[int32]map[int32]string
	// byText are all commits by their metadata, each with a text of its own.
	byText map[string]*groupCommit
	acked  map[int32][]*groupCommit // of each partition, in the order of their answers
}

// groupCommit is one partition of one commit.
type groupCommit struct {
	text      string
	partition int32
	offset    types.Offset
	topic     types.TopicID // that it is committed for
	// of is the topic whose records the offset was found among: an earlier one of the name, if
	// the member begins where a coordinator that hadn't removed that one's offsets yet told it to.
	of    types.TopicID
	began time.Duration
	// ended is when it was acknowledged, -1 before; in is the leader epoch of the coordinator that did.
	ended time.Duration
	in    types.LeaderEpoch
	// running are copies of the request that a coordinator has begun and not ended, and
	// last is when the last one ended: a copy that comes late commits once more.
	running int
	last    time.Duration
}

// String is how findings tell of a commit.
func (c *groupCommit) String() string {
	return fmt.Sprintf("%s (offset %d, sent at %v)", c.text, c.offset, c.began.Round(time.Millisecond))
}

func (j *judge) group(id string) *groupLedger {
	g := j.groups[id]
	if g == nil {
		g = &groupLedger{owners: map[int32]map[int32]string{}, byText: map[string]*groupCommit{}, acked: map[int32][]*groupCommit{}}
		j.groups[id] = g
	}
	return g
}

// forgetGroups drops what was promised to the groups of a partition of the offsets
// topic: an unclean election took it back.
func (j *judge) forgetGroups(id meta.PartitionID) {
	for name, g := range j.groups {
		if j.c.offsetsPartition(name) == id {
			clear(g.owners)
			clear(g.acked)
			delete(j.consumers, name)
		}
	}
}

// assigned judges an assignment that a coordinator gave: a partition has one
// owner in a generation (OneOwner).
func (j *judge) assigned(m *machine, groupID string, generation int32, id string, parts []int32) {
	g := j.group(groupID)
	if in, ok := j.coordinates(m, groupID, "assigns"); !ok || j.ledger(j.c.offsetsPartition(groupID)).isPast(in) {
		return
	}
	owners := g.owners[generation]
	if owners == nil {
		owners = map[int32]string{}
		g.owners[generation] = owners
	}
	for _, p := range parts {
		if other, ok := owners[p]; ok && other != id {
			j.fail("OneOwner", "%s gives partition %d of %s to %q in generation %d, which %q has in it", m.name, p, groupID, id, generation, other)
			return
		}
		owners[p] = id
	}
}

// commits takes note of a commit that is about to be sent, for a topic, of an offset in topic of.
func (j *judge) commits(groupID string, p int32, at types.Offset, topic, of types.TopicID) *groupCommit {
	g := j.group(groupID)
	c := &groupCommit{text: fmt.Sprintf("%s/%d", groupID, len(g.byText)), partition: p, offset: at, topic: topic, of: of, began: j.c.k.now, ended: -1}
	g.byText[c.text] = c
	return c
}

// commitArrives takes note of a copy of a commit at a coordinator; done of its end.
func (j *judge) commitArrives(groupID string, offsets []group.CommitOffset) (done func()) {
	g := j.group(groupID)
	for _, o := range offsets {
		g.byText[o.Metadata].running++
	}
	return func() {
		for _, o := range offsets {
			c := g.byText[o.Metadata]
			c.running--
			c.last = j.c.k.now
		}
	}
}

// offsetsCommitted takes note of an acknowledged commit: it must be kept.
func (j *judge) offsetsCommitted(m *machine, groupID string, offsets []group.CommitOffset, codes []errcode.Code) {
	g := j.group(groupID)
	epoch, ok := j.coordinates(m, groupID, "acknowledges a commit")
	if !ok || j.ledger(j.c.offsetsPartition(groupID)).isPast(epoch) {
		return
	}
	for i, o := range offsets {
		c := g.byText[o.Metadata]
		if codes[i] != errcode.None || c.ended >= 0 {
			continue
		}
		c.ended, c.in = j.c.k.now, epoch
		g.acked[c.partition] = append(g.acked[c.partition], c)
	}
}

// offsetsRead judges what a coordinator says of the committed offsets: never less than
// was acknowledged by it or by those that coordinated before it (CommitKept),
// never beyond what the log holds (GroupNotAhead).
func (j *judge) offsetsRead(m *machine, groupID string, entries []group.OffsetEntry, began time.Duration) {
	g := j.group(groupID)
	epoch, ok := j.coordinates(m, groupID, "tells a committed offset")
	if !ok {
		return
	}
	for _, e := range entries {
		read := g.byText[e.Metadata]
		if e.Offset >= 0 && read == nil {
			j.fail("CommitKept", "%s tells offset %d of partition %d for %s, which nobody committed (%q)", m.name, e.Offset, e.Partition, groupID, e.Metadata)
			return
		}
		if a := overlooked(g.acked[e.Partition], read, epoch, began); a != nil && a.topic == j.c.wantTopic {
			j.fail("CommitKept", "%s (epoch %d) tells %v of partition %d for %s; acknowledged in epoch %d at %v was %v",
				m.name, epoch, read, e.Partition, groupID, a.in, a.ended.Round(time.Millisecond), a)
			return
		}
		if read != nil {
			j.notAhead(m, groupID, read)
		}
	}
}

// overlooked gives an acknowledged commit that a coordinator must know and that is
// newer than what it tells, nil if there is none.
func overlooked(acked []*groupCommit, read *groupCommit, epoch types.LeaderEpoch, began time.Duration) *groupCommit {
	for _, a := range slices.Backward(acked) {
		known := a.in < epoch || a.in == epoch && a.ended <= began
		if a == read || !known {
			continue
		}
		if read == nil || read.ended >= 0 && read.running == 0 && read.last < a.began {
			return a
		}
	}
	return nil
}

// foundIn gives the topic that a told offset was found in: now, where nothing is committed.
func (j *judge) foundIn(groupID string, e group.OffsetEntry, now types.TopicID) types.TopicID {
	if c := j.group(groupID).byText[e.Metadata]; c != nil && e.Offset >= 0 {
		return c.of
	}
	return now
}

// notAhead demands that a committed offset lies within what consumers could read.
func (j *judge) notAhead(m *machine, groupID string, c *groupCommit) {
	l := j.ledger(meta.PartitionID{Topic: c.of, Number: c.partition})
	if c.of != j.c.topic || l.unclean >= 0 || l.deleted {
		return
	}
	end := types.Offset(0)
	if l.top != nil {
		end = l.top.next
	}
	if c.offset > end {
		j.fail("GroupNotAhead", "%s tells %v for %s; partition %d was never readable beyond %d", m.name, c, groupID, c.partition, end)
	}
}

// coordinates demands that who answers for a group serves its partition as its
// leader, under a lease that isn't over (CoordinatorFence). It gives the leader epoch.
func (j *judge) coordinates(m *machine, groupID, what string) (types.LeaderEpoch, bool) {
	return j.coordinatesIn(m, j.c.offsetsPartition(groupID), groupID, what)
}

// coordinatesIn is coordinates for whatever a coordinator keeps in a partition.
func (j *judge) coordinatesIn(m *machine, id meta.PartitionID, who, what string) (types.LeaderEpoch, bool) {
	j.leased(m, what)
	h := m.held(id)
	if h == nil {
		j.fail("CoordinatorFence", "%s %s for %s and doesn't hold partition %d", m.name, what, who, id.Number)
		return 0, false
	}
	e, err := h.part.LeaderEpoch()
	if err != nil { // it serves it until its shard has heard of the image
		j.fail("CoordinatorFence", "%s %s for %s, and it doesn't serve partition %d: %v (R10)", m.name, what, who, id.Number, err)
	}
	return e, err == nil
}
