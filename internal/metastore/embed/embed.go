// Package embed runs an etcd inside the process: the metadata store of a
// single node, without any port of its own. It is the only importer of etcd's
// server.
//
// It owns the life of the server: the lock and the name of its data folder,
// errors that say whose the folder is and what to do, start within a second,
// compaction and quota, a log that stays quiet, and the stop. Reads and writes
// go through metastore/etcd over an in-process client, so that callers can't
// tell it from an etcd cluster.
//
// Tests: the conformance suite of metastore/storetest, restarts on the same
// folder, and a table of folders that must be refused by name.
package embed

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"go.etcd.io/etcd/server/v3/storage/wal"

	"tidemark/internal/metastore"
	"tidemark/internal/metastore/etcd"
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
	// Logger gets etcd's warnings and errors; its information is at level debug. Nil drops them.
	Logger *slog.Logger
	// UnsafeNoSync leaves out fsync, for tests that don't crash.
	UnsafeNoSync bool
}

// Server is an embedded etcd of one member without a port.
type Server struct {
	etcd  *embed.Etcd
	store *etcd.Store
	lock  *folderLock
	once  sync.Once
}

var walSegmentOnce sync.Once

// Start runs the embedded etcd and waits until it answers. Its errors name the
// folder and what to do.
func Start(ctx context.Context, o Options) (s *Server, err error) {
	walSegmentOnce.Do(func() { wal.SegmentSizeBytes = walSegmentBytes })
	lock, err := openFolder(o.Dir, o.Name)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, lock.release())
		}
	}()
	e, err := startEtcd(config(o))
	if err != nil {
		return nil, fmt.Errorf("metadata folder %s can't be opened: %w; "+
			"if the folder is damaged, restore it from a backup, or move it away to start with empty metadata", o.Dir, err)
	}
	select {
	case <-e.Server.ReadyNotify():
	case err := <-e.Err():
		e.Close()
		return nil, fmt.Errorf("metadata folder %s: etcd ended while it started: %w", o.Dir, err)
	case <-ctx.Done():
		e.Close()
		return nil, fmt.Errorf("metadata folder %s: etcd was not ready in time: %w", o.Dir, ctx.Err())
	}
	store := etcd.New(v3client.New(e.Server), etcd.Options{MaxTxnOps: MaxTxnOps, AskProgress: true})
	return &Server{etcd: e, store: store, lock: lock}, nil
}

// startEtcd starts the server. Where etcd would end the process, it gives an error.
func startEtcd(cfg *embed.Config) (e *embed.Etcd, err error) {
	defer func() {
		if p := recover(); p != nil {
			e, err = nil, fmt.Errorf("etcd: %v", p)
		}
	}()
	// etcd opens its database in a goroutine, whose panic nobody could catch: look first.
	if err := checkDatabase(filepath.Join(cfg.Dir, "member", "snap", "db")); err != nil {
		return nil, err
	}
	return embed.StartEtcd(cfg)
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

func config(o Options) *embed.Config {
	cfg := embed.NewConfig()
	cfg.Name = o.Name
	cfg.Dir = filepath.Join(o.Dir, "etcd")
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(etcd.Logger(o.Logger))
	// Nobody listens: the address only names the member in its own list.
	nowhere := url.URL{Scheme: "http", Host: "127.0.0.1:1"}
	cfg.ListenPeerUrls, cfg.ListenClientUrls = nil, nil
	cfg.AdvertisePeerUrls, cfg.AdvertiseClientUrls = []url.URL{nowhere}, []url.URL{nowhere}
	cfg.InitialCluster = o.Name + "=" + nowhere.String()
	cfg.TickMs, cfg.ElectionMs = uint(tick.Milliseconds()), uint(election.Milliseconds())
	cfg.MaxTxnOps, cfg.MaxRequestBytes = MaxTxnOps, requestBytesMax
	cfg.QuotaBackendBytes = quotaBytes
	cfg.AutoCompactionMode, cfg.AutoCompactionRetention = embed.CompactorModePeriodic, history
	cfg.SnapshotCount, cfg.SnapshotCatchUpEntries = snapshotEntries, snapshotEntries/2
	cfg.WatchProgressNotifyInterval = time.Minute
	cfg.UnsafeNoFsync = o.UnsafeNoSync
	return cfg
}

// Store gives the store of the server. It ends with the server.
func (s *Server) Store() metastore.Store { return s.store }

// Compact drops the history up to revision, as the server does by itself after some minutes.
func (s *Server) Compact(ctx context.Context, revision metastore.Revision) error {
	return s.store.Compact(ctx, revision)
}

// Close stops the server and frees its folder. Calls under way fail.
func (s *Server) Close() error {
	var err error
	s.once.Do(func() {
		err = s.store.Close()
		s.etcd.Close()
		err = errors.Join(err, s.lock.release())
	})
	return err
}

// Failed gives what ended the server by itself; a broker that sees it must stop.
func (s *Server) Failed() <-chan error { return s.etcd.Err() }
