package replica

import (
	"encoding/binary"
	"maps"
	"slices"

	"tidemark/internal/core/types"
)

// What follows is for models that try every order of events from one state: a
// copy of what a leader knows, and its text by which equal states are recognised.

// Clone gives a copy that shares nothing that either of them changes.
func (l *Leader) Clone() *Leader {
	out := *l
	out.followers = make(map[types.BrokerID]*progress, len(l.followers))
	for id, p := range l.followers {
		q := *p
		out.followers[id] = &q
	}
	out.brokers = maps.Clone(l.brokers)
	return &out
}

// AppendState appends what decides how the leader goes on, but for what the
// record says and for times. rank numbers broker epochs in their order.
func (l *Leader) AppendState(b []byte, rank func(types.BrokerEpoch) byte) []byte {
	if !l.leads {
		return append(b, 0)
	}
	b = append(b, 1)
	b = binary.AppendVarint(b, int64(l.epoch))
	b = binary.AppendVarint(b, int64(l.epochStart))
	b = binary.AppendVarint(b, int64(l.logEnd))
	b = binary.AppendVarint(b, int64(l.hw))
	ids := slices.Sorted(maps.Keys(l.followers))
	for _, id := range ids {
		p, view := l.followers[id], l.brokers[id]
		b = binary.AppendVarint(b, int64(p.logEnd))
		b = binary.AppendVarint(b, int64(p.provedIn))
		b = binary.AppendVarint(b, int64(max(-1, p.logStart-l.logStart)))
		b = append(b, rank(p.brokerEpoch), rank(view.Epoch), flag(view.Barred), flag(l.isCommitted(id)))
	}
	if l.pending == nil {
		return append(b, 0)
	}
	return append(b, 1, byte(len(l.pending.ISR)), byte(len(l.pending.added)))
}

func flag(yes bool) byte {
	if yes {
		return 1
	}
	return 0
}
