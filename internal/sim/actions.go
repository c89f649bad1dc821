package sim

import (
	"fmt"
	"time"

	"tidemark/internal/batch"
	"tidemark/internal/core/types"
	"tidemark/internal/vfs"
)

// The actions of a plan. Each says what it did, or "" if there was nothing to do.

func (w *world) electCleanly(d dice) string {
	p := w.anyPart(d)
	if !p.electAny(d) {
		return ""
	}
	return fmt.Sprintf("%s: broker %d, epoch %d", p.who(), p.leader, p.epoch)
}

func (w *world) electUncleanly(d dice) string {
	p := w.anyPart(d)
	b := d.IntN(srcReplicas)
	if d.chance(0.6) { // the one with the shortest log: what is lost is the most
		for i, r := range p.replicas {
			if r.end < p.replicas[b].end && !w.src.down[i] {
				b = i
			}
		}
	}
	if w.src.down[b] {
		return ""
	}
	p.elect(b, true)
	return fmt.Sprintf("%s: broker %d, epoch %d", p.who(), b, p.epoch)
}

// sourceDown stops one source broker for a while; what it leads goes to an
// in-sync replica, or, if there is none, waits.
func (w *world) sourceDown(d dice) string {
	b := d.IntN(srcReplicas)
	if w.src.down[b] {
		return ""
	}
	w.src.setDown(b, d)
	back := d.between(200*time.Millisecond, 10*time.Second)
	w.k.after(back, "source broker back", func() { w.src.setUp(b, d, false) })
	return fmt.Sprintf("broker %d for %v", b, back.Round(time.Millisecond))
}

// sourceLosesTail is sourceDown with a loss of power: what its replicas had not
// synced is gone, and they may be elected all the same (the case that KIP-966 closes).
func (w *world) sourceLosesTail(d dice) string {
	b := d.IntN(srcReplicas)
	if w.src.down[b] {
		return ""
	}
	w.src.setDown(b, d)
	w.k.after(d.between(100*time.Millisecond, 3*time.Second), "source broker back", func() { w.src.setUp(b, d, true) })
	w.k.probe("source: unsynced tail lost")
	return fmt.Sprintf("broker %d", b)
}

func (s *source) setDown(b int, d dice) {
	s.down[b] = true
	for _, p := range s.parts {
		p.replicas[b].leads = -1
		if p.leader == b {
			p.leader = -1
			s.k.after(d.between(10*time.Millisecond, 300*time.Millisecond), "source elects", func() {
				if p.leader < 0 {
					p.electAny(d)
				}
			})
			p.wake()
			continue
		}
		if p.isr[b] && p.leader >= 0 {
			p.isr[b] = false
			p.advance()
		}
	}
}

func (s *source) setUp(b int, d dice, lost bool) {
	if !s.down[b] {
		return
	}
	delete(s.down, b)
	for _, p := range s.parts {
		r := p.replicas[b]
		if lost && len(r.batches) > 0 {
			r.cutTo(r.batches[d.IntN(len(r.batches))].base)
			s.k.note(p.who(), "broker %d comes back without its unsynced tail: %s", b, r)
		}
		if p.leader < 0 {
			p.electAny(d)
		} else {
			p.replicate()
		}
	}
}

func (w *world) sourceRetention(d dice) string {
	p := w.anyPart(d)
	r := p.lead()
	if r == nil || p.rewritten {
		return ""
	}
	to := r.start
	for _, b := range r.batches {
		if b.next <= r.hw && d.chance(0.7) {
			to = b.next
			if d.chance(0.2) { // DeleteRecords: within a batch
				to = b.base
			}
		} else {
			break
		}
	}
	if to <= r.start {
		return ""
	}
	r.setStart(to)
	p.replicate()
	p.wake()
	return fmt.Sprintf("%s starts at %d: %s", p.who(), to, r)
}

// sourceCompaction takes batches out of one replica, never the last, never above the high watermark.
func (w *world) sourceCompaction(d dice) string {
	p := w.anyPart(d)
	if !w.o.Compacted {
		return ""
	}
	gone := 0
	r := p.replicas[d.IntN(srcReplicas)]
	kept := r.batches[:0:0]
	for i, b := range r.batches {
		if i < len(r.batches)-1 && b.next <= r.hw && d.chance(0.3) {
			b.compacted = true
			gone++
			continue
		}
		kept = append(kept, b)
	}
	r.batches = kept
	if gone == 0 {
		return ""
	}
	return fmt.Sprintf("%s broker %d loses %d batches to compaction", p.who(), r.broker, gone)
}

func (w *world) recreateTopic(dice) string {
	if len(w.src.down) == srcReplicas {
		return "" // nobody could hold it
	}
	w.src.createTopic()
	w.k.probe("source: topic made again")
	return "the topic is deleted and made again, id " + w.src.topic.String()
}

// sourceRewrites replaces the last batches of a partition by others of the same
// offsets and epochs, as a source restored from an older copy may have them.
func (w *world) sourceRewrites(d dice) string {
	p := w.anyPart(d)
	r := p.lead()
	if r == nil || w.o.Compacted || len(r.batches) < 2 {
		return ""
	}
	p.rewritten = true
	n := 1 + d.IntN(len(r.batches)-1)
	old := append([]*batchNode(nil), r.batches[len(r.batches)-n:]...)
	var leader = p.leader
	for _, q := range p.replicas {
		q.cutTo(old[0].base)
	}
	for _, b := range old {
		bb := batch.NewBuilder(batch.BuilderOptions{LeaderEpoch: types.NoLeaderEpoch})
		for i := range int(b.next - b.base) {
			bb.Append(w.sourceNow(), []byte("key"), fmt.Appendf(nil, "rewritten-%d-%d", b.number, i))
		}
		raw, err := bb.Build()
		if err != nil {
			w.k.fail("PANIC", "build: %v", err)
			return ""
		}
		batch.Stamp(raw, b.base, b.epoch)
		node := &batchNode{base: b.base, next: b.next, epoch: b.epoch, raw: raw, parent: r.tail, number: b.number, committed: b.committed}
		w.src.index(p, node)
		for _, q := range p.replicas {
			if q.tail == node.parent && q.end == b.base {
				if k := len(q.history); k == 0 || q.history[k-1].epoch < b.epoch {
					q.assign(b.epoch, b.base)
				}
				q.push(node)
			}
		}
	}
	for e, tip := range p.tips {
		if tip != nil && tip.next > old[0].base {
			delete(p.tips, e)
		}
	}
	p.elect(leader, false)
	w.k.probe("source: rewritten")
	return fmt.Sprintf("%s rewrites its last %d batches, from %d on", p.who(), n, old[0].base)
}

// sourceContradicts leaves a leader with an entry of an election in which it
// wrote nothing, in place of the epoch in which its last records were written (KAFKA-10706).
func (w *world) sourceContradicts(d dice) string {
	p := w.anyPart(d)
	r := p.lead()
	if r == nil || len(r.batches) == 0 || len(r.history) < 2 {
		return ""
	}
	p.elect(p.leader, false)
	n := len(r.history)
	own := r.history[n-1]
	own.start = r.history[n-2].start
	r.history = append(r.history[:n-2:n-2], own)
	p.contradicts = true
	p.wake()
	w.k.probe("source: contradicts its batches")
	return fmt.Sprintf("%s: broker %d says that epoch %d began at %d, its records go up to %d", p.who(), p.leader, own.epoch, own.start, r.end)
}

func (w *world) cutLink(d dice) string {
	far := pick(d, "source", "source", "store")
	return fmt.Sprintf("standby and %s %s", far, w.net.sever(d, 15*time.Second, []string{"standby"}, []string{far}))
}

func (w *world) crashNow(dice) string {
	if !w.node.alive() {
		return ""
	}
	w.node.crash()
	return "now"
}

func (w *world) crashInWrite(d dice) string {
	if !w.node.alive() {
		return ""
	}
	w.node.disk.crashIn = d.IntN(pick(d, 3, 20, 100))
	return fmt.Sprintf("after %d more changes of the disk", w.node.disk.crashIn)
}

func (w *world) restartCleanly(dice) string {
	if !w.node.alive() || w.node.image == nil {
		return ""
	}
	w.node.run(w.node.shutDown)
	return "the node is stopped and started"
}

func (w *world) diskFull(d dice) string {
	span := d.between(500*time.Millisecond, 15*time.Second)
	room := int64(d.IntN(3000))
	w.full++
	w.setCapacity(room)
	w.k.after(span, "disk has room", func() {
		if w.full--; w.full == 0 {
			w.node.mem.SetCapacity(0)
		}
	})
	return fmt.Sprintf("%d bytes are left for %v", room, span.Round(time.Millisecond))
}

// setCapacity leaves room bytes on the node's disk.
func (w *world) setCapacity(room int64) {
	m := w.node.mem
	m.SetCapacity(0)
	m.SetCapacity(used(m, "/") + room)
	w.k.probe("disk: full")
}

func used(m *vfs.Mem, dir string) int64 {
	names, err := m.List(dir)
	if err != nil {
		return 0
	}
	var sum int64
	for _, name := range names {
		info, err := m.Stat(dir + "/" + name)
		switch {
		case err != nil:
		case info.IsDir:
			sum += used(m, dir+"/"+name)
		default:
			sum += info.Size
		}
	}
	return sum
}

func (w *world) diskError(d dice) string {
	if !w.node.alive() {
		return ""
	}
	k := w.node.disk
	k.failKinds = pick(d, opSync, opSyncDir, opWrite, opRename, opCreate|opRemove, opTruncate|opLink)
	k.failIn, k.failLate = d.IntN(pick(d, 2, 20)), d.chance(0.3)
	return fmt.Sprintf("the %d. operation of kinds %b from now fails", k.failIn+1, k.failKinds)
}

func (w *world) storeDown(d dice) string {
	if w.storeIsDown {
		return ""
	}
	span := d.between(200*time.Millisecond, 12*time.Second)
	w.storeIsDown = true
	w.store.SetDown(true)
	w.k.after(span, "store is back", func() {
		w.storeIsDown = false
		w.store.SetDown(false)
		w.storeChanged()
	})
	return fmt.Sprintf("for %v", span.Round(time.Millisecond))
}

func (w *world) holdWatch(d dice) string {
	if w.storeIsDown {
		return ""
	}
	span := d.between(100*time.Millisecond, 5*time.Second)
	w.store.HoldWatches(true)
	if d.chance(0.2) {
		w.store.Compact(1 << 40)
	}
	w.k.after(span, "watch goes on", func() {
		if !w.storeIsDown {
			w.store.HoldWatches(false)
			w.storeChanged()
		}
	})
	return fmt.Sprintf("for %v", span.Round(time.Millisecond))
}

func (w *world) expireLease(dice) string {
	if w.node.lease == 0 {
		return ""
	}
	w.store.ExpireLease(w.node.lease)
	w.storeChanged()
	return "the node's registration ends"
}

func (w *world) clockJump(d dice) string {
	by := time.Duration(d.Int64N(int64(4*time.Hour))) - 2*time.Hour
	w.node.clock.offset += by
	return fmt.Sprintf("the standby's wall clock by %v", by.Round(time.Second))
}

// failover orders the promotion of everything; later ones are retries that may change nothing.
func (w *world) failover(dice) string {
	w.failoverWanted = true
	n := w.node
	if !n.alive() || !n.serving || n.closing {
		return "ordered, the node is not there"
	}
	again := 0
	n.run(func() {
		for _, c := range n.parts {
			if rec, _ := c.record(); rec != nil && rec.Writable && n.alive() {
				c.lateRetry()
				again++
			}
		}
		n.promoteAll()
	})
	if again > 0 {
		return fmt.Sprintf("ordered again, %d partitions are writable already", again)
	}
	return "ordered"
}

func (w *world) writeHere(d dice) string {
	n := w.node
	if !n.alive() || !n.serving || n.closing || len(n.parts) == 0 {
		return ""
	}
	c := n.parts[d.IntN(len(n.parts))]
	out := ""
	n.run(func() { out = c.produceHere(d) })
	return out
}

func (w *world) purgeVault(dice) string {
	n := w.node
	if !n.alive() || n.vault == nil || w.o.VaultBytes < 0 {
		return ""
	}
	out := ""
	n.run(func() {
		list, err := n.vault.List()
		if err != nil || len(list) == 0 {
			return
		}
		w.check.purged(list[0].ID)
		if err := n.vault.Purge(list[0].ID); err == nil {
			out = "entry " + list[0].ID
		}
	})
	return out
}
