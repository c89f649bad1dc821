package exhaust

import (
	"slices"
	"strings"

	"tidemark/internal/core/meta"
	"tidemark/internal/core/mirror"
	"tidemark/internal/core/modellog"
	"tidemark/internal/core/timeline"
	"tidemark/internal/core/types"
)

// What is checked while a step runs stands first, what is checked of each state after it.

// checkWrite is OneWriter: nobody else has written from this offset on in the
// timeline and leader epoch. It gives the record's tag: the timeline, marked if
// another record has its place.
func (x *step) checkWrite(c, i int, r modellog.Record) string {
	tag := r.Tag
	look := func(list []modellog.Record) {
		for _, o := range list {
			if o.Epoch == r.Epoch && o.Offset >= r.Offset && strings.TrimRight(o.Tag, "'") == r.Tag {
				tag = r.Tag + "'"
			}
		}
	}
	for k := range x.s.c {
		for _, n := range x.s.c[k].nodes {
			look(n.log.Records)
			for _, v := range n.vault {
				look(v.records)
			}
		}
	}
	if tag != r.Tag {
		x.problemf("OneWriter", "%s writes offset %d in epoch %d of timeline %s, as somebody did before", name(c, i), r.Offset, r.Epoch, r.Tag)
	}
	return tag
}

// seen takes note of what clients have seen: a serving leader's high watermark.
// Whatever lies below it on a writable partition is acknowledged.
func (x *step) seen(c, i int) {
	n := x.s.c[c].nodes[i]
	if !n.serves() || !n.leads() {
		return
	}
	n = x.node(c, i)
	if n.servedIn != n.rec.LeaderEpoch {
		n.served, n.servedIn = 0, n.rec.LeaderEpoch
	}
	n.served = max(n.served, n.log.HighWatermark)
	if !n.rec.Writable {
		return
	}
	for _, r := range n.log.Records {
		if r.Offset >= n.log.HighWatermark {
			break
		}
		if !slices.ContainsFunc(x.s.acked, func(a ackedRecord) bool { return a.cluster == c && a.Record == r }) {
			x.s.acked = append(x.s.acked[:len(x.s.acked):len(x.s.acked)], ackedRecord{Record: r, cluster: c})
		}
	}
}

// excuse marks acknowledged records of a cluster that later leaders may lack.
func (x *step) excuse(c int, which func(modellog.Record) bool) {
	var list []ackedRecord
	for i, a := range x.s.acked {
		if a.cluster != c || a.excused || !which(a.Record) {
			continue
		}
		if list == nil {
			list = slices.Clone(x.s.acked)
		}
		list[i].excused = true
	}
	if list != nil {
		x.s.acked = list
	}
}

// checkCut looks at a cut before it is made.
func (x *step) checkCut(c, i int, how cutting, gone []modellog.Record) {
	n := x.s.c[c].nodes[i]
	if how.cause == mirror.CauseTimeline || !n.leading {
		return
	}
	// R20: nothing that clients could read in a leader epoch is cut in it.
	if n.servedIn == n.rec.LeaderEpoch && how.at < n.served {
		x.problemf("CutHasEpoch", "%s cuts at %d in leader epoch %d, in which clients could read up to %d", name(c, i), how.at, n.rec.LeaderEpoch, n.served)
	}
	if j := x.s.c[1-c].server(); j >= 0 {
		source := x.s.c[1-c].nodes[j]
		x.excuse(c, func(r modellog.Record) bool { return slices.Contains(gone, r) && !source.holds(r) })
	}
}

// checkVault is VaultComplete: what a cut took is in the vault, if it was not
// lost with the power before it was synced.
func (x *step) checkVault(c, i int, gone []modellog.Record, synced types.Offset) {
	n := x.s.c[c].nodes[i]
	for _, r := range gone {
		if (!x.isDown(c, i) || r.Offset < synced) && !n.holds(r) && !n.keeps(r) {
			x.problemf("VaultComplete", "%s has cut %s, and its vault hasn't kept it", name(c, i), printed([]modellog.Record{r}))
		}
	}
}

// lostForGood takes note of acknowledged records of which a loss of power took the last copy.
func (x *step) lostForGood(gone []modellog.Record) {
	for _, r := range gone {
		if !x.s.exists(r) {
			x.s.lost = append(x.s.lost, r)
		}
	}
}

// passed takes note of what left with the log start.
func (x *step) passed(gone []modellog.Record, vouched bool) {
	if !vouched {
		return
	}
	for _, r := range gone {
		if !slices.Contains(x.s.gone, r) {
			x.s.gone = append(x.s.gone[:len(x.s.gone):len(x.s.gone)], r)
		}
	}
}

// exists reports whether a log or a vault has the record.
func (s *state) exists(r modellog.Record) bool {
	for c := range s.c {
		for _, n := range s.c[c].nodes {
			if n.holds(r) || n.keeps(r) {
				return true
			}
		}
	}
	return false
}

// checkCopied is LogMatching, and MirrorPrefix for a mirror: after an accepted
// answer both logs hold the same up to the copy's end.
func (x *step) checkCopied(c, i int, from *modellog.Log) {
	n := x.s.c[c].nodes[i]
	invariant := "LogMatching"
	if n.leading {
		invariant = "MirrorPrefix"
	}
	if n.log.End > from.End {
		x.problemf(invariant, "%s holds %s and accepts an answer of a log that ends at %d", name(c, i), n.log.String(), from.End)
		return
	}
	if diff := modellog.Difference(&n.log, from, len(x.s.gone) > 0); diff != "" {
		x.problemf(invariant, "%s and the log that it copies differ: %s; histories %v, %v", name(c, i), diff, &n.log.History, &from.History)
	}
}

// checkAppended is R4: an epoch that comes with a batch begins at the old log end, or before.
func (x *step) checkAppended(c, i int, r modellog.Record, oldEnd types.Offset) {
	n := x.s.c[c].nodes[i]
	if e, ok := n.log.History.Entry(r.Epoch); !ok || e.Start > oldEnd {
		x.problemf("EpochHistory", "%s copies %s behind %d, its history says %v (R4)", name(c, i), printed([]modellog.Record{r}), oldEnd, &n.log.History)
	}
}

// checkGap is R28: a log never goes on above its end, unless what lies between was given up.
func (x *step) checkGap(c, i int, at types.Offset) {
	k := &x.s.c[c]
	n := k.nodes[i]
	if len(n.log.Records) > 0 && n.log.End < at && (k.branched < 0 || k.branched > n.log.End) {
		x.problemf("NoSilentGap", "%s jumps from %d to %d", name(c, i), n.log.End, at)
	}
}

// checkConsent is R24, judged by the logs alone: a start of what was writable takes
// a record that the source lacks only if the operator has seen that it would.
func (x *step) checkConsent(c, i int, req mirror.StartRequest) {
	k := &x.s.c[c]
	j := x.s.c[1-c].server()
	if !k.rec.Writable && (k.rec.Mirror == nil || !k.rec.Mirror.WasWritable) || j < 0 {
		return
	}
	source := &x.s.c[1-c].nodes[j].log
	n := k.nodes[i]
	for _, r := range n.log.Records {
		theirs, there := source.At(r.Offset)
		if there && theirs == r || !there && r.Offset < source.Start {
			continue
		}
		if p := k.planned; req.PlanID == "" || req.PlanID != p.id || p.logEnd != n.log.End || p.cutAt > r.Offset {
			x.problemf("Consent", "%s becomes a mirror of a source that lacks %s, and nobody was told", name(c, i), printed([]modellog.Record{r}))
		}
		return
	}
}

// checkRecord looks at a transaction that is about to be in force.
func (x *step) checkRecord(c int, t *txn) {
	k := &x.s.c[c]
	old, next := k.rec, t.record
	if err := meta.ValidateRecord(old, next); err != nil && x.w.rules.name == "" {
		x.problemf("Record", "%v", err)
	}
	n := k.nodes[t.node]
	if t.looked > 0 && n.log.End != t.looked {
		x.problemf("Consent", "%s adopts a list with a log that ends at %d; when it was judged it ended at %d (R25)", name(c, t.node), n.log.End, t.looked)
	}
	if old.Timelines.Equal(next.Timelines) || next.Writable {
		return
	}
	if from, ok := timeline.GivenUpFrom(old.Timelines, next.Timelines); ok && len(old.Timelines) > 0 && (k.branched < 0 || from < k.branched) {
		k.branched = from
	}
	j := x.s.c[1-c].server()
	x.excuse(c, func(r modellog.Record) bool {
		owner, _ := next.Timelines.Owner(r.Epoch)
		return owner.ID != strings.TrimRight(r.Tag, "'") || j < 0 || !x.s.c[1-c].nodes[j].holds(r)
	})
}

// check looks at a whole state.
func (x *step) check() {
	for c := range x.s.c {
		x.checkCluster(c)
		for i := range x.s.c[c].nodes {
			x.checkNode(c, i)
		}
	}
	x.checkAcked()
	a, b := x.s.c[0].rec, x.s.c[1].rec
	if copies(a) && copies(b) {
		x.problemf("NoLoop", "both clusters copy from each other")
	}
}

// copies reports whether a record says that the partition has adopted its source's list.
func copies(r *meta.PartitionRecord) bool {
	return r.IsMirror() && r.Mirror.State != meta.MirrorStarting && r.Mirror.State != meta.MirrorStopped && r.Mirror.SourceSeenAt != types.NoTimestamp
}

func (x *step) checkCluster(c int) {
	k := &x.s.c[c]
	for i, p := range k.rec.Promotions {
		for _, o := range k.rec.Promotions[:i] {
			if o.StartID == p.StartID {
				x.problemf("PromotedOnce", "%s was promoted twice for %s", clusterIDs[c], p.StartID)
			}
		}
	}
	l := k.leaderIndex()
	if l < 0 || k.nodes[l].rev != k.rev || !k.nodes[l].serves() {
		return
	}
	leader := k.nodes[l]
	for _, m := range slices.Concat(k.rec.ISR, k.rec.ELR) {
		n := k.nodes[m.ID-1]
		intact := n.up && (n.epoch == m.BrokerEpoch || n.clean == m.BrokerEpoch) || !n.up && n.mark == m.BrokerEpoch
		if !intact || n == leader {
			continue
		}
		for _, r := range leader.log.Records {
			if r.Offset < leader.log.HighWatermark && r.Offset >= n.log.Start && !n.holds(r) && !slices.Contains(x.s.gone, r) {
				x.problemf("ISRHoldsHW", "%s is in sync or eligible and lacks %s, below the high watermark %d", name(c, int(m.ID-1)), printed([]modellog.Record{r}), leader.log.HighWatermark)
				return
			}
		}
	}
}

func (x *step) checkNode(c, i int) {
	n := x.s.c[c].nodes[i]
	list := n.point.List
	for _, r := range n.log.Records {
		if owner, ok := list.Owner(r.Epoch); n.hasPoint && len(list) > 0 && (!ok || owner.ID != strings.TrimRight(r.Tag, "'")) {
			x.problemf("Ownership", "%s has applied %s and holds %s of timeline %s", name(c, i), describeList(list), printed([]modellog.Record{r}), r.Tag)
		}
		if e, ok := n.log.History.EpochForOffset(r.Offset); !ok || e != r.Epoch {
			x.problemf("EpochHistory", "%s holds %s, its history says %v", name(c, i), printed([]modellog.Record{r}), &n.log.History)
		}
	}
	last, ok := n.log.History.Latest()
	_, following := n.follower.Session()
	if ok && following && last.Start >= n.log.End {
		x.problemf("EpochHistory", "%s follows, ends at %d and has the entry %v", name(c, i), n.log.End, last)
	}
	if ok && last.Epoch > x.s.c[c].rec.LeaderEpoch {
		x.problemf("EpochCovers", "%s knows epoch %d, the record's leader epoch is %d", name(c, i), last.Epoch, x.s.c[c].rec.LeaderEpoch)
	}
}

// checkAcked is AckedIsKept: who serves has everything that was acknowledged, or
// it is excused; and whatever was acknowledged is somewhere.
func (x *step) checkAcked() {
	for _, a := range x.s.acked {
		if slices.Contains(x.s.gone, a.Record) {
			continue
		}
		if !slices.Contains(x.s.lost, a.Record) && !x.s.exists(a.Record) {
			x.problemf("AckedIsKept", "no log and no vault has %s, which was acknowledged", printed([]modellog.Record{a.Record}))
			return
		}
		if a.excused {
			continue
		}
		k := &x.s.c[a.cluster]
		l := k.leaderIndex()
		if l < 0 || k.nodes[l].rev != k.rev || !k.nodes[l].serves() {
			continue
		}
		if n := k.nodes[l]; a.Offset >= n.log.Start && !n.holds(a.Record) {
			x.problemf("AckedIsKept", "%s serves without %s, which was acknowledged", name(a.cluster, l), printed([]modellog.Record{a.Record}))
			return
		}
	}
}

func describeList(l timeline.List) string {
	words := make([]string, len(l))
	for i, e := range l {
		words[i] = e.ID
	}
	return "[" + strings.Join(words, " ") + "]"
}
