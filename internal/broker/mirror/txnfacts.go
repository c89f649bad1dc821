package mirror

import (
	"context"
	"errors"
	"sync"

	"tidemark/internal/batch"
	core "tidemark/internal/core/mirror"
	"tidemark/internal/core/txn"
	"tidemark/internal/core/types"
	"tidemark/internal/log"
)

// What a partition's leader knows of the transactions in its log, for a consistent
// cut (docs/adr/0011): the log says which, the fetches say when.

// sights are a copier's sightings, kept by its fetcher and read by verbs.
type sights struct {
	mu   sync.Mutex
	seen core.Sightings // guarded by mu
}

func (s *sights) saw(sent, answered types.Millis, mark types.Offset) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen.Saw(sent, answered, mark)
}

func (s *sights) still(sent types.Millis) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen.Still(sent)
}

func (s *sights) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen.Forget()
}

func (s *sights) clone() core.Sightings {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen.Clone()
}

// txnLook is one leader's facts, and when it gave them by its own clock.
type txnLook struct {
	core.TxnFacts
	Node types.BrokerID `json:"node"`
	Now  types.Millis   `json:"now"`
}

// endsMax bounds the markers that one partition tells; older ones are summed up.
const endsMax = 20_000

// The tail of a log that is looked at has so many offsets at least and at most.
const (
	scanLeast types.Offset = 50_000
	scanMost  types.Offset = 2_000_000
)

// txnsHere gives the facts of the mirror's partitions that are led here: of the
// markers as far back as p.Since, or without any where p.Since is negative.
func (m *Mirrors) txnsHere(ctx context.Context, p part) ([]outcome, error) {
	r := m.awaitRun(ctx, p.Mirror)
	list := m.ledHere(m.o.Node.Image(), p.isOf)
	out := make([]outcome, len(list))
	return out, m.inParallel(ctx, list, out, func(i int, l led) {
		f, err := m.txnFacts(ctx, r, l, p)
		if err != nil {
			out[i] = refusedOutcome(l.tp, err)
			return
		}
		out[i] = outcome{TopicPartition: l.tp, Txns: &txnLook{TxnFacts: *f, Node: m.o.Node.NodeID(), Now: m.o.Node.Now()}}
	})
}

// txnFacts are one partition's, in the start that is to end: a log that doesn't follow
// it yet, or owes its first cut, will hold something else when it is promoted.
func (m *Mirrors) txnFacts(ctx context.Context, r *run, l led, p part) (*core.TxnFacts, error) {
	var seen core.Sightings
	c := &copier{}
	if r != nil {
		if at := r.copier(l.id); at != nil {
			c = at
			c.noteStill()
			seen = c.sights.clone()
		}
	}
	var view log.View
	var cleaned types.Offset
	var producers []txn.Producer
	err := l.part.Do(ctx, func(o Owned) error {
		if o.Log() == nil || !o.Leading() {
			return errors.New("this node does not lead the partition at the moment")
		}
		own := c.own(o)
		cleaned = own.Cleaned
		if rec, _ := o.Record(); rec == nil {
			return errors.New("the partition can't be read here")
		} else if err := core.Promotable(rec, p.StartID, &own); err != nil {
			return err
		}
		view, producers = o.Log().View(), o.Log().Producers()
		return nil
	})
	if err != nil {
		return nil, err
	}
	f := &core.TxnFacts{
		TopicPartition: l.tp, Start: view.LogStart, End: view.LogEnd, CompleteAt: seen.AbsentAt(view.LogEnd),
		Cleaned: cleaned, From: view.LogEnd, FromKnown: seen.KnownBy(view.LogEnd - 1),
	}
	ended := false
	for _, p := range producers {
		if p.TxnFirstOffset >= 0 {
			f.Open = append(f.Open, core.TxnOpen{
				Producer: p.ID, Epoch: p.Epoch, First: p.TxnFirstOffset,
				FirstKnown: seen.KnownBy(p.TxnFirstOffset), FirstAbsent: seen.AbsentAt(p.TxnFirstOffset),
			})
		}
		ended = ended || p.CoordinatorEpoch >= 0
	}
	if p.Since < 0 || !ended {
		return f, nil
	}
	from := max(seen.Until(p.Since), view.LogEnd-scanMost)
	f.From = max(min(from, view.LogEnd-scanLeast), view.LogStart)
	s := txnScan{facts: f, seen: &seen, begun: map[types.ProducerID]txnBegun{}, first: map[types.ProducerID]int16{}}
	if err := s.read(ctx, l.part.Log()); err != nil {
		return nil, err
	}
	s.sumUp(producers)
	return f, nil
}

// txnScan reads a log's tail for its transactions.
type txnScan struct {
	facts *core.TxnFacts
	seen  *core.Sightings
	begun map[types.ProducerID]txnBegun
	first map[types.ProducerID]int16 // epoch of the first batch met
}

type txnBegun struct {
	first types.Offset
	epoch int16
}

func (s *txnScan) read(ctx context.Context, l *log.Log) error {
	for at := s.facts.From; at < s.facts.End && ctx.Err() == nil; {
		raw, err := readLog(l, at, s.facts.End, surveyBytes)
		if err != nil {
			return err
		}
		next := at
		for it := batch.Iterate(raw); it.Next(); {
			next = it.Header.NextOffset()
			if it.Header.IsTransactional() && it.Header.LastOffset() >= s.facts.From {
				if err := s.take(&it.Header, it.Raw); err != nil {
					return err
				}
			}
		}
		if next == at {
			break // a gap that compaction left reaches to the end
		}
		at = next
	}
	return ctx.Err()
}

func (s *txnScan) take(h *batch.Header, raw []byte) error {
	if _, met := s.first[h.ProducerID]; !met {
		s.first[h.ProducerID] = h.ProducerEpoch
	}
	b, open := s.begun[h.ProducerID]
	if !h.IsControl() {
		if !open {
			s.begun[h.ProducerID] = txnBegun{first: h.BaseOffset, epoch: h.ProducerEpoch}
		}
		return nil
	}
	marker, err := batch.ParseMarker(raw)
	if err != nil {
		return err
	}
	if marker.Kind != batch.Commit && marker.Kind != batch.Abort {
		return nil
	}
	e := core.TxnEnd{
		Producer: h.ProducerID, Epoch: h.ProducerEpoch, DataEpoch: core.UnknownEpoch, First: types.NoOffset, At: h.BaseOffset,
		Commit: marker.Kind == batch.Commit, KnownBy: s.seen.KnownBy(h.BaseOffset), FirstAbsent: -1,
	}
	if open {
		e.First, e.DataEpoch, e.FirstAbsent = b.first, b.epoch, s.seen.AbsentAt(b.first)
		delete(s.begun, h.ProducerID)
	}
	s.facts.Ends = append(s.facts.Ends, e)
	return nil
}

// sumUp says of what lies below the scan what the producers' state says of it.
func (s *txnScan) sumUp(producers []txn.Producer) {
	f := s.facts
	if over := len(f.Ends) - endsMax; over > 0 {
		f.From = f.Ends[over-1].At + 1
		for _, e := range f.Ends[:over] {
			delete(s.first, e.Producer)
		}
		f.Ends = f.Ends[over:]
	}
	f.FromKnown = -1
	if f.From == 0 {
		return
	}
	f.FromKnown = s.seen.KnownBy(f.From - 1)
	f.Older = map[types.ProducerID]int16{}
	for _, p := range producers {
		if p.CoordinatorEpoch < 0 {
			continue
		}
		f.Older[p.ID] = p.Epoch
		if first, met := s.first[p.ID]; met {
			f.Older[p.ID] = first
		}
	}
}
