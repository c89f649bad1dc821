package mirror

import (
	"encoding/binary"

	"tidemark/internal/core/epoch"
	"tidemark/internal/core/timeline"
)

// What follows is for models that try every order of events from one state: a
// copy of the machine, and its text by which equal states are recognised.

// Clone gives a copy that shares nothing that either of them changes. The lag,
// which decides nothing, begins anew in it.
func (p *Partition) Clone() *Partition {
	out := *p
	out.lag = lagBook{}
	return &out
}

// AppendState appends what decides how the machine goes on. Left out are the
// numbers of tickets and sessions (an answer to an overtaken question is dropped),
// times, the lag, and how often it has tried.
func (p *Partition) AppendState(b []byte) []byte {
	b = append(b, byte(p.phase), bits(p.leading, p.allFetched, p.hasSource, p.restart, p.probed, p.owesAll, p.copied, p.doubting))
	if p.phase == proposing {
		b = append(b, byte(p.proposed))
	}
	if p.rec != nil {
		b = binary.AppendVarint(b, int64(p.rec.LeaderEpoch))
	}
	b = appendNumbers(b, int64(p.realignedAt), int64(p.facts.LeaderEpoch), int64(p.facts.Start), int64(p.facts.End))
	b = append(b, bits(p.facts.Copied, p.givenUp.ok), byte(p.regressed), byte(p.contradictions))
	if p.givenUp.ok {
		b = binary.AppendVarint(b, int64(p.givenUp.from))
	}
	b = append(b, p.trouble.text()...)
	b = append(b, 0)
	b = appendNumbers(b, int64(p.rounds.epoch), int64(p.rounds.at), int64(p.rounds.end), int64(p.rounds.n))
	b = append(b, bits(p.rounds.copied, p.vouch.known))
	if p.vouch.known {
		b = append(b, byte(p.vouch.at), byte(p.vouch.answer))
	}
	if p.hasSource {
		s := &p.source
		b = appendNumbers(b, int64(s.LeaderEpoch), int64(s.LogStart), int64(s.LogEnd), int64(s.LastEpoch))
		b = append(b, bits(s.IsMirror), byte(len(s.Path)))
		b = AppendList(b, p.list)
	}
	if s, following := p.follower.Session(); following {
		b = appendNumbers(b, 1, int64(s.LeaderEpoch), int64(s.LocalEpoch), int64(bits(p.follower.HasAccepted())))
	}
	switch p.phase {
	case comparing, probing, cutting, proposing:
		b = appendNumbers(b, int64(p.look.LogStart), int64(p.look.LogEnd), int64(p.restartAt), int64(p.answer.Epoch), int64(p.answer.End), int64(p.probes))
		b = AppendHistory(b, &p.look.History)
	}
	return b
}

// AppendList appends a timeline list.
func AppendList(b []byte, l timeline.List) []byte {
	b = append(b, byte(len(l)))
	for _, e := range l {
		b = append(append(b, e.ID...), 0)
		b = appendNumbers(b, int64(e.FirstEpoch), int64(e.FirstOffset))
	}
	return b
}

// AppendHistory appends an epoch history.
func AppendHistory(b []byte, h *epoch.History) []byte {
	b = append(b, byte(h.Len()))
	for _, e := range h.Entries() {
		b = appendNumbers(b, int64(e.Epoch), int64(e.Start))
	}
	return b
}

func appendNumbers(b []byte, list ...int64) []byte {
	for _, n := range list {
		b = binary.AppendVarint(b, n)
	}
	return b
}

func bits(list ...bool) (b byte) {
	for i, yes := range list {
		if yes {
			b |= 1 << i
		}
	}
	return b
}

// Waits reports whether the machine waits for an answer to the given ticket.
func (p *Partition) Waits(t Ticket) bool {
	return p.ticket == t && p.phase != idle && p.phase != aligning
}
