package transaction

import (
	"math/rand/v2"
	"slices"
	"testing"

	"tidemark/internal/core/errcode"
	"tidemark/internal/core/types"
)

// walker is a client of one transactional id, as Kafka's behave: it knows what it
// was told last, and begins anew when it is fenced.
type walker struct {
	id    string
	bumps bool
	p     InitResponse
	has   bool
	added []types.TopicPartition
}

// judge follows the log and the markers and says what is wrong. It is the
// checker: it knows nothing of the table.
type judge struct {
	t *testing.T
	// given is every epoch that a producer was told, wrote every marker of a decision
	// that the log doesn't hold as complete.
	given map[string][]InitResponse
	wrote map[decision]map[types.TopicPartition]bool
}

type decision struct {
	id    string
	pid   types.ProducerID
	epoch int16
}

func (j *judge) record(b *bench, at int, r Record) {
	if r.Value == nil {
		return
	}
	m := r.Value
	var before Metadata
	for i := at - 1; i >= 0; i-- {
		if b.log[i].ID == r.ID && b.log[i].Value != nil {
			before = *b.log[i].Value
			break
		}
	}
	switch m.State {
	case PrepareCommit, PrepareAbort:
		if before.State.isPrepared() {
			j.t.Fatalf("%s is decided twice: %+v, then %+v", r.ID, before, *m)
		}
		if m.State == PrepareCommit && before.State != Ongoing {
			j.t.Fatalf("%s commits in state %s", r.ID, before.State)
		}
		if !slices.Equal(m.Partitions, before.Partitions) && before.State == Ongoing {
			j.t.Fatalf("%s is decided for %v, had %v", r.ID, m.Partitions, before.Partitions)
		}
	case CompleteCommit, CompleteAbort:
		if !before.State.isPrepared() || (m.State == CompleteCommit) != (before.State == PrepareCommit) {
			j.t.Fatalf("%s: %s becomes %s", r.ID, before.State, m.State)
		}
		d := decision{r.ID, before.ProducerID, before.Epoch}
		for _, tp := range before.Partitions {
			if !j.wrote[d][tp] {
				j.t.Fatalf("%s is complete without a marker in %v", r.ID, tp)
			}
		}
		delete(j.wrote, d)
	case Ongoing:
		if before.State.isPrepared() {
			j.t.Fatalf("%s begins a transaction in state %s", r.ID, before.State)
		}
	}
}

// marker is one that is about to be written.
func (j *judge) marker(b *bench, m Markers, tp types.TopicPartition) {
	for i := len(b.log) - 1; i >= 0; i-- {
		r := b.log[i]
		if r.ID != m.ID || r.Value == nil {
			continue
		}
		v := r.Value
		if v.ProducerID == m.ProducerID && v.Epoch == m.Epoch && v.State.isPrepared() {
			if (v.State == PrepareCommit) != m.Commit || !slices.Contains(v.Partitions, tp) {
				j.t.Fatalf("marker %+v for %v, the log says %+v", m, tp, *v)
			}
			d := decision{m.ID, m.ProducerID, m.Epoch}
			if j.wrote[d] == nil {
				j.wrote[d] = map[types.TopicPartition]bool{}
			}
			j.wrote[d][tp] = true
			return
		}
	}
	j.t.Fatalf("marker %+v, and the log has no such decision", m)
}

// handed takes note of an epoch that a producer was given.
func (j *judge) handed(id string, p InitResponse, repeats bool) {
	all := j.given[id]
	for _, q := range all {
		if q.ProducerID == p.ProducerID && (q.Epoch > p.Epoch || q.Epoch == p.Epoch && !repeats) {
			j.t.Fatalf("%s is given %+v after %+v", id, p, q)
		}
	}
	j.given[id] = append(all, p)
}

// TestWalk has clients of three ids do whatever they may, in any order, with writes
// that are late, refused or of unknown outcome, and coordinators that die.
func TestWalk(t *testing.T) {
	ends := 0
	for seed := range uint64(150) {
		ends += walk(t, rand.New(rand.NewPCG(seed, 0)))
	}
	if ends < 1000 {
		t.Fatalf("%d transactions came to an end, too few to have tried anything", ends)
	}
}

// walk is one run; it gives the number of ends that clients were told of.
func walk(t *testing.T, r *rand.Rand) int {
	b := newBench(t)
	j := &judge{t: t, given: map[string][]InitResponse{}, wrote: map[decision]map[types.TopicPartition]bool{}}
	clients := []*walker{{id: "a"}, {id: "a", bumps: true}, {id: "b"}, {id: "c", bumps: true}}
	checked := 0
	check := func() {
		for ; checked < len(b.log); checked++ {
			j.record(b, checked, b.log[checked])
		}
	}
	ends := 0
	for range 400 {
		c := clients[r.IntN(len(clients))]
		switch n := r.IntN(20); {
		case n < 3 || !c.has:
			p := b.init(c.id, types.NoProducer, NoEpoch)
			if p.Code == errcode.None && p.ProducerID != 0 {
				j.handed(c.id, p, false)
				c.p, c.has, c.added = p, true, nil
			}
		case n < 9:
			tp := types.TopicPartition{Topic: "x", Partition: r.Int32N(4)}
			q := b.request()
			b.step(Add{Request: q, ID: c.id, ProducerID: c.p.ProducerID, Epoch: c.p.Epoch, Partitions: []types.TopicPartition{tp}})
			switch b.codeOf(q) {
			case errcode.None:
				c.added = append(c.added, tp)
			case errcode.ProducerFenced, errcode.InvalidProducerIDMapping:
				c.has = false
			}
		case n < 13:
			commit := r.IntN(2) == 0
			e := b.end(c.id, c.p, commit, c.bumps)
			switch e.Code {
			case errcode.None:
				if m, ok := b.table.Describe(c.id); ok && commit && len(c.added) > 0 && m.State != PrepareCommit && m.State != CompleteCommit {
					t.Fatalf("%s was told of a commit in state %s", c.id, m.State)
				}
				ends++
				if c.bumps {
					j.handed(c.id, InitResponse{ProducerID: e.ProducerID, Epoch: e.Epoch}, true)
					c.p.ProducerID, c.p.Epoch = e.ProducerID, e.Epoch
				}
				c.added = nil
			case errcode.ProducerFenced, errcode.InvalidProducerIDMapping:
				c.has = false
			}
		case n < 16:
			if len(b.markers) > 0 { // one marker of one decision: the others come later, or never
				i := r.IntN(len(b.markers))
				m := b.markers[i]
				n := r.IntN(len(m.Partitions))
				tp := m.Partitions[n]
				b.markers[i].Partitions = slices.Delete(slices.Clone(m.Partitions), n, n+1)
				if len(b.markers[i].Partitions) == 0 {
					b.markers = slices.Delete(b.markers, i, i+1)
				}
				j.marker(b, m, tp)
				b.step(MarkerWritten{ID: m.ID, ProducerID: m.ProducerID, Epoch: m.Epoch, Partition: tp})
			}
		case n == 16:
			b.now += types.Millis(r.IntN(4000))
			b.step(Sweep{})
		case n == 17:
			b.hold = !b.hold
			if !b.hold {
				b.release()
			}
		case n == 18:
			b.refuse = errcode.CoordinatorNotAvailable
			b.hold = false
			b.release()
			b.step(Add{ID: c.id, ProducerID: c.p.ProducerID, Epoch: c.p.Epoch, Partitions: []types.TopicPartition{{Topic: "y"}}})
			b.refuse = errcode.None
		default: // the coordinator dies; what it was writing is there or isn't
			reached := r.IntN(len(b.held) + 1)
			for _, a := range b.held[:reached] {
				b.log = append(b.log, a.Record)
			}
			b.held, b.hold = nil, false
			b.step(Resign{Code: errcode.NotCoordinator})
			check()
			b.load()
		}
		check()
	}
	return ends
}
