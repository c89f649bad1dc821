package scenario

import (
	"errors"
	"slices"
	"time"

	"tidemark/internal/batch"
	"tidemark/internal/broker"
	"tidemark/internal/broker/api"
	"tidemark/internal/broker/follow"
	"tidemark/internal/core/epoch"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/replica"
	"tidemark/internal/core/types"
	"tidemark/internal/log"
	"tidemark/internal/vfs"
	"tidemark/internal/wire"
)

const fetchBytes = 1 << 20

// asker is who fetches, as a leader counts it.
type asker struct {
	id    types.BrokerID
	epoch types.BrokerEpoch
	start types.Offset // of its log
}

// nobody counts: a mirror's fetch.
var nobody = asker{types.NoBroker, types.NoBrokerEpoch, types.NoOffset}

func (n *node) asks(w *follow.Want) asker { return asker{n.id, n.epoch, w.LogStart} }

// read asks a node's partition as Fetch does, and gives the bytes.
func (n *node) read(r replica.Request, by asker, maxBytes int) (replica.Reply, []byte, error) {
	reply := replica.Reply{To: r, LogStart: types.NoOffset, HighWatermark: types.NoOffset}
	if !n.up || n.in == nil {
		return reply, nil, errors.New("the broker is down")
	}
	v := n.view()
	mut := n.c.w.mutation
	last := r.LastEpoch
	switch {
	case mut == "R13":
		last = types.NoLeaderEpoch
	case mut == "R5.restart" && last < 0 && r.Offset > v.end:
		r.Offset = v.end
	case mut == "R5.clamp" && last >= 0 && len(v.history) > 0 && last > v.history[len(v.history)-1].Epoch:
		reply.Kind = replica.AnswerOutOfRange
		return reply, nil, nil
	case mut == "R5.empty" && last >= 0 && len(v.history) == 0:
		reply.Kind, reply.Diverging = replica.AnswerDiverging, replica.EpochEnd{Epoch: -1, End: v.end}
		reply.LogStart, reply.HighWatermark = v.start, v.hw
		return reply, nil, nil
	}
	var out api.ReadResult
	err := n.in.Partition().Read(r.Offset, api.ReadRequest{
		CurrentLeaderEpoch: r.LeaderEpoch, LastFetchedEpoch: last, MaxBytes: maxBytes, MinOne: maxBytes > 0, Replica: by.id, ReplicaEpoch: by.epoch, ReplicaStart: by.start,
	}, &out)
	if out.Release != nil {
		defer out.Release()
	}
	switch {
	case errors.Is(err, wire.ErrOffsetOutOfRange):
		reply.Kind = replica.AnswerOutOfRange
		return reply, nil, nil
	case errors.Is(err, wire.ErrFencedLeaderEpoch):
		reply.Kind = replica.AnswerFenced
		return reply, nil, nil
	case errors.Is(err, wire.ErrUnknownLeaderEpoch):
		reply.Kind = replica.AnswerUnknownEpoch
		return reply, nil, nil
	case err != nil:
		return reply, nil, err
	}
	reply.LogStart, reply.HighWatermark = out.LogStart, out.HighWatermark
	if out.HasDiverging {
		reply.Kind, reply.Diverging = replica.AnswerDiverging, replica.EpochEnd{Epoch: out.Diverging.Epoch, End: out.Diverging.End}
		return reply, nil, nil
	}
	var raw []byte
	for _, p := range out.Records {
		at := len(raw)
		raw = append(raw, make([]byte, p.Len)...)
		if _, err := p.File.(vfs.File).ReadAt(raw[at:], p.Off); err != nil {
			return reply, nil, err
		}
	}
	return reply, raw, nil
}

// below gives the whole batches of raw that end at or below an offset; below 0: all.
func below(raw []byte, upto types.Offset) ([]byte, []replica.Batch) {
	var list []replica.Batch
	size := 0
	for it := batch.Iterate(raw); it.Next(); {
		h := it.Header
		if upto >= 0 && h.NextOffset() > upto {
			break
		}
		list = append(list, replica.Batch{Base: h.BaseOffset, Next: h.NextOffset(), Epoch: h.PartitionLeaderEpoch})
		size += h.Size()
	}
	return raw[:size], list
}

// fetchOnce sends the follower's wish to the leader and gives it the answer.
func (n *node) fetchOnce(leader *node, upto types.Offset) (moved bool) {
	w := n.want
	if w == nil || w.Leader != leader.id {
		return false
	}
	before := n.view()
	reply, raw, err := leader.read(w.Request, n.asks(w), fetchBytes)
	if err != nil {
		return false
	}
	a := follow.Answer{Reply: reply}
	a.Reply.Vouch = replica.VouchNo
	switch reply.Kind {
	case replica.AnswerData:
		a.Records, a.Reply.Batches = below(raw, upto)
	case replica.AnswerOutOfRange:
		// The fetcher asks for the leader's log start (ListOffsets).
		a.Reply.LogStart = leader.view().start
	}
	n.want = nil
	n.disk.forgetsStart = n.c.w.mutation == "R13.start"
	n.in.Partition().Take(a, func() {})
	n.disk.forgetsStart = false
	after := n.view()
	n.mutateHistory(before.history)
	if reply.Kind == replica.AnswerOutOfRange && after.start != before.start || reply.Kind == replica.AnswerOutOfRange && after.end != before.end {
		n.c.tell("LOG_RESET", "replica", n.name, "start", after.start, "was", before.start)
	}
	if n.want != nil && n.want.Request != w.Request {
		return true // the wish was older than the log
	}
	return after.end != before.end || after.start != before.start || len(after.history) != len(before.history) || reply.Kind == replica.AnswerDiverging
}

// mutateHistory is R1.empty off: a log start raised to the log end leaves the last entry.
func (n *node) mutateHistory(before []epoch.Entry) {
	v := n.view()
	if n.c.w.mutation != "R1.empty" || len(v.history) > 0 || len(before) == 0 || v.end == 0 || v.start != v.end {
		return
	}
	n.must(n.do(func(o *broker.Owned) error {
		if o.Leading() {
			if rec, _ := o.Record(); rec.Writable {
				return nil
			}
		}
		if err := o.Log().AssignEpoch(before[len(before)-1].Epoch); err != nil {
			return err
		}
		return nil
	}))
}

// replication says how followers fetch.
type replication struct {
	only  []string // nil: all that are up
	upto  types.Offset
	learn bool
	join  bool
	crash string
}

func replicateAll() replication { return replication{upto: types.NoOffset, learn: true, join: true} }

// replicate shows leader and followers their record and has the followers fetch.
func (c *cluster) replicate(r replication) {
	leader := c.leader()
	if leader == nil {
		return
	}
	leader.see()
	if leader.step == nil && c.record().IsMirror() && c.record().Mirror.State != meta.MirrorStarting {
		leader.stepper()
		leader.feed(nil, nil)
	}
	var list []*node
	for _, n := range c.nodes {
		if n != leader && n.up && (r.only == nil || slices.Contains(r.only, n.name)) {
			list = append(list, n)
		}
	}
	for _, n := range list {
		n.see()
		n.tick()
		if !n.up {
			continue
		}
		if r.crash == "append" {
			n.flush() // what was there before is on the disk
		}
		if !r.learn {
			n.fetchOnce(leader, r.upto)
		} else {
			for range 50 {
				if !n.fetchOnce(leader, r.upto) {
					break
				}
			}
		}
		if r.crash == "append" {
			n.powerLoss(1) // what was written is on the disk, what was not is not
		}
	}
	if r.crash != "" {
		return
	}
	// What was fetched is proved by the fetch after it.
	for _, n := range list {
		n.prove(leader)
	}
	if r.join {
		leader.runTasks()
		for range c.nodes {
			leader.in.Tick()
			leader.runTasks()
		}
		c.joinTooEarly(leader, list)
	}
	if r.learn {
		for _, n := range list {
			n.learn(leader)
		}
	}
	leader.settleMirror()
}

// tick has a follower that could not begin to follow try again.
func (n *node) tick() {
	if n.up && n.want == nil {
		n.in.Tick()
	}
}

// prove is a fetch at the log end that brings nothing: the leader counts it.
func (n *node) prove(leader *node) {
	if n.want == nil || !n.up {
		return
	}
	if reply, _, err := leader.read(n.want.Request, n.asks(n.want), 0); err != nil || reply.Kind != replica.AnswerData {
		return
	}
}

// learn is a fetch that brings nothing but the leader's high watermark.
func (n *node) learn(leader *node) {
	if n.want == nil || !n.up {
		return
	}
	w := n.want
	reply, _, err := leader.read(w.Request, n.asks(w), 0)
	if err != nil || reply.Kind != replica.AnswerData {
		return
	}
	reply.Vouch = replica.VouchNo
	n.want = nil
	n.in.Partition().Take(follow.Answer{Reply: reply}, func() {})
}

// joinTooEarly is R15 off: the high watermark alone is enough to join.
func (c *cluster) joinTooEarly(leader *node, list []*node) {
	if c.w.mutation != "R15" {
		return
	}
	for _, n := range list {
		rec := c.record().Clone()
		if n.up && !rec.InISR(n.id) && n.view().end >= leader.view().hw {
			rec.ISR = append(rec.ISR, meta.ISRMember{ID: n.id, BrokerEpoch: n.epoch})
			slices.SortFunc(rec.ISR, func(a, b meta.ISRMember) int { return int(a.ID - b.ID) })
			c.put(rec)
			leader.see()
		}
	}
}

// flush syncs the log and the marks.
func (n *node) flush() {
	n.must(n.do(func(o *broker.Owned) error { return o.Log().Flush() }))
	n.must(n.checkpoints.Write())
}

// powerLoss ends the node and leaves of its disk what was synced.
// The rest stays block by block with a probability of keep.
func (n *node) powerLoss(keep float64) {
	n.last = n.view()
	n.up, n.in, n.want = false, nil, nil
	n.halt()
	n.mem = n.mem.CrashClone(vfs.CrashConfig{Seed: 1, KeepBlock: keep, KeepEntry: keep})
	n.mem.SetClock(func() time.Time { return time.UnixMilli(int64(n.c.w.now)) })
	n.c.crashed(n)
	n.unregister()
}

// loseTail takes the last records off the disk of a node that is down.
func (n *node) loseTail(records int) types.Offset {
	dir := logDir + "/" + topicName + "-0"
	for range records {
		name, pos, base := "", int64(0), types.NoOffset
		for _, b := range n.batches() {
			name, pos, base = b.file, b.pos, b.h.BaseOffset
		}
		if base < 0 {
			break
		}
		f, err := n.mem.OpenReadWrite(dir + "/" + name)
		n.must(err)
		n.must(f.Truncate(pos))
		n.must(f.Sync())
		n.must(f.Close())
	}
	end := n.last.start
	for _, b := range n.batches() {
		end = b.h.NextOffset()
	}
	return end
}

// storedBatch is one batch on a disk.
type storedBatch struct {
	file string
	pos  int64
	h    batch.Header
	raw  []byte
}

// batches reads the log's files, whether the node is up or not, from the log start on.
func (n *node) batches() []storedBatch {
	dir := logDir + "/" + topicName + "-0"
	files, err := n.mem.List(dir)
	if err != nil {
		return nil
	}
	start := n.view().start
	var list []storedBatch
	for _, name := range files {
		if len(name) < 4 || name[len(name)-4:] != ".log" {
			continue
		}
		raw, err := vfs.ReadFile(n.mem, dir+"/"+name, 1<<24)
		n.must(err)
		pos := int64(0)
		for it := batch.Iterate(raw); it.Next(); {
			if it.Header.NextOffset() > start {
				list = append(list, storedBatch{name, pos, it.Header, it.Raw})
			}
			pos += int64(it.Header.Size())
		}
	}
	return list
}

// toldDrop tells of a cut that a full vault let go (R29).
func (n *node) toldDrop(r log.Removal) {
	first, last := r.EpochsBefore[0].Epoch, types.NoLeaderEpoch
	for _, e := range r.EpochsBefore {
		if e.Start <= r.From {
			first = e.Epoch
		}
		if e.Start < r.To {
			last = e.Epoch
		}
	}
	n.c.tell("DROPPED_UNVAULTED", "replica", n.name, "offsets", []any{r.From, r.To - 1}, "epochs", []any{first, last},
		"records", int(r.To-r.From), "committed", r.From < r.HighWatermark)
}
