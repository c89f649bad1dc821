// Package embed runs an etcd inside the process: the metadata store of a
// single node, without any port of its own, and a member of a quorum once other
// nodes join. It is the only importer of etcd's server.
//
// It owns the life of the server: the lock and the name of its data folder,
// errors that say whose the folder is and what to do, start within a second,
// compaction and quota, a log that stays quiet, and the stop; and of the
// membership: a lone member that opens its ports, learners, promotion, nodes
// that only ask the members. Reads and writes go through metastore/etcd, over an
// in-process client where this node is a voter, so that callers can't
// tell it from an etcd cluster.
//
// Tests: the conformance suite of metastore/storetest, restarts on the same
// folder, a table of folders that must be refused by name, and clusters that
// grow, lose members and come back in one process.
package embed

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"go.etcd.io/etcd/server/v3/storage/wal"

	"tidemark/internal/metastore"
	"tidemark/internal/metastore/etcd"
	"tidemark/internal/metastore/member"
)

const (
	// MaxTxnOps is what the embedded server allows: a broker's failure that
	// touches 2,000 partitions is a handful of transactions.
	MaxTxnOps = 2048
	// tick and election are the raft timings. A single member waits for one
	// election before it answers; etcd wants at least five ticks.
	tick     = 100 * time.Millisecond
	election = 500 * time.Millisecond
	// quotaBytes bounds the backend; beyond it only deletes are accepted.
	quotaBytes = 2 << 30
	// requestBytesMax bounds one transaction, as etcd's default does (mem has the same).
	requestBytesMax = 1536 * 1024
	// history is how long old revisions can still be watched.
	history = "5m"
	// snapshotEntries bounds the raft log that is kept in memory and replayed at start.
	snapshotEntries = 5000
	// walSegmentBytes is preallocated twice; etcd's default of 64 MB is meant for machines of its own.
	walSegmentBytes = 8 << 20
)

// Options say where and how the embedded etcd runs.
type Options struct {
	// Dir is the data folder, made if absent. No two processes may use it at once.
	Dir string
	// Name is the member's name. It is kept in the folder: another name is
	// refused, because the folder is another node's.
	Name string
	// Host is where the other members reach this one, once there are others; empty: 127.0.0.1.
	Host string
	// HostSet: the operator chose Host, so that a member which has moved goes there.
	HostSet bool
	// PeerPort and ClientPort are the ports on Host; 0 takes any free one, once.
	PeerPort, ClientPort int
	// TLS makes members and clients show each other certificates; nil: plain
	// connections. Plaintext allows those where other machines reach Host.
	TLS       *etcd.TLSFiles
	Plaintext bool
	// Join asks a member of a cluster to take this node in. It is called for a
	// new folder alone; nil makes the folder a cluster of its own.
	Join func(ctx context.Context, r member.JoinRequest) (member.JoinAnswer, error)
	// Logger gets etcd's warnings and errors; its information is at level debug. Nil drops them.
	Logger *slog.Logger
	// Look is how often the list of members is looked at; 0: as is good for a node.
	Look time.Duration
	// UnsafeNoSync leaves out fsync, for tests that don't crash.
	UnsafeNoSync bool
}

// Server is the node's part in the metadata quorum: a lone member without a
// port, one member of several, or no member, only a client of those.
type Server struct {
	o      Options
	lock   *folderLock
	store  *switched
	failed chan error
	ended  *ending         // of an etcd that would end the process
	ctx    context.Context // ends with Close
	stop   context.CancelFunc
	work   sync.WaitGroup
	once   sync.Once

	mu    sync.Mutex  // guards the following; held while the member opens its ports or takes another in
	etcd  *embed.Etcd // nil on a client, and for the moment of a restart
	place *place      // nil on a lone member
}

var walSegmentOnce sync.Once

// Start runs the embedded etcd, or joins a cluster, and waits until the store
// answers. Its errors name the folder and what to do.
func Start(ctx context.Context, o Options) (_ *Server, err error) {
	walSegmentOnce.Do(func() { wal.SegmentSizeBytes = walSegmentBytes })
	o = o.withDefaults()
	lock, err := openFolder(o.Dir, o.Name)
	if err != nil {
		return nil, err
	}
	s := newServer(o, lock)
	s.work.Go(s.watchEnding)
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if s.place, err = readPlace(o.Dir); err != nil {
		return nil, err
	}
	switch {
	case exists(filepath.Join(o.Dir, restoringFolder)):
		err = errHalfRestored(o.Dir)
	case s.place != nil && o.sameScheme(s.place) != nil:
		err = o.sameScheme(s.place)
	case s.place != nil && s.place.Voter:
		err = s.startMember(ctx, false)
	case s.place != nil:
		err = s.startClient(ctx)
	case o.Join != nil && exists(filepath.Join(o.Dir, etcdFolder)):
		err = fmt.Errorf("metadata folder %s holds a cluster of its own; to join another one, start with an empty folder (this node's own cluster would be given up)", o.Dir)
	case o.Join != nil:
		err = s.join(ctx)
	default:
		err = s.startLone(ctx)
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

func newServer(o Options, lock *folderLock) *Server {
	s := &Server{o: o, lock: lock, store: newSwitched(), failed: make(chan error, 1), ended: newEnding()}
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s
}

func (o Options) withDefaults() Options {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Host == "" {
		o.Host = "127.0.0.1"
	}
	if o.Look <= 0 {
		o.Look = syncEvery
	}
	return o
}

// startLone runs a member without a port and waits until it answers.
func (s *Server) startLone(ctx context.Context) error {
	if err := s.launch(s.config(nil)); err != nil {
		return err
	}
	if err := s.awaitReady(ctx, s.etcd); err != nil {
		return err
	}
	return s.store.set(s.own())
}

// launch starts the etcd and watches for its end.
func (s *Server) launch(cfg *embed.Config) error {
	e, err := startEtcd(cfg, s.ended)
	if err != nil {
		return openFault(s.o.Dir, freeBytes(s.o.Dir), err)
	}
	s.etcd = e
	return nil
}

// own is a store on the member in this process.
func (s *Server) own() *etcd.Store {
	cfg, err := s.o.clientTLS()
	if err != nil {
		s.o.Logger.Error("metadata: other members can't be asked for their health", "err", err) // it could be read when the ports were opened
	}
	return etcd.New(v3client.New(s.etcd.Server), etcd.Options{MaxTxnOps: MaxTxnOps, AskProgress: true, TLS: cfg})
}

// awaitReady waits until the member takes part in the quorum.
func (s *Server) awaitReady(ctx context.Context, e *embed.Etcd) error {
	wait := quorumTell
	tell := time.NewTimer(wait)
	defer tell.Stop()
	for {
		select {
		case <-e.Server.ReadyNotify():
			return nil
		case err := <-e.Err():
			return s.errEnded(e, fmt.Errorf("metadata folder %s: etcd ended while it started: %w", s.o.Dir, err))
		case <-e.Server.StopNotify():
			return s.errRemoved()
		case <-s.ended.done:
			return endedFault(s.o.Dir, freeBytes(s.o.Dir), s.ended.err)
		case <-tell.C:
			s.o.Logger.Warn("metadata: waiting for a quorum of its members; start the others, or, if they are lost for good, "+
				"make this one the only member (tidemark cluster reset)", "members", s.otherPeers(e))
			wait = min(2*wait, quorumTellMax)
			tell.Reset(wait)
		case <-ctx.Done():
			return fmt.Errorf("metadata folder %s: etcd was not ready in time (other members: %v): %w", s.o.Dir, s.otherPeers(e), ctx.Err())
		}
	}
}

// A member that waits for a quorum says so after quorumTell, and then less and less often.
const (
	quorumTell    = 5 * time.Second
	quorumTellMax = 5 * time.Minute
)

// otherPeers lists where the other members are, as far as this one knows.
func (s *Server) otherPeers(e *embed.Etcd) []string {
	var peers []string
	for _, m := range e.Server.Cluster().Members() {
		if m.ID != e.Server.MemberID() {
			peers = append(peers, m.PeerURLs...)
		}
	}
	return peers
}

func (s *Server) errRemoved() error {
	return fmt.Errorf("metadata folder %s: this member was removed from the cluster, or ended by itself; "+
		"to take part again, move the folder away and start with --join", s.o.Dir)
}

// errEnded is why a member ended that reported err. A member that stops by
// itself closes its listeners first, and their errors can come before the stop:
// they say nothing of their own then.
func (s *Server) errEnded(e *embed.Etcd, err error) error {
	select {
	case <-e.Server.StoppingNotify():
		return s.errRemoved()
	default:
		return err
	}
}

// checkMember looks at a member's files before etcd does.
func checkMember(dir string) error {
	if err := checkDatabase(filepath.Join(dir, "member", "snap", "db")); err != nil {
		return err
	}
	return checkLog(dir)
}

// checkDatabase opens and closes an existing database, which reads its meta pages.
func checkDatabase(path string) error {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true, Timeout: time.Second})
	if err != nil {
		return fmt.Errorf("its database %s: %w", path, err)
	}
	return db.Close()
}

// config is etcd's, of a lone member (nil) or of one among several.
func (s *Server) config(p *place) *embed.Config {
	o := s.o
	cfg := embed.NewConfig()
	cfg.Name = o.Name
	cfg.Dir = filepath.Join(o.Dir, etcdFolder)
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(etcd.ServerLogger(o.Logger, s.ended.end))
	// Nobody listens: the address only names the member in its own list.
	nowhere := o.url("127.0.0.1:1")
	cfg.ListenPeerUrls, cfg.ListenClientUrls = nil, nil
	cfg.AdvertisePeerUrls, cfg.AdvertiseClientUrls = []url.URL{nowhere}, []url.URL{nowhere}
	cfg.InitialCluster = o.Name + "=" + nowhere.String()
	// A new cluster's members must not be taken for those of another one, which
	// began with the same name, nor for its own before a restore.
	cfg.InitialClusterToken = rand.Text()
	cfg.EnableGRPCGateway = false
	if p != nil {
		peer, client := o.url(p.advertised(p.Peer)), o.url(p.advertised(p.Client))
		cfg.Name = p.Name
		cfg.ListenPeerUrls, cfg.ListenClientUrls = []url.URL{o.url(p.Peer)}, []url.URL{o.url(p.Client)}
		cfg.AdvertisePeerUrls, cfg.AdvertiseClientUrls = []url.URL{peer}, []url.URL{client}
		cfg.PeerTLSInfo, cfg.ClientTLSInfo = o.tlsInfo(), o.tlsInfo()
		cfg.InitialCluster = p.Name + "=" + peer.String()
		if len(p.Members) > 0 {
			cfg.InitialCluster, cfg.ClusterState = strings.Join(p.Members, ","), embed.ClusterStateFlagExisting
		}
	}
	cfg.TickMs, cfg.ElectionMs = uint(tick.Milliseconds()), uint(election.Milliseconds())
	cfg.MaxTxnOps, cfg.MaxRequestBytes = MaxTxnOps, requestBytesMax
	cfg.QuotaBackendBytes = quotaBytes
	cfg.AutoCompactionMode, cfg.AutoCompactionRetention = embed.CompactorModePeriodic, history
	cfg.SnapshotCount, cfg.SnapshotCatchUpEntries = snapshotEntries, snapshotEntries/2
	cfg.WatchProgressNotifyInterval = time.Minute
	cfg.UnsafeNoFsync = o.UnsafeNoSync
	return cfg
}

// Store gives the store of the node. It ends with the server.
func (s *Server) Store() metastore.Store { return s.store }

// Compact drops the history up to revision, as the server does by itself after some minutes.
func (s *Server) Compact(ctx context.Context, revision metastore.Revision) error {
	now, err := s.store.get(ctx)
	if err != nil {
		return err
	}
	return now.Compact(ctx, revision)
}

// Close stops the server and frees its folder. Calls under way fail.
func (s *Server) Close() error {
	var err error
	s.once.Do(func() {
		s.stop()
		s.work.Wait()
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.ended.hasCome() {
			err = s.store.Close()
		}
		s.closeEtcd()
		err = errors.Join(err, s.lock.release())
	})
	return err
}

// closeEtcd stops the member, if there is one. One that never took part in a quorum is
// stopped first: its Close waits for listeners that wait for the quorum. One that has
// ended is left as it is.
func (s *Server) closeEtcd() {
	e := s.etcd
	if e == nil || s.ended.hasCome() {
		return
	}
	select {
	case <-e.Server.ReadyNotify():
	default:
		e.Server.Stop()
	}
	e.Close()
}

// Failed gives what ended the member by itself; a broker that sees it must stop.
func (s *Server) Failed() <-chan error { return s.failed }
