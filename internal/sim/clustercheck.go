package sim

import (
	"bytes"
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"time"

	"tidemark/internal/batch"
	"tidemark/internal/core/epoch"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/internal/log"
	"tidemark/internal/vfs"
)

// judge compares what the brokers hold and say with what must be. It reads their
// logs and the store's records, and what clients were told; it believes no broker.
type judge struct {
	c       *cluster
	ledgers map[meta.PartitionID]*ledger
	// lives are the processes behind the registrations, by broker epoch.
	lives   map[types.BrokerEpoch]life
	clean   map[types.BrokerEpoch]types.BrokerEpoch // what a registration says was kept
	leaseOf map[types.BrokerID]*leaseSeen
	seen    meta.Revision

	revisions map[string]seenKey
	topicID   types.TopicID // of the topic's name
	named     bool
	// hasOffsets: the topic __consumer_offsets is there.
	hasOffsets bool
	hasTxns    bool                // as well __transaction_state
	vaults     map[string][][]byte // entries of vaults, by machine and id
	groups     map[string]*groupLedger
	consumers  map[string]*consumerLedger
}

// leaseSeen is a broker's registration as the store has it.
type leaseSeen struct {
	epoch types.BrokerEpoch
	// ended is when it ended, -1 while it lives. ordered: not by its time.
	ended time.Duration
}

// ledger is what the checkers know of one partition.
type ledger struct {
	id      meta.PartitionID
	record  *meta.PartitionRecord
	deleted bool
	written map[place]*writtenBatch
	order   []*writtenBatch
	servers map[types.LeaderEpoch]server
	writers map[types.LeaderEpoch]server
	// committed are the batches that somebody was promised (acknowledged with
	// acks=all, or readable by consumers), by base offset.
	committed map[types.Offset]*writtenBatch
	top       *writtenBatch     // the highest of them
	unclean   time.Duration     // when the last unclean election was, -1: there was none
	uncleanIn types.LeaderEpoch // its leader epoch; -1 also where older metadata came after it
	// before are the holders of the record that a restore has put back: ISR and ELR.
	before    []meta.ISRMember
	compacted bool // cleanup.policy of its topic
	starts    logStarts
	again     again
}

// place is where a batch stands; one leader writes there once.
type place struct {
	base  types.Offset
	epoch types.LeaderEpoch
}

// server is a process that served or wrote in an epoch.
type server struct {
	id    types.BrokerID
	epoch types.BrokerEpoch
	life  int
}

// writtenBatch is a batch as its leader wrote it.
type writtenBatch struct {
	shadowBatch
	sum  uint64 // of its bytes
	path uint64 // of everything up to it, 0 if its beginning is not known
	// promised is when it was first acknowledged or readable; how says which.
	// in is the lowest leader epoch in which somebody promised it.
	promised time.Duration
	how      string
	in       types.LeaderEpoch
	// twin is another one that was written there in that epoch, before the store was put
	// back for the times-th time.
	twin  *writtenBatch
	times int
}

// shadowLog is what one process's log holds, as last read.
type shadowLog struct {
	shadow
	paths     []uint64 // of each batch: everything up to it
	tail      types.Offset
	tailPath  uint64 // path up to tail, where batches were forgotten
	size      int64  // of the log, in bytes
	hw        types.Offset
	history   *epoch.History
	following bool
	serving   types.LeaderEpoch // -1: it doesn't
	toldHW    map[types.BrokerID]types.Offset
	looks     int
}

func newJudge(c *cluster) *judge {
	return &judge{
		c: c, ledgers: map[meta.PartitionID]*ledger{}, lives: map[types.BrokerEpoch]life{}, clean: map[types.BrokerEpoch]types.BrokerEpoch{},
		leaseOf: map[types.BrokerID]*leaseSeen{}, revisions: map[string]seenKey{}, vaults: map[string][][]byte{}, groups: map[string]*groupLedger{}, consumers: map[string]*consumerLedger{},
	}
}

func (j *judge) fail(invariant, format string, args ...any) {
	if !slices.Contains(j.c.mutation.mute, invariant) {
		j.c.k.fail(invariant, format, args...)
	}
}

func (j *judge) ledger(id meta.PartitionID) *ledger {
	l := j.ledgers[id]
	if l == nil {
		l = &ledger{
			id: id, written: map[place]*writtenBatch{}, servers: map[types.LeaderEpoch]server{}, writers: map[types.LeaderEpoch]server{},
			committed: map[types.Offset]*writtenBatch{}, unclean: -1, uncleanIn: -1, again: again{from: -1, served: map[types.LeaderEpoch]server{}}, compacted: j.c.o.Compacted || id.Topic == j.c.offsetsTopic || j.c.txns != nil && id.Topic == j.c.txns.topic,
		}
		j.ledgers[id] = l
	}
	return l
}

// look looks at one partition of a process after the process has done something.
func (j *judge) look(m *machine, h *held) {
	v, open := h.part.View()
	if !open || v.Offline != nil {
		return
	}
	s := h.shadowLog
	following := h.part.IsFollowing()
	if !s.known || v.LogEnd != s.end || v.LogStart != s.start || v.History != s.history || following != s.following || v.Size != s.size {
		start, end, wasKnown := s.start, s.end, s.known
		s.following = following
		if !j.reread(m, h, v) {
			return
		}
		if wasKnown && v.LogStart != start {
			j.startMoved(m, h, v, start, end)
		}
		j.history(m, h, v)
		switch {
		case wasKnown && v.LogStart < start:
			// The log began anew, at the base of the leader's first batch, and took batches
			// in the same step: they came from there on, not at the end it had before.
			j.epochBegins(m, h, v, v.LogStart)
		case wasKnown && v.LogEnd > end && v.LogStart <= end:
			j.epochBegins(m, h, v, end)
		}
		if v.LogEnd < end {
			j.isrHolds(j.ledger(h.id), fmt.Sprintf("%s cuts its log from %d to %d", m.name, end, v.LogEnd))
		}
	}
	e, err := h.part.LeaderEpoch()
	if err != nil {
		s.serving = -1
		s.hw = v.HighWatermark
		return
	}
	if e != s.serving {
		j.serves(m, h, e)
		s.serving = e
		s.hw = -1
	}
	if v.HighWatermark != s.hw {
		s.hw = v.HighWatermark
		j.exposed(m, h, v)
	}
}

// reread takes over what a log holds now.
func (j *judge) reread(m *machine, h *held, v log.View) bool {
	s, l := h.shadowLog, j.ledger(h.id)
	old := s.shadow
	all := !s.known || v.LogEnd < s.end || v.LogStart != s.start || v.LogStart > s.end || l.compacted && v.LogEnd == s.end && v.Size != s.size
	fresh, ok := j.newBatches(m, h, v, all)
	if ok && !all && l.compacted && s.size+sizeOf(fresh) != v.Size {
		all = true // it was compacted
		fresh, ok = j.newBatches(m, h, v, all)
	}
	if !ok {
		return false
	}
	if all {
		s.forget(v)
	}
	s.known, s.start, s.end, s.history, s.size = true, v.LogStart, v.LogEnd, v.History, v.Size
	for i := range fresh {
		b := fresh[i]
		if n := len(s.batches); n > 0 && b.base < s.batches[n-1].next {
			continue
		}
		if b.base == old.end {
			b.oldEnd = old.end
		}
		j.copied(m, h, l, b)
		if j.c.k.failure != nil {
			return false
		}
	}
	switch {
	case !old.known:
		j.opened(m, h, l)
	case all:
		j.removed(m, h, l, &old)
	}
	return j.c.k.failure == nil
}

// newBatches reads what came to a log, or with all everything that it holds.
func (j *judge) newBatches(m *machine, h *held, v log.View, all bool) ([]shadowBatch, bool) {
	from := h.end
	if all {
		from = v.LogStart
	}
	fresh, err := readFrom(h.part.Log(), from)
	if err != nil && !m.disk.dead {
		j.fail("LogReadable", "%s %s: from %d: %v", m.name, h.part.Name(), from, err)
	}
	return fresh, err == nil
}

func sizeOf(batches []shadowBatch) int64 {
	n := 0
	for i := range batches {
		n += len(batches[i].raw)
	}
	return int64(n)
}

// forget drops what was read. What the log's end stood for goes on unless it was
// cut, or began anew elsewhere.
func (s *shadowLog) forget(v log.View) {
	if n := len(s.batches); n > 0 {
		s.tail, s.tailPath = s.batches[n-1].next, s.paths[n-1]
	}
	if v.LogEnd < s.end || v.LogStart > s.end {
		s.tailPath = 0
	}
	s.batches, s.paths = nil, nil
}

// pathOf hashes everything up to a batch that comes next in the log, 0 if its
// beginning isn't known. Below a log start that has risen it is taken from who wrote the
// batch: what the log start has passed, up to the log end perhaps, may have been other
// records if the leader couldn't vouch for them (R28), and lies in no log any more.
func (s *shadowLog) pathOf(b *shadowBatch, sum uint64, w *writtenBatch) uint64 {
	below := uint64(0)
	switch n := len(s.paths); {
	case n > 0:
		below = s.paths[n-1]
	case b.base == 0:
		below = 1
	case s.tail == b.base && w == nil:
		below = s.tailPath
	}
	switch {
	case below != 0:
		return mixed(below, sum)
	case len(s.paths) == 0 && w != nil:
		return w.path
	}
	return 0
}

// copied judges one batch that a log holds: whoever holds a batch of an epoch at an
// offset holds the same bytes there and below (LogMatching).
func (j *judge) copied(m *machine, h *held, l *ledger, b shadowBatch) {
	s := h.shadowLog
	sum := sumOf(b.raw)
	at := place{b.base, b.epoch}
	w := l.batchOf(&b)
	if w != nil && w.sum != sum && l.mayBeTwin(h, w) {
		w = nil
	}
	path := s.pathOf(&b, sum, w)
	if w == nil {
		w = &writtenBatch{shadowBatch: b, sum: sum, path: path, promised: -1, twin: l.written[at], times: l.again.times}
		l.written[at] = w
		l.order = append(l.order, w)
		j.wrote(m, h, l, w)
		if j.c.txns != nil {
			j.c.txns.judge.wrote(w)
		}
	} else if l.compacted {
		if o, ok := foreignRecord(b.raw, w.raw); ok {
			j.fail("LogMatching", "%s %s: batch %s holds a record at %d that was not written there in that epoch", m.name, h.part.Name(), b, o)
			return
		}
	} else {
		switch {
		case w.sum != sum:
			j.fail("LogMatching", "%s %s: batch %s differs from the one that was written there in that epoch", m.name, h.part.Name(), b)
			return
		case path != 0 && w.path != 0 && path != w.path:
			j.fail("LogMatching", "%s %s: batch %s lies behind other records than where it was written: %s", m.name, h.part.Name(), b, j.below(s, l, w))
			return
		}
	}
	s.batches = append(s.batches, b)
	s.paths = append(s.paths, path)
}

// below shows the end of what lies below a batch here.
func (j *judge) below(s *shadowLog, _ *ledger, _ *writtenBatch) string {
	return fmt.Sprint(s.batches[max(0, len(s.batches)-4):])
}

// wrote judges a batch that nobody held before: the leader of its epoch wrote it (OneWriter).
func (j *judge) wrote(m *machine, h *held, l *ledger, w *writtenBatch) {
	e, err := h.part.LeaderEpoch()
	if by, served := l.servers[w.epoch]; served && by.id == m.id && by.life < m.life && m.kept[h.id] != nil {
		return // the process that led wrote it and ended, in the middle of the append: a marker's, into two files
	}
	if err != nil || e != w.epoch {
		j.fail("OneWriter", "%s %s: %s is new, and this broker doesn't lead in its epoch (%d, %v)", m.name, h.part.Name(), w.shadowBatch, e, err)
		return
	}
	j.once(l.writers, w.epoch, m, "both wrote in epoch %d", "OneWriter")
}

// once demands that one process did something in an epoch.
func (j *judge) once(by map[types.LeaderEpoch]server, e types.LeaderEpoch, m *machine, what, invariant string) {
	epoch, registered := m.node.Broker().BrokerEpoch()
	now := server{m.id, epoch, m.life}
	before, known := by[e]
	if known && !registered && before.id == m.id && before.life == m.life {
		return // its registration has just gone, and its shards haven't heard of it: still the one that led
	}
	if !known {
		by[e] = now
		return
	}
	if before != now {
		j.fail(invariant, "broker %d (registration %d, life %d) and broker %d (registration %d, life %d) "+what,
			before.id, before.epoch, before.life, now.id, now.epoch, now.life, e)
	}
}

// serves judges a process that begins to serve in an epoch: nobody else does
// (OneLeader), its election is on its disk (EpochDurable), and it holds
// everything that was promised (AckedIsKept).
func (j *judge) serves(m *machine, h *held, e types.LeaderEpoch) {
	l := j.ledger(h.id)
	j.leadsOn(m, h, l, e)
	j.once(l.servers, e, m, "both serve in epoch %d", "OneLeader")
	j.staysDeleted(m, h, l)
	j.holdsPromised(m, h, l, fmt.Sprintf("leads in epoch %d", e), e)
	j.epochDurable(m, h, e)
}

// holdsPromised compares a log with what was promised since the last unclean election,
// up to the leader epoch e. Whoever hears of its election when the record has gone on
// already leads nobody who follows a later leader: it may lack what that one promised.
func (j *judge) holdsPromised(m *machine, h *held, l *ledger, what string, e types.LeaderEpoch) {
	s := h.shadowLog
	offsets := make([]types.Offset, 0, len(l.committed))
	for o := range l.committed {
		offsets = append(offsets, o)
	}
	slices.Sort(offsets)
	for _, o := range offsets {
		w := l.committed[o]
		if w.in > e || w.next <= s.start || j.keeps(l, s, w) {
			continue
		}
		j.fail("AckedIsKept", "%s %s: %s with log [%d, %d) %v and lacks %s, %s at %v (in epoch %d)", m.name, h.part.Name(), what, s.start, s.end, s.history,
			w.shadowBatch, w.how, w.promised.Round(time.Millisecond), w.in)
		return
	}
}

// keeps reports whether a log holds a batch; a compacted one, whether it holds
// its records or newer ones of their keys.
func (j *judge) keeps(l *ledger, s *shadowLog, w *writtenBatch) bool {
	if !l.compacted {
		return s.has(&w.shadowBatch)
	}
	for _, key := range keysOf(w.raw) {
		found := false
		for i := len(s.batches) - 1; i >= 0 && s.batches[i].base >= w.base && !found; i-- {
			found = slices.ContainsFunc(keysOf(s.batches[i].raw), func(k string) bool { return k == key })
		}
		if !found {
			return l.isAborted(w) // compaction keeps nothing of it
		}
	}
	return true
}

func keysOf(raw []byte) []string {
	h, err := batch.ParseHeader(raw)
	if err != nil || h.IsControl() {
		return nil
	}
	var keys []string
	for it := batch.Records(raw, nil); it.Next(); {
		keys = append(keys, string(it.Record.Key))
	}
	return keys
}

// exposed judges how far consumers may read now, and takes note of it.
func (j *judge) exposed(m *machine, h *held, v log.View) {
	l := j.ledger(h.id)
	s := h.shadowLog
	if !m.node.LeaseIsOver() {
		for i := s.index(0); i < len(s.batches); i++ {
			if b := &s.batches[i]; b.next <= v.HighWatermark {
				j.promise(l, l.batchOf(b), "readable", s.serving)
			}
		}
	}
	if j.c.txns != nil {
		j.c.txns.judge.readable(l)
	}
	j.isrHolds(l, fmt.Sprintf("the high watermark of %s is %d", m.name, v.HighWatermark))
}

// promise takes note that a batch must be kept: a leader of the epoch in has promised it.
func (j *judge) promise(l *ledger, w *writtenBatch, how string, in types.LeaderEpoch) {
	if w == nil || l.isPast(max(in, w.epoch)) {
		return
	}
	if l.committed[w.base] == w {
		w.in = min(w.in, in)
		return
	}
	w.promised, w.how, w.in = j.c.k.now, how, in
	if old := l.committed[w.base]; old != nil && old != w {
		j.fail("AckedIsKept", "partition %d: %s (%s at %v) and %s were both promised", l.id.Number, old.shadowBatch, old.how, old.promised, w.shadowBatch)
		return
	}
	l.committed[w.base] = w
	if l.top == nil || l.top.base < w.base {
		l.top = w
		if l.record != nil {
			j.isrHoldsTop(l, l.record, "a batch is "+how)
		}
	}
}

// isPast reports whether an unclean election has come after the leader of an epoch: what one
// promises who hasn't heard of it is taken back by it, like what was promised before.
func (l *ledger) isPast(e types.LeaderEpoch) bool { return e < l.uncleanIn }

// acked takes note of an acknowledgement with acks=all.
func (j *judge) acked(m *machine, id meta.PartitionID, base types.Offset, raw []byte) {
	l := j.ledger(id)
	h := m.held(id)
	if h == nil {
		return
	}
	i := h.index(base)
	if i >= len(h.batches) || h.batches[i].base != base || !sameBatch(raw, h.batches[i].raw) {
		if !l.compacted && base >= h.start {
			j.fail("AckedIsKept", "%s %s: acknowledged a batch at %d that its log doesn't hold", m.name, h.part.Name(), base)
		}
		return
	}
	b := &h.batches[i]
	j.promise(l, l.batchOf(b), "acknowledged", h.serving)
	j.leased(m, "acknowledges a write")
}

// leased demands that a broker which answers as a leader has a lease that isn't over (R10).
func (j *judge) leased(m *machine, what string) {
	epoch, ok := m.node.Broker().BrokerEpoch()
	seen := j.leaseOf[m.id]
	if !ok || seen == nil || seen.epoch != epoch {
		return // another registration of this machine is in force, or none was ever
	}
	if seen.ended >= 0 && j.c.k.now > seen.ended {
		j.fail("LeaseFence", "%s %s; its registration %d ended at %v", m.name, what, epoch, seen.ended)
	}
}

// isrHolds demands that every member of ISR and ELR that is still the process it
// was holds everything below the leader's high watermark (R14).
func (j *judge) isrHolds(l *ledger, why string) {
	r := l.record
	if r == nil || l.deleted {
		return
	}
	j.isrHoldsTop(l, r, why)
	leader := j.c.machine(r.Leader)
	if leader == nil || !leader.up() {
		return
	}
	lh := leader.held(l.id)
	if lh == nil || lh.serving != r.LeaderEpoch || !lh.known {
		return
	}
	hw := lh.hw
	for _, group := range [][]meta.ISRMember{r.ISR, r.ELR} {
		for _, member := range group {
			at, known := j.lives[member.BrokerEpoch]
			if member.ID == r.Leader || !known || at.m.life != at.n || !at.m.up() || at.m.id != member.ID {
				continue
			}
			h := at.m.held(l.id)
			if h == nil || !h.known {
				continue
			}
			if h.end < hw {
				j.fail("ISRHoldsHW", "partition %d, epoch %d: %s; %s is in ISR %v or ELR %v and its log ends at %d", l.id.Number, r.LeaderEpoch, why, at.m.name, r.ISRIDs(), r.ELRIDs(), h.end)
				return
			}
			if l.compacted || h.start != lh.start {
				continue
			}
			if a, b := lh.index(hw)-1, h.index(hw)-1; a >= 0 && b >= 0 && !sameUpTo(lh.shadowLog, h.shadowLog, a, b) {
				j.fail("ISRHoldsHW", "partition %d, epoch %d: %s; %s is in ISR %v or ELR %v and holds other records below %d: %s, the leader %s",
					l.id.Number, r.LeaderEpoch, why, at.m.name, r.ISRIDs(), r.ELRIDs(), hw, h.batches[b], lh.batches[a])
				return
			}
		}
	}
}

// sameUpTo says whether two logs with one start hold the same up to batch i of one and
// j of the other. The path of a log that began anew above what it had isn't known (0):
// its batches are compared themselves then.
func sameUpTo(x, y *shadowLog, i, j int) bool {
	switch {
	case i != j:
		return false
	case x.paths[i] != 0 && y.paths[j] != 0:
		return x.paths[i] == y.paths[j]
	}
	for n := range i + 1 {
		if a, b := &x.batches[n], &y.batches[n]; a.base != b.base || a.epoch != b.epoch || !bytes.Equal(a.raw, b.raw) {
			return false
		}
	}
	return true
}

// isrHoldsTop demands that every member of ISR and ELR that is still the process
// it was holds the last batch that anybody was promised.
func (j *judge) isrHoldsTop(l *ledger, r *meta.PartitionRecord, why string) {
	top := l.top
	if top == nil || l.compacted {
		return
	}
	for _, member := range slices.Concat(r.ISR, r.ELR) {
		at, known := j.lives[member.BrokerEpoch]
		if !known || at.m.life != at.n || !at.m.up() {
			continue
		}
		h := at.m.held(l.id)
		if h == nil || !h.known || h.start >= top.next || h.has(&top.shadowBatch) {
			continue
		}
		j.fail("ISRHoldsHW", "partition %d, epoch %d: %s; %s is in ISR %v or ELR %v, its log is [%d, %d) and lacks %s, %s at %v",
			l.id.Number, r.LeaderEpoch, why, at.m.name, r.ISRIDs(), r.ELRIDs(), h.start, h.end, top.shadowBatch, top.how, top.promised)
		return
	}
}

// epochDurable demands that an election is on the disk before the leader serves (R3).
func (j *judge) epochDurable(m *machine, h *held, e types.LeaderEpoch) {
	var entries []epoch.Entry
	b, err := m.durable(logDir + "/" + h.part.Name().String() + "/" + epoch.CheckpointFile)
	if err == nil {
		entries, err = epoch.ParseCheckpoint(b)
	}
	if n := len(entries); err != nil || n == 0 || entries[n-1].Epoch != e {
		j.fail("EpochDurable", "%s %s: it serves in epoch %d, and what a loss of power would leave is %v (%v) (R3)", m.name, h.part.Name(), e, entries, err)
	}
}

// history is EpochHistory: an entry for every rise of the epoch, at the log end
// before the batch (R4), and at most one more at the end: the leader's own.
func (j *judge) history(m *machine, h *held, v log.View) {
	if j.c.k.failure != nil || v.History == nil {
		return
	}
	s, compacted := h.shadowLog, j.ledger(h.id).compacted
	entries := v.History.Entries()
	bad := func(format string, args ...any) {
		j.fail("EpochHistory", "%s %s: history %v of log [%d, %d): "+format, append([]any{m.name, h.part.Name(), v.History, v.LogStart, v.LogEnd}, args...)...)
	}
	i := 0
	for k := range s.batches {
		b := &s.batches[k]
		if i > 0 && entries[i-1].Epoch == b.epoch {
			continue
		}
		for i < len(entries) && entries[i].Epoch < b.epoch && compacted {
			i++ // compaction took all its records
		}
		if i == len(entries) || entries[i].Epoch != b.epoch {
			bad("no entry for %s", b)
			return
		}
		if why := misplaced(entries[i], b, before(s.batches, k), v.LogStart, i == 0); why != "" && !compacted {
			bad("%s", why)
			return
		}
		if compacted && entries[i].Start > b.base {
			bad("entry %v begins above its batch %s", entries[i], b)
			return
		}
		i++
	}
	rest := entries[i:]
	if compacted && len(rest) > 1 {
		rest = rest[len(rest)-1:]
	}
	if len(rest) > 1 || len(rest) == 1 && (rest[0].Start != v.LogEnd && !compacted || h.part.IsFollowing() && rest[0].Start >= v.LogEnd) {
		bad("entries %v have no records", rest)
	}
}

// epochBegins demands that an epoch that came with a batch begins at the log end before it (R4).
func (j *judge) epochBegins(m *machine, h *held, v log.View, oldEnd types.Offset) {
	s := h.shadowLog
	i := s.index(oldEnd)
	if i >= len(s.batches) || v.History == nil || i > 0 && s.batches[i-1].epoch == s.batches[i].epoch {
		return
	}
	for _, e := range v.History.Entries() {
		if e.Epoch == s.batches[i].epoch && e.Start > oldEnd {
			j.fail("EpochHistory", "%s %s: entry %v begins above the log end %d at which its first batch %s came (R4)", m.name, h.part.Name(), e, oldEnd, s.batches[i])
		}
	}
}

// durable reads a file as a loss of power would leave it.
func (m *machine) durable(name string) ([]byte, error) {
	return vfs.ReadFile(m.mem.CrashClone(vfs.CrashConfig{}), name, 1<<20)
}

// final compares all replicas once more, byte for byte.
func (j *judge) final() {
	for _, m := range j.c.machines {
		for _, h := range m.parts {
			v, ok := h.part.View()
			if !ok {
				continue
			}
			got, err := readFrom(h.part.Log(), v.LogStart)
			if err != nil {
				j.fail("LogReadable", "%s %s at the end: %v", m.name, h.part.Name(), err)
				return
			}
			l := j.ledger(h.id)
			for i := range got {
				if !h.has(&got[i]) && !l.compacted {
					j.fail("LogReadable", "%s %s at the end: %s was not there when it was looked at last", m.name, h.part.Name(), got[i])
					return
				}
			}
			j.holdsPromised(m, h, l, "is in sync at the end", math.MaxInt32)
			j.twice(m, h)
		}
	}
	j.equal()
	if j.c.txns != nil {
		j.c.txns.judge.final()
	}
}

// equal demands equal logs of all replicas (Convergence).
func (j *judge) equal() {
	first := map[meta.PartitionID]*held{}
	for _, m := range j.c.machines {
		for _, h := range m.parts {
			f := first[h.id]
			if j.ledger(h.id).compacted {
				continue
			}
			if f == nil {
				first[h.id] = h
				continue
			}
			for i := range h.batches {
				if b := &h.batches[i]; b.base >= f.start && b.next <= f.end && !f.has(b) {
					j.fail("Convergence", "%s %s at the end: %s is in its log and not in the others'", m.name, h.part.Name(), b)
					return
				}
			}
		}
	}
	j.c.k.probe("end: replicas are equal")
}

// twice looks for a batch of an idempotent producer that is there twice (NoDuplicate).
func (j *judge) twice(m *machine, h *held) {
	type key struct {
		producer types.ProducerID
		epoch    int16
		sequence int32
	}
	seen := map[key]shadowBatch{}
	for _, b := range h.batches {
		hd, err := batch.ParseHeader(b.raw)
		if err != nil || hd.ProducerID < 0 || hd.BaseSequence < 0 || hd.IsControl() {
			continue // offsets of a transaction have no sequence
		}
		k := key{hd.ProducerID, hd.ProducerEpoch, hd.BaseSequence}
		if other, dup := seen[k]; dup {
			j.fail("NoDuplicate", "%s %s: producer %d's sequence %d is in %s and in %s", m.name, h.part.Name(), k.producer, k.sequence, other, b)
			return
		}
		seen[k] = b
	}
}

func sumOf(raw []byte) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(raw) // never fails
	return h.Sum64()
}

func mixed(a, b uint64) uint64 {
	const prime = 0x9E3779B97F4A7C15
	x := (a ^ b) * prime
	return x ^ x>>29 | 1
}
