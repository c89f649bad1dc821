package sim

import (
	"fmt"
	"slices"
	"time"

	"tidemark/internal/batch"
	"tidemark/internal/core/meta"
	core "tidemark/internal/core/mirror"
	"tidemark/internal/core/types"
	"tidemark/internal/vault"
	"tidemark/internal/vfs"
)

// stored implements eye.
func (s *siteJudge) stored() bool {
	kvs, rev, err := s.c.store.Range(background, meta.KeysOf(s.c.id).Root())
	if err != nil || rev == s.seen {
		return false
	}
	s.seen = rev
	there := map[meta.PartitionID]bool{}
	s.c.topic = types.TopicID{}
	for _, kv := range kvs {
		key, err := meta.KeysOf(s.c.id).Parse(kv.Key)
		if err != nil {
			continue
		}
		fresh := s.revs[kv.Key] != kv.ModRevision
		s.revs[kv.Key] = kv.ModRevision
		switch key.Kind {
		case meta.KeyBroker:
			if rec, err := meta.DecodeBroker(kv.Key, kv.Value); err == nil && fresh {
				s.clean[types.BrokerEpoch(kv.CreateRevision)] = rec.CleanShutdownEpoch
			}
		case meta.KeyName:
			if n, err := meta.DecodeName(kv.Key, kv.Value); err == nil && key.Name == clusterTopic {
				s.c.topic = n.ID
			}
		case meta.KeyMirror:
			if rec, err := meta.DecodeMirror(kv.Key, kv.Value); err == nil && fresh {
				s.orderedSwitch(rec)
				s.wants[rec.Name] = rec.Want
				s.begins(rec.StartID)
				if rec.Want == meta.WantStopped && s.a.asking[s.c.id+rec.Name] > 0 {
					s.a.issued[s.c.id+rec.Name] = s.a.w.k.now
				}
			}
		case meta.KeyPartition:
			id := meta.PartitionID{Topic: key.TopicID, Number: key.Partition}
			there[id] = true
			if fresh {
				s.written(kv, id)
			}
		}
	}
	s.drillsStored(kvs)
	for id := range s.records {
		if !there[id] {
			delete(s.records, id)
			delete(s.promised, id)
		}
	}
	return true
}

// written judges a partition's new record against the one before.
func (s *siteJudge) written(kv meta.KV, id meta.PartitionID) {
	rec, err := meta.DecodePartition(kv.Key, kv.Value)
	if err != nil {
		s.a.fail("EpochRises", "record %s can't be read: %v", kv.Key, err)
		return
	}
	old := s.records[id]
	s.records[id] = rec
	if last, ok := rec.Timelines.Last(); ok && rec.Writable {
		s.timelines[writtenIn{id, rec.LeaderEpoch}] = last.ID
	}
	if s.c.topic != id.Topic && !s.c.topic.IsZero() && old == nil {
		return // another topic's
	}
	if old != nil && slices.Equal(kv.Value, old.Encode()) {
		return
	}
	if _, _, drilled := core.Forked(rec); drilled {
		if old != nil {
			s.epochRises(id, old, rec)
		}
		return // it is nobody's mirror, and promises nothing of the mirror's
	}
	s.a.w.k.note(s.c.prefix+"store", "partition %d: %s", id.Number, describe(rec))
	if rec.Mirror != nil && rec.Mirror.PlanID != "" {
		s.consent[consentTo{id, rec.Mirror.StartID}] = rec.Mirror.PlanID
	}
	if rec.IsMirror() && (old == nil || !old.IsMirror()) {
		s.copies[id] = s.a.w.k.now
	}
	if old == nil {
		if rec.Mirror != nil && s.wants[rec.Mirror.Name] == meta.WantStopped {
			s.a.fail("PromotedOnce", "site %s partition %d is made for mirror %s, which was failed over (I-260)", s.c.id, id.Number, rec.Mirror.Name)
		}
		return
	}
	s.epochRises(id, old, rec)
	s.elected(id, old, rec)
	s.promotedOnce(id, old, rec)
	s.returned(id, old, rec)
	s.opened(id, old, rec)
	s.cutConsistently(id, old, rec)
	s.crossed(id, old, rec)
	if !old.Timelines.Equal(rec.Timelines) {
		s.adoptedAt[id] = s.a.w.k.now
		if !rec.Writable {
			s.adopted(id, rec)
		}
	}
}

// describe is a record in one line. Ids are random, and are left out.
func describe(r *meta.PartitionRecord) string {
	out := fmt.Sprintf("leader %d epoch %d isr %v elr %v, %d timelines", r.Leader, r.LeaderEpoch, r.ISR, r.ELR, len(r.Timelines))
	if last, ok := r.Timelines.Last(); ok {
		out += fmt.Sprintf(" (last from epoch %d offset %d)", last.FirstEpoch, last.FirstOffset)
	}
	switch {
	case r.Writable:
		out += ", writable"
	case r.Fence != nil:
		out += ", fenced for " + r.Fence.ClusterID
	case r.Mirror != nil:
		out += fmt.Sprintf(", mirror %s %s %s", r.Mirror.Name, r.Mirror.State, reasonOf(r))
	}
	return out
}

// begins takes note of a start of a mirror.
func (s *siteJudge) begins(start string) {
	if _, known := s.a.begun[s.c.id+start]; !known && start != "" {
		s.a.begun[s.c.id+start] = s.a.w.k.now
	}
}

// epochRises demands that a leader epoch never falls, and that it rises with every
// change of list, writable or source (R22).
func (s *siteJudge) epochRises(id meta.PartitionID, old, rec *meta.PartitionRecord) {
	if rec.LeaderEpoch < old.LeaderEpoch {
		s.a.fail("EpochRises", "site %s partition %d: leader epoch falls from %d to %d", s.c.id, id.Number, old.LeaderEpoch, rec.LeaderEpoch)
	}
	same := old.Writable == rec.Writable && old.Timelines.Equal(rec.Timelines)
	if !same && rec.LeaderEpoch == old.LeaderEpoch {
		s.a.fail("EpochRises", "site %s partition %d: list or writable changes in epoch %d (R22)", s.c.id, id.Number, rec.LeaderEpoch)
	}
}

// elected notes an election that was not clean: it ends what was promised (R11).
func (s *siteJudge) elected(id meta.PartitionID, old, rec *meta.PartitionRecord) {
	if rec.Leader == types.NoBroker || rec.Leader == old.Leader && rec.LeaderBrokerEpoch == old.LeaderBrokerEpoch {
		return
	}
	for _, m := range slices.Concat(old.ISR, old.ELR) {
		if m.ID == rec.Leader && (m.BrokerEpoch == rec.LeaderBrokerEpoch || s.clean[rec.LeaderBrokerEpoch] == m.BrokerEpoch) {
			return
		}
	}
	s.a.w.k.probe("election: unclean")
	s.a.w.k.note(s.c.prefix+"store", "partition %d: an unclean election ends what was promised", id.Number)
	s.shrunk, s.uncleanly[id] = s.a.w.k.now, true
	delete(s.promised, id)
}

// promotedOnce judges a record that became writable: a promotion is one
// transaction, of the present start, that was ordered since it began (R23).
func (s *siteJudge) promotedOnce(id meta.PartitionID, old, rec *meta.PartitionRecord) {
	where := fmt.Sprintf("site %s partition %d", s.c.id, id.Number)
	if len(rec.Promotions) > len(old.Promotions) {
		made := rec.Promotions[len(rec.Promotions)-1]
		s.a.w.k.probe("promotion")
		for _, p := range old.Promotions {
			if p.StartID == made.StartID {
				s.a.fail("PromotedOnce", "%s: one start is promoted to epoch %d and again to epoch %d", where, p.PromotedEpoch, made.PromotedEpoch)
			}
		}
		if last, ok := rec.Timelines.Last(); !ok || !rec.Writable || len(rec.Timelines) != len(old.Timelines)+1 || last.FirstEpoch != rec.LeaderEpoch {
			s.a.fail("PromotedOnce", "%s: a promotion leaves %s; before it, %s", where, describe(rec), describe(old))
		}
		if asked, ok := s.a.issued[s.c.id+made.Mirror]; !ok || asked < s.a.begun[s.c.id+made.StartID] {
			s.a.fail("PromotedOnce", "%s: a start that was first seen at %v is promoted, and a failover was last asked for at %v", where, s.a.begun[s.c.id+made.StartID].Round(time.Millisecond), asked.Round(time.Millisecond))
		}
	}
	wasMirror := old.IsMirror() && old.Mirror.State != meta.MirrorStarting
	if rec.Writable && !old.Writable && wasMirror && rec.Timelines.Equal(old.Timelines) {
		s.a.fail("PromotedOnce", "%s: a mirror becomes writable on its source's timeline: %s", where, describe(rec))
	}
}

// consentTo is one partition's start: each quotes a plan of its own.
type consentTo struct {
	id    meta.PartitionID
	start string
}

// adopted judges the adoption of another list: what this cluster's clients were
// promised on timelines that it gives up needs an operator's plan (R24), and is no
// longer promised.
func (s *siteJudge) adopted(id meta.PartitionID, rec *meta.PartitionRecord) {
	lost := 0
	var example *grain
	for g := range s.promised[id] {
		if s.a.survives(g, rec.Timelines) {
			continue
		}
		if g.site == s.c.number {
			if rec.Mirror != nil && len(rec.Mirror.Before) > 0 && g.next > rec.Mirror.EndBefore && s.a.survives(g, rec.Mirror.Before) {
				s.a.fail("Consent", "site %s partition %d: %s was taken after the start's last look, at log end %d, and is given up (R25)", s.c.id, id.Number, g, rec.Mirror.EndBefore)
				return
			}
			lost++
			if example == nil || g.base < example.base {
				example = g
			}
		}
		delete(s.promised[id], g)
	}
	if lost == 0 || rec.Mirror == nil {
		return
	}
	s.a.w.k.probe("adoption gives up own records")
	plan, shown := s.a.plans[s.c.id+s.consent[consentTo{id, rec.Mirror.StartID}]]
	switch {
	case len(rec.Mirror.Before) == 0 || !s.a.survives(example, rec.Mirror.Before):
		// Given up by an earlier start, or by a source that was followed.
	case s.consent[consentTo{id, rec.Mirror.StartID}] == "":
		s.a.fail("Consent", "site %s partition %d: %d batches that were written here are given up without a plan, %s among them (R24)", s.c.id, id.Number, lost, example)
	case shown && plan.LogEnd != rec.Mirror.EndBefore:
		s.a.fail("Consent", "site %s partition %d: the plan was made at log end %d, the adoption at %d (R24, R25)", s.c.id, id.Number, plan.LogEnd, rec.Mirror.EndBefore)
	}
}

// keptElsewhere reports whether another replica's vault has the batch.
func (s *siteJudge) keptElsewhere(m *machine, h *held, g *grain) bool {
	return slices.ContainsFunc(s.c.machines, func(o *machine) bool {
		other := o.held(h.id)
		return o != m && other != nil && s.keptBy(o, other)[keptKey(g.base, g.raw)]
	})
}

// vaulted demands that what a cut removed is in the vault, as a loss of power would leave it (VaultComplete).
func (s *siteJudge) vaulted(m *machine, h *held, cut []*grain) {
	kept := s.keptBy(m, h)
	if s.a.w.o.Compacted { // what compaction took meanwhile can't be told from the rest, but for the last
		cut = cut[len(cut)-1:]
	}
	for _, g := range cut {
		if kept[keptKey(g.base, g.raw)] || s.a.w.o.Compacted && kept[fmt.Sprint(g.base)] {
			continue
		}
		if s.a.w.o.VaultBytes >= 0 && g.committed == 0 {
			continue // a full vault may drop what was never committed (R29)
		}
		if s.a.w.o.VaultBytes >= 0 && h.part.IsFollowing() && s.keptElsewhere(m, h, g) {
			continue // or what its leader has cut and kept: it lies above the leader's high watermark then
		}
		s.a.fail("VaultComplete", "%s %s: %s was cut and is in no vault entry that survives a loss of power", m.name, h.part.Name(), g)
		return
	}
}

func keptKey(base types.Offset, raw []byte) string { return fmt.Sprint(base, sumOf(raw)) }

// keptBy is everything that a machine's vault was ever seen to hold of a partition.
func (s *siteJudge) keptBy(m *machine, h *held) map[string]bool {
	key := logKey(m, h.id)
	kept := s.kept[key]
	if kept == nil {
		kept = map[string]bool{}
		s.kept[key] = kept
	}
	v, err := vault.Open(vault.Options{FS: m.mem.CrashClone(vfs.CrashConfig{}), Dir: logDir + "/vault", MaxBytes: -1, MaxAge: -1, Now: m.wall.now, Logger: s.c.quiet, ReadOnly: true})
	if err != nil {
		s.a.w.k.note("CHECK", "%s: its vault can't be opened: %v", m.name, err)
		return kept
	}
	entries, err := v.List()
	if err != nil {
		return kept
	}
	for _, e := range entries {
		if e.TopicID != h.id.Topic || e.Partition != h.id.Number || kept[e.ID] {
			continue
		}
		kept[e.ID] = true
		_ = v.Batches(e.ID, func(hd *batch.Header, raw []byte) error { // what can't be read is missed
			kept[keptKey(hd.BaseOffset, raw)], kept[fmt.Sprint(hd.BaseOffset)] = true, true
			return nil
		})
	}
	return kept
}

// watchGroups is GroupNotAhead: while a mirrored or promoted partition answers
// clients, no committed offset of a group lies beyond its log end.
func (a *arbiter) watchGroups() {
	for _, c := range a.w.sites {
		for _, m := range c.machines {
			if m.serves() && m.node.Groups() != nil {
				m.task(func() { a.compareGroups(c, m) })
			}
		}
	}
	a.w.k.after(700*time.Millisecond, "groups are looked at", a.watchGroups)
}

// lateCommit is how long a consumer's commit may be under way; what it then does to
// a log that was cut meanwhile is its own.
const lateCommit = 8 * time.Second

func (a *arbiter) compareGroups(c *cluster, m *machine) {
	for number := range a.w.sites {
		for _, name := range groupsAt(number) {
			if at, ok := a.committed[name]; ok && number == c.number && a.w.k.now-at < lateCommit {
				continue
			}
			a.compareGroup(c, m, name)
		}
	}
}

func (a *arbiter) compareGroup(c *cluster, m *machine, name string) {
	topic := c.topicID()
	ends := func() map[int32]types.Offset {
		out := map[int32]types.Offset{}
		for n := range int32(a.w.o.Partitions) {
			if end, ok := a.mirroredEnd(c, meta.PartitionID{Topic: topic, Number: n}); ok {
				out[n] = end
			}
		}
		return out
	}
	before := ends()
	list, code := m.node.Groups().Offsets(m.node.Context(), name)
	if code != 0 {
		return
	}
	after := ends()
	for _, o := range list {
		from, ok := before[o.Partition]
		to, still := after[o.Partition]
		if ok && still && o.Topic == clusterTopic && o.Offset > max(from, to) {
			a.fail("GroupNotAhead", "%s: group %s has committed %d of partition %d, whose log ends at %d", m.name, name, o.Offset, o.Partition, to)
		}
	}
}

// mirroredEnd is the log end of a partition that mirrors, or was promoted, and answers clients.
func (a *arbiter) mirroredEnd(c *cluster, id meta.PartitionID) (types.Offset, bool) {
	r := c.record(id)
	if s := c.judged.(*siteJudge); r == nil || r.Mirror == nil || s.shrunk >= 0 && r.Writable || s.uncleanly[id] {
		return 0, false
	}
	m := c.machine(r.Leader)
	if m == nil || !m.serves() {
		return 0, false
	}
	part, held := m.node.Broker().Partition(id.Topic, id.Number)
	if !held {
		return 0, false
	}
	if e, err := part.LeaderEpoch(); err != nil || e != r.LeaderEpoch {
		return 0, false
	}
	v, open := part.View()
	return v.LogEnd, open
}

// final reads everything once more, and compares a mirror with its source.
func (a *arbiter) final() {
	for _, c := range a.w.sites {
		s := c.judged.(*siteJudge)
		for _, m := range c.machines {
			for _, h := range m.parts {
				if isOurs(h) {
					a.finalLog(s, m, h)
				}
			}
		}
	}
}

func (a *arbiter) finalLog(s *siteJudge, m *machine, h *held) {
	v, ok := h.part.View()
	l := s.logs[h]
	if !ok || l == nil {
		return
	}
	got, err := readFrom(h.part.Log(), v.LogStart)
	if err != nil {
		a.fail("LogReadable", "%s %s at the end: %v", m.name, h.part.Name(), err)
		return
	}
	if len(got) != len(l.seq) && !a.w.o.Compacted {
		a.fail("LogReadable", "%s %s at the end: %d batches, %d when it was looked at last", m.name, h.part.Name(), len(got), len(l.seq))
		return
	}
	rec := s.records[h.id]
	if rec == nil || rec.Writable || rec.Mirror == nil || rec.Mirror.State != meta.MirrorMirroring {
		return
	}
	far := a.w.farOf(rec.Mirror.SourceClusterID)
	if f, ok := far.(tideFar); ok {
		a.equal(m, h, l, f.c)
	}
	if a.w.o.Compacted {
		a.keysKept(m, h, l, got, far)
	}
	a.w.k.probe("end: mirror equals its source")
}

// equal demands equal batches of a mirror and its source wherever both hold an offset (Convergence).
func (a *arbiter) equal(m *machine, h *held, l *siteLog, c *cluster) {
	s := c.judged.(*siteJudge)
	r := s.records[h.id]
	if r == nil || a.w.o.Compacted {
		return
	}
	lead := c.machine(r.Leader)
	if lead == nil || lead.held(h.id) == nil {
		return
	}
	theirs := s.logs[lead.held(h.id)]
	if theirs == nil {
		return
	}
	have := map[*grain]bool{}
	for _, g := range theirs.seq {
		have[g] = true
	}
	for _, g := range l.seq {
		if g.base >= theirs.start && g.next <= theirs.end && !have[g] {
			a.fail("Convergence", "%s %s at the end: %s is in its log and not in its source's, %s", m.name, h.part.Name(), g, lead.name)
			return
		}
	}
}
