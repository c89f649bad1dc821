package sim

import (
	"fmt"
	"time"

	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
)

// mirrorsActions are those of the system of several clusters.
var mirrorsActions actionKinds[*mirrors]

func init() {
	of := func(f func(*cluster, dice) string) func(*mirrors, dice) string {
		return func(w *mirrors, d dice) string {
			c := w.sites[d.IntN(len(w.sites))]
			what := f(c, d)
			if what == "" {
				return ""
			}
			return c.prefix + what
		}
	}
	kafka := func(f func(*world, dice) string) func(*mirrors, dice) string {
		return func(w *mirrors, d dice) string {
			if w.kafka == nil {
				return ""
			}
			return f(w.kafka, d)
		}
	}
	mirrorsActions = actionKinds[*mirrors]{
		{"write", 60, (*mirrors).write},
		{"commit", 10, (*mirrors).commit},
		{"mirror", 3, (*mirrors).startMirror},
		{"failover", 2, (*mirrors).failover},
		{"failback", 2, (*mirrors).failback},
		{"pause", 0.7, (*mirrors).pause},
		{"resume", 0.7, (*mirrors).resume},
		{"switchover", 1, (*mirrors).switchover},
		{"abandon", 0.7, (*mirrors).abandon},
		{"accept-gap", 0.7, (*mirrors).acceptGap},
		{"delete-mirror", 0.5, (*mirrors).deleteMirror},
		{"alter", 0.5, (*mirrors).alter},
		{"reopen", 0.3, (*mirrors).reopen},
		{"crash", 2, of((*cluster).crashOne)},
		{"crash-in-write", 3, of((*cluster).crashInWrite)},
		{"crash-all", 0.3, of((*cluster).crashAll)},
		{"restart-cleanly", 1, of((*cluster).restartCleanly)},
		{"cut-link", 2, of((*cluster).cutLink)},
		{"cut-wan", 2, (*mirrors).cutWAN},
		{"cut-store", 1, of((*cluster).cutStore)},
		{"store-down", 0.4, of((*cluster).storeDown)},
		{"hold-watch", 0.7, of((*cluster).holdWatch)},
		{"expire-lease", 0.7, of((*cluster).expireLease)},
		{"disk-error", 0.5, of((*cluster).diskError)},
		{"disk-full", 0.3, of((*cluster).diskFull)},
		{"elect-preferred", 2, (*mirrors).electPreferred},
		{"elect-unclean", 0.7, (*mirrors).electUnclean},
		{"trim", 1, (*mirrors).trim},
		{"kafka-write", 60, kafka((*world).produce)},
		{"kafka-elect", 4, kafka((*world).electCleanly)},
		{"kafka-elect-unclean", 3, kafka((*world).electUncleanly)},
		{"kafka-down", 1, kafka((*world).sourceDown)},
		{"kafka-loses-tail", 0.5, kafka((*world).sourceLosesTail)},
		{"kafka-retain", 1.5, kafka((*world).sourceRetention)},
		{"kafka-compact", 2, kafka((*world).sourceCompaction)},
		{"kafka-recreate", 0.05, kafka((*world).recreateTopic)},
		{"clock-jump", 0.5, of((*cluster).clockJump)},
		{"crash-leader", 1, (*mirrors).crashLeader},
		{"kafka-rewrite", 0, kafka((*world).sourceRewrites)}, // of mutations that look for it
		{"oversleep", 0, (*mirrors).oversleep},               // of profiles that name it
		{"drill", 0, (*mirrors).drill},
		{"drill-delete", 0, (*mirrors).deleteDrill},
		{"drill-write", 0, (*mirrors).writeDrill},
		{"failover-consistent", 0, (*mirrors).failoverConsistent},
		{"oversleep-office", 0, (*mirrors).oversleepOffice}, // of profiles that name it
		{"switchover-dies", 0, (*mirrors).switchoverDies},
		{"txn-dies", 0, (*mirrors).txnDies},
	}
}

func (w *mirrors) act(kind string, d dice) string {
	what := mirrorsActions.act(w, kind, d)
	if what != "" {
		w.k.probe("action: " + kind)
	}
	return what
}

func (w *mirrors) write(d dice) string {
	l := w.pens[d.IntN(len(w.pens))]
	if len(l.queue) > 4 {
		return ""
	}
	n := 1 + d.IntN(3)
	l.write(n)
	return fmt.Sprintf("%s writes %d records", l.who(), n)
}

// cutWAN cuts two clusters off each other, in one direction or both.
func (w *mirrors) cutWAN(d dice) string {
	c, far := w.pair(d)
	var here, there []string
	for _, m := range c.machines {
		here = append(here, m.name)
	}
	for _, id := range far.brokers() {
		there = append(there, far.nameOf(id))
	}
	return fmt.Sprintf("%s and %s %s", c.id, far.clusterID(), w.net.sever(d, 15*time.Second, here, there))
}

// anyPart picks a partition of the topic at a site; false if it has none.
func (w *mirrors) anyPart(d dice) (*cluster, meta.PartitionID, bool) {
	c := w.sites[d.IntN(len(w.sites))]
	id := meta.PartitionID{Topic: c.topicID(), Number: int32(d.IntN(w.o.Partitions))}
	return c, id, c.record(id) != nil
}

func (w *mirrors) electPreferred(d dice) string { return w.elect(d, false) }

func (w *mirrors) electUnclean(d dice) string { return w.elect(d, true) }

func (w *mirrors) elect(d dice, unclean bool) string {
	c, id, ok := w.anyPart(d)
	if !ok {
		return ""
	}
	what := c.electFor(d, id, unclean)
	if what == "" {
		return ""
	}
	return c.prefix + what
}

func (w *mirrors) crashLeader(d dice) string {
	c, id, ok := w.anyPart(d)
	if !ok {
		return ""
	}
	return c.machine(c.record(id).Leader).crashed()
}

// trim deletes the oldest records of a partition that is written (DeleteRecords).
func (w *mirrors) trim(d dice) string {
	c, id, ok := w.anyPart(d)
	if !ok || !c.record(id).Writable || w.o.Compacted {
		return ""
	}
	m := c.machine(c.record(id).Leader)
	if m == nil || !m.serves() {
		return ""
	}
	part, held := m.node.Broker().Partition(id.Topic, id.Number)
	if !held {
		return ""
	}
	v, open := part.View()
	if !open || v.HighWatermark <= v.LogStart {
		return ""
	}
	to := v.LogStart + 1 + types.Offset(d.Int64N(int64(v.HighWatermark-v.LogStart)))
	m.task(func() {
		ctx, cancel := m.p.WithTimeout(m.node.Context(), 5*time.Second)
		defer cancel()
		_, _ = part.DeleteRecords(ctx, to)
	})
	return fmt.Sprintf("%spartition %d begins at %d", c.prefix, id.Number, to)
}
