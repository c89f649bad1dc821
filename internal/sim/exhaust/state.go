package exhaust

import (
	"slices"

	"tidemark/internal/core/meta"
	"tidemark/internal/core/mirror"
	"tidemark/internal/core/modellog"
	"tidemark/internal/core/replica"
	"tidemark/internal/core/timeline"
	"tidemark/internal/core/types"
)

const (
	clusters = 2
	replicas = 2
)

// state is everything. Clones share what only one step at a time may change: a
// step copies a node, its leader or its machine before it changes them.
type state struct {
	c    [clusters]cluster
	left budgets
	// acked are records that were acknowledged with acks=all, and whether they still must be there.
	acked []ackedRecord
	// gone are records that retention or compaction took, lost those of which a loss of power took the last copy.
	gone, lost []modellog.Record
}

// cluster is one cluster's metadata and its replicas.
type cluster struct {
	rec *meta.PartitionRecord // never changed, only replaced
	rev meta.Revision         // its modification revision
	// revision counts the store's transactions; registrations take theirs from it.
	revision meta.Revision
	nodes    [replicas]*node
	late     []*txn // transactions whose outcome nobody knows yet
	// quoted is the plan that the operator has looked at last, planned the one that
	// the start under way quoted.
	quoted, planned preview
	// branched is the lowest offset from which on the partition's list has changed
	// since its mirror's last append, -1 if there is none (R28).
	branched types.Offset
}

// preview is what an operator saw before a failback.
type preview struct {
	id     string
	logEnd types.Offset
	cutAt  types.Offset
}

// node is one broker with its replica.
type node struct {
	id types.BrokerID
	// On disk.
	log      modellog.Log
	synced   types.Offset // a loss of power leaves the log up to here
	point    timeline.Checkpoint
	hasPoint bool
	vault    []kept
	mark     types.BrokerEpoch // the registration that a clean shutdown ended, NoBrokerEpoch if none

	// The process, if it runs.
	up    bool
	epoch types.BrokerEpoch // its registration
	clean types.BrokerEpoch // what its registration says of the one before

	rec      *meta.PartitionRecord // as its image shows it
	rev      meta.Revision
	leading  bool
	assigned types.LeaderEpoch // prepared in this leader epoch, -1: not yet
	leader   *replica.Leader
	follower replica.Follower
	gen      uint64
	answer   *answer // of its leader, on its way
	owesCut  bool    // following is put off: the first cut can't be made

	machine    *mirror.Partition
	ask        mirror.Effect // what the machine waits for
	askFrom    meta.Revision // of the record that a proposal was made from
	caught     *caught       // the source's answer to it, on its way
	held       bool          // clients and followers aren't answered
	realigning bool
	owing      bool
	allFetched bool
	machineRev meta.Revision // of the record that the machine was shown
	led        bool          // as the machine was shown

	// served is the highest offset that clients could read in the leader epoch servedIn.
	served   types.Offset
	servedIn types.LeaderEpoch
}

// kept is what one cut sent to the vault.
type kept struct {
	from, to types.Offset // the offsets that went, to exclusive
	records  []modellog.Record
}

// answer is a leader's answer to a follower.
type answer struct {
	reply replica.Reply
	sent  []modellog.Record
	// leader is its log when it answered, for the checks.
	leader *modellog.Log
}

// caught is a source's answer to a mirror's look-up or fetch.
type caught struct {
	ticket mirror.Ticket
	event  mirror.Event // SourceShown or Fetched
	sent   []modellog.Record
	// source is its log when it answered, for the checks.
	source *modellog.Log
}

// ackedRecord is a record that was acknowledged.
type ackedRecord struct {
	modellog.Record
	cluster int
	excused bool // an unclean election, an adoption or the source's loss took it: a vault has it
}

// txn is a transaction on its way to the store.
type txn struct {
	plan   []meta.Compare
	record *meta.PartitionRecord
	node   int // who wrote it
	epoch  types.BrokerEpoch
	kind   txnKind
	ticket mirror.Ticket
	// looked is the leader's log end when a start was judged, 0 for anything else.
	looked types.Offset
}

// txnKind says who waits for a transaction.
type txnKind int8

const (
	forMachine txnKind = iota
	forISR
	forVerb
)

// clone copies the state so that a step may change it; nodes are shared.
func (s *state) clone() *state {
	out := *s
	out.acked = s.acked[:len(s.acked):len(s.acked)]
	out.gone, out.lost = s.gone[:len(s.gone):len(s.gone)], s.lost[:len(s.lost):len(s.lost)]
	for c := range out.c {
		k := &out.c[c]
		k.late = k.late[:len(k.late):len(k.late)]
	}
	return &out
}

// copyOf is a node that may be changed, but for its leader and its machine.
func (n *node) copyOf() *node {
	out := *n
	out.log.Records = slices.Clip(n.log.Records)
	out.vault = slices.Clip(n.vault)
	return &out
}

func (n *node) view() replica.Log {
	return replica.Log{LogStart: n.log.Start, LogEnd: n.log.End, HighWatermark: n.log.HighWatermark, History: n.log.History}
}

func (n *node) own() *mirror.Own {
	return &mirror.Own{Log: n.view(), Checkpoint: n.point, HasCheckpoint: n.hasPoint}
}

// leads reports whether the node counts followers: it leads and is prepared (broker/lead.go).
func (n *node) leads() bool {
	return n.up && n.rec != nil && n.leading && n.assigned == n.rec.LeaderEpoch && n.leader != nil
}

// lacksCut is broker/firstcut.go's owesCut.
func (n *node) lacksCut() bool {
	return !n.hasPoint || len(n.rec.Timelines) == 0 || !n.point.List.Equal(n.rec.Timelines) || n.rec.LeaderEpoch < n.point.LeaderEpoch
}

// serves reports whether clients and followers are answered (broker/serve.go, refusal).
func (n *node) serves() bool {
	return n.up && n.rec != nil && n.leading && n.assigned == n.rec.LeaderEpoch && !n.held && (n.rec.Writable || !n.lacksCut())
}

// holds reports whether the log has exactly this record.
func (n *node) holds(r modellog.Record) bool {
	at, ok := n.log.At(r.Offset)
	return ok && at == r
}

// keeps reports whether the vault has it.
func (n *node) keeps(r modellog.Record) bool {
	return slices.ContainsFunc(n.vault, func(k kept) bool { return slices.Contains(k.records, r) })
}

// server is the index of the node that serves a cluster's partition, -1 if nobody does.
func (k *cluster) server() int {
	best := -1
	for i, n := range k.nodes {
		if n.serves() && (best < 0 || n.rec.LeaderEpoch > k.nodes[best].rec.LeaderEpoch) {
			best = i
		}
	}
	return best
}

// leaderIndex is the node that the record names, -1 if it isn't there in that registration.
func (k *cluster) leaderIndex() int {
	for i, n := range k.nodes {
		if n.up && k.rec.Leader == n.id && k.rec.LeaderBrokerEpoch == n.epoch {
			return i
		}
	}
	return -1
}
