package sim

import (
	"context"
	"fmt"
	"time"

	"tidemark/internal/batch"
	"tidemark/internal/broker/mirror"
	"tidemark/internal/core/meta"
	core "tidemark/internal/core/mirror"
	"tidemark/internal/core/types"
)

// Drills (`mirror drill`, ADR 14 and 23) as an operator orders them, beside everything
// else that happens to the mirrors. Names come again, also while the one before is
// there, is being made, or is being deleted.

// drillNames is how many names drills have.
const drillNames = 2

// drill orders a drill of a mirror that is there.
func (w *mirrors) drill(d dice) string {
	c, name := w.present(d)
	if c == nil {
		return ""
	}
	drill := fmt.Sprintf("d%d", d.IntN(drillNames))
	what := "drill " + name + " " + drill
	if !w.verb(d, c, what, func(ctx context.Context, m *mirror.Mirrors) error {
		_, err := m.Drill(ctx, name, mirror.DrillRequest{Drill: drill})
		return err
	}) {
		return ""
	}
	return c.prefix + what
}

// deleteDrill orders the deletion of a drill, also of one that is being made or isn't there.
func (w *mirrors) deleteDrill(d dice) string {
	c, drill := w.sites[d.IntN(len(w.sites))], fmt.Sprintf("d%d", d.IntN(drillNames))
	if !w.verb(d, c, "drill-delete "+drill, func(ctx context.Context, m *mirror.Mirrors) error {
		_, err := m.DeleteDrill(ctx, drill, false)
		return err
	}) {
		return ""
	}
	return c.prefix + "drill-delete " + drill
}

// writeDrill has a client write to a drill.
func (w *mirrors) writeDrill(d dice) string {
	c := w.sites[d.IntN(len(w.sites))]
	image := c.image(d)
	if image == nil {
		return ""
	}
	n := 0
	for p := range drilledIn(image) {
		w.writeToDrill(c, p)
		n++
	}
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%d partitions of %s", n, c.id)
}

// drilledIn walks the partitions of the drills that clients see.
func drilledIn(image *meta.Image) func(yield func(*meta.Partition) bool) {
	return func(yield func(*meta.Partition) bool) {
		for e := range image.Drills() {
			if e.Record.State != meta.DrillReady {
				continue
			}
			for t := range image.DrillTopics(e.Record.Mark()) {
				for p := range image.PartitionsOf(t.ID) {
					if p.Record != nil && !yield(p) {
						return
					}
				}
			}
		}
	}
}

// writeToDrill writes a record to the leader of a partition of a drill.
func (w *mirrors) writeToDrill(c *cluster, p *meta.Partition) {
	m := c.machine(p.Record.Leader)
	if m == nil || !m.serves() {
		return
	}
	b := batch.NewBuilder(batch.BuilderOptions{LeaderEpoch: types.NoLeaderEpoch})
	b.Append(epoch2026+types.Millis(w.k.now/time.Millisecond), []byte("rehearsal"), fmt.Appendf(nil, "at %v", w.k.now))
	raw, err := b.Build()
	if err != nil {
		w.k.fail("PANIC", "build: %v", err)
		return
	}
	w.net.send("rehearsal", m.name, "produce", func() {
		if !m.serves() {
			return // it ended on the way
		}
		m.task(func() {
			if _, err := m.produce(p.ID.Topic, p.ID.Number, raw, -1); err == nil {
				w.drillWrites()[p.ID] = w.k.now
			}
		})
	})
}

// drillWrites says when a record of a drill's partition was last acknowledged.
func (w *mirrors) drillWrites() map[meta.PartitionID]time.Duration {
	if w.check.drillWrites == nil {
		w.check.drillWrites = map[meta.PartitionID]time.Duration{}
	}
	return w.check.drillWrites
}

// pushDrills has clients write to the drills after the faults.
func (w *mirrors) pushDrills(c *cluster) {
	image := c.machines[0].node.Image()
	if !c.machines[0].serves() {
		return
	}
	for p := range drilledIn(image) {
		if at, ok := w.drillWrites()[p.ID]; !ok || at < w.healedAt {
			w.writeToDrill(c, p)
		}
	}
}

// drillsUnsettled says what the drills of a cluster lack after the faults: each is there
// as a whole, takes records and is the same on all its replicas, or nothing is left of it.
func (w *mirrors) drillsUnsettled(c *cluster, image *meta.Image) string {
	for e := range image.Drills() {
		if e.Record.State != meta.DrillReady {
			return fmt.Sprintf("drill %s is still %s", e.ID, e.Record.State)
		}
	}
	for p := range drilledIn(image) {
		if why := c.behind(p); why != "" {
			return fmt.Sprintf("drill's partition %d: %s", p.ID.Number, why)
		}
		if at, ok := w.drillWrites()[p.ID]; !ok || at < w.healedAt {
			return fmt.Sprintf("drill's partition %d has taken no record since the faults ended", p.ID.Number)
		}
	}
	for _, m := range c.machines {
		names, err := m.mem.List(logDir)
		if err != nil {
			continue
		}
		for _, name := range names {
			if len(name) > len(".fork") && name[len(name)-len(".fork"):] == ".fork" {
				return m.name + " has the folder " + name + " of a drill that isn't there"
			}
		}
	}
	return ""
}

// forkLog is what the checkers know of a fork of a mirror's log on one broker.
type forkLog struct {
	start, end types.Offset
	size       int64
	to         types.Offset // where the mirror's records end
	shared     []shadowBatch
}

// lookFork looks at a partition that a drill made: it begins with records of the mirror
// that were committed here, all up to where its record says (DrillPrefix), and what
// either of the two logs does later leaves the other's bytes alone (DrillApart).
func (s *siteJudge) lookFork(m *machine, h *held) {
	rec, _ := m.node.Image().Partition(h.id.Topic, h.id.Number)
	if _, _, ok := core.Forked(rec); !ok || s.a.w.o.Compacted {
		return
	}
	v, open := h.part.View()
	if !open || v.Offline != nil {
		return
	}
	f := s.forks[h]
	if f != nil && f.end == v.LogEnd && f.start == v.LogStart && f.size == v.Size {
		return
	}
	if f == nil {
		f = &forkLog{to: rec.Promotions[0].LogEnd}
		if s.forks == nil {
			s.forks = map[*held]*forkLog{}
		}
		s.forks[h] = f
		s.a.w.k.probe("drill: a fork is there")
	}
	f.start, f.end, f.size = v.LogStart, v.LogEnd, v.Size
	s.sameFork(m, h, f)
	for _, other := range m.parts {
		if l := s.logs[other]; isOurs(other) && l != nil {
			s.untouched(m, other, l)
		}
	}
	if _, err := h.part.LeaderEpoch(); err == nil && f.end < f.to {
		s.a.fail("DrillPrefix", "%s %s: it leads the fork with the log [%d, %d), and the mirror's records end at %d", m.name, h.part.Name(), f.start, f.end, f.to)
	}
}

// sameFork reads what a fork has of its mirror.
func (s *siteJudge) sameFork(m *machine, h *held, f *forkLog) {
	got, err := readFrom(h.part.Log(), f.start)
	if err != nil {
		if !m.disk.dead {
			s.a.fail("DrillApart", "%s %s: from %d: %v", m.name, h.part.Name(), f.start, err)
		}
		return
	}
	var shared []shadowBatch
	for _, b := range got {
		if b.base < f.to {
			shared = append(shared, b)
		}
	}
	for _, b := range f.shared {
		found := b.next <= f.start
		for i := range shared {
			found = found || shared[i].base == b.base && string(shared[i].raw) == string(b.raw)
		}
		if !found {
			s.a.fail("DrillApart", "%s %s: %s was in the fork and isn't any more, or is another one", m.name, h.part.Name(), b)
			return
		}
	}
	if len(f.shared) < len(shared) {
		s.isPrefix(m, h, f, shared)
	}
	f.shared = shared
}

// isPrefix demands that a fork's records below its end are the mirror's, one behind the other.
func (s *siteJudge) isPrefix(m *machine, h *held, f *forkLog, shared []shadowBatch) {
	of := meta.PartitionID{Topic: s.c.topic, Number: h.id.Number}
	if of.Topic.IsZero() {
		return
	}
	var prev *grain
	for i := range shared {
		b := &shared[i]
		g, _ := s.a.orchard.find(of, b, prev)
		switch {
		case b.next > f.to:
			s.a.fail("DrillPrefix", "%s %s: %s reaches over the end %d of the mirror's records", m.name, h.part.Name(), b, f.to)
		case g == nil:
			s.a.fail("DrillPrefix", "%s %s: %s isn't the mirror's, or not behind %s", m.name, h.part.Name(), b, prev)
		case (g.committed|g.marked)&(1<<s.c.number) == 0:
			s.a.fail("DrillPrefix", "%s %s: %s was never committed here", m.name, h.part.Name(), g)
		default:
			prev = g
			continue
		}
		return
	}
}

// untouched demands that a mirror's log still has the bytes that were read of it.
func (s *siteJudge) untouched(m *machine, h *held, l *siteLog) {
	v, open := h.part.View()
	if !open || v.Offline != nil || v.LogEnd != l.end || v.LogStart != l.start || v.History != l.history {
		return // it is looked at itself, next
	}
	got, err := readFrom(h.part.Log(), v.LogStart)
	if err != nil {
		if !m.disk.dead {
			s.a.fail("DrillApart", "%s %s, beside a drill: from %d: %v", m.name, h.part.Name(), v.LogStart, err)
		}
		return
	}
	for i := range got {
		if i >= len(l.seq) || string(got[i].raw) != string(l.seq[i].raw) {
			s.a.fail("DrillApart", "%s %s: beside a drill, %s isn't what it was", m.name, h.part.Name(), got[i])
			return
		}
	}
	if len(got) != len(l.seq) {
		s.a.fail("DrillApart", "%s %s: beside a drill, %d batches are left of %d", m.name, h.part.Name(), len(got), len(l.seq))
	}
}

// besideForks looks at the forks of a broker once more, whose mirror's log has changed.
func (s *siteJudge) besideForks(m *machine) {
	for _, h := range m.parts {
		if f := s.forks[h]; f != nil {
			if v, open := h.part.View(); open && v.Offline == nil && v.LogStart == f.start {
				s.sameFork(m, h, f)
			}
		}
	}
}

// drillsStored judges the drills in the store: topics of a drill are there as a whole
// when its record says so, go only once it says that, and are gone before it (DrillWhole).
func (s *siteJudge) drillsStored(kvs []meta.KV) {
	states := map[meta.DrillMark]string{}
	var marks []meta.DrillMark
	var topics []types.TopicID
	records := map[types.TopicID]*meta.TopicRecord{}
	parts := map[types.TopicID]int32{}
	for _, kv := range kvs {
		key, err := meta.KeysOf(s.c.id).Parse(kv.Key)
		if err != nil {
			continue
		}
		switch key.Kind {
		case meta.KeyDrill:
			if rec, err := meta.DecodeDrill(kv.Key, kv.Value); err == nil {
				states[rec.Mark()], marks = rec.State, append(marks, rec.Mark())
			}
		case meta.KeyTopic:
			if rec, err := meta.DecodeTopic(kv.Key, kv.Value); err == nil && rec.Drill != nil {
				records[key.TopicID], topics = rec, append(topics, key.TopicID)
			}
		case meta.KeyPartition:
			parts[key.TopicID]++
		}
	}
	made := map[meta.DrillMark]int{}
	for _, id := range topics {
		t := records[id]
		switch state := states[*t.Drill]; {
		case state == "":
			s.a.fail("DrillWhole", "%s: topic %s is there, and its drill isn't", s.c.id, t.Name)
		case state == meta.DrillReady && parts[id] != t.Partitions:
			s.a.fail("DrillWhole", "%s: topic %s of a drill that is ready has %d of %d partitions", s.c.id, t.Name, parts[id], t.Partitions)
		}
		made[*t.Drill]++
	}
	for _, mark := range marks {
		if states[mark] == meta.DrillReady && made[mark] != 1 { // each is of the one topic that there is
			s.a.fail("DrillWhole", "%s: drill %s is ready and has %d topics", s.c.id, mark.Name, made[mark])
		}
	}
}
