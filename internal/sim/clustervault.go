package sim

import (
	"bytes"
	"fmt"
	"time"

	"tidemark/internal/batch"
	"tidemark/internal/broker"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/internal/log"
	"tidemark/internal/vault"
)

// remembered is what a machine's log held when its process ended.
type remembered struct {
	batches []shadowBatch
	start   types.Offset
	end     types.Offset
	// synced is the recovery point: below it everything survives a loss of power.
	synced    types.Offset
	lostPower bool
}

// lost takes note of the end of a machine's process, and of what it had made durable.
func (j *judge) lost(m *machine, power bool) {
	for _, h := range m.parts {
		v, ok := h.part.View()
		if !ok || !h.known {
			continue
		}
		m.kept[h.id] = &remembered{batches: h.batches, start: h.start, end: h.end, synced: v.RecoveryPoint}
	}
	for _, r := range m.kept {
		r.lostPower = r.lostPower || power
	}
}

// opened judges a log at the first look after a start: what was durable is there,
// or in the vault (a cut was under way), or was deleted by its owner (VaultComplete, R1).
func (j *judge) opened(m *machine, h *held, l *ledger) {
	old := m.kept[h.id]
	delete(m.kept, h.id)
	for i := range m.owed[h.id] {
		j.mustBeKept(m, h, &m.owed[h.id][i], "it was cut before the process ended")
	}
	delete(m.owed, h.id)
	if old == nil || l.compacted || m.lateKept > 0 {
		return
	}
	for i := range old.batches {
		b := &old.batches[i]
		durable := !old.lostPower || b.next <= old.synced
		if !durable || b.next <= max(h.start, l.starts.legal) && h.start <= old.end || h.has(b) {
			continue
		}
		j.mustBeKept(m, h, b, fmt.Sprintf("it was durable (log [%d, %d), synced to %d) when the process ended", old.start, old.end, old.synced))
	}
}

// forgotten drops what is known of a replica that a machine is to hold no more.
func (j *judge) forgotten(id meta.PartitionID, rec *meta.PartitionRecord) {
	for _, m := range j.c.machines {
		if rec == nil || !isReplica(rec, m.id) {
			delete(m.kept, id)
			delete(m.owed, id)
		}
	}
}

func isReplica(rec *meta.PartitionRecord, id types.BrokerID) bool {
	for _, r := range rec.Replicas {
		if r == id {
			return true
		}
	}
	return false
}

// removed judges what went from a log: by a cut it is in the vault (VaultComplete).
// What a log start passed was let go by its owner: startMoved judges that.
func (j *judge) removed(m *machine, h *held, l *ledger, old *shadow) {
	if l.compacted {
		return
	}
	anew := h.start > old.end
	if anew {
		j.c.k.probe("follower: log begins anew above its end")
	}
	for i := range old.batches {
		b := &old.batches[i]
		if h.has(b) || !anew && b.next <= h.start {
			continue
		}
		j.mustBeKept(m, h, b, "it was cut")
		if j.c.k.failure != nil {
			return
		}
	}
}

// mustBeKept asks the machine's vault for a removed batch.
func (j *judge) mustBeKept(m *machine, h *held, b *shadowBatch, why string) {
	if m.lateKept > 0 {
		m.owed[h.id] = append(m.owed[h.id], *b)
		return // the mutation's turn comes when the process ends
	}
	v := m.node.Broker().Vault()
	if v.Usage().DroppedRecords > 0 {
		j.c.k.probe("vault: full, uncommitted records dropped")
		j.droppedRightly(m, h, b)
		return // R29 let some go, and they are counted
	}
	if !j.inVault(m, v, h.id, b.raw) {
		j.fail("VaultComplete", "%s %s: %s is gone from the log [%d, %d) and not in the vault: %s", m.name, h.part.Name(), b, h.start, h.end, why)
	}
}

// droppedRightly demands that a record which anybody was promised is never dropped unkept (R29).
func (j *judge) droppedRightly(m *machine, h *held, b *shadowBatch) {
	w := j.ledger(h.id).committed[b.base]
	if w == nil || w.epoch != b.epoch || j.inVault(m, m.node.Broker().Vault(), h.id, b.raw) {
		return
	}
	j.fail("VaultComplete", "%s %s: %s was %s and is dropped unkept by a full vault (R29)", m.name, h.part.Name(), b, w.how)
}

// inVault looks for a batch in a machine's vault.
func (j *judge) inVault(m *machine, v *vault.Vault, id meta.PartitionID, raw []byte) bool {
	entries, err := v.List()
	if err != nil {
		j.fail("VaultComplete", "the vault of %s can't be read: %v", m.name, err)
		return true
	}
	for i := range entries {
		e := &entries[i]
		if e.TopicID != id.Topic || e.Partition != id.Number || e.Damaged != "" {
			continue
		}
		for _, b := range j.entryBatches(m, v, e.ID) {
			if bytes.Equal(b, raw) {
				return true
			}
		}
	}
	return false
}

// entryBatches reads an entry once; what is kept never changes.
func (j *judge) entryBatches(m *machine, v *vault.Vault, id string) [][]byte {
	key := m.name + " " + id
	if list, ok := j.vaults[key]; ok {
		return list
	}
	var list [][]byte
	err := v.Batches(id, func(_ *batch.Header, raw []byte) error {
		list = append(list, bytes.Clone(raw))
		return nil
	})
	if err != nil {
		if !m.disk.dead {
			j.fail("VaultComplete", "entry %s of %s can't be read: %v", id, m.name, err)
		}
		return nil
	}
	j.vaults[key] = list
	return list
}

// keeper is what takes a cut's records in the place of the vault, for mutations.
func (m *clusterMutation) keeper(of *machine) func(log.Keeper) log.Keeper {
	switch {
	case m.noVault:
		return func(log.Keeper) log.Keeper { return noKeeper{} }
	case m.vaultLate:
		return func(v log.Keeper) log.Keeper { return &lateClusterKeeper{m: of, p: of.p, vault: v} }
	}
	return nil
}

// lateClusterKeeper keeps a removal a while after the cut.
type lateClusterKeeper struct {
	m     *machine
	p     *process
	vault log.Keeper
}

// Keep implements log.Keeper.
func (l *lateClusterKeeper) Keep(r log.Removal) (string, error) {
	copied, err := copyOf(r)
	if err != nil {
		return "", err
	}
	l.m.lateKept++
	l.p.later(2*time.Second, "keep late", func() {
		if l.m.lateKept--; l.m.lateKept == 0 {
			clear(l.m.owed)
		}
		_, _ = l.vault.Keep(copied) // what comes of it is what the checkers are to see
	})
	return "kept-later", nil
}

// rulesOf are the rules of a process of a machine.
func (m *clusterMutation) rulesOf(of *machine) broker.VirtualRules {
	r := m.rules
	if k := m.keeper(of); k != nil {
		r.Mirrors.Keeper = k
	}
	return r
}

// raiseVaults is the operator who gives full vaults room after the faults: one
// node after the other is restarted with a larger bound.
func (c *cluster) raiseVaults() {
	if c.o.VaultBytes <= 0 || c.world != nil {
		return
	}
	c.o.VaultBytes = 0
	for i, m := range c.machines {
		c.k.after(time.Duration(i)*8*time.Second, "operator raises vault.max.bytes", func() {
			if m.up() && !m.shutDown(100*time.Millisecond) {
				m.kill()
			}
		})
	}
}
