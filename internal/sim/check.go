package sim

import (
	"bytes"
	"context"
	"fmt"

	"tidemark/internal/batch"
	"tidemark/internal/broker/api"
	"tidemark/internal/core/meta"
	core "tidemark/internal/core/mirror"
	"tidemark/internal/core/types"
	"tidemark/internal/log"
	"tidemark/internal/vault"
)

// checker compares what the standby holds with what must be. It reads the
// standby's files and records, and the source's whole history; of what the
// system believes it uses only what a client could ask for.
type checker struct {
	w       *world
	shadows map[int32]*shadow
	// writers is the registration that wrote client records under a timeline and epoch.
	writers map[string]types.BrokerEpoch
	// gone are vault entries that an operator purged, with all they held.
	purgedSums map[string]bool
	laterKept  int // removals that a mutation still holds back
	kept       map[string][][]byte
	records    map[meta.PartitionID]*meta.PartitionRecord // as last written to the store
	storeSeen  meta.Revision
	checks     int
}

func newChecker(w *world) *checker {
	return &checker{
		w: w, shadows: map[int32]*shadow{}, writers: map[string]types.BrokerEpoch{}, purgedSums: map[string]bool{},
		kept: map[string][][]byte{}, records: map[meta.PartitionID]*meta.PartitionRecord{},
	}
}

func (k *checker) of(c *copyPart) *shadow {
	s := k.shadows[c.id.Number]
	if s == nil {
		s = &shadow{own: map[types.Offset][]byte{}, promotedEpoch: -1, servedEpoch: -1}
		k.shadows[c.id.Number] = s
	}
	return s
}

func (k *checker) fail(invariant, format string, args ...any) { k.w.k.fail(invariant, format, args...) }

// stepped looks at a partition after the copier has taken an event.
func (k *checker) stepped(c *copyPart, before log.View, cut bool, ev core.Event, from *answer) {
	v, ok := c.inline.Partition().View()
	if !ok || v.Offline != nil {
		return
	}
	s := k.of(c)
	if cut || v.LogEnd < s.end || v.LogStart != s.start || v.LogEnd > s.end {
		k.reread(c, s, v, cut, ev)
		if p := k.w.sourcePart(c.id.Number); v.LogEnd < before.LogEnd && s.circle.cut(c.n.life, p.epoch, v.LogEnd) > circlesMost {
			k.fail("NoCircles", "%s: cut back to %d again and again while the source's leader epoch is %d", c.tp, v.LogEnd, p.epoch)
		}
		if f, isFetched := ev.(core.Fetched); isFetched && from != nil && !from.damaged && v.LogEnd > before.LogEnd {
			k.logMatching(c, s, before, f)
		}
	}
	k.history(c, s, v)
	k.readable(c, s)
}

// reread takes over what the log holds now, and judges what came and what went.
func (k *checker) reread(c *copyPart, s *shadow, v log.View, cut bool, ev core.Event) {
	k.checks++
	from := s.end
	if cut || v.LogEnd < s.end || v.LogStart > s.end || !s.known {
		from = v.LogStart
	}
	fresh, err := readFrom(c.inline.Partition().Log(), from)
	if err != nil {
		k.fail("LogReadable", "%s: from %d: %v", c.tp, from, err)
		return
	}
	old := s.batches
	oldStart, oldEnd := s.start, s.end
	if from == s.end && s.known {
		end := s.end
		s.start, s.end = v.LogStart, v.LogEnd
		k.headGone(c, s, ev) // what the log start has passed no longer belongs to the log
		k.append(c, s, fresh, end)
		return
	}
	s.batches = nil
	s.start, s.end = v.LogStart, v.LogEnd
	known := shadow{batches: old}
	for i := range fresh {
		b := &fresh[i]
		if j := known.index(b.base); j < len(old) && old[j].base == b.base && bytes.Equal(old[j].raw, b.raw) {
			s.batches = append(s.batches, old[j])
			continue
		}
		k.append(c, s, fresh[i:], -1)
		break
	}
	if s.known {
		k.removed(c, s, old, oldStart, oldEnd, ev)
	}
	s.known = true
}

// append judges new batches at the log's end: each is one that the source wrote
// and committed, on the path of the one before it (MirrorPrefix), or a client's here.
func (k *checker) append(c *copyPart, s *shadow, fresh []shadowBatch, oldEnd types.Offset) {
	rec := k.record(c)
	for i := range fresh {
		b := &fresh[i]
		if n := len(s.batches); n > 0 && b.base < s.batches[n-1].next {
			continue // the batch that holds the offset read from
		}
		b.oldEnd = oldEnd
		if oldEnd >= 0 {
			oldEnd = b.next
		}
		b.node = k.w.src.find(c.id.Topic, c.id.Number, b.base, b.epoch, b.raw)
		switch {
		case b.node != nil:
			k.mirrorPrefix(c, s, b)
		case !k.isOwn(s, b):
			k.fail("MirrorPrefix", "%s: batch %s is neither the source's nor a client's here", c.tp, b)
			return
		}
		s.batches = append(s.batches, *b)
		if rec != nil && b.epoch > rec.LeaderEpoch {
			k.fail("EpochCovers", "%s: batch %s lies in the log, the leader epoch is %d (R21)", c.tp, b, rec.LeaderEpoch)
		}
	}
}

// isOwn reports whether a batch was made here: a client's after the promotion, or
// a marker that ends a transaction which the promotion left open.
func (k *checker) isOwn(s *shadow, b *shadowBatch) bool {
	if s.promotedEpoch < 0 || b.epoch < s.promotedEpoch {
		return false
	}
	h, err := batch.ParseHeader(b.raw)
	if err == nil && h.IsControl() {
		return true
	}
	want, ok := s.own[b.base]
	return !ok || sameBatch(want, b.raw) // not acknowledged: the node crashed in the middle of the write
}

// sameBatch compares a batch as sent with one as stamped.
func sameBatch(sent, stored []byte) bool {
	const covered = 21
	return len(sent) == len(stored) && bytes.Equal(sent[covered:], stored[covered:])
}

// mirrorPrefix judges one batch of the source: it was committed there, and
// whatever lies on its path between the batch below it and it was compacted away.
func (k *checker) mirrorPrefix(c *copyPart, s *shadow, b *shadowBatch) {
	if !b.node.committed {
		k.fail("MirrorPrefix", "%s: batch %s was never committed at the source", c.tp, b)
		return
	}
	if len(s.batches) == 0 {
		return
	}
	prev := &s.batches[len(s.batches)-1]
	if prev.node == nil {
		k.fail("MirrorPrefix", "%s: batch %s of the source lies behind one that was made here", c.tp, b)
		return
	}
	for n := b.node.parent; n != prev.node; n = n.parent {
		switch {
		case n == nil || n.base < prev.base:
			k.fail("MirrorPrefix", "%s: batch %s lies behind %s, which is not on its path at the source", c.tp, b, prev)
			return
		case !n.compacted:
			k.fail("MirrorPrefix", "%s: between %s and %s the source has %s", c.tp, prev, b, n)
			return
		}
	}
}

// logMatching judges an accepted fetch: the leader of the session's epoch holds
// what came and what it came behind.
func (k *checker) logMatching(c *copyPart, s *shadow, before log.View, f core.Fetched) {
	past := k.w.src.past[c.id.Topic]
	if int(c.id.Number) >= len(past) {
		return
	}
	tip, ok := past[c.id.Number].tips[f.Reply.To.LeaderEpoch]
	if !ok {
		return
	}
	i := s.index(before.LogEnd)
	for j := max(i-1, 0); j < len(s.batches); j++ {
		if b := &s.batches[j]; b.node != nil && !tip.reaches(b.node) {
			k.fail("LogMatching", "%s: a fetch in epoch %d was accepted at %d; the leader of that epoch doesn't hold %s",
				c.tp, f.Reply.To.LeaderEpoch, before.LogEnd, b)
			return
		}
	}
}

// removed judges what went: by a cut it is in the vault; by a log start, unless
// the source let go of it itself.
func (k *checker) removed(c *copyPart, s *shadow, old []shadowBatch, oldStart, oldEnd types.Offset, ev core.Event) {
	rec := k.record(c)
	for i := range old {
		b := &old[i]
		if b.next <= oldStart || s.has(b) {
			continue
		}
		if b.next <= s.start && b.next <= oldEnd && s.start <= oldEnd && k.leftTheSource(c, b) {
			continue
		}
		k.mustBeKept(c, s, b, rec, ev)
	}
	if s.start > oldEnd && oldEnd > 0 && !k.w.o.ContinueOverGap && len(old) > 0 {
		k.fail("NoSilentGap", "%s: the log ended at %d and starts at %d now, with gap.policy=fail (R28)", c.tp, oldEnd, s.start)
	}
	if rec != nil && s.end < oldEnd && s.served > s.end && s.servedEpoch == rec.LeaderEpoch {
		k.fail("CutHasEpoch", "%s: clients could read up to %d in leader epoch %d, in which the log is cut at %d (R20)", c.tp, s.served, s.servedEpoch, s.end)
	}
	s.served = min(s.served, s.end)
}

// headGone judges what a log start passed without a cut.
func (k *checker) headGone(c *copyPart, s *shadow, ev core.Event) {
	rec := k.record(c)
	for len(s.batches) > 0 && s.batches[0].next <= s.start {
		b := s.batches[0]
		s.batches = s.batches[1:]
		if !k.leftTheSource(c, &b) {
			k.mustBeKept(c, s, &b, rec, ev)
		}
	}
}

// leftTheSource reports whether a batch is on the path of some leader of the
// source now or was on the last one's: what its log start passed there was let go by the source itself.
func (k *checker) leftTheSource(c *copyPart, b *shadowBatch) bool {
	past := k.w.src.past[c.id.Topic]
	if b.node == nil || int(c.id.Number) >= len(past) {
		return false
	}
	for _, r := range past[c.id.Number].replicas {
		if r.tail.reaches(b.node) && r.start >= b.next {
			return true
		}
	}
	return false
}

// mustBeKept asks the vault for a removed batch (VaultComplete).
func (k *checker) mustBeKept(c *copyPart, s *shadow, b *shadowBatch, rec *meta.PartitionRecord, ev core.Event) {
	if k.laterKept > 0 || k.w.node.vault.Usage().DroppedRecords > 0 {
		return // R29 let some go, and they are counted; the mutation's turn comes when it crashes
	}
	if !k.inVault(c, b.raw) {
		k.fail("VaultComplete", "%s: %s was removed (log now [%d, %d), after %T) and is not in the vault", c.tp, b, s.start, s.end, ev)
	}
	_ = rec
}

// inVault looks for a batch in all entries of the vault.
func (k *checker) inVault(c *copyPart, raw []byte) bool {
	if k.purgedSums[string(raw)] {
		return true
	}
	entries, err := k.w.node.vault.List()
	if err != nil {
		k.fail("VaultComplete", "the vault can't be read: %v", err)
		return true
	}
	for i := range entries {
		e := &entries[i]
		if e.Partition != c.id.Number || e.Damaged != "" {
			continue
		}
		for _, b := range k.entryBatches(k.w.node.vault, e.ID) {
			if bytes.Equal(b, raw) {
				return true
			}
		}
	}
	return false
}

// entryBatches reads an entry once; what is kept never changes.
func (k *checker) entryBatches(v *vault.Vault, id string) [][]byte {
	if list, ok := k.kept[id]; ok {
		return list
	}
	var list [][]byte
	err := v.Batches(id, func(_ *batch.Header, raw []byte) error {
		list = append(list, bytes.Clone(raw))
		return nil
	})
	if err != nil && k.w.node.alive() {
		k.fail("VaultComplete", "entry %s can't be read: %v", id, err)
	}
	k.kept[id] = list
	return list
}

// purged takes note of what an operator throws away.
func (k *checker) purged(id string) {
	for _, b := range k.entryBatches(k.w.node.vault, id) {
		k.purgedSums[string(b)] = true
	}
}

// readable takes note of what clients may read now, and in which leader epoch.
func (k *checker) readable(c *copyPart, s *shadow) {
	epoch, err := c.inline.Partition().LeaderEpoch()
	if err != nil || c.n.leaseIsOver() {
		return
	}
	v, _ := c.inline.Partition().View()
	if epoch != s.servedEpoch {
		s.served = 0
	}
	s.servedEpoch, s.served = epoch, max(s.served, v.HighWatermark)
}

// record is the partition's record as the store has it, past every image.
func (k *checker) record(c *copyPart) *meta.PartitionRecord { return k.records[c.id] }

// shown looks at a partition after the image told it something.
func (k *checker) shown(c *copyPart) {
	v, ok := c.inline.Partition().View()
	if !ok || v.Offline != nil {
		return
	}
	s := k.of(c)
	if v.LogEnd != s.end || v.LogStart != s.start { // markers at a promotion
		k.reread(c, s, v, v.LogEnd < s.end, nil)
	}
	k.history(c, s, v)
	k.readable(c, s)
}

// chored looks at a partition after retention and flushes.
func (k *checker) chored(c *copyPart, before log.View) {
	v, ok := c.inline.Partition().View()
	if !ok || v.Offline != nil {
		return
	}
	s := k.of(c)
	if v.LogEnd != before.LogEnd {
		k.fail("LogReadable", "%s: retention moved the log end from %d to %d", c.tp, before.LogEnd, v.LogEnd)
	}
	for len(s.batches) > 0 && s.batches[0].next <= v.LogStart {
		s.batches = s.batches[1:]
	}
	s.start = max(s.start, v.LogStart)
	k.history(c, s, v)
}

// wrote judges the answer to a client's write.
func (k *checker) wrote(c *copyPart, before log.View, raw []byte, res api.AppendResult, err error) {
	v, ok := c.inline.Partition().View()
	if !ok || v.Offline != nil {
		return
	}
	s := k.of(c)
	rec := k.record(c)
	if err != nil {
		if v.LogEnd != before.LogEnd {
			k.fail("OneWriter", "%s: a refused write moved the log end from %d to %d", c.tp, before.LogEnd, v.LogEnd)
		}
		return
	}
	if rec == nil || !rec.Writable {
		k.fail("OneWriter", "%s: a client's write was taken while the record says read-only", c.tp)
		return
	}
	s.own[res.BaseOffset] = bytes.Clone(raw)
	k.reread(c, s, v, false, nil)
	last, _ := rec.Timelines.Last()
	h, _ := batch.ParseHeader(s.batches[len(s.batches)-1].raw)
	key := fmt.Sprintf("%s %s %d", c.tp, last.ID, h.PartitionLeaderEpoch)
	epoch, _ := c.n.image.BrokerEpoch(c.n.id)
	if other, ok := k.writers[key]; ok && other != epoch {
		k.fail("OneWriter", "%s: registrations %d and %d both wrote in epoch %d of timeline %s", c.tp, other, epoch, h.PartitionLeaderEpoch, last.ID)
	}
	k.writers[key] = epoch
}

// promotes takes note of a promotion that was computed.
func (k *checker) promotes(c *copyPart, p core.Promotion) {
	s := k.of(c)
	if s.promotedEpoch < 0 || p.Made.PromotedEpoch < s.promotedEpoch {
		s.promotedEpoch = p.Made.PromotedEpoch
	}
	if s.end != p.Made.LogEnd {
		k.fail("PromotedOnce", "%s: promoted at %d, the log ends at %d", c.tp, p.Made.LogEnd, s.end)
	}
}

// stored looks at the partition records after every write to the store.
func (k *checker) stored() {
	kvs, rev, err := k.w.store.Range(context.Background(), meta.KeysOf(clusterID).Partitions(k.w.firstTopic()))
	if err != nil || rev == k.storeSeen {
		return
	}
	k.storeSeen = rev
	for _, kv := range kvs {
		key, err := meta.KeysOf(clusterID).Parse(kv.Key)
		if err != nil {
			continue
		}
		rec, err := meta.DecodePartition(kv.Key, kv.Value)
		if err != nil {
			k.fail("PromotedOnce", "record %s can't be read: %v", kv.Key, err)
			return
		}
		id := meta.PartitionID{Topic: key.TopicID, Number: key.Partition}
		if old := k.records[id]; old != nil && rec.LeaderEpoch < old.LeaderEpoch {
			k.fail("EpochRises", "%s: leader epoch falls from %d to %d", kv.Key, old.LeaderEpoch, rec.LeaderEpoch)
		}
		k.records[id] = rec
		if len(rec.Promotions) > 1 || len(rec.Timelines) > 2 {
			k.fail("PromotedOnce", "partition %d: %d promotions of one start, timelines %v (R23)", key.Partition, len(rec.Promotions), rec.Timelines)
		}
	}
}
