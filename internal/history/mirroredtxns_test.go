package history

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"testing"

	"tidemark/internal/batch"
	"tidemark/internal/core/types"
)

// txnStory is a run in which K, which is no mirror ever, is written in transactions on two
// partitions; A mirrors it and is promoted. T1 is whole by then, of T2 one partition's
// marker is missing, T3 was aborted. Each test bends it at one place.
type txnStory struct {
	commits map[string]bool // of T1 and T2: whether the producer was told
	asked   map[string]int64
	k0, k1  []Batch // K's logs
	a0, a1  []Batch // A's
	lineage [2]Lineage
	reads   []CommittedView
	forks   []Fork
}

func inTxn(producer types.ProducerID, at types.Offset, value string) Batch {
	b := lay(1, at, value)[0]
	b.Producer, b.Transactional = producer, true
	return b
}

func marker(epoch types.LeaderEpoch, producer types.ProducerID, at types.Offset, kind batch.MarkerKind) Batch {
	return Batch{Base: at, Last: at, Epoch: epoch, Hash: sha256.Sum256(fmt.Appendf(nil, "%d %d %v", at, epoch, kind)), Producer: producer, Transactional: true, Marker: &kind}
}

func promotedAt(end types.Offset) Lineage { return Lineage{{"r", 0, 0}, {"b", 100, end}} }

func mirroredTransactions() *txnStory {
	s := &txnStory{commits: map[string]bool{"T1": true, "T2": true}, asked: map[string]int64{"T1": 10, "T2": 20}}
	s.k0 = []Batch{inTxn(7, 0, "t1a"), marker(1, 7, 1, batch.Commit), inTxn(7, 2, "t2a"), marker(1, 7, 3, batch.Commit), inTxn(8, 4, "t3a"), marker(1, 8, 5, batch.Abort)}
	s.k1 = []Batch{inTxn(7, 0, "t1b"), marker(1, 7, 1, batch.Commit), inTxn(7, 2, "t2b"), marker(1, 7, 3, batch.Commit)}
	s.a0 = append(slices.Clone(s.k0[:4]), lay(101, 4, "b0")...)
	s.a1 = append(slices.Clone(s.k1[:3]), marker(101, 7, 3, batch.Abort))
	s.lineage = [2]Lineage{promotedAt(4), promotedAt(3)}
	read := func(cluster string, tp types.TopicPartition, l Lineage, end types.Offset, records ...Record) {
		s.reads = append(s.reads, CommittedView{Cluster: cluster, Partition: tp, Lineage: l, End: end, Records: records, Ended: 50})
	}
	read("K", p0, rootOnly, 6, Record{0, "t1a"}, Record{2, "t2a"})
	read("K", p1, rootOnly, 4, Record{0, "t1b"}, Record{2, "t2b"})
	read("A", p0, s.lineage[0], 5, Record{0, "t1a"}, Record{2, "t2a"}, Record{4, "b0"})
	read("A", p1, s.lineage[1], 4, Record{0, "t1b"})
	s.forks = []Fork{{Partition: p0, Timeline: "b", Told: 4}, {Partition: p1, Timeline: "b", Told: 3}}
	return s
}

func (s *txnStory) judge() []Finding {
	m := NewMirrored(map[string]int{"A": 1})
	acked := func(i int, at types.Offset) { m.Acked(i, at, 1, 0) }
	for n, name := range []string{"T1", "T2", "T3"} {
		txn := m.Beginning(name, "K")
		for j, tp := range []types.TopicPartition{p0, p1}[:2-n/2] { // T3 is on one partition
			at := types.Offset(2 * n)
			acked(m.WritingIn(txn, Write{Cluster: "K", Timeline: "r", Partition: tp, Value: fmt.Sprintf("t%d%c", n+1, 'a'+j)}), at)
		}
		if began, asked := s.asked[name]; asked {
			m.CommittingTxn(txn, began)
		}
		if s.commits[name] {
			m.CommittedTxn(txn)
		}
	}
	m.Writing(Write{Cluster: "A", Timeline: "b", Partition: p0, Value: "b0"})
	var found []Finding
	for i, f := range s.forks {
		found = append(found, m.Promoted(f, s.lineage[i])...)
	}
	for i, logs := range [][2][]Batch{{s.k0, s.a0}, {s.k1, s.a1}} {
		tp := []types.TopicPartition{p0, p1}[i]
		for j, cluster := range []string{"K", "A"} {
			v := view(cluster, []Lineage{rootOnly, s.lineage[i]}[j], true, logs[j])
			v.Partition = tp
			found = append(found, m.Observe(v)...)
		}
	}
	for _, r := range s.reads {
		found = append(found, m.ObserveCommitted(r)...)
	}
	return append(found, m.Check()...)
}

// TestMirroredFindsWhatIsWrongOfTransactions bends the story once for each rule.
func TestMirroredFindsWhatIsWrongOfTransactions(t *testing.T) {
	f := bending(t, mirroredTransactions)
	give := func(v *CommittedView, r Record) { v.Records = append(slices.Clone(v.Records), r) }
	f("as it goes well", func(*txnStory) {})
	f("a reader is given what was aborted", func(s *txnStory) { give(&s.reads[0], Record{4, "t3a"}) }, AbortedRead)
	f("a reader is given what a promotion aborted", func(s *txnStory) { give(&s.reads[3], Record{2, "t2b"}) }, AbortedRead)
	f("a reader is given what nobody wrote", func(s *txnStory) { give(&s.reads[3], Record{2, "who?"}) }, Phantom)
	f("a reader is given records before the producer asks", func(s *txnStory) { s.asked["T2"] = 60 }, PrecommittedRead)
	f("a reader isn't given what is committed", func(s *txnStory) { s.reads[2].Records = s.reads[2].Records[1:] }, CommittedHidden)
	f("a reader had not come to the marker yet", func(s *txnStory) { s.reads[2].Records, s.reads[2].End = s.reads[2].Records[:1], 3 })
	f("an earlier reader saw what was cut later", func(s *txnStory) {
		s.reads[1].Cluster = "A" // as a mirror it had the marker; this one was not read on K
	})
	f("what was committed is aborted on its own timeline", func(s *txnStory) {
		s.k0[3] = marker(1, 7, 3, batch.Abort)
		s.a0[3] = s.k0[3]
		s.reads[0].Records, s.reads[2].Records = s.reads[0].Records[:1], []Record{{0, "t1a"}, {4, "b0"}}
	}, WrongEnd, TornTransaction)
	f("what was aborted is committed", func(s *txnStory) { s.k0[5] = marker(1, 8, 5, batch.Commit) }, WrongEnd, CommittedHidden)
	f("a promotion leaves a transaction open", func(s *txnStory) { s.a1 = s.a1[:3] }, TxnLeftOpen)
	f("a producer that doesn't know is torn by its own coordinator", func(s *txnStory) {
		s.commits["T2"] = false
		s.k1[3], s.reads[1].Records = marker(1, 7, 3, batch.Abort), s.reads[1].Records[:1]
	}, TornTransaction)
	f("a producer that doesn't know was aborted", func(s *txnStory) {
		s.commits["T2"] = false
		s.k0[3], s.k1[3] = marker(1, 7, 3, batch.Abort), marker(1, 7, 3, batch.Abort)
		s.a0[3], s.reads[0].Records, s.reads[1].Records, s.reads[2].Records = s.k0[3], s.reads[0].Records[:1], s.reads[1].Records[:1], []Record{{0, "t1a"}, {4, "b0"}}
	})
	f("a consistent cut lacks a marker", func(s *txnStory) { s.forks[1].Consistent = true }, TornTransaction)
	f("a consistent cut lacks records", func(s *txnStory) {
		s.lineage = [2]Lineage{promotedAt(2), promotedAt(4)}
		s.forks = []Fork{{Partition: p0, Timeline: "b", Told: 2, Consistent: true}, {Partition: p1, Timeline: "b", Told: 4, Consistent: true}}
		s.a0, s.a1, s.reads = s.k0[:2], s.k1, s.reads[:2]
	}, TornTransaction)
	f("a consistent cut's log loses its end before it is copied", func(s *txnStory) {
		s.lineage = [2]Lineage{promotedAt(4), promotedAt(4)}
		s.forks = []Fork{{Partition: p0, Timeline: "b", Cluster: "A", Told: 4, Consistent: true}, {Partition: p1, Timeline: "b", Cluster: "A", Told: 4, Consistent: true}}
		s.a0, s.a1, s.reads = append(slices.Clone(s.k0[:2]), lay(101, 2, "b0")...), s.k1, s.reads[:2]
	})
	f("another cut lacks the same", func(s *txnStory) {
		s.lineage = [2]Lineage{promotedAt(2), promotedAt(4)}
		s.forks = []Fork{{Partition: p0, Timeline: "b", Told: 2}, {Partition: p1, Timeline: "b", Told: 4}}
		s.a0, s.a1, s.reads = s.k0[:2], s.k1, s.reads[:2]
	})
	f("a switchover aborts what was committed", func(s *txnStory) { s.forks[1].Clean = true }, WrongEnd)
	f("a promotion tells another end", func(s *txnStory) { s.forks[0].Told = 9 }, CutUntold)
}
