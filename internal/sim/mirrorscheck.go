package sim

import (
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
	"time"

	"tidemark/internal/batch"
	"tidemark/internal/broker/mirror"
	"tidemark/internal/core/epoch"
	"tidemark/internal/core/meta"
	core "tidemark/internal/core/mirror"
	"tidemark/internal/core/timeline"
	"tidemark/internal/core/types"
	"tidemark/internal/log"
)

// arbiter compares what all brokers of all clusters hold with what must be. It
// knows every batch that was ever written anywhere, reads the logs, the vaults and
// the stores' records, and believes no broker.
type arbiter struct {
	w        *mirrors
	orchard  *orchard
	writers  map[writerKey]siteServer
	attempts map[uint32][]attempt // by what a producer sent
	// issued is when a failover of a mirror was last asked for, the first time of it, or
	// when one that was under way was last written: it is about the start that it finds then
	// (docs/adr/0017), which may have begun since it was asked for.
	issued map[string]time.Duration
	// asking counts the failovers of a mirror that are under way.
	asking map[string]int
	// accepted is when an operator last accepted a gap of a mirror.
	accepted map[string]time.Duration
	// derived are the lists that entries with derived ids stand for (mirrorskip1279.go).
	derived map[derivedEntry]timeline.List
	// begun is when a start of a mirror was first seen, by its id.
	begun map[string]time.Duration
	// plans are the previews that operators saw, by the partition's plan id.
	plans map[string]mirror.PartitionPlan
	// committed is when a consumer of a group last committed.
	committed map[string]time.Duration
	writes    int
	cuts      int
	// drillWrites is when a record of a drill's partition was last acknowledged.
	drillWrites map[meta.PartitionID]time.Duration
}

// writerKey: one broker incarnation appends clients' records there (OneWriter).
type writerKey struct {
	part     meta.PartitionID
	timeline string
	epoch    types.LeaderEpoch
}

type siteServer struct {
	site int
	server
}

// attempt is a producer's write as it reached a broker.
type attempt struct {
	m    *machine
	part meta.PartitionID
}

func newArbiter(w *mirrors) *arbiter {
	return &arbiter{
		w: w, orchard: newOrchard(w), writers: map[writerKey]siteServer{}, attempts: map[uint32][]attempt{}, issued: map[string]time.Duration{}, asking: map[string]int{}, accepted: map[string]time.Duration{}, derived: map[derivedEntry]timeline.List{},
		begun: map[string]time.Duration{}, plans: map[string]mirror.PartitionPlan{}, committed: map[string]time.Duration{},
	}
}

func (a *arbiter) fail(invariant, format string, args ...any) {
	if !slices.Contains(a.w.mutation.mute, invariant) {
		a.w.k.fail(invariant, format, args...)
	}
}

// bodySum is of what a producer sent, without what a leader stamps.
func bodySum(raw []byte) uint32 { return crc32.ChecksumIEEE(raw[21:]) }

// attempted takes note that a producer's write came to a broker: it may be found
// in a log after a crash that nobody saw it written before.
func (a *arbiter) attempted(m *machine, part meta.PartitionID, raw []byte) {
	r, _ := m.node.Image().Partition(part.Topic, part.Number)
	if r != nil {
		sum := bodySum(raw)
		a.attempts[sum] = append(a.attempts[sum], attempt{m: m, part: part})
	}
}

// previewed takes note of what an operator was shown.
func (a *arbiter) previewed(c *cluster, p *mirror.Preview) {
	for _, pp := range p.Partitions {
		a.plans[c.id+pp.PlanID] = pp
	}
}

// siteJudge is the arbiter at one cluster (eye).
type siteJudge struct {
	a        *arbiter
	c        *cluster
	seen     meta.Revision
	revs     map[string]meta.Revision
	records  map[meta.PartitionID]*meta.PartitionRecord
	clean    map[types.BrokerEpoch]types.BrokerEpoch
	logs     map[*held]*siteLog
	forks    map[*held]*forkLog  // of drills
	before   map[string]*siteLog // what a machine's last process held, by machine and partition
	promised map[meta.PartitionID]map[*grain]bool
	kept     map[string]map[string]bool // what a machine's vault was seen to hold
	wants    map[string]string          // what operators want of each mirror, by its name
	consent  map[consentTo]string       // plans that starts quoted
	// uncleanly are the partitions that had an unclean election here.
	uncleanly map[meta.PartitionID]bool
	// timelines are those on which clients wrote, by the leader epoch.
	timelines map[writtenIn]string
	// adoptedAt is when a partition's list changed last.
	adoptedAt map[meta.PartitionID]time.Duration
	// copies is since when a partition is a mirror, of whichever start: its own history ended then.
	copies map[meta.PartitionID]time.Duration
	// closed are the fences of switchovers, until the partition is written again.
	closed map[meta.PartitionID]meta.Fence
	shrunk time.Duration // when an unclean election or a cut last took records of a leader, -1: never
}

// writtenIn is a leader epoch of a partition in which clients may write.
type writtenIn struct {
	part  meta.PartitionID
	epoch types.LeaderEpoch
}

// siteLog is what one process's log holds, as last read.
type siteLog struct {
	known, lostPower bool
	start, end, hw   types.Offset
	history          *epoch.History
	seq              []*grain
	under            *grain            // what lay below the log start when that came to the log end, nil: nobody knows
	serving          types.LeaderEpoch // -1: it doesn't
	served           types.Offset      // how far clients could read
	marked           types.Offset      // the high watermark while it leads, as last seen
	servedIn         types.LeaderEpoch // in this epoch
	grewAt           time.Duration
	grewFrom         types.Offset // the log end before it grew last
	checkpoint       string
	applied          timeline.List
}

// last is the newest batch that lay in a log, one that its start has passed too.
func (l *siteLog) last() *grain {
	if n := len(l.seq); n > 0 {
		return l.seq[n-1]
	}
	return l.under
}

func newSiteJudge(a *arbiter, c *cluster) *siteJudge {
	return &siteJudge{
		a: a, c: c, revs: map[string]meta.Revision{}, records: map[meta.PartitionID]*meta.PartitionRecord{}, clean: map[types.BrokerEpoch]types.BrokerEpoch{},
		logs: map[*held]*siteLog{}, before: map[string]*siteLog{}, promised: map[meta.PartitionID]map[*grain]bool{}, kept: map[string]map[string]bool{},
		closed: map[meta.PartitionID]meta.Fence{}, uncleanly: map[meta.PartitionID]bool{}, timelines: map[writtenIn]string{}, adoptedAt: map[meta.PartitionID]time.Duration{}, copies: map[meta.PartitionID]time.Duration{}, wants: map[string]string{}, consent: map[consentTo]string{}, shrunk: -1,
	}
}

func logKey(m *machine, id meta.PartitionID) string { return fmt.Sprintf("%s %v", m.name, id) }

// lost implements eye.
func (s *siteJudge) lost(m *machine, power bool) {
	for _, h := range m.parts {
		delete(s.forks, h)
		if l := s.logs[h]; l != nil {
			l.lostPower = l.lostPower || power
			s.before[logKey(m, h.id)] = l
			delete(s.logs, h)
		}
	}
	for key, l := range s.before {
		if power && len(key) > len(m.name) && key[:len(m.name)] == m.name {
			l.lostPower = true
		}
	}
}

func (s *siteJudge) logOf(m *machine, h *held) *siteLog {
	l := s.logs[h]
	if l == nil {
		l = &siteLog{serving: -1, servedIn: -1}
		s.logs[h] = l
	}
	return l
}

// isOurs reports whether a partition is one of the topic that the clusters share.
func isOurs(h *held) bool { return h.part.Name().Topic == clusterTopic }

// look implements eye.
func (s *siteJudge) look(m *machine, h *held) {
	if !isOurs(h) {
		s.lookFork(m, h)
		return
	}
	v, open := h.part.View()
	if !open || v.Offline != nil {
		return
	}
	l := s.logOf(m, h)
	if !l.known || v.LogEnd != l.end || v.LogStart != l.start || v.History != l.history {
		if !s.reread(m, h, l, v) {
			return
		}
		s.epochs(m, h, l, v)
		s.besideForks(m)
	}
	s.owned(m, h, l)
	e, err := h.part.LeaderEpoch()
	s.marks(m, h, l, v)
	if err != nil {
		l.serving = -1
		return
	}
	if e != l.serving {
		if l.serving = e; l.servedIn != e {
			l.servedIn, l.served = e, 0
		}
		s.keepsPromised(m, h, l, e)
	}
	if v.HighWatermark > l.served {
		l.served = v.HighWatermark
		for i := len(l.seq) - 1; i >= 0; i-- {
			if g := l.seq[i]; g.next <= v.HighWatermark {
				// What was promised lies behind what was, but where compaction had left it out
				// of the log as it was then.
				if g.committed&(1<<s.c.number) != 0 && s.promised[h.id][g] && !s.a.w.o.Compacted {
					break
				}
				g.committed |= 1 << s.c.number
				s.promise(h.id, g)
			}
		}
	}
}

// marks notes what lies below the high watermark of the leader that the store names.
func (s *siteJudge) marks(m *machine, h *held, l *siteLog, v log.View) {
	if rec := s.records[h.id]; rec == nil || rec.Leader != m.id || v.HighWatermark == l.marked {
		return
	}
	l.marked = v.HighWatermark
	for i := len(l.seq) - 1; i >= 0 && l.seq[i].marked&(1<<s.c.number) == 0; i-- {
		if g := l.seq[i]; g.next <= v.HighWatermark {
			g.marked |= 1 << s.c.number
		}
	}
}

func (s *siteJudge) promise(id meta.PartitionID, g *grain) {
	if s.isAboveCut(id, g) {
		return // who leads until it hears of the promotion may show it still
	}
	p := s.promised[id]
	if p == nil {
		p = map[*grain]bool{}
		s.promised[id] = p
	}
	p[g] = true
}

// acked implements eye.
func (s *siteJudge) acked(m *machine, id meta.PartitionID, base types.Offset, raw []byte) {
	h := m.held(id)
	if h == nil || !isOurs(h) {
		return
	}
	l := s.logOf(m, h)
	for i := len(l.seq) - 1; i >= 0 && l.seq[i].next > base; i-- {
		if g := l.seq[i]; g.base == base && bodySum(g.raw) == bodySum(raw) {
			s.promise(id, g)
			return
		}
	}
	// A duplicate's offset may lie below what compaction or the log start have left.
	if base >= l.start && !s.a.w.o.Compacted {
		s.a.fail("AckedIsKept", "%s %s: acknowledged a batch at %d that its log doesn't hold", m.name, h.part.Name(), base)
	}
}

// reread takes over what a log holds now, and judges what came and what went.
func (s *siteJudge) reread(m *machine, h *held, l *siteLog, v log.View) bool {
	old, oldStart, oldEnd, first, newest := l.seq, l.start, l.end, !l.known, l.last()
	whole := first || v.LogEnd < l.end || v.LogStart != l.start || len(l.seq) == 0 || s.a.w.o.Compacted
	from := v.LogStart
	if !whole {
		from = l.seq[len(l.seq)-1].base
	}
	fresh, err := readFrom(h.part.Log(), from)
	if err != nil {
		if !m.disk.dead {
			s.a.fail("LogReadable", "%s %s: from %d: %v", m.name, h.part.Name(), from, err)
		}
		return false
	}
	if !whole && (len(fresh) == 0 || fresh[0].base != from || !slices.Equal(fresh[0].raw, l.seq[len(l.seq)-1].raw)) {
		whole = true
		if fresh, err = readFrom(h.part.Log(), v.LogStart); err != nil {
			return false
		}
	}
	if whole {
		l.seq = nil
	} else {
		fresh = fresh[1:]
	}
	if first {
		if b := s.before[logKey(m, h.id)]; b != nil {
			old, oldEnd, newest = b.seq, b.end, b.last()
		}
	}
	l.known, l.start, l.end, l.history = true, v.LogStart, v.LogEnd, v.History
	if l.under = nil; newest != nil && newest.next == v.LogStart && v.LogStart == oldEnd {
		l.under = newest
	}
	switch {
	case !first && v.LogStart < oldStart: // it began anew there, and took batches in the same step
		l.grewAt, l.grewFrom = s.a.w.k.now, v.LogStart
	case !first && v.LogEnd > oldEnd && v.LogStart <= oldEnd:
		l.grewAt, l.grewFrom = s.a.w.k.now, oldEnd
	}
	if _, err := h.part.LeaderEpoch(); err == nil && v.LogStart > oldStart {
		// What a leader has deleted is nobody's promise any more, also where the log begins anew below it.
		maps.DeleteFunc(s.promised[h.id], func(g *grain, _ bool) bool { return g.next <= v.LogStart })
	}
	for i := range fresh {
		if !s.take(m, h, l, &fresh[i], old, first) {
			return false
		}
	}
	s.gone(m, h, l, old, oldEnd, first)
	return s.a.w.k.failure == nil
}

// take judges one batch that a log holds: it was written somewhere, by whom might,
// behind what lies below it here (LogMatching).
func (s *siteJudge) take(m *machine, h *held, l *siteLog, b *shadowBatch, old []*grain, first bool) bool {
	var prev *grain
	if n := len(l.seq); n > 0 {
		prev = l.seq[n-1]
	}
	g, others := s.a.orchard.find(h.id, b, prev)
	if g == nil && len(others) > 0 {
		o := others[0]
		s.a.fail("LogMatching", "%s %s: %s lies behind %s; it was written behind %s (log: %v)", m.name, h.part.Name(), o, prev, o.parent, tail(l.seq))
		return false
	}
	if g == nil {
		// All below it may be deleted, and a crash that takes back the log start has it in
		// the log again: it wasn't written behind nothing.
		if prev == nil && l.under != nil && l.under.next == b.base {
			prev = l.under
		}
		if g = s.wrote(m, h, b, prev); g == nil {
			return false
		}
	} else if !first && !slices.Contains(old, g) {
		s.copied(m, h, l, g)
	}
	s.once(m, h, l, g)
	l.seq = append(l.seq, g)
	return s.a.w.k.failure == nil
}

func tail(seq []*grain) []*grain { return seq[max(0, len(seq)-6):] }

// wrote judges a batch that nobody held before: the leader of its epoch wrote it,
// as the one broker incarnation of its timeline and epoch (OneWriter).
func (s *siteJudge) wrote(m *machine, h *held, b *shadowBatch, prev *grain) *grain {
	hd, err := batch.ParseHeader(b.raw)
	if err != nil {
		s.a.fail("LogReadable", "%s %s: %s: %v", m.name, h.part.Name(), b, err)
		return nil
	}
	g := &grain{part: h.id, base: b.base, next: b.next, epoch: b.epoch, raw: b.raw, parent: prev, site: s.c.number}
	e, err := h.part.LeaderEpoch()
	rec, _ := m.node.Image().Partition(h.id.Topic, h.id.Number)
	if err == nil && e == b.epoch && rec != nil && (rec.Writable || s.a.w.endsBehindFence(rec, &hd, prev)) {
		if last, ok := rec.Timelines.Last(); ok {
			g.timeline = last.ID
		}
		s.oneWriter(m, h, g)
	} else if !s.unseen(m, h, g) {
		s.a.fail("OneWriter", "%s %s: %s is nobody's, and this broker doesn't lead clients' writes in its epoch (%d, %v)", m.name, h.part.Name(), b, e, err)
		return nil
	}
	s.a.orchard.add(g, &hd)
	return g
}

// unseen finds a write that a crash hid when it was made, or that its leader's shard made
// before it heard what the image shows: a client's, or a marker by which a leader that
// began to serve ended what its promotion had left open (R23).
func (s *siteJudge) unseen(m *machine, h *held, g *grain) bool {
	if hd, err := batch.ParseHeader(g.raw); err == nil && hd.IsControl() && s.a.w.authors != nil {
		if rec := s.records[h.id]; rec != nil && len(rec.Promotions) > 0 {
			g.timeline = s.timelines[writtenIn{h.id, g.epoch}]
			s.a.w.k.probe("marker found after a crash")
			return true
		}
	}
	if hd, err := batch.ParseHeader(g.raw); err == nil && s.a.w.crossings != nil && isEnd(&hd, g.parent) {
		g.timeline = s.timelines[writtenIn{h.id, g.epoch}]
		s.a.w.k.probe("marker found after a crash")
		return true
	}
	for _, at := range s.a.attempts[bodySum(g.raw)] {
		if at.m == m && at.part == h.id {
			g.timeline = s.timelines[writtenIn{h.id, g.epoch}]
			s.a.w.k.probe("write found after a crash")
			return true
		}
	}
	return false
}

func (s *siteJudge) oneWriter(m *machine, h *held, g *grain) {
	epoch, registered := m.node.Broker().BrokerEpoch()
	now := siteServer{s.c.number, server{m.id, epoch, m.life}}
	key := writerKey{h.id, g.timeline, g.epoch}
	before, known := s.a.writers[key]
	switch {
	case !known:
		s.a.writers[key] = now
	case known && !registered && before.site == now.site && before.id == m.id && before.life == m.life:
		// its registration has just gone, and its shards haven't heard of it
	case before != now:
		s.a.fail("OneWriter", "%s: broker %d of site %d (registration %d, life %d) and %s (registration %d, life %d) both write in epoch %d on timeline %s",
			h.part.Name(), before.id, before.site, before.epoch, before.life, m.name, now.epoch, now.life, g.epoch, g.timeline)
	}
}

// copied judges a batch that came into a log and was written elsewhere: into a
// mirror's leader it came from the source, where it was committed (MirrorPrefix).
func (s *siteJudge) copied(m *machine, h *held, l *siteLog, g *grain) {
	rec, _ := m.node.Image().Partition(h.id.Topic, h.id.Number)
	if rec == nil || rec.Leader != m.id || rec.Writable || rec.Mirror == nil || h.part.IsFollowing() {
		return
	}
	if now := s.records[h.id]; now != nil && g.epoch > now.LeaderEpoch {
		s.a.fail("EpochCovers", "%s %s: %s lies in the log, the leader epoch is %d (R21)", m.name, h.part.Name(), g, now.LeaderEpoch)
		return
	}
	far := s.a.w.farOf(rec.Mirror.SourceClusterID)
	if far == nil || g.isCommitted(far) {
		return
	}
	if len(rec.Mirror.Before) > 0 && g.next <= rec.Mirror.EndBefore {
		return // read back from the vault by an abandon
	}
	s.a.fail("MirrorPrefix", "%s %s: %s was never committed at %s (log: %v)", m.name, h.part.Name(), g, far.clusterID(), tail(l.seq))
}

func (w *mirrors) farOf(id string) farCluster {
	for _, f := range w.fars {
		if f.clusterID() == id {
			return f
		}
	}
	return nil
}

// owned is Ownership: every record of epoch e on a replica with applied list L was
// written on the timeline that L names for e.
func (s *siteJudge) owned(m *machine, h *held, l *siteLog) {
	text, ok := h.part.Log().TimelineCheckpoint()
	if !ok {
		return
	}
	if string(text) != l.checkpoint {
		c, err := timeline.ParseCheckpoint(text)
		if err != nil {
			return
		}
		l.checkpoint, l.applied = string(text), c.List
	} else if n := len(l.seq); n == 0 || s.a.isOf(l.seq[n-1], l.applied) {
		return
	}
	for _, g := range l.seq {
		if !s.a.isOf(g, l.applied) && g.next > l.start {
			s.a.fail("Ownership", "%s %s: %s was written on timeline %s, the applied list %v names another (log: %v)", m.name, h.part.Name(), g, g.timeline, l.applied, tail(l.seq))
			return
		}
	}
}

// keepsPromised is AckedIsKept: whoever begins to serve holds everything that this
// cluster promised, as far as nothing released it. Who comes to serve an epoch that is
// over already, with a lease that isn't, can't have what was written in later ones.
func (s *siteJudge) keepsPromised(m *machine, h *held, l *siteLog, e types.LeaderEpoch) {
	if s.a.w.o.Compacted || len(s.promised[h.id]) == 0 {
		return
	}
	have := make(map[*grain]bool, len(l.seq))
	for _, g := range l.seq {
		have[g] = true
	}
	var lacks *grain
	for g := range s.promised[h.id] {
		if g.next > l.start && g.epoch <= e && !have[g] && (lacks == nil || g.base < lacks.base || g.base == lacks.base && g.epoch < lacks.epoch) {
			lacks = g
		}
	}
	if lacks != nil {
		s.a.fail("AckedIsKept", "%s %s: serves in epoch %d with log [%d, %d) %v and lacks %s", m.name, h.part.Name(), e, l.start, l.end, tail(l.seq), lacks)
	}
}

// gone judges what a log no longer holds: what a cut took is in the vault
// (VaultComplete), and nothing that clients could read in this epoch went in it (R20).
func (s *siteJudge) gone(m *machine, h *held, l *siteLog, old []*grain, oldEnd types.Offset, first bool) {
	have := make(map[*grain]bool, len(l.seq))
	for _, g := range l.seq {
		have[g] = true
	}
	var cut []*grain
	for _, g := range old {
		switch {
		case have[g], s.a.w.o.Compacted && g.next <= l.end:
		case g.next <= l.start && l.start <= oldEnd:
			// The log start has passed it.
		default:
			cut = append(cut, g)
		}
	}
	if !first {
		s.jumped(m, h, l, oldEnd)
	}
	if len(cut) == 0 {
		return
	}
	if first {
		if b := s.before[logKey(m, h.id)]; b == nil || b.lostPower {
			return // what was not synced may be gone
		}
	}
	s.a.cuts++
	s.a.w.k.note(m.name, "%s: %d batches went, %v to %v; the log is [%d, %d)", h.part.Name(), len(cut), cut[0], cut[len(cut)-1], l.start, l.end)
	s.vaulted(m, h, cut)
	if first || s.a.w.k.failure != nil {
		return
	}
	if r, _ := m.node.Image().Partition(h.id.Topic, h.id.Number); r != nil && r.Leader == m.id && r.LeaderEpoch == l.servedIn && cut[0].next <= l.served {
		s.a.fail("CutHasEpoch", "%s %s: %v went in epoch %d, in which clients could read up to %d (R20)", m.name, h.part.Name(), cut[0], l.servedIn, l.served)
	}
	s.ahead(m, h, l, cut)
	s.release(m, h, l, cut)
}

// jumped is NoSilentGap: with gap.policy=fail a mirror's log goes on above its end only
// where the adoption gave the offsets between up, or an operator said so (R28).
func (s *siteJudge) jumped(m *machine, h *held, l *siteLog, oldEnd types.Offset) {
	rec := s.records[h.id]
	if rec == nil || rec.Leader != m.id || rec.Mirror == nil || rec.Writable || s.a.w.o.ContinueOverGap || oldEnd == 0 || l.start <= oldEnd {
		return
	}
	if s.adoptedAt[h.id] >= l.grewAt || s.a.accepted[s.c.id+rec.Mirror.Name] >= l.grewAt {
		return
	}
	s.a.fail("NoSilentGap", "%s %s: the log ended at %d and begins at %d (R28)", m.name, h.part.Name(), oldEnd, l.start)
}

// ahead is AheadOfMirror: a mirror that has more than its source, itself a mirror
// that will have it again, waits, and cuts nothing (R27). The rule speaks of the last
// epoch of both: who is ahead by an epoch can't tell it from a divergence, and cuts.
func (s *siteJudge) ahead(m *machine, h *held, l *siteLog, cut []*grain) {
	if n := len(l.seq); n == 0 || l.seq[n-1].epoch != cut[len(cut)-1].epoch {
		return
	}
	rec := s.records[h.id]
	if rec == nil || rec.Leader != m.id || rec.Mirror == nil || rec.Writable {
		return
	}
	f, ok := s.a.w.farOf(rec.Mirror.SourceClusterID).(tideFar)
	if !ok {
		return
	}
	theirs := f.c.record(h.id)
	if theirs == nil || theirs.Writable || theirs.Mirror == nil || theirs.Mirror.State != meta.MirrorMirroring || !theirs.Timelines.Equal(rec.Timelines) {
		return
	}
	root := s.a.w.farOf(theirs.Mirror.SourceClusterID)
	g := cut[0]
	if t, ok := root.(tideFar); ok && s.adoptedAt[h.id] < s.a.w.k.now-2*time.Second && f.c.judged.(*siteJudge).adoptedAt[h.id] < s.a.w.k.now-2*time.Second {
		for held, l := range t.c.judged.(*siteJudge).logs {
			if held.id == h.id && l.serving >= 0 && slices.Contains(l.seq, g) && g.next <= l.served {
				s.a.fail("AheadOfMirror", "%s %s: %s is cut because %s, a mirror, lacks it; %s has it (R27)", m.name, h.part.Name(), g, f.c.id, t.c.id)
				return
			}
		}
	}
}

// release takes back what was promised of records that the leader of a mirror cuts
// by its source's word (R20).
func (s *siteJudge) release(m *machine, h *held, l *siteLog, cut []*grain) {
	rec, _ := m.node.Image().Partition(h.id.Topic, h.id.Number)
	if rec == nil || rec.Leader != m.id || rec.Mirror == nil || rec.Writable {
		return
	}
	s.shrunk = s.a.w.k.now
	for _, g := range cut {
		if g.site == s.c.number && s.promised[h.id][g] && s.consent[consentTo{h.id, rec.Mirror.StartID}] == "" && s.a.survives(g, rec.Timelines) && !s.sourceShrank(h.id, rec) {
			s.a.fail("Consent", "%s %s: %s was written here and is cut for start %s, which no operator's plan covers (R24)", m.name, h.part.Name(), g, rec.Mirror.StartID)
			return
		}
		if g.site == s.c.number && s.promised[h.id][g] && len(rec.Mirror.Before) > 0 && g.next > rec.Mirror.EndBefore && s.a.survives(g, rec.Mirror.Before) {
			s.a.fail("Consent", "%s %s: %s was taken after the start's last look, at log end %d, and is cut (R25)", m.name, h.part.Name(), g, rec.Mirror.EndBefore)
			return
		}
		delete(s.promised[h.id], g)
	}
	// The log start had released what it passed. That stays so where the log then
	// begins lower, at the batch that holds the source's log start, on another history.
	for g := range s.promised[h.id] {
		if g.next <= l.start {
			delete(s.promised[h.id], g)
		}
	}
}

// sourceShrank reports whether a partition's source may have lost records since the start: then
// a mirror follows it without anybody's plan. A start that found a mirror, another one's
// of the same cluster perhaps, goes on from where that one's history ended (R24).
func (s *siteJudge) sourceShrank(id meta.PartitionID, rec *meta.PartitionRecord) bool {
	f, ok := s.a.w.farOf(rec.Mirror.SourceClusterID).(tideFar)
	if !ok {
		return true
	}
	since := s.a.begun[s.c.id+rec.Mirror.StartID]
	if at, known := s.copies[id]; known {
		since = min(since, at)
	}
	return f.c.judged.(*siteJudge).shrunk >= since
}

// epochs is EpochHistory: an epoch begins at the log end at which its first batch
// came, or lower, never above (R4), and what no batch implies is at most the last.
func (s *siteJudge) epochs(m *machine, h *held, l *siteLog, v log.View) {
	if v.History == nil || s.a.w.k.failure != nil {
		return
	}
	entries := v.History.Entries()
	var prev *grain
	i := 0
	for _, g := range l.seq {
		if prev != nil && prev.epoch == g.epoch {
			prev = g
			continue
		}
		for i < len(entries) && entries[i].Epoch < g.epoch {
			i++
		}
		switch {
		case i == len(entries) || entries[i].Epoch != g.epoch:
			s.a.fail("EpochHistory", "%s %s: history %v of log [%d, %d) has no entry for %s", m.name, h.part.Name(), v.History, v.LogStart, v.LogEnd, g)
			return
		case entries[i].Start > max(g.base, v.LogStart), prev != nil && !s.a.w.o.Compacted && entries[i].Start != g.base && g.parent == prev && g.base == prev.next:
			s.a.fail("EpochHistory", "%s %s: entry %v of log [%d, %d) doesn't begin where %s came", m.name, h.part.Name(), entries[i], v.LogStart, v.LogEnd, g)
			return
		case l.grewAt == s.a.w.k.now && g.base >= l.grewFrom && (prev == nil || prev.next <= l.grewFrom) && entries[i].Start > max(l.grewFrom, v.LogStart):
			s.a.fail("EpochHistory", "%s %s: entry %v begins above the log end %d at which %s came (R4)", m.name, h.part.Name(), entries[i], l.grewFrom, g)
			return
		}
		prev = g
	}
}

// reasonOf is the reason of a partition's failure.
func reasonOf(r *meta.PartitionRecord) core.Reason {
	if r == nil || r.Mirror == nil {
		return ""
	}
	reason, _ := core.ReasonOf(r.Mirror.Reason)
	return reason
}
