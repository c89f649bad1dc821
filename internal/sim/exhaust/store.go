package exhaust

import (
	"tidemark/internal/core/control"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
)

// topicID is the one topic's, on both clusters: a mirror's topic keeps its source's.
var topicID = types.TopicID{1}

// clusterIDs name the clusters.
var clusterIDs = [clusters]string{"A", "B"}

// mirrorName is the name of the one mirror that a cluster may have: of the other cluster.
const mirrorName = "standby"

var partitionID = meta.PartitionID{Topic: topicID}

// bases are the images without partition and registrations.
var bases = [clusters]*meta.Image{baseImage(0), baseImage(1)}

func baseImage(c int) *meta.Image {
	keys := meta.KeysOf(clusterIDs[c])
	image, _ := meta.Load(clusterIDs[c], []meta.KV{
		{Key: keys.Topic(topicID), Value: meta.TopicRecord{ID: topicID, Name: "t", Partitions: 1}.Encode(), CreateRevision: 1, ModRevision: 1},
		{Key: keys.Name("t"), Value: meta.NameRecord{ID: topicID}.Encode(), CreateRevision: 1, ModRevision: 1},
	}, 1)
	return image
}

// partitionKeys and brokerKeys are the keys that transactions compare.
var (
	partitionKeys [clusters]string
	brokerKeys    [clusters][replicas]string
)

func init() {
	for c := range clusters {
		keys := meta.KeysOf(clusterIDs[c])
		partitionKeys[c] = keys.Partition(topicID, 0)
		for i := range replicas {
			brokerKeys[c][i] = keys.Broker(types.BrokerID(i + 1))
		}
	}
}

// image is the cluster's metadata as the store has it.
func (k *cluster) image(c int) *meta.Image {
	p := &meta.Partition{ID: partitionID, Record: k.rec, CreateRevision: 1, ModRevision: k.rev}
	var list []*meta.Broker
	for _, n := range k.nodes {
		if n.up {
			rec := &meta.BrokerRecord{ID: n.id, CleanShutdownEpoch: n.clean}
			list = append(list, &meta.Broker{ID: n.id, Record: rec, CreateRevision: meta.Revision(n.epoch), ModRevision: meta.Revision(n.epoch)})
		}
	}
	return bases[c].With(p, list...)
}

func (n *node) me() control.Me { return control.Me{ID: n.id, Epoch: n.epoch} }

// holds reports whether a transaction's compares do (R7).
func (k *cluster) holds(c int, list []meta.Compare) bool {
	for _, cmp := range list {
		var create, mod meta.Revision
		switch cmp.Key {
		case partitionKeys[c]:
			create, mod = 1, k.rev
		default:
			for i, key := range brokerKeys[c] {
				if cmp.Key == key && k.nodes[i].up {
					create, mod = meta.Revision(k.nodes[i].epoch), meta.Revision(k.nodes[i].epoch)
				}
			}
		}
		switch {
		case cmp.Kind == meta.CompareModRevision && cmp.Revision != mod, cmp.Kind == meta.CompareCreateRevision && cmp.Revision != create:
			return false
		}
	}
	return true
}

// write makes the transaction of a leader's change of the record (R7): what
// control.UpdatePartition compares. ok is false if it may not write.
func (x *step) write(c, i int, rec meta.PartitionRecord, kind txnKind, from meta.Revision) (*txn, bool) {
	k := &x.s.c[c]
	n := k.nodes[i]
	if !n.up || k.rev != from {
		return nil, false
	}
	plan, err := control.UpdatePartition(k.image(c), topicID, 0, rec, n.me())
	if err != nil {
		return nil, false
	}
	return &txn{plan: x.w.rules.compares(c, plan.If), record: &rec, node: i, epoch: n.epoch, kind: kind}, true
}

// commit carries a transaction out, if it holds, and shows the record: to
// everybody, or, with lag, only to who is not behind.
func (x *step) commit(c int, t *txn, lag lagging) bool {
	k := &x.s.c[c]
	if !k.holds(c, t.plan) {
		return false
	}
	x.checkRecord(c, t)
	k.revision++
	k.rec, k.rev = t.record, k.revision
	for i := range k.nodes {
		if k.nodes[i].up && lag != lagging(i) {
			x.shown(c, i)
		}
	}
	return true
}

// lagging names a node to whom a record is shown later, or nobody.
type lagging int8

const nobody lagging = -1

// finish answers a machine's proposal, once its image shows a later record (R8).
func (x *step) finish(c int, t *txn, applied bool) {
	n := x.s.c[c].nodes[t.node]
	if !n.up || n.epoch != t.epoch {
		return
	}
	switch t.kind {
	case forMachine:
		if n.machine != nil && n.machine.Waits(t.ticket) {
			x.shown(c, t.node)
			x.answerProposal(c, t.node, t.ticket, applied)
		}
	case forISR:
		if !applied && n.leader != nil && n.leader.Pending() != nil {
			x.leaderOf(c, t.node).ISRRefused()
			x.refresh(c, t.node)
		}
	}
}

// settleLate drops transactions that can't hold any more (revisions never come
// back), once whoever waits for them is shown why.
func (x *step) settleLate() {
	for c := range x.s.c {
		k := &x.s.c[c]
		for i := 0; i < len(k.late); {
			t := k.late[i]
			n := k.nodes[t.node]
			waits := n.up && n.epoch == t.epoch
			if k.holds(c, t.plan) || waits && n.rev != k.rev {
				i++
				continue
			}
			k.late = append(append([]*txn{}, k.late[:i]...), k.late[i+1:]...)
			x.finish(c, t, n.rec == t.record)
		}
	}
}
