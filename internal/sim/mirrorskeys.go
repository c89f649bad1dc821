package sim

import (
	"maps"
	"slices"

	"tidemark/internal/batch"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
)

// newestKeys gives the highest offset of each key in batches, of those in [from, to).
func newestKeys(raws [][]byte, from, to types.Offset) map[string]types.Offset {
	newest := map[string]types.Offset{}
	for _, raw := range raws {
		h, err := batch.ParseHeader(raw)
		if err != nil || h.IsControl() {
			continue
		}
		for it := batch.Records(raw, nil); it.Next(); {
			if o := it.Record.Offset; it.Record.Key != nil && o >= from && o < to {
				newest[string(it.Record.Key)] = o
			}
		}
	}
	return newest
}

// rawOf gives what the leader of a partition has of it, nil for nobody; start is its log's.
func (f tideFar) rawOf(id meta.PartitionID) (raws [][]byte, start types.Offset) {
	r := f.c.record(id)
	if r == nil || f.c.machine(r.Leader) == nil || !f.c.machine(r.Leader).serves() {
		return nil, 0
	}
	h := f.c.machine(r.Leader).held(id)
	if h == nil {
		return nil, 0
	}
	v, open := h.part.View()
	if !open {
		return nil, 0
	}
	got, err := readFrom(h.part.Log(), v.LogStart)
	if err != nil {
		return nil, 0
	}
	for i := range got {
		raws = append(raws, got[i].raw)
	}
	return raws, v.LogStart
}

// rawOf is tideFar's, of what consumers may read.
func (f kafkaFar) rawOf(id meta.PartitionID) (raws [][]byte, start types.Offset) {
	if id.Topic != f.s.topic || int(id.Number) >= len(f.s.parts) || f.s.parts[id.Number].leader < 0 {
		return nil, 0
	}
	p := f.s.parts[id.Number]
	r := p.replicas[p.leader]
	for _, b := range r.batches {
		if b.next <= r.hw {
			raws = append(raws, b.raw)
		}
	}
	return raws, r.start
}

// keysKept is Convergence on a compacted topic: of each key that its source has, a
// mirror has a record as new. What its own compaction dropped for newer records that a
// cut took later it has from its source again (docs/adr/0027).
func (a *arbiter) keysKept(m *machine, h *held, l *siteLog, mine []shadowBatch, far farCluster) {
	var theirs [][]byte
	var start types.Offset
	switch f := far.(type) {
	case tideFar:
		theirs, start = f.rawOf(h.id)
	case kafkaFar:
		theirs, start = f.rawOf(h.id)
	}
	raws := make([][]byte, len(mine))
	for i := range mine {
		raws[i] = mine[i].raw
	}
	want := newestKeys(theirs, max(start, l.start), l.end)
	have := newestKeys(raws, l.start, l.end)
	for _, key := range slices.Sorted(maps.Keys(want)) {
		if o, ok := have[key]; !ok || o < want[key] {
			a.fail("Convergence", "%s %s at the end: its source has key %q at %d, the mirror at %d or nowhere (%t); its log is [%d, %d), compacted to %d", m.name, h.part.Name(), key, want[key], o, ok, l.start, l.end, h.part.Log().Cleaned())
			return
		}
	}
	if len(want) > 0 {
		a.w.k.probe("end: a compacted mirror has its source's keys")
	}
}
