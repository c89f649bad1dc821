package history

import (
	"cmp"
	"maps"
	"slices"

	"tidemark/internal/batch"
	"tidemark/internal/core/types"
)

// MirroredTxn is a transaction that a client wrote to one of several clusters, each
// record of which is a Write as well.
type MirroredTxn struct {
	Name, Cluster string
	Values        []string
	// Outcome: Acked is a commit that was acknowledged, Failed one that the producer
	// never asked to commit, Unknown the rest.
	Outcome Outcome
	// EndBegan is when the producer asked to commit, by the recorder's counter; 0: it did not.
	EndBegan int64
}

// CommittedView is what a reader of committed records was given of a partition, from
// an offset on, up to where it had read (exclusive).
type CommittedView struct {
	Cluster   string
	Partition types.TopicPartition
	Lineage   Lineage
	From, End types.Offset
	Records   []Record
	Ended     int64 // after the reading, by the recorder's counter
}

// Fork is how a timeline began: the promotion of a mirror.
type Fork struct {
	Partition types.TopicPartition
	Timeline  string
	Cluster   string // whose mirror was promoted
	// Consistent: at a cut at which no transaction of the mirror's partitions is half committed.
	Consistent bool
	// Clean: after a switchover that succeeded.
	Clean bool
	// Told is where the mirrored records ended, by the promotion's own word.
	Told types.Offset
}

// The rules of transactions, beside AbortedRead, PrecommittedRead and TornTransaction.
const (
	CommittedHidden Rule = "committed record hidden"     // a reader of committed records was not given it, and stood beyond its marker
	WrongEnd        Rule = "transaction ended otherwise" // its marker says other than its producer knows
	TxnLeftOpen     Rule = "transaction left open"       // without a marker in the end
	CutUntold       Rule = "cut and not told"            // the promotion says another end of what was mirrored than its timeline's start
)

// mirroredTxns is what is known of transactions.
type mirroredTxns struct {
	list   []MirroredTxn
	byName map[string]int // value: index of its transaction
	views  []CommittedView
	forks  map[types.TopicPartition]map[string]Fork
}

func newMirroredTxns() mirroredTxns {
	return mirroredTxns{byName: map[string]int{}, forks: map[types.TopicPartition]map[string]Fork{}}
}

// Beginning notes a transaction before its first record, and gives the number for the other calls.
func (m *Mirrored) Beginning(name, cluster string) int {
	m.txns.list = append(m.txns.list, MirroredTxn{Name: name, Cluster: cluster, Outcome: Failed})
	return len(m.txns.list) - 1
}

// WritingIn notes a record of a transaction before it is sent.
func (m *Mirrored) WritingIn(txn int, w Write) int {
	t := &m.txns.list[txn]
	t.Values = append(t.Values, w.Value)
	m.txns.byName[w.Value] = txn
	return m.Writing(w)
}

// CommittingTxn notes that the producer is about to ask for the commit.
func (m *Mirrored) CommittingTxn(txn int, at int64) {
	m.txns.list[txn].Outcome, m.txns.list[txn].EndBegan = Unknown, at
}

// CommittedTxn notes that a commit was acknowledged.
func (m *Mirrored) CommittedTxn(txn int) { m.txns.list[txn].Outcome = Acked }

// Promoted notes how a timeline began, and judges what its promotion told.
func (m *Mirrored) Promoted(f Fork, l Lineage) []Finding {
	before := len(m.found)
	if m.txns.forks[f.Partition] == nil {
		m.txns.forks[f.Partition] = map[string]Fork{}
	}
	m.txns.forks[f.Partition][f.Timeline] = f
	if i := l.index(f.Timeline); i >= 0 && l[i].FirstOffset != f.Told {
		m.report(CutUntold, f.Partition, f.Told, "the promotion that began timeline %s says that it took what lies below %d; the timeline begins at %d", f.Timeline, f.Told, l[i].FirstOffset)
	}
	return m.found[before:]
}

// ObserveCommitted judges what a reader of committed records was given by what
// producers know; what markers say is for Check.
func (m *Mirrored) ObserveCommitted(v CommittedView) []Finding {
	before := len(m.found)
	for _, r := range v.Records {
		if _, known := m.byName[r.Value]; !known {
			m.report(Phantom, v.Partition, r.Offset, "a reader of committed records on %s was given %q, which nobody wrote there", v.Cluster, brief(r.Value))
		}
		i, inTxn := m.txns.byName[r.Value]
		switch {
		case !inTxn:
		case m.txns.list[i].Outcome == Failed:
			m.report(AbortedRead, v.Partition, r.Offset, "a reader of committed records on %s was given %q of transaction %s, whose producer never asked to commit it", v.Cluster, brief(r.Value), m.txns.list[i].Name)
		case m.txns.list[i].EndBegan > v.Ended:
			m.report(PrecommittedRead, v.Partition, r.Offset, "a reader of committed records on %s was given %q of transaction %s before its producer asked to commit it", v.Cluster, brief(r.Value), m.txns.list[i].Name)
		}
	}
	m.txns.views = append(m.txns.views, v)
	return m.found[before:]
}

// fate is what a log says of one record of a transaction.
type fate struct {
	at       types.Offset
	timeline string
	// end is the kind of the marker behind it, ended the marker's offset and by its
	// timeline; isOpen: there is none.
	isOpen bool
	end    batch.MarkerKind
	ended  types.Offset
	by     string
}

// fatesIn reads a log's transactions as its batches have them, by value.
func (m *Mirrored) fatesIn(v *View) map[string]fate {
	out, open := map[string]fate{}, map[types.ProducerID][]string{}
	for _, b := range v.Batches {
		timeline := ""
		if i := v.Lineage.of(b.Epoch); i >= 0 {
			timeline = v.Lineage[i].ID
		}
		if b.Marker != nil {
			for _, value := range open[b.Producer] {
				f := out[value]
				f.isOpen, f.end, f.ended, f.by = false, *b.Marker, b.Base, timeline
				out[value] = f
			}
			delete(open, b.Producer)
			continue
		}
		if !b.Transactional {
			continue
		}
		for _, r := range b.Records {
			out[r.Value] = fate{at: r.Offset, timeline: timeline, isOpen: true}
			open[b.Producer] = append(open[b.Producer], r.Value)
		}
	}
	return out
}

// checkTxns judges transactions by the final views.
func (m *Mirrored) checkTxns() {
	sides := slices.SortedFunc(maps.Keys(m.last), func(a, b side) int { return cmp.Or(cmp.Compare(a.cluster, b.cluster), comparePartitions(a.tp, b.tp)) })
	fates := map[string]map[string]fate{} // by cluster and value
	for _, s := range sides {
		v := m.last[s]
		if !v.Final {
			continue
		}
		of := m.fatesIn(v)
		if fates[s.cluster] == nil {
			fates[s.cluster] = map[string]fate{}
		}
		maps.Copy(fates[s.cluster], of)
		m.txnEnds(v, of)
		for i := range m.txns.views {
			if c := &m.txns.views[i]; c.Partition == s.tp && (c.Cluster == s.cluster || slices.Equal(c.Lineage, v.Lineage)) {
				m.committedReads(c, v, of)
			}
		}
	}
	for _, cluster := range slices.Sorted(maps.Keys(fates)) {
		for i := range m.txns.list {
			m.torn(cluster, &m.txns.list[i], fates[cluster])
		}
	}
}

// txnEnds: a marker says what its producer was told. One of a later timeline may abort
// what was committed: the promotion had no marker of it. After a switchover there is none such.
func (m *Mirrored) txnEnds(v *View, fates map[string]fate) {
	for _, value := range slices.Sorted(maps.Keys(fates)) {
		f := fates[value]
		i, known := m.txns.byName[value]
		if !known {
			continue
		}
		t := &m.txns.list[i]
		fork := m.txns.forks[v.Partition][f.by]
		switch {
		case f.isOpen:
			m.report(TxnLeftOpen, v.Partition, f.at, "%s has %q of transaction %s, and no marker that ends it", v.Cluster, brief(value), t.Name)
		case f.end == batch.Commit && t.Outcome == Failed:
			m.report(WrongEnd, v.Partition, f.at, "%s has a COMMIT marker at %d for %q of transaction %s, whose producer never asked to commit it", v.Cluster, f.ended, brief(value), t.Name)
		case f.end != batch.Commit && t.Outcome == Acked && (f.by == f.timeline || fork.Clean):
			m.report(WrongEnd, v.Partition, f.at, "%s has an ABORT marker at %d, timeline %s, for %q of transaction %s, whose commit was acknowledged", v.Cluster, f.ended, f.by, brief(value), t.Name)
		}
	}
}

// committedReads: a reader of committed records was given exactly what its log has
// committed, as far as that log had the markers and had them on the timelines of the final one.
func (m *Mirrored) committedReads(c *CommittedView, v *View, fates map[string]fate) {
	given := map[string]bool{}
	for _, r := range c.Records {
		given[r.Value] = true
	}
	for _, value := range slices.Sorted(maps.Keys(fates)) {
		f := fates[value]
		if f.isOpen || f.at < c.From || f.ended >= c.End || !c.Lineage.keeps(f.by, f.ended) || !c.Lineage.keeps(f.timeline, f.at) {
			continue
		}
		if committed := f.end == batch.Commit; committed && !given[value] {
			m.report(CommittedHidden, c.Partition, f.at, "a reader of committed records on %s read %d to %d and was not given %q, which the marker at %d commits", c.Cluster, c.From, c.End-1, brief(value), f.ended)
		} else if !committed && given[value] {
			m.report(AbortedRead, c.Partition, f.at, "a reader of committed records on %s was given %q, which the marker at %d aborts", c.Cluster, brief(value), f.ended)
		}
	}
}

// torn: all of a transaction is committed in a cluster's log, or nothing, unless a
// promotion cut it, which is told. One at a consistent cut tears none; and on the cluster
// that it was written to nothing but a cut does.
func (m *Mirrored) torn(cluster string, t *MirroredTxn, fates map[string]fate) {
	var has, lacks []string
	excused := false
	for _, value := range t.Values {
		f, there := fates[value]
		if there && !f.isOpen && f.end == batch.Commit {
			has = append(has, value)
			continue
		}
		i := m.byName[value]
		w := &m.writes[i]
		if !there && w.Outcome != Acked {
			excused = true // it may never have been written
			continue
		}
		lacks = append(lacks, value)
		v := m.last[side{cluster, w.Partition}]
		excused = excused || v == nil || m.isTornFreely(v, w, f, there)
	}
	if len(has) > 0 && len(lacks) > 0 && !excused {
		at := fates[has[0]]
		m.report(TornTransaction, m.writes[m.byName[has[0]]].Partition, at.at, "%s has %q of transaction %s committed, and %q not", cluster, brief(has[0]), t.Name, brief(lacks[0]))
	}
}

// isTornFreely reports whether a record that isn't committed fell to a promotion that
// may tear transactions: it was cut, or its marker was.
func (m *Mirrored) isTornFreely(v *View, w *Write, f fate, there bool) bool {
	if there {
		return f.by != f.timeline && m.mayTear(w.Partition, f.by)
	}
	i := v.Lineage.index(w.Timeline)
	if i < 0 || i+1 >= len(v.Lineage) {
		return i < 0
	}
	return m.mayTear(w.Partition, v.Lineage[i+1].ID)
}

// mayTear reports whether the promotion that began a timeline may tear transactions:
// one at no consistent cut, or of whose log an election has taken the end away.
func (m *Mirrored) mayTear(tp types.TopicPartition, timeline string) bool {
	return !m.txns.forks[tp][timeline].Consistent || m.isLowered(tp, timeline)
}
