package embed

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"

	"tidemark/internal/metastore/etcd"
	"tidemark/internal/metastore/member"
)

const (
	// VotersMax is how many nodes keep the metadata; further ones only ask them.
	VotersMax = 5
	// promotePause is the time between two attempts to become a voter.
	promotePause = 200 * time.Millisecond
	// syncEvery is how often the list of members is looked at.
	syncEvery = 30 * time.Second
	// callsEnd is longer than any attempt of a call to the store.
	callsEnd = 5 * time.Second
	// learnerPatience is how long a node waits for another one that is joining:
	// etcd takes one learner at a time.
	learnerPatience = 40 * time.Second
)

// join asks to be taken in and starts as what the answer says. The place is
// written before the question, so that a join that is repeated comes from the same address.
func (s *Server) join(ctx context.Context) error {
	suffix := make([]byte, 3)
	_, _ = rand.Read(suffix) // it never fails
	p, err := newPlace(s.o, s.o.Name+"-"+hex.EncodeToString(suffix))
	if err != nil {
		return err
	}
	s.place = p
	if err := s.place.write(s.o.Dir); err != nil {
		return err
	}
	return s.startMember(ctx, true)
}

// askToJoin carries the question and notes the answer.
func (s *Server) askToJoin(ctx context.Context) error {
	if s.o.Join == nil {
		return fmt.Errorf("metadata folder %s: this node began to join a cluster and was not taken in; start it with --join, or move the folder away", s.o.Dir)
	}
	r := member.JoinRequest{Name: s.place.Name, PeerURL: s.peerURL(), ClientURL: s.clientURL(), Probe: true}
	answer, err := s.o.Join(ctx, r)
	if err != nil {
		return err
	}
	// A member that can't reach the others would be counted by them all the same: look first.
	if err := s.probe(ctx, answer.Endpoints); err != nil {
		return err
	}
	r.Probe = false
	if answer, err = s.o.Join(ctx, r); err != nil {
		return err
	}
	s.place.Joined, s.place.Voter, s.place.Members, s.place.Endpoints = true, answer.Voter, answer.Members, answer.Endpoints
	return s.place.write(s.o.Dir)
}

// peerURL is where the other members reach this one.
func (s *Server) peerURL() string {
	u := s.o.url(s.place.advertised(s.place.Peer))
	return u.String()
}

// clientURL is where others ask this one.
func (s *Server) clientURL() string {
	u := s.o.url(s.place.advertised(s.place.Client))
	return u.String()
}

// dial makes a store on the members.
func (s *Server) dial(ctx context.Context) (*etcd.Store, error) {
	cfg, err := s.o.clientTLS()
	if err != nil {
		return nil, err
	}
	return etcd.Dial(ctx, etcd.DialOptions{Endpoints: s.place.Endpoints, TLS: cfg, Options: etcd.Options{MaxTxnOps: MaxTxnOps}, Logger: s.o.Logger})
}

// startMember starts one member of several. A voter waits for the quorum and
// answers itself; a learner asks the others until it is promoted.
func (s *Server) startMember(ctx context.Context, fresh bool) error {
	if !s.place.Joined {
		if err := s.askToJoin(ctx); err != nil {
			return err
		}
		if !s.place.Voter {
			return s.startClient(ctx)
		}
		fresh = true
	}
	if !fresh {
		ran, err := s.hasRun(ctx)
		if err != nil {
			return err
		}
		fresh = !ran
	}
	if !fresh {
		moved, err := s.place.moved(s.o)
		if err == nil && moved {
			err = s.place.write(s.o.Dir)
		}
		if err != nil {
			return err
		}
		if s.o.mayListen() != nil {
			s.o.Logger.Warn("metadata: this member listens without TLS where other machines reach it; set metadata.ssl.*, or metadata.plaintext=true if that is meant", "at", s.place.Peer)
		}
	}
	if err := s.launchMember(ctx, fresh); err != nil {
		return err
	}
	if id := s.etcd.Server.MemberID(); !fresh && s.etcd.Server.Cluster().Member(id) == nil {
		if c, ok := s.etcd.Server.Cluster().(*membership.RaftCluster); !ok || c.IsIDRemoved(id) {
			return s.errRemoved()
		}
		fresh = true // it was killed before its database knew who the members are
	}
	if !fresh && !s.etcd.Server.IsLearner() {
		if err := s.awaitReady(ctx, s.etcd); err != nil {
			return err
		}
		if err := s.store.set(s.own()); err != nil {
			return err
		}
		s.work.Go(s.watchMember)
		return s.correctPeer(ctx)
	}
	remote, err := s.dial(ctx)
	if err != nil {
		return err
	}
	if err := s.store.set(remote); err != nil {
		return err
	}
	s.work.Go(func() { s.becomeVoter(remote) })
	return nil
}

// unheardMost bounds how long a new member starts anew because the others haven't heard of it.
const unheardMost = 30 * time.Second

// launchMember starts the etcd of one member of several. A new one learns who the members
// are from the first of them that answers, which may have yet to hear of it: etcd takes that
// for a list that contradicts ours, and is started anew.
func (s *Server) launchMember(ctx context.Context, fresh bool) error {
	folder := filepath.Join(s.o.Dir, etcdFolder)
	for began := time.Now(); ; {
		err := s.launch(s.config(s.place))
		if err == nil || !fresh || !isUnheardOf(err) || exists(filepath.Join(folder, "member", "wal")) || time.Since(began) > unheardMost {
			return err
		}
		s.o.Logger.Debug("metadata: a member that was asked hasn't heard of this one yet; trying again", "err", err)
		select {
		case <-time.After(promotePause):
		case <-ctx.Done():
			return err
		}
		// Nothing was taken in yet, but etcd has made its database.
		if err := os.RemoveAll(folder); err != nil {
			return err
		}
	}
}

// isUnheardOf reports that etcd was told other members than those it was to find. It
// has no error of its own for that.
func isUnheardOf(err error) bool { return strings.Contains(err.Error(), "error validating peerURLs") }

// becomeVoter asks for promotion until this member has caught up, and then
// answers itself.
func (s *Server) becomeVoter(remote *etcd.Store) {
	e := s.etcd
	id := uint64(e.Server.MemberID())
	pause := time.NewTicker(promotePause)
	defer pause.Stop()
	since := time.Now()
	for told := false; ; {
		err := remote.Promote(s.ctx, id)
		if err == nil || errors.Is(err, etcd.ErrNotLearner) {
			break
		}
		if errors.Is(err, etcd.ErrNoMember) {
			s.fail(s.errRemoved())
			return
		}
		if !told && time.Since(since) > time.Minute {
			told = true
			s.o.Logger.Warn("metadata: this member has not caught up yet; the cluster works without it", "err", err)
		}
		select {
		case <-pause.C:
		case err := <-e.Err():
			s.fail(s.errEnded(e, fmt.Errorf("metadata member: %w", err)))
			return
		case <-e.Server.StopNotify():
			s.fail(s.errRemoved())
			return
		case <-s.ctx.Done():
			return
		}
	}
	if err := s.awaitReady(s.ctx, e); err != nil {
		if s.ctx.Err() == nil {
			s.fail(err)
		}
		return
	}
	s.store.replace(s.own())
	s.work.Go(func() {
		// Calls under way end first; watches then go on with the own member.
		select {
		case <-time.After(callsEnd):
		case <-s.ctx.Done():
		}
		_ = remote.Close() // nobody needs it any more
	})
	s.o.Logger.Info("metadata: this node is a voter now", "member", s.place.Name, "took", time.Since(since).Round(time.Millisecond))
	s.watchMember()
}

// watchMember sees the member end by itself, and notes where the others are.
func (s *Server) watchMember() {
	e := s.etcd
	look := time.NewTicker(s.o.Look)
	defer look.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case err := <-e.Err():
			if s.ctx.Err() == nil {
				s.fail(s.errEnded(e, fmt.Errorf("metadata member: %w", err)))
			}
			return
		case <-e.Server.StopNotify():
			if s.ctx.Err() == nil {
				s.fail(s.errRemoved())
			}
			return
		case <-look.C:
			s.noteEndpoints()
		}
	}
}

// fail passes on what ended the member, once.
func (s *Server) fail(err error) {
	select {
	case s.failed <- err:
	default:
	}
}

// startClient asks the members and is none.
func (s *Server) startClient(ctx context.Context) error {
	remote, err := s.dial(ctx)
	if err != nil {
		return err
	}
	if err := s.store.set(remote); err != nil {
		return err
	}
	if err := s.awaitMembers(ctx, remote); err != nil {
		return err
	}
	s.work.Go(func() {
		look := time.NewTicker(s.o.Look)
		defer look.Stop()
		for {
			select {
			case <-s.ctx.Done():
				return
			case <-look.C:
				s.noteEndpoints()
				if s.standIn() {
					s.becomeVoter(remote)
					return
				}
			}
		}
	})
	return nil
}

// standIn makes a node that only asks the members one of them, a learner at
// first, if a place is free: after one was taken out. One that is merely down keeps
// its place, because it may come back: whether it is lost is for an operator to say.
func (s *Server) standIn() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, err := s.store.get(s.ctx)
	if err != nil || s.place == nil || s.place.Peer == "" {
		return false
	}
	all, err := now.Members(s.ctx)
	if err != nil {
		return false // the next look may succeed
	}
	own := slices.IndexFunc(all, func(m etcd.Member) bool { return slices.Contains(m.Peers, s.peerURL()) })
	switch {
	case own >= 0 && all[own].Name != "": // it has run, and would come back without what it had
		s.o.Logger.Warn("metadata: this node is a member and its folder doesn't know it; take the member out, then it takes a place anew", "remove", memberID(all[own].ID))
		return false
	case own >= 0: // an earlier attempt stopped half-way
	case len(all) >= VotersMax || slices.ContainsFunc(all, func(m etcd.Member) bool { return m.Learner }):
		return false
	default:
		if _, all, err = now.AddLearner(s.ctx, s.peerURL()); err != nil {
			s.o.Logger.Debug("metadata: a free place among the members isn't taken yet", "err", err)
			return false
		}
	}
	before := *s.place
	s.place.Voter, s.place.Members = true, membersOf(all, s.peerURL(), s.place.Name)
	// The place comes first: a member that has run must not be begun anew after a crash.
	err = os.RemoveAll(filepath.Join(s.o.Dir, etcdFolder))
	if err == nil {
		err = s.place.write(s.o.Dir)
	}
	if err == nil {
		err = s.launch(s.config(s.place))
	}
	if err != nil {
		s.o.Logger.Warn("metadata: this node could not take a free place among the members; trying again", "err", err)
		s.closeEtcd()
		s.etcd = nil
		*s.place = before
		if err := s.place.write(s.o.Dir); err != nil {
			s.o.Logger.Warn("metadata: this node's place can't be kept", "err", err)
		}
		return false
	}
	s.o.Logger.Info("metadata: this node takes a free place among the members", "member", s.place.Name)
	return true
}

// membersOf lists name=peer URL of all members that have told their names, and of the one at peer.
func membersOf(all []etcd.Member, peer, name string) []string {
	var out []string
	for _, m := range all {
		called := m.Name
		if slices.Contains(m.Peers, peer) {
			called = name
		}
		for _, at := range m.Peers {
			if called != "" {
				out = append(out, called+"="+at)
			}
		}
	}
	return out
}

// awaitMembers waits until the members answer a node that is none, and says for whom it waits.
func (s *Server) awaitMembers(ctx context.Context, remote *etcd.Store) error {
	told := time.Now()
	for {
		_, err := remote.Members(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return s.explain(ctx, fmt.Errorf("metadata: the members don't answer: %w; start them, or correct the endpoints in %s/%s", err, s.o.Dir, placeFile))
		}
		if time.Since(told) > quorumTell {
			told = time.Now()
			s.o.Logger.Warn("metadata: waiting for the members to answer", "err", s.explain(ctx, err))
		}
		select {
		case <-time.After(promotePause):
		case <-ctx.Done():
		}
	}
}

// explain adds what is in the way of each known endpoint.
func (s *Server) explain(ctx context.Context, err error) error {
	cfg, cfgErr := s.o.clientTLS()
	if cfgErr != nil {
		return errors.Join(err, cfgErr)
	}
	return etcd.Explain(ctx, s.place.Endpoints, cfg, err)
}

// noteEndpoints keeps the client addresses of the members: in the folder, for
// the next start, and on a client for its connection.
func (s *Server) noteEndpoints() {
	now, err := s.store.get(s.ctx)
	if err != nil {
		return
	}
	all, err := now.Members(s.ctx)
	if err != nil {
		return // the next look may succeed
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.keepEndpoints(endpointsOf(all)) && !s.place.Voter {
		now.SetEndpoints(s.place.Endpoints)
	}
}

// keepEndpoints writes the members' addresses into the folder, if they are others than before. The caller holds mu.
func (s *Server) keepEndpoints(endpoints []string) bool {
	endpoints = slices.DeleteFunc(endpoints, func(e string) bool { return e == "" })
	if s.place == nil || len(endpoints) == 0 || slices.Equal(endpoints, s.place.Endpoints) {
		return false
	}
	s.place.Endpoints = endpoints
	if err := s.place.write(s.o.Dir); err != nil {
		s.o.Logger.Warn("metadata: the members' addresses can't be kept", "err", err)
	}
	return true
}

// endpointsOf lists the client addresses of the voters.
func endpointsOf(all []etcd.Member) []string {
	var endpoints []string
	for _, m := range all {
		if !m.Learner {
			endpoints = append(endpoints, m.Clients...)
		}
	}
	slices.Sort(endpoints)
	return slices.Compact(endpoints)
}

// members gives the store, and who is a member of its quorum.
func (s *Server) members(ctx context.Context) (*etcd.Store, []etcd.Member, error) {
	now, err := s.store.get(ctx)
	if err != nil {
		return nil, nil, err
	}
	all, err := now.Members(ctx)
	return now, all, err
}

// correctPeer tells the cluster where this member is, if it says otherwise: a
// member that was alone, or that has moved.
func (s *Server) correctPeer(ctx context.Context) error {
	now, all, err := s.members(ctx)
	if err != nil {
		return err
	}
	id, want := uint64(s.etcd.Server.MemberID()), s.peerURL()
	for _, m := range all {
		if m.ID == id && !slices.Contains(m.Peers, want) {
			return now.SetPeer(ctx, id, want)
		}
	}
	return nil
}

// openPorts makes a lone member reachable: it is restarted with listeners.
// Calls to the store wait meanwhile. The caller holds mu.
func (s *Server) openPorts(ctx context.Context) error {
	p, err := newPlace(s.o, s.o.Name)
	if err != nil {
		return err
	}
	p.Joined = true
	if err := p.write(s.o.Dir); err != nil {
		return err
	}
	from := time.Now()
	if err := s.store.set(nil); err != nil {
		return err
	}
	s.closeEtcd()
	s.etcd, s.place = nil, p
	if err := s.startMember(ctx, false); err != nil {
		err = fmt.Errorf("the metadata member can't be started with ports: %w", err)
		s.fail(err)
		return err
	}
	s.o.Logger.Info("metadata: this member can be reached by others now", "peer", p.Peer, "client", p.Client, "tls", p.TLS, "took", time.Since(from).Round(time.Millisecond))
	return nil
}

// Admit takes a node in: as a learner, which becomes a voter by itself, or,
// with VotersMax members or no wish to be one, as a client of the members. Asked
// again by the same node it gives the same answer. It waits for a while if another node is joining.
func (s *Server) Admit(ctx context.Context, r member.JoinRequest) (member.JoinAnswer, error) {
	for until := time.Now().Add(learnerPatience); ; {
		answer, err := s.admit(ctx, r)
		if !errors.Is(err, errLearning) || time.Now().After(until) {
			return answer, err
		}
		select {
		case <-time.After(promotePause):
		case <-ctx.Done():
			return answer, err
		}
	}
}

var errLearning = errors.New("another node is joining")

func (s *Server) admit(ctx context.Context, r member.JoinRequest) (member.JoinAnswer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if scheme, _, ok := strings.Cut(r.PeerURL, "://"); ok && scheme != s.o.scheme() {
		return member.JoinAnswer{}, fmt.Errorf("this cluster's metadata members speak %s and the node would speak %s: "+
			"give it the same metadata.ssl.keystore.location and metadata.ssl.truststore.location settings as the others", s.o.scheme(), scheme)
	}
	if s.place == nil {
		if err := s.openPorts(ctx); err != nil {
			return member.JoinAnswer{}, err
		}
	}
	now, all, err := s.members(ctx)
	if err != nil {
		return member.JoinAnswer{}, err
	}
	known := false
	for _, m := range all {
		if !slices.Contains(m.Peers, r.PeerURL) {
			continue
		}
		known = true
		// Without what the member had it would break what that one had promised: a majority
		// could be made up that lacks what a majority has.
		if m.Name != "" {
			return member.JoinAnswer{}, fmt.Errorf("at %s there is member %s (%s) of this cluster's metadata already, and the node comes with an empty metadata folder; "+
				"start it with that member's folder, or, if that is lost for good, take the member out first: tidemark cluster remove %s", r.PeerURL, memberID(m.ID), m.Name, memberID(m.ID))
		}
	}
	if r.Probe {
		return member.JoinAnswer{Endpoints: endpointsOf(all)}, nil
	}
	if !known && r.PeerURL != "" && len(all) < VotersMax {
		if m := slices.IndexFunc(all, func(m etcd.Member) bool { return m.Learner }); m >= 0 {
			return member.JoinAnswer{}, fmt.Errorf("%w (member %s at %v) and has not caught up; wait until it is a voter, or take it out: tidemark cluster remove %s",
				errLearning, memberID(all[m].ID), all[m].Peers, memberID(all[m].ID))
		}
		if _, all, err = now.AddLearner(ctx, r.PeerURL); err != nil {
			return member.JoinAnswer{}, err
		}
		known = true
		s.keepEndpoints(append(endpointsOf(all), r.ClientURL))
	}
	return member.JoinAnswer{Voter: known, Endpoints: endpointsOf(all), Members: membersOf(all, r.PeerURL, r.Name)}, nil
}

func memberID(id uint64) string { return strconv.FormatUint(id, 16) }

// Members lists the members and whether each answers; a lone member is one.
func (s *Server) Members(ctx context.Context) ([]member.Info, error) {
	now, all, err := s.members(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]member.Info, len(all))
	for i, m := range all {
		out[i] = member.Info{ID: memberID(m.ID), Name: m.Name, Learner: m.Learner, Started: m.Name != "", Healthy: len(all) == 1}
		if len(m.Peers) > 0 {
			out[i].Peer = m.Peers[0]
		}
		if len(m.Clients) > 0 {
			out[i].Client = m.Clients[0]
			out[i].Healthy = out[i].Healthy || now.Answers(ctx, m.Clients[0])
		}
	}
	return out, nil
}

// RemoveMember takes a member out by its id. The last one can't go.
func (s *Server) RemoveMember(ctx context.Context, id string) error {
	n, err := strconv.ParseUint(id, 16, 64)
	if err != nil {
		return fmt.Errorf("member %q: want the hexadecimal id that tidemark cluster status shows", id)
	}
	now, all, err := s.members(ctx)
	if err != nil {
		return err
	}
	if len(all) == 1 {
		return errors.New("the last member of the metadata quorum can't be removed")
	}
	return now.Remove(ctx, n)
}

// VotersMax is how many members there may be.
func (s *Server) VotersMax() int { return VotersMax }
