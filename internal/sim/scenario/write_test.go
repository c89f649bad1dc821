package scenario

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"tidemark/internal/batch"
	"tidemark/internal/broker"
	"tidemark/internal/broker/api"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/internal/log"
	"tidemark/internal/wire"
)

// recordBytes is the size of every batch of one plain record: values are padded to it by their key.
const (
	keyAndValueBytes = 24
	recordBytes      = 61 + 7 + keyAndValueBytes
)

// build makes one batch of one record, its value "<tag>:<offset>".
func (c *cluster) build(tag string, offset types.Offset, txn string, sequence int32) []byte {
	o := batch.BuilderOptions{LeaderEpoch: types.NoLeaderEpoch}
	if txn != "" {
		o.Producer, o.Transactional = &batch.Producer{ID: producerOf(txn), Epoch: 0, BaseSequence: sequence}, true
	}
	value := fmt.Sprintf("%s:%d", tag, offset)
	key := fmt.Sprintf("%0*d", keyAndValueBytes-len(value), c.w.keyOf(offset))
	b := batch.NewBuilder(o)
	b.Append(c.w.now, []byte(key), []byte(value))
	raw, err := b.Build()
	if err != nil {
		panic(err)
	}
	return raw
}

func producerOf(txn string) types.ProducerID {
	return types.ProducerID(1<<32 + int64(txn[0])<<8 + int64(txn[len(txn)-1]))
}

func producerName(id types.ProducerID) string {
	return string([]byte{byte(id >> 8), byte(id)})
}

// keyOf gives records that compaction will take the key of the next one that stays.
func (w *world) keyOf(o types.Offset) int {
	for _, s := range w.story.Steps {
		if s.Op != "compact" || slices.Contains(s.Keep, o) {
			continue
		}
		for _, k := range s.Keep {
			if k > o {
				return int(k)
			}
		}
	}
	return int(o)
}

// produce has a client write to the leader with acks=1; then followers fetch.
func (c *cluster) produce(s *step) {
	var n *node
	if rec := c.record(); rec != nil {
		n = c.byID(rec.Leader)
	}
	if n == nil || !n.up {
		c.tell("WRITE_REFUSED", "why", "no leader")
		return
	}
	if !c.blind || n.in == nil {
		n.see()
	}
	c.lastTag = s.Tag
	for range s.N {
		v := n.view()
		raw := c.build(s.Tag, v.end, s.Txn, c.sequences(n, s.Txn))
		if !c.append(n, raw, api.OriginClient) {
			return
		}
	}
	c.replicateAfter(s.Replicate)
}

func (c *cluster) replicateAfter(raw json.RawMessage) {
	if string(raw) == "false" {
		return
	}
	r := replicateAll()
	r.only = names(raw)
	c.replicate(r)
}

// sequences is the next sequence number of a transactional producer.
func (c *cluster) sequences(n *node, txn string) int32 {
	if txn == "" {
		return 0
	}
	next := int32(0)
	for _, b := range n.batches() {
		if b.h.ProducerID == producerOf(txn) && !b.h.IsControl() {
			next = b.h.BaseSequence + b.h.RecordsCount
		}
	}
	return next
}

func (c *cluster) append(n *node, raw []byte, origin api.AppendOrigin) bool {
	r := api.AppendRequest{Acks: 1, LeaderEpoch: types.NoLeaderEpoch, RequestVersion: 9, Timeout: time.Second, Origin: origin}
	h, err := batch.ParseHeader(raw)
	if err == nil && h.IsTransactional() && origin == api.OriginClient { // as a coordinator that knows the transaction lets it in
		r.Guard, _, err = n.in.Partition().Guard(background, h.ProducerID, h.ProducerEpoch)
	}
	if err == nil {
		_, err = n.in.Partition().Append(background, raw, r)
	}
	if err == nil {
		return true
	}
	why := err.Error()
	rec := c.record()
	switch {
	case errors.Is(err, wire.ErrNotLeaderOrFollower) && rec.Writable:
		why = "not leader"
	case strings.Contains(why, "switchover"):
		why = "fenced"
	case !rec.Writable:
		why = "read-only"
	}
	c.tell("WRITE_REFUSED", "why", why)
	return false
}

// endTxn writes the marker that ends a transaction.
func (c *cluster) endTxn(s *step) {
	n := c.leader()
	n.see()
	kind := batch.Commit
	if s.Outcome == "ABORT" {
		kind = batch.Abort
	}
	if c.append(n, batch.NewMarker(kind, producerOf(s.Txn), 0, 0, c.w.now), api.OriginCoordinator) {
		c.replicateAfter(s.Replicate)
	}
}

// openTxn is a transaction without its marker.
type openTxn struct {
	producer types.ProducerID
	first    types.Offset
}

func (n *node) openTransactions() []openTxn {
	if n.in == nil {
		return nil
	}
	var list []openTxn
	n.must(n.do(func(o *broker.Owned) error {
		for _, t := range o.Log().OpenTransactions() {
			list = append(list, openTxn{t.ProducerID, t.FirstOffset})
		}
		return nil
	}))
	return list
}

// tellAborted tells of the transactions that were open before and aren't now.
func (n *node) tellAborted(before []openTxn) {
	now := n.openTransactions()
	for _, t := range before {
		if !slices.Contains(now, t) {
			n.c.tell("TXN_ABORTED", "producer", producerName(t.producer), "first_offset", t.first)
		}
	}
}

func (n *node) assignEpoch(e types.LeaderEpoch) {
	n.must(n.do(func(o *broker.Owned) error { return o.Log().AssignEpoch(e) }))
}

// trim moves the log start of all live replicas.
func (c *cluster) trim(to types.Offset) {
	for _, n := range c.nodes {
		if !n.up {
			continue
		}
		if n.in == nil {
			n.see()
		}
		before := n.history()
		n.must(n.do(func(o *broker.Owned) error {
			_, err := o.Log().RaiseLogStart(to, true, log.CutReason{Cause: log.CauseLogStart, Note: "retention", LeaderHighWatermark: types.NoOffset})
			return err
		}))
		n.mutateHistory(before)
	}
}

// compact runs the cleaner on all live replicas.
func (c *cluster) compact() {
	for _, n := range c.nodes {
		if !n.up {
			continue
		}
		n.must(n.do(func(o *broker.Owned) error {
			if err := o.Log().Roll(); err != nil {
				return err
			}
			run, err := o.Log().StartCompaction(c.w.now, log.CompactionLimits{})
			if err != nil || run == nil {
				return errors.Join(err, errors.New("nothing to compact"))
			}
			_, err = o.Log().FinishCompaction(run, run.Run(background))
			return err
		}))
	}
}

// readBack gives a leader back what its first cut took (abandon).
func (n *node) readBack(end types.Offset) error {
	if n.view().end >= end {
		return nil
	}
	return errors.New("the leader has cut")
}

// groupCommit is a group's commit on the cluster.
func (c *cluster) groupCommit(s *step) { c.groups[s.Group] = s.Offset }

// groupSync is one round of the mirror's offset sync: never ahead of the log.
func (c *cluster) groupSync() {
	end := c.leader().view().end
	for g, o := range c.source.groups {
		delete(c.waiting, g)
		if o > end {
			c.waiting[g] = o
			c.tell("GROUP_WAITS", "group", g, "wanted", o, "log_end", end)
			continue
		}
		c.groups[g] = o
	}
}

// groupsPromoted clamps what still waits.
func (c *cluster) groupsPromoted(end types.Offset) {
	for g, o := range c.waiting {
		c.groups[g] = min(o, end)
		c.tell("GROUP_CLAMPED", "group", g, "wanted", o, "set_to", c.groups[g])
	}
	clear(c.waiting)
}

// groupCut lowers committed offsets to a cut (DESIGN §6.3), as ClampAll does.
func (c *cluster) groupCut(n *node, end types.Offset) {
	for g, o := range c.groups {
		if o > end && c.w.mutation != "GROUP_CUT" && (c.w.mutation != "GROUP_CUT.first" || len(n.keeper.made) > 0) {
			c.tell("GROUP_CUT", "group", g, "was", o, "set_to", end)
			c.groups[g] = end
		}
	}
}

// describe is the promotion records as served to others.
func (c *cluster) describe() []any {
	list := []any{}
	for _, m := range c.record().Promotions {
		list = append(list, c.promotion(m))
	}
	return list
}

func (c *cluster) promotion(m meta.PromotionRecord) map[string]any {
	start, end := any(m.SourceStart), any(m.SourceEnd)
	if m.NeverFetched { // a look saw them; the stories count fetches
		start, end = nil, nil
	}
	return map[string]any{"source": c.w.names[m.SourceClusterID], "start": c.startNumber(m.StartID), "lme": m.LastMirroredEpoch, "log_end": m.LogEnd,
		"hw": m.HighWatermark, "lmo": min(m.LogEnd, m.HighWatermark), "source_start": start, "source_end": end,
		"source_epoch": m.SourceEpoch, "epoch": m.PromotedEpoch}
}
