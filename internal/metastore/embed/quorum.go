package embed

import (
	"context"
	"slices"
	"strings"

	"tidemark/internal/metastore/etcd"
)

// Quorum is how far the members have got.
type Quorum struct {
	// Leader is the leading member's id, 0 while there is none; Term its term.
	Leader, Term uint64
	// Committed is the last index that a majority holds, as far as anybody who answers knows.
	Committed uint64
	Members   []QuorumMember
}

// QuorumMember is one member of the quorum.
type QuorumMember struct {
	etcd.Member
	// Index is its last index; Answers: it said so now.
	Index   uint64
	Answers bool
}

// Quorum asks every member for its state.
func (s *Server) Quorum(ctx context.Context) (Quorum, error) {
	now, all, err := s.members(ctx)
	if err != nil {
		return Quorum{}, err
	}
	s.mu.Lock()
	e, alone := s.etcd, s.place == nil
	s.mu.Unlock()
	q := Quorum{Members: make([]QuorumMember, len(all))}
	type answer struct {
		at int
		p  etcd.Progress
		ok bool
	}
	answers := make(chan answer)
	for i, m := range all {
		q.Members[i].Member = m
		if alone {
			q.Members[i].Peers, q.Members[i].Clients = nil, nil // it listens nowhere
		}
		go func() {
			if e != nil && uint64(e.Server.MemberID()) == m.ID {
				p := etcd.Progress{Leader: uint64(e.Server.Leader()), Term: e.Server.Term(), Index: e.Server.CommittedIndex(), Committed: e.Server.CommittedIndex()}
				answers <- answer{at: i, p: p, ok: true}
				return
			}
			if len(m.Clients) == 0 {
				answers <- answer{at: i}
				return
			}
			p, err := now.Progress(ctx, m.Clients[0])
			answers <- answer{at: i, p: p, ok: err == nil}
		}()
	}
	for range all {
		a := <-answers
		if !a.ok {
			continue
		}
		q.Members[a.at].Index, q.Members[a.at].Answers = a.p.Index, true
		q.Committed = max(q.Committed, a.p.Committed)
		if a.p.Term >= q.Term && a.p.Leader != 0 {
			q.Term, q.Leader = a.p.Term, a.p.Leader
		}
	}
	slices.SortFunc(q.Members, func(a, b QuorumMember) int { return strings.Compare(a.Name, b.Name) })
	return q, nil
}
