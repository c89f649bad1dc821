// Package etcd is the metadata store on an etcd cluster, or on the etcd that
// metastore/embed runs in this process: one adapter for both.
//
// It owns what separates an etcd client from a metastore.Store: a short
// time-out for every attempt (a proposal forwarded to a leader that just died
// is lost, and a call without one waits for seconds although quorum is back),
// the split of errors into "nothing happened" and "unknown outcome", ranges in
// pages at one revision, and watches that give whole revisions and survive the
// loss of a member. It never repeats a write: metastore.Commit does, after
// looking (R8). It knows no records.
//
// Tests: the conformance suite of metastore/storetest against an etcd in a
// process of its own, killed and frozen in some of them.
package etcd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"tidemark/internal/core/meta"
	"tidemark/internal/metastore"
)

// Defaults of Options.
const (
	// DefaultAttemptTimeout is twice etcd's default election time-out: an
	// attempt that a change of leader swallowed is given up soon after it.
	DefaultAttemptTimeout = 2 * time.Second
	// DefaultMaxTxnOps is etcd's own default of --max-txn-ops.
	DefaultMaxTxnOps = 128
	// DefaultPageKeys bounds the keys of one page of a range.
	DefaultPageKeys = 1000
	// readAttempts bounds the attempts of a read, which can be repeated freely.
	readAttempts = 3
)

// Options tune the adapter. The zero value is good.
type Options struct {
	// AttemptTimeout bounds one attempt of a call.
	AttemptTimeout time.Duration
	// MaxTxnOps is the server's limit (--max-txn-ops).
	MaxTxnOps int
	// PageKeys bounds the keys of one page of a range.
	PageKeys int
	// AskProgress lets idle watches ask for progress. Servers before 3.5.8 may
	// answer with a revision whose events they have not sent (etcd issue 15220); Dial looks.
	AskProgress bool
	// TLS is for questions to single members through a client that has no
	// connections of its own (an in-process one).
	TLS *tls.Config
}

func (o Options) withDefaults() Options {
	if o.AttemptTimeout <= 0 {
		o.AttemptTimeout = DefaultAttemptTimeout
	}
	if o.MaxTxnOps <= 0 {
		o.MaxTxnOps = DefaultMaxTxnOps
	}
	if o.PageKeys <= 0 {
		o.PageKeys = DefaultPageKeys
	}
	return o
}

// Store is a metastore.Store on an etcd client.
type Store struct {
	cli  *clientv3.Client
	o    Options
	ctx  context.Context // ends with Close
	stop context.CancelFunc
	once sync.Once
}

var _ metastore.Store = (*Store)(nil)

// New makes a store of a client, which is closed with the store.
func New(cli *clientv3.Client, o Options) *Store {
	ctx, stop := context.WithCancel(context.Background())
	return &Store{cli: cli, o: o.withDefaults(), ctx: ctx, stop: stop}
}

// DialOptions say how to reach an etcd cluster.
type DialOptions struct {
	Options
	// Endpoints are HOST:PORT or http(s)://HOST:PORT, one or more members.
	Endpoints []string
	// TLS is nil for plain connections.
	TLS *tls.Config
	// Username and Password, if etcd asks for them.
	Username, Password string
	Logger             *slog.Logger
}

// Dial connects to an etcd cluster and asks it for its limit of operations if
// MaxTxnOps is 0. It fails with ErrUnavailable if no member answers in time, and
// says what is in the way at each endpoint.
func Dial(ctx context.Context, o DialOptions) (*Store, error) {
	cli, err := clientv3.New(clientv3.Config{
		Endpoints:            o.Endpoints,
		DialTimeout:          5 * time.Second,
		DialKeepAliveTime:    5 * time.Second,
		DialKeepAliveTimeout: 3 * time.Second,
		PermitWithoutStream:  true,
		MaxCallSendMsgSize:   16 << 20,
		TLS:                  o.TLS,
		Username:             o.Username,
		Password:             o.Password,
		Logger:               Logger(o.Logger),
		DialOptions:          []grpc.DialOption{grpc.WithUserAgent("tidemark")},
	})
	if err != nil {
		return nil, explain(ctx, o, fmt.Errorf("etcd %v: %w: %w", o.Endpoints, metastore.ErrUnavailable, err))
	}
	s := New(cli, o.Options)
	if o.MaxTxnOps == 0 {
		if s.o.MaxTxnOps, err = s.probeMaxTxnOps(ctx); err != nil {
			return nil, errors.Join(explain(ctx, o, fmt.Errorf("etcd %v: %w", o.Endpoints, err)), s.Close())
		}
	}
	s.o.AskProgress = s.progressIsSound(ctx)
	return s, nil
}

// progressIsSound reports whether all members that answer are 3.5.8 or newer.
func (s *Store) progressIsSound(ctx context.Context) bool {
	sound := false
	for _, endpoint := range s.cli.Endpoints() {
		err := s.attempt(ctx, func(ctx context.Context) error {
			status, err := s.cli.Status(ctx, endpoint)
			if err == nil && !atLeast(status.Version, 3, 5, 8) {
				return errors.New("too old")
			}
			sound = sound || err == nil
			return nil
		})
		if err != nil {
			return false
		}
	}
	return sound
}

// atLeast compares a version such as 3.5.12 or 3.6.0-rc.1; one that can't be read is too old.
func atLeast(version string, want ...int) bool {
	version, _, _ = strings.Cut(version, "-")
	parts := strings.Split(version, ".")
	have := make([]int, len(want))
	for i := range have {
		if i >= len(parts) {
			return false
		}
		n, err := strconv.Atoi(parts[i])
		if err != nil {
			return false
		}
		have[i] = n
	}
	return slices.Compare(have, want) >= 0
}

// probeMaxTxnOps finds how many operations a transaction may have, by asking
// for some that can't succeed: the server counts them before it compares.
func (s *Store) probeMaxTxnOps(ctx context.Context) (int, error) {
	for _, n := range []int{2048, 1024, 512, 256, DefaultMaxTxnOps} {
		never := []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision("/tidemark/"), "<", 0)}
		ops := make([]clientv3.Op, n)
		for i := range ops {
			ops[i] = clientv3.OpDelete(fmt.Sprintf("/tidemark/probe/%d", i))
		}
		err := s.attempt(ctx, func(ctx context.Context) error {
			_, err := s.cli.Txn(ctx).If(never...).Then(ops...).Commit()
			return err
		})
		if err == nil {
			return n, nil
		}
		if err = writeError(err); !errors.Is(err, metastore.ErrTxnTooLarge) {
			return 0, fmt.Errorf("%w: %w", metastore.ErrUnavailable, err)
		}
	}
	return DefaultMaxTxnOps, nil
}

// attempt runs one call with the attempt's time-out; it ends with the store too.
func (s *Store) attempt(ctx context.Context, call func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.o.AttemptTimeout)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	return call(ctx)
}

// closedOr gives err, or ErrClosed if the store was closed.
func (s *Store) closedOr(err error) error {
	if s.ctx.Err() != nil {
		return fmt.Errorf("%w: %w", metastore.ErrClosed, err)
	}
	return err
}

// begin refuses a call that need not be tried.
func (s *Store) begin(ctx context.Context) error {
	if s.ctx.Err() != nil {
		return metastore.ErrClosed
	}
	return ctx.Err()
}

// Txn implements metastore.Store.
func (s *Store) Txn(ctx context.Context, txn metastore.Txn) (metastore.TxnResult, error) {
	if err := s.begin(ctx); err != nil {
		return metastore.TxnResult{}, err
	}
	if len(txn.If) > s.o.MaxTxnOps || len(txn.Then) > s.o.MaxTxnOps {
		return metastore.TxnResult{}, fmt.Errorf("%d compares, %d operations, %d allowed: %w",
			len(txn.If), len(txn.Then), s.o.MaxTxnOps, metastore.ErrTxnTooLarge)
	}
	compares, ops := compares(txn.If), operations(txn.Then)
	var resp *clientv3.TxnResponse
	err := s.attempt(ctx, func(ctx context.Context) (err error) {
		resp, err = s.cli.Txn(ctx).If(compares...).Then(ops...).Commit()
		return err
	})
	if err != nil {
		return metastore.TxnResult{}, s.closedOr(writeError(err))
	}
	return metastore.TxnResult{Succeeded: resp.Succeeded, Revision: metastore.Revision(resp.Header.Revision)}, nil
}

func compares(in []metastore.Compare) []clientv3.Cmp {
	out := make([]clientv3.Cmp, len(in))
	for i, c := range in {
		switch c.Kind {
		case meta.CompareModRevision:
			out[i] = clientv3.Compare(clientv3.ModRevision(c.Key), "=", int64(c.Revision))
		case meta.CompareCreateRevision:
			out[i] = clientv3.Compare(clientv3.CreateRevision(c.Key), "=", int64(c.Revision))
		case meta.CompareExists:
			out[i] = clientv3.Compare(clientv3.ModRevision(c.Key), ">", 0)
		case meta.CompareValue:
			out[i] = clientv3.Compare(clientv3.Value(c.Key), "=", string(c.Value))
		}
	}
	return out
}

func operations(in []metastore.Op) []clientv3.Op {
	out := make([]clientv3.Op, len(in))
	for i, op := range in {
		switch op.Kind {
		case meta.OpPut:
			out[i] = clientv3.OpPut(op.Key, string(op.Value), clientv3.WithLease(clientv3.LeaseID(op.Lease)))
		case meta.OpDelete:
			out[i] = clientv3.OpDelete(op.Key)
		case meta.OpDeletePrefix:
			out[i] = clientv3.OpDelete(op.Key, clientv3.WithPrefix())
		}
	}
	return out
}

// Grant implements metastore.Store.
func (s *Store) Grant(ctx context.Context, ttl time.Duration) (metastore.LeaseID, error) {
	if err := s.begin(ctx); err != nil {
		return 0, err
	}
	seconds := max(int64((ttl+time.Second-1)/time.Second), 1)
	var resp *clientv3.LeaseGrantResponse
	err := s.attempt(ctx, func(ctx context.Context) (err error) {
		resp, err = s.cli.Grant(ctx, seconds)
		return err
	})
	if err != nil {
		return 0, s.closedOr(writeError(err))
	}
	return metastore.LeaseID(resp.ID), nil
}

// KeepAlive implements metastore.Store.
func (s *Store) KeepAlive(ctx context.Context, lease metastore.LeaseID) (time.Duration, error) {
	if err := s.begin(ctx); err != nil {
		return 0, err
	}
	var resp *clientv3.LeaseKeepAliveResponse
	err := s.attempt(ctx, func(ctx context.Context) (err error) {
		resp, err = s.cli.KeepAliveOnce(ctx, clientv3.LeaseID(lease))
		return err
	})
	if err != nil {
		return 0, s.closedOr(readError(err))
	}
	return time.Duration(resp.TTL) * time.Second, nil
}

// Revoke implements metastore.Store.
func (s *Store) Revoke(ctx context.Context, lease metastore.LeaseID) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	err := s.attempt(ctx, func(ctx context.Context) error {
		_, err := s.cli.Revoke(ctx, clientv3.LeaseID(lease))
		return err
	})
	if err != nil {
		return s.closedOr(writeError(err))
	}
	return nil
}

// MaxTxnOps implements metastore.Store.
func (s *Store) MaxTxnOps() int { return s.o.MaxTxnOps }

// Compact drops the history up to revision: it frees space, and watches from
// there on fail with metastore.ErrCompacted.
func (s *Store) Compact(ctx context.Context, revision metastore.Revision) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	err := s.attempt(ctx, func(ctx context.Context) error {
		_, err := s.cli.Compact(ctx, int64(revision), clientv3.WithCompactPhysical())
		return err
	})
	if err != nil {
		return s.closedOr(writeError(err))
	}
	return nil
}

// Close implements metastore.Store.
func (s *Store) Close() error {
	var err error
	s.once.Do(func() {
		s.stop()
		err = s.cli.Close()
	})
	if errors.Is(err, context.Canceled) { // what a client without connections says
		return nil
	}
	return err
}
