package exhaust

import (
	"bytes"
	"encoding/binary"
	"slices"

	"tidemark/internal/core/meta"
	"tidemark/internal/core/mirror"
	"tidemark/internal/core/modellog"
	"tidemark/internal/core/replica"
	"tidemark/internal/core/types"
)

// encoder makes the text by which states are recognised. Replicas of a cluster
// are interchangeable: each is written with its roles in place of its id, and the
// smaller text comes first. Of a broker epoch it matters which of the broker's
// registrations it is that may still be compared.
type encoder struct {
	buf   []byte
	nodes [replicas][]byte
	of    *node // whose registrations ranked means
	// ranked is rank for of: a closure made once.
	ranked func(types.BrokerEpoch) byte
}

func newEncoder() *encoder {
	e := &encoder{}
	e.ranked = func(b types.BrokerEpoch) byte { return rank(e.of, b) }
	return e
}

// rank says which of a broker's registrations a broker epoch is: the present one,
// one that a clean shutdown ended, or one that never comes back.
func rank(n *node, b types.BrokerEpoch) byte {
	switch b {
	case types.NoBrokerEpoch:
		return 0
	case n.epoch:
		return 1
	case n.mark:
		return 2
	case n.clean:
		return 3
	}
	return 4
}

// encode gives the text; it is valid until the next call.
func (e *encoder) encode(s *state) []byte {
	b := append(e.buf[:0], s.left[:]...)
	for c := range s.c {
		b = e.cluster(b, s, c)
	}
	b = appendAcked(b, s.acked)
	b = appendSorted(b, s.gone)
	b = appendSorted(b, s.lost)
	e.buf = b
	return b
}

func num(b []byte, list ...int64) []byte {
	for _, n := range list {
		b = binary.AppendVarint(b, n)
	}
	return b
}

func flags(list ...bool) (b byte) {
	for i, yes := range list {
		if yes {
			b |= 1 << i
		}
	}
	return b
}

func text(b []byte, s string) []byte { return append(append(b, s...), 0) }

// appendAcked writes what was acknowledged, in an order that doesn't depend on when.
func appendAcked(b []byte, list []ackedRecord) []byte {
	list = slices.Clone(list)
	slices.SortFunc(list, func(p, q ackedRecord) int {
		if p.cluster != q.cluster {
			return p.cluster - q.cluster
		}
		return compareRecords(p.Record, q.Record)
	})
	b = append(b, byte(len(list)))
	for _, a := range list {
		b = append(appendRecord(b, a.Record), byte(a.cluster), flags(a.excused))
	}
	return b
}

func compareRecords(p, q modellog.Record) int {
	switch {
	case p.Offset != q.Offset:
		return int(p.Offset - q.Offset)
	case p.Epoch != q.Epoch:
		return int(p.Epoch - q.Epoch)
	}
	return bytes.Compare([]byte(p.Tag), []byte(q.Tag))
}

func appendSorted(b []byte, list []modellog.Record) []byte {
	if len(list) > 1 {
		list = slices.Clone(list)
		slices.SortFunc(list, compareRecords)
	}
	return appendRecords(b, list)
}

func appendRecords(b []byte, list []modellog.Record) []byte {
	b = append(b, byte(len(list)))
	for _, r := range list {
		b = appendRecord(b, r)
	}
	return b
}

func appendRecord(b []byte, r modellog.Record) []byte {
	return text(num(b, int64(r.Offset), int64(r.Epoch)), r.Tag)
}

func (e *encoder) cluster(b []byte, s *state, c int) []byte {
	k := &s.c[c]
	b = e.record(b, k.rec)
	b = num(b, int64(k.branched), int64(k.quoted.logEnd), int64(k.quoted.cutAt))
	b = text(text(b, k.quoted.id), k.planned.id)
	for i, n := range k.nodes {
		e.nodes[i] = e.node(e.nodes[i][:0], k, c, n)
	}
	first, second := 0, 1
	if bytes.Compare(e.nodes[0], e.nodes[1]) > 0 {
		first, second = 1, 0
	}
	return append(append(b, e.nodes[first]...), e.nodes[second]...)
}

// record writes a partition record but for who leads and is in sync, which the nodes say.
func (e *encoder) record(b []byte, r *meta.PartitionRecord) []byte {
	b = num(b, int64(r.LeaderEpoch))
	b = append(b, flags(r.Writable, r.UncleanOnce, r.Leader == types.NoBroker), byte(r.MinISR), byte(len(r.Promotions)))
	b = mirror.AppendList(b, r.Timelines)
	for _, p := range r.Promotions {
		b = num(text(b, p.StartID), int64(p.PromotedEpoch), int64(p.LogEnd))
	}
	for _, id := range r.OwnTimelines {
		b = text(b, id)
	}
	if r.Mirror == nil {
		return append(b, 0)
	}
	m := r.Mirror
	b = append(b, 1, flags(m.Copied, m.Rollback, m.WasWritable, m.GapAccepted, m.GivenUpFrom != nil, m.SourceSeenAt == types.NoTimestamp), byte(len(m.SourcePath)))
	b = text(text(text(text(b, m.State), m.Reason), m.StartID), m.PlanID)
	b = num(b, int64(m.SourceEpochMax), int64(m.SourceStart), int64(m.SourceEnd), int64(m.EndBefore))
	if m.GivenUpFrom != nil {
		b = num(b, int64(*m.GivenUpFrom))
	}
	return mirror.AppendList(b, m.Before)
}

func (e *encoder) node(b []byte, k *cluster, c int, n *node) []byte {
	b = e.roles(b, k.rec, n)
	b = num(b, int64(n.log.Start), int64(n.log.End), int64(n.log.HighWatermark), int64(n.synced))
	b = mirror.AppendHistory(b, &n.log.History)
	b = appendRecords(b, n.log.Records)
	b = append(b, flags(n.hasPoint))
	if n.hasPoint {
		b = num(mirror.AppendList(b, n.point.List), int64(n.point.LeaderEpoch))
	}
	b = append(b, byte(len(n.vault)))
	for _, v := range n.vault {
		b = appendRecords(num(b, int64(v.from), int64(v.to)), v.records)
	}
	b = append(b, flags(n.up, n.clean != types.NoBrokerEpoch, n.mark != types.NoBrokerEpoch))
	for at, t := range k.late {
		if k.nodes[t.node] == n {
			b = append(b, byte(at), byte(t.kind), flags(k.holds(c, t.plan), n.up && n.epoch == t.epoch))
			b = e.roles(e.record(b, t.record), t.record, n)
		}
	}
	if n.up {
		b = e.process(b, k, n)
	}
	return b
}

// roles says what a record makes of a node.
func (e *encoder) roles(b []byte, r *meta.PartitionRecord, n *node) []byte {
	isr, elr := byte(0), byte(0)
	for _, m := range r.ISR {
		if m.ID == n.id {
			isr = 1 + rank(n, m.BrokerEpoch)
		}
	}
	for _, m := range r.ELR {
		if m.ID == n.id {
			elr = 1 + rank(n, m.BrokerEpoch)
		}
	}
	leads := byte(0)
	if r.Leader == n.id {
		leads = 1 + rank(n, r.LeaderBrokerEpoch)
	}
	return append(b, leads, isr, elr)
}

// process writes what a running process knows.
func (e *encoder) process(b []byte, k *cluster, n *node) []byte {
	b = append(b, flags(n.rev == k.rev, n.leading, n.held, n.realigning, n.owing, n.allFetched, n.owesCut), flags(n.led, n.machineRev == n.rev))
	b = num(b, int64(n.assigned), int64(n.served), int64(n.servedIn))
	if n.rev != k.rev {
		b = e.roles(e.record(b, n.rec), n.rec, n)
	}
	if n.leader != nil {
		e.of = k.nodes[0]
		if e.of == n {
			e.of = k.nodes[1]
		}
		b = n.leader.AppendState(b, e.ranked)
	}
	if s, following := n.follower.Session(); following {
		b = num(b, int64(s.LeaderEpoch))
		b = append(b, flags(n.follower.HasAccepted()))
		if a := n.answer; a != nil {
			b = append(b, 1, flags(a.reply.To.Generation == s.Generation))
			b = appendReply(b, &a.reply, a.sent)
		}
	}
	if n.machine != nil {
		b = append(b, 2)
		b = n.machine.AppendState(b)
		if n.ask != nil && n.machine.Waits(ticketOf(n.ask)) {
			b = append(b, askKind(n.ask))
			if _, proposes := n.ask.(mirror.Propose); proposes {
				b = append(b, flags(n.askFrom == n.rev))
			}
			if a := n.caught; a != nil && a.ticket == ticketOf(n.ask) {
				b = appendCaught(b, a)
			}
		}
	}
	return b
}

func appendReply(b []byte, r *replica.Reply, sent []modellog.Record) []byte {
	b = append(b, byte(r.Kind), byte(r.Vouch))
	b = num(b, int64(r.To.Offset), int64(r.To.LastEpoch), int64(r.To.LeaderEpoch), int64(r.Diverging.Epoch),
		int64(r.Diverging.End), int64(r.LogStart), int64(r.HighWatermark))
	return appendRecords(b, sent)
}

func appendCaught(b []byte, a *caught) []byte {
	switch ev := a.event.(type) {
	case mirror.Fetched:
		return appendReply(num(append(b, 1), int64(ev.SourceEnd)), &ev.Reply, a.sent)
	case mirror.SourceShown:
		s := &ev.Source
		b = num(append(b, 2, flags(s.IsMirror), byte(len(s.Path))), int64(s.LeaderEpoch), int64(s.LogStart), int64(s.LogEnd), int64(s.LastEpoch))
		return mirror.AppendList(b, s.Timelines)
	}
	return b
}

func askKind(e mirror.Effect) byte {
	switch e.(type) {
	case mirror.LookUp:
		return 1
	case mirror.Fetch:
		return 2
	case mirror.AskVouch:
		return 3
	case mirror.Probe:
		return 4
	case mirror.Propose:
		return 5
	case mirror.Backoff:
		return 6
	}
	return 0
}
