package sim

import (
	"fmt"
	"maps"
	"slices"

	"tidemark/internal/broker/coordinator"
	"tidemark/internal/broker/coordinator/transactions"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
)

// stored looks at what the store holds after a call to it; false if nothing has changed.
func (j *judge) stored() bool {
	kvs, rev, err := j.c.store.Range(background, meta.KeysOf("cluster").Root())
	if err != nil || rev == j.seen {
		return false
	}
	j.seen = rev
	registered := map[types.BrokerID]bool{}
	there := map[meta.PartitionID]bool{}
	j.named, j.hasOffsets, j.hasTxns = false, false, false
	for _, kv := range kvs {
		seen := j.revisions[kv.Key]
		if seen.revision == kv.ModRevision {
			j.stillThere(seen.key, registered, there)
			continue
		}
		key, err := meta.KeysOf("cluster").Parse(kv.Key)
		if err != nil {
			continue
		}
		j.revisions[kv.Key] = seenKey{key: key, revision: kv.ModRevision}
		j.stillThere(key, registered, there)
		switch key.Kind {
		case meta.KeyBroker:
			j.registered(kv)
		case meta.KeyName:
			if n, err := meta.DecodeName(kv.Key, kv.Value); err == nil && key.Name == clusterTopic {
				j.topicID = n.ID
			}
		case meta.KeyPartition:
			j.recordWritten(kv, meta.PartitionID{Topic: key.TopicID, Number: key.Partition})
		}
	}
	j.c.topic = types.TopicID{}
	if j.named {
		j.c.topic = j.topicID
	}
	for _, id := range slices.Sorted(maps.Keys(j.leaseOf)) {
		if seen := j.leaseOf[id]; !registered[id] && seen.ended < 0 {
			seen.ended = j.c.k.now
			j.c.k.note("store", "broker %d is registered no more, epoch %d", id, seen.epoch)
		}
	}
	for id, l := range j.ledgers {
		if l.record != nil && !there[id] {
			l.deleted, l.record = true, nil
			j.forgotten(id, nil)
		}
	}
	return true
}

// seenKey is a key of the store as it was looked at last.
type seenKey struct {
	key      meta.Key
	revision meta.Revision
}

func (j *judge) stillThere(key meta.Key, registered map[types.BrokerID]bool, there map[meta.PartitionID]bool) {
	switch key.Kind {
	case meta.KeyBroker:
		registered[key.Broker] = true
	case meta.KeyName:
		j.named = j.named || key.Name == clusterTopic
		j.hasOffsets = j.hasOffsets || key.Name == coordinator.OffsetsTopic
		j.hasTxns = j.hasTxns || key.Name == transactions.StateTopic
	case meta.KeyPartition:
		there[meta.PartitionID{Topic: key.TopicID, Number: key.Partition}] = true
	}
}

func (j *judge) registered(kv meta.KV) {
	rec, err := meta.DecodeBroker(kv.Key, kv.Value)
	if err != nil {
		return
	}
	epoch := types.BrokerEpoch(kv.CreateRevision)
	if seen := j.leaseOf[rec.ID]; seen != nil && seen.epoch == epoch {
		return
	}
	j.leaseOf[rec.ID] = &leaseSeen{epoch: epoch, ended: -1}
	if by, ok := j.c.registrations[string(kv.Value)]; ok {
		j.lives[epoch] = by
	}
	j.clean[epoch] = rec.CleanShutdownEpoch
	j.c.k.note("store", "broker %d is registered, epoch %d (kept since %d)", rec.ID, epoch, rec.CleanShutdownEpoch)
}

// recordWritten judges a partition's new record against the one before.
func (j *judge) recordWritten(kv meta.KV, id meta.PartitionID) {
	rec, err := meta.DecodePartition(kv.Key, kv.Value)
	if err != nil {
		j.fail("EpochRises", "record %s can't be read: %v", kv.Key, err)
		return
	}
	l := j.ledger(id)
	old := l.record
	if old != nil && slices.Equal(kv.Value, old.Encode()) {
		return
	}
	l.record, l.deleted = rec, false
	j.forgotten(id, rec)
	j.c.k.note("store", "%s: leader %d epoch %d isr %v elr %v replicas %v", j.nameOf(id), rec.Leader, rec.LeaderEpoch, rec.ISR, rec.ELR, rec.Replicas)
	if old != nil {
		if rec.LeaderEpoch < old.LeaderEpoch {
			j.fail("EpochRises", "%s: leader epoch falls from %d to %d", kv.Key, old.LeaderEpoch, rec.LeaderEpoch)
		}
		if (rec.Leader != old.Leader || rec.LeaderBrokerEpoch != old.LeaderBrokerEpoch) && rec.Leader != types.NoBroker {
			j.elected(l, old, rec)
		}
	}
	j.isrHolds(l, "the record changes")
}

// elected judges an election: one that is not clean needs somebody's permission (R11).
func (j *judge) elected(l *ledger, old, rec *meta.PartitionRecord) {
	if rec.LeaderEpoch == old.LeaderEpoch {
		j.fail("EpochRises", "partition %d: broker %d leads, then broker %d (registration %d), both in epoch %d", l.id.Number, old.Leader, rec.Leader, rec.LeaderBrokerEpoch, rec.LeaderEpoch)
		return
	}
	if old.Restored && !old.UncleanOnce {
		j.c.k.probe("election: after a restore")
		if !j.keepsOne(l.before) { // whoever held it all has lost bytes: the best log that is left leads
			j.promiseEnds(l, rec)
		}
		return // all replicas have told what they hold: the best of them leads
	}
	for _, m := range slices.Concat(old.ISR, old.ELR) {
		if m.ID == rec.Leader && (m.BrokerEpoch == rec.LeaderBrokerEpoch || j.clean[rec.LeaderBrokerEpoch] == m.BrokerEpoch) {
			return
		}
	}
	if len(old.Replicas) > 1 && !old.UncleanOnce && !j.c.o.Unclean {
		j.fail("UncleanNotAllowed", "partition %d: broker %d (registration %d) is elected in epoch %d; in sync were %v, eligible %v", l.id.Number, rec.Leader, rec.LeaderBrokerEpoch, rec.LeaderEpoch, old.ISR, old.ELR)
		return
	}
	j.c.k.probe("election: unclean")
	j.promiseEnds(l, rec)
}

func (j *judge) promiseEnds(l *ledger, rec *meta.PartitionRecord) {
	j.c.k.note("store", "%s: an unclean election ends what was promised", j.nameOf(l.id))
	l.unclean, l.uncleanIn = j.c.k.now, rec.LeaderEpoch
	clear(l.committed)
	l.top = nil
	j.forgetGroups(l.id)
	if t := j.c.txns; t != nil {
		t.judge.forgotten(l.id)
	}
}

// nameOf is a partition as the story tells of it.
func (j *judge) nameOf(id meta.PartitionID) string {
	if id.Topic == j.c.offsetsTopic {
		return fmt.Sprintf("offsets, partition %d", id.Number)
	}
	if t := j.c.txns; t != nil && id.Topic == t.topic {
		return fmt.Sprintf("transactions, partition %d", id.Number)
	}
	return fmt.Sprintf("partition %d", id.Number)
}
