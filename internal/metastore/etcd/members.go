package etcd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"tidemark/internal/metastore"
)

// Member is one member of an etcd cluster.
type Member struct {
	ID   uint64
	Name string // empty until it has started
	// Peers and Clients are its URLs.
	Peers, Clients []string
	Learner        bool
}

const (
	// memberTimeout bounds a change of members, which waits for the quorum.
	memberTimeout = 15 * time.Second
	// unhealthyAttempt sets the pause between attempts, 320 ms, while etcd refuses
	// a change because its members have been connected for less than five seconds.
	unhealthyAttempt = 4
)

var (
	// ErrNotReady is matched when a learner hasn't caught up yet.
	ErrNotReady = errors.New("the learner hasn't caught up yet")
	// ErrNotLearner is matched when a member to be promoted is a voter already.
	ErrNotLearner = errors.New("the member is a voter already")
	// ErrNoMember is matched when there is no such member.
	ErrNoMember = errors.New("there is no such member")
)

// Members lists the members, linearizably.
func (s *Store) Members(ctx context.Context) ([]Member, error) {
	var all []Member
	err := s.change(ctx, func(ctx context.Context) error {
		resp, err := s.cli.MemberList(ctx)
		if err == nil {
			all = members(resp.Members)
		}
		return err
	})
	return all, err
}

func members(in []*etcdserverpb.Member) []Member {
	out := make([]Member, len(in))
	for i, m := range in {
		out[i] = Member{ID: m.ID, Name: m.Name, Peers: m.PeerURLs, Clients: m.ClientURLs, Learner: m.IsLearner}
	}
	return out
}

// AddLearner adds a member that follows without a vote, and gives it and all members.
func (s *Store) AddLearner(ctx context.Context, peer string) (added Member, all []Member, err error) {
	err = s.change(ctx, func(ctx context.Context) error {
		resp, err := s.cli.MemberAddAsLearner(ctx, []string{peer})
		if err == nil {
			added, all = members([]*etcdserverpb.Member{resp.Member})[0], members(resp.Members)
		}
		return err
	})
	return added, all, err
}

// Promote makes a learner a voter: ErrNotReady while it is behind.
func (s *Store) Promote(ctx context.Context, id uint64) error {
	return s.change(ctx, func(ctx context.Context) error {
		_, err := s.cli.MemberPromote(ctx, id)
		return err
	})
}

// Remove takes a member out.
func (s *Store) Remove(ctx context.Context, id uint64) error {
	return s.change(ctx, func(ctx context.Context) error {
		_, err := s.cli.MemberRemove(ctx, id)
		return err
	})
}

// SetPeer changes where a member is reached by the others.
func (s *Store) SetPeer(ctx context.Context, id uint64, peer string) error {
	return s.change(ctx, func(ctx context.Context) error {
		_, err := s.cli.MemberUpdate(ctx, id, []string{peer})
		return err
	})
}

// SetEndpoints changes whom the client asks.
func (s *Store) SetEndpoints(endpoints []string) { s.cli.SetEndpoints(endpoints...) }

// change runs one question or change of members.
func (s *Store) change(ctx context.Context, call func(context.Context) error) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, memberTimeout)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	err := call(ctx)
	for err != nil && (errors.Is(err, rpctypes.ErrUnhealthy) || sameMessage(err, rpctypes.ErrUnhealthy)) && s.pause(ctx, unhealthyAttempt) == nil {
		err = call(ctx)
	}
	if err == nil {
		return nil
	}
	for _, known := range []struct{ etcd, ours error }{
		{rpctypes.ErrMemberLearnerNotReady, ErrNotReady},
		{rpctypes.ErrMemberNotLearner, ErrNotLearner},
		{rpctypes.ErrMemberNotFound, ErrNoMember},
	} {
		if errors.Is(err, known.etcd) || sameMessage(err, known.etcd) {
			return fmt.Errorf("%w: %w", known.ours, err)
		}
	}
	return s.closedOr(fmt.Errorf("%w: %w", metastore.ErrUnavailable, err))
}

// Answers reports whether one member answers at its client address now.
func (s *Store) Answers(ctx context.Context, endpoint string) bool {
	_, err := s.Progress(ctx, endpoint)
	return err == nil
}

// Progress is how far a member has got.
type Progress struct {
	// Leader is the member that leads as this one knows, 0 if none.
	Leader uint64
	Term   uint64
	// Index is the member's last, Committed what it knows to be committed.
	Index, Committed uint64
}

// Progress asks one member at its client address.
func (s *Store) Progress(ctx context.Context, endpoint string) (Progress, error) {
	cli := s.cli
	if s.cli.ActiveConnection() == nil {
		one, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, DialTimeout: s.o.AttemptTimeout, TLS: s.o.TLS, Logger: zap.NewNop()})
		if err != nil {
			return Progress{}, err
		}
		defer func() { _ = one.Close() }() // it was only for one question
		cli = one
	}
	var p Progress
	err := s.attempt(ctx, func(ctx context.Context) error {
		status, err := cli.Status(ctx, endpoint)
		if err == nil {
			p = Progress{Leader: status.Leader, Term: status.RaftTerm, Index: status.RaftIndex, Committed: status.RaftAppliedIndex}
		}
		return err
	})
	return p, err
}
