package sim

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/internal/metastore"
	"tidemark/internal/metastore/backup"
	"tidemark/internal/metastore/mem"
	"tidemark/internal/vfs"
)

// metadataBackup is what an operator keeps: a file (tidemark cluster backup), and
// beside it a snapshot of the store, as etcd's own tools take it.
type metadataBackup struct {
	file     *backup.Backup
	snapshot mem.Backup
	topic    types.TopicID
	replicas map[meta.PartitionID][]types.BrokerID
	epochs   map[meta.PartitionID]types.LeaderEpoch
	at       time.Duration
}

// restores is what becomes of restores in a run.
type restores struct {
	begun, ids int
	// wentBack: the store was put back and nobody has said so; nobody may start who has
	// followed it further (METADATA_WENT_BACK). to is the revision it went back to.
	wentBack bool
	to       meta.Revision
	// pastFrom: of revisions below it the store holds nothing any more, 0: it holds all since it went back.
	pastFrom meta.Revision
}

// takeBackup takes a backup, as an operator does who sleeps well.
func (c *cluster) takeBackup(dice) string {
	if c.topic.IsZero() || c.storeIsDown || c.o.Members > 0 && !c.check.hasOffsets || c.o.Txns > 0 && !c.check.hasTxns {
		return ""
	}
	file, err := backup.Take(background, c.store, "cluster")
	if err != nil {
		return ""
	}
	b := &metadataBackup{file: file, snapshot: c.store.Backup(), topic: c.topic, replicas: map[meta.PartitionID][]types.BrokerID{}, epochs: c.check.epochsNow(), at: c.k.now}
	for id, l := range c.check.ledgers {
		if l.record != nil {
			b.replicas[id] = l.record.Replicas
		}
	}
	c.backup = b
	return fmt.Sprintf("at revision %d", file.Revision)
}

// restore puts the metadata back to the last backup: all nodes are stopped, the
// metadata is put back, they start.
func (c *cluster) restore(d dice) string {
	b := c.backup
	if b == nil || b.topic != c.topic || c.wantTopic != c.topic || c.stopped || c.storeIsDown || c.restores.begun >= 2 {
		return ""
	}
	c.restores.begun++
	c.stopped = true
	c.backup = nil // what is older than a restore is another story
	for _, m := range c.machines {
		if d.chance(0.6) || !m.shutDown(0) {
			m.kill()
		}
	}
	c.k.after(6*time.Second, "nodes that don't stop are killed", func() {
		for _, m := range c.machines {
			m.kill()
		}
		c.whenUnregistered(func() { c.putBack(b, d) })
	})
	return fmt.Sprintf("of revision %d: all nodes are stopped", b.file.Revision)
}

// kill ends a process without any loss of what it has written.
func (m *machine) kill() {
	if !m.up() {
		return
	}
	m.k.probe("disk: process killed")
	m.c.eye().lost(m, false)
	m.disk.dead = true
	m.gone()
}

// whenUnregistered goes on once no broker is registered any more, and the store answers.
func (c *cluster) whenUnregistered(then func()) {
	busy := c.storeIsDown
	for _, seen := range c.check.leaseOf {
		busy = busy || seen.ended < 0
	}
	if kvs, _, err := c.store.Range(background, meta.KeysOf("cluster").Root()+"brokers/"); err != nil || len(kvs) > 0 {
		busy = true
	}
	if busy {
		c.k.after(time.Second, "operator waits", func() { c.whenUnregistered(then) })
		return
	}
	then()
}

// putBack puts a backup in the place of the present metadata: from the file, or
// silently, as a snapshot of the store does. Then some node has to notice.
func (c *cluster) putBack(b *metadataBackup, d dice) {
	if c.healed {
		c.start()
		return
	}
	c.store.ReleaseLate()
	c.check.metadataBack(b)
	if d.chance(0.5) || c.mutation.restoreUnmarked {
		c.must("delete the metadata", c.deleteAll())
		if c.mutation.restoreUnmarked {
			c.must("restore", c.putUnmarked(b.file))
			c.start()
			return
		}
		_, err := backup.Restore(background, c.store, b.file, meta.SupportedFeatures(), c.restoreID(), epoch2026)
		c.must("restore", err)
		c.restores.wentBack = false // this one says so, whatever came before
		c.check.oneHistory()
		c.k.probe("operator: metadata restored from a file")
		c.start()
		return
	}
	c.store.Restore(b.snapshot)
	c.check.backInSilence(b)
	c.restores.wentBack, c.restores.to, c.restores.pastFrom = true, b.file.Revision, 0
	for _, m := range c.machines {
		m.joinedBack = false
	}
	c.k.note("operator", "the store is put back to revision %d, and nobody says so", b.file.Revision)
	c.start()
	c.k.after(d.between(5*time.Second, 15*time.Second), "operator reads what the nodes say", c.recoverInPlace)
}

// recoverInPlace is tidemark cluster restore --in-place.
func (c *cluster) recoverInPlace() {
	if !c.restores.wentBack {
		return
	}
	c.stopped = true
	for _, m := range c.machines {
		m.kill()
	}
	c.whenUnregistered(func() {
		c.store.ReleaseLate()
		c.check.metadataBack(nil)
		_, err := backup.Recover(background, c.store, "cluster", c.restoreID(), epoch2026)
		c.must("restore --in-place", err)
		c.restores.wentBack = false
		c.check.oneHistory()
		c.k.probe("operator: metadata recovered in place")
		c.start()
	})
}

// restoreID gives each restore an id of its own (I-221): one may begin before another is done.
func (c *cluster) restoreID() string {
	c.restores.ids++
	return "restore-" + strconv.Itoa(c.restores.ids)
}

func (c *cluster) must(what string, err error) {
	c.k.note("operator", "%s: %v", what, err)
	if err != nil {
		c.check.fail("RestoreWorks", "%s: %v", what, err)
	}
}

// start lets the nodes start.
func (c *cluster) start() {
	c.stopped = false
	c.storeChanged()
	for i, m := range c.machines {
		c.k.after(time.Duration(i)*20*time.Millisecond, "boot", m.boot)
	}
}

// deleteAll deletes the cluster's keys, as etcdctl does.
func (c *cluster) deleteAll() error {
	kvs, _, err := c.store.Range(background, meta.KeysOf("cluster").Root())
	for chunk := range slices.Chunk(kvs, 100) {
		var txn metastore.Txn
		for _, kv := range chunk {
			txn.Then = append(txn.Then, meta.Delete(kv.Key))
		}
		_, fault := c.store.Txn(background, txn)
		err = errors.Join(err, fault)
	}
	return err
}

// metadataBack takes note that the records are older ones from now on. b is nil where
// the store went back before. Whose replicas are others now may have been lost: their
// folders are set aside and told.
func (j *judge) metadataBack(b *metadataBackup) {
	for id, l := range j.ledgers {
		if b != nil && l.record != nil && !sameReplicas(b.replicas[id], l.record) {
			j.c.k.probe("restore: other replicas than in the backup")
			clear(l.committed)
			l.top = nil
			l.unclean = j.c.k.now
			j.forgetGroups(id)
			if t := j.c.txns; t != nil {
				t.judge.forgotten(id)
			}
		}
		if l.record != nil && !l.record.Restored {
			l.before = slices.Concat(l.record.ISR, l.record.ELR)
		}
		l.record, l.uncleanIn = nil, -1 // epochs below it may be given again
	}
	clear(j.revisions)
	clear(j.leaseOf)
	j.seen = 0
}

// keepsOne reports whether one of the members has lost nothing since: its process
// lives, or its present registration says that all was kept.
func (j *judge) keepsOne(members []meta.ISRMember) bool {
	return slices.ContainsFunc(members, func(m meta.ISRMember) bool {
		now := j.leaseOf[m.ID]
		return now != nil && (now.epoch == m.BrokerEpoch || j.clean[now.epoch] == m.BrokerEpoch)
	})
}

// sameReplicas reports whether who held a partition then holds it now, and somebody leads it:
// then the best of their logs has all that was promised.
func sameReplicas(then []types.BrokerID, now *meta.PartitionRecord) bool {
	a, b := slices.Clone(then), slices.Clone(now.Replicas)
	slices.Sort(a)
	slices.Sort(b)
	return slices.Equal(a, b) && now.Leader != types.NoBroker && !now.Restored
}

// started judges a process that serves while the metadata is older than what its
// folder has followed, and nobody has said so (MetadataWentBack, R19). Whose folder
// knew nothing newer when it first read this metadata has followed it rightly since.
func (j *judge) started(m *machine) {
	if !j.c.restores.wentBack || !m.node.IsReady() || m.toldBack {
		return
	}
	m.toldBack = true
	switch {
	case m.followedTo <= j.c.restores.to:
		j.c.k.probe("restore: a node starts that knew nothing newer")
	case m.joinedBack:
		j.c.k.probe("restore: a node starts again on metadata that it found when it knew nothing newer")
	case m.pastGone && m.followedTo <= m.bootedOn && (m.since == 0 || m.since > m.followedTo):
		// Nothing tells the histories apart: the store has dropped its past, and whoever is registered came later.
		m.joinedBack = true
	default:
		j.fail("MetadataWentBack", "%s serves on metadata that was put back to revision %d, and was at %d when it read it; its folder had followed it to %d",
			m.name, j.c.restores.to, m.bootedOn, m.followedTo)
	}
}

// followedNotes are the files in which a folder notes how far it has followed the metadata:
// the one by which it deletes, and that of a restore it has entered and not yet swept after.
var followedNotes = []string{"metadata-revision-checkpoint", "metadata-restore-checkpoint"}

// noteFollowed reads how far a machine's folder has followed the metadata, before a start:
// what the furthest of its notes says. Revisions rise but where the store goes back in silence:
// of a restore that came after that, which it has entered, the note of it is the later one.
func (m *machine) noteFollowed() {
	m.toldBack, m.followedTo, m.bootedOn = false, 0, 0
	sweptFor := ""
	for _, name := range followedNotes {
		raw, err := vfs.ReadFile(m.mem, logDir+"/"+name, 512)
		if err != nil {
			continue
		}
		lines := strings.Split(strings.TrimSpace(string(raw)), "\n")
		if len(lines) < 4 || lines[0] != "3" {
			continue
		}
		n, err := strconv.ParseInt(lines[2], 10, 64)
		if err != nil {
			continue
		}
		if lines[1] != "" && lines[1] != sweptFor {
			m.followedTo = 0
		}
		m.followedTo, sweptFor = max(m.followedTo, meta.Revision(n)), lines[1]
	}
}

// noteRead takes note of the metadata that a process reads before it registers: at which
// revision, the first registration in it that was made since it went back, and whether
// the store still knows what it was when this folder last followed it.
func (m *machine) noteRead(kvs []metastore.KV, rev meta.Revision) {
	r := &m.c.restores
	m.bootedOn, m.since, m.pastGone = rev, 0, r.pastFrom > m.followedTo
	m.joinedBack = m.joinedBack || r.wentBack && m.followedTo <= r.to
	keys := meta.KeysOf("cluster")
	for _, kv := range kvs {
		office := kv.Key == keys.Controller() || strings.HasPrefix(kv.Key, keys.Root()+"brokers/")
		if office && kv.CreateRevision > r.to && (m.since == 0 || kv.CreateRevision < m.since) {
			m.since = kv.CreateRevision
		}
	}
}

// forgetPast drops the store's history, as a compaction does.
func (c *cluster) forgetPast() {
	_, rev, err := c.store.Get(background, "")
	if err != nil {
		return
	}
	c.store.Compact(rev)
	c.restores.pastFrom = rev
}
