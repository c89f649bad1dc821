package sim

import (
	"bytes"
	"maps"
	"strings"
	"time"

	"tidemark/internal/core/epoch"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/internal/vfs"
)

// What the checkers permit where the store was put back in silence, and whoever starts
// first has followed nothing newer (ADR 29): nothing there can tell. Leader epochs above the
// backup's are given out once more, by processes whose folders don't know them; who leads may
// lack what was promised since the backup, and once all are back, after restore --in-place,
// one of the two histories is taken. Nothing else is: a log never holds records of both, what
// is cut is in the vault, and whoever knows better doesn't start.

// again is what such a return means for one partition.
type again struct {
	from  types.LeaderEpoch // epochs from here on are given out again; -1: none are
	since time.Duration     // when the backup was taken
	// went: somebody leads on the older metadata.
	went bool
	// served are those who served in such an epoch before.
	served map[types.LeaderEpoch]server
	// times counts the returns: a batch of an earlier one may have a twin.
	times int
}

// backInSilence takes note that the store is put back and nobody says so.
func (j *judge) backInSilence(b *metadataBackup) {
	for id, l := range j.ledgers {
		e, ok := b.epochs[id]
		if !ok {
			continue
		}
		a := &l.again
		a.from, a.since, a.went = e+1, b.at, false
		a.times++
		for e, s := range l.servers {
			if e >= a.from {
				a.served[e] = s
			}
		}
		for _, by := range []map[types.LeaderEpoch]server{l.servers, l.writers} {
			maps.DeleteFunc(by, func(e types.LeaderEpoch, _ server) bool { return e >= a.from })
		}
	}
}

// leadsOn judges a process that begins to serve while the store is back in silence.
func (j *judge) leadsOn(m *machine, h *held, l *ledger, e types.LeaderEpoch) {
	a := &l.again
	if !j.c.restores.wentBack || a.from < 0 {
		return
	}
	if !a.went {
		a.went = true
		j.c.k.note("store", "%s: is led on older metadata: what was promised since is known to nobody there", j.nameOf(l.id))
		j.promiseEndsSince(l, a.since)
	}
	if s, ok := a.served[e]; ok {
		j.c.k.probe("restore: a leader epoch is given out again")
		if knew := m.knew[h.part.Name().String()]; knew >= e {
			j.fail("OneLeader", "%s %s: serves in epoch %d, in which broker %d (registration %d, life %d) served before the store was put back; its folder knew epoch %d",
				m.name, h.part.Name(), e, s.id, s.epoch, s.life, knew)
		}
	}
}

// promiseEndsSince ends what was promised from a moment on.
func (j *judge) promiseEndsSince(l *ledger, since time.Duration) {
	l.unclean = j.c.k.now
	l.top = nil
	for base, w := range l.committed {
		if w.promised >= since {
			delete(l.committed, base)
		} else if l.top == nil || l.top.base < base {
			l.top = w
		}
	}
	j.forgetGroups(l.id)
	if t := j.c.txns; t != nil {
		t.judge.forgotten(l.id)
	}
}

// oneHistory takes note of a restore that says so: where somebody led on the older metadata the
// best log of both histories leads from now on.
func (j *judge) oneHistory() {
	for _, l := range j.ledgers {
		if l.again.went {
			j.c.k.probe("restore: two histories meet")
			j.promiseEndsSince(l, 0)
		}
		l.again.from, l.again.went = -1, false
	}
}

// batchOf is the batch that was written where this one stands: of two that were, in an
// epoch that was given out twice, the one that it is.
func (l *ledger) batchOf(b *shadowBatch) *writtenBatch {
	first := l.written[place{b.base, b.epoch}]
	for w := first; w != nil && first.twin != nil; w = w.twin {
		if l.compacted {
			if _, foreign := foreignRecord(b.raw, w.raw); !foreign {
				return w
			}
		} else if bytes.Equal(w.raw, b.raw) {
			return w
		}
	}
	return first
}

// mayBeTwin reports whether a batch that differs from the one written at its place may
// be new: in an epoch that is given out again, at its leader, once.
func (l *ledger) mayBeTwin(h *held, w *writtenBatch) bool {
	e, err := h.part.LeaderEpoch()
	return err == nil && e == w.epoch && l.again.from >= 0 && e >= l.again.from && w.times < l.again.times
}

// noteHistories reads which leader epochs the folders know of, before a start.
func (m *machine) noteHistories() {
	m.knew = map[string]types.LeaderEpoch{}
	names, err := m.mem.List(logDir)
	if err != nil {
		return
	}
	for _, name := range names {
		if !strings.Contains(name, "-") {
			continue
		}
		text, err := vfs.ReadFile(m.mem, logDir+"/"+name+"/"+epoch.CheckpointFile, 1<<20)
		if err != nil {
			continue
		}
		if entries, err := epoch.ParseCheckpoint(text); err == nil && len(entries) > 0 {
			m.knew[name] = entries[len(entries)-1].Epoch
		}
	}
}

// epochsNow are the leader epochs of all partitions' records.
func (j *judge) epochsNow() map[meta.PartitionID]types.LeaderEpoch {
	out := map[meta.PartitionID]types.LeaderEpoch{}
	for id, l := range j.ledgers {
		if l.record != nil {
			out[id] = l.record.LeaderEpoch
		}
	}
	return out
}
