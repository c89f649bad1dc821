package etcd

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"tidemark/internal/metastore"
)

// Get implements metastore.Store.
func (s *Store) Get(ctx context.Context, key string) (metastore.KV, metastore.Revision, error) {
	resp, err := s.read(ctx, key)
	if err != nil {
		return metastore.KV{}, 0, err
	}
	if len(resp.Kvs) == 0 {
		return metastore.KV{Key: key}, metastore.Revision(resp.Header.Revision), nil
	}
	return fromEtcd(resp.Kvs[0]), metastore.Revision(resp.Header.Revision), nil
}

// Range implements metastore.Store.
func (s *Store) Range(ctx context.Context, prefix string) ([]metastore.KV, metastore.Revision, error) {
	for attempt := 1; ; attempt++ {
		kvs, revision, err := s.rangePages(ctx, prefix, 0)
		// A compaction overtook the pages: begin again at a newer revision.
		if errors.Is(err, metastore.ErrCompacted) && attempt < readAttempts {
			continue
		}
		return kvs, revision, err
	}
}

// RangeAt implements metastore.Store.
func (s *Store) RangeAt(ctx context.Context, prefix string, at metastore.Revision) ([]metastore.KV, error) {
	kvs, _, err := s.rangePages(ctx, prefix, int64(at))
	return kvs, err
}

// rangePages reads at a revision; at 0 it reads the first page linearizably and the others at its revision.
func (s *Store) rangePages(ctx context.Context, prefix string, revision int64) ([]metastore.KV, metastore.Revision, error) {
	var kvs []metastore.KV
	end := clientv3.GetPrefixRangeEnd(prefix)
	for from := prefix; ; {
		resp, err := s.read(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(int64(s.o.PageKeys)),
			clientv3.WithSort(clientv3.SortByKey, clientv3.SortAscend), clientv3.WithRev(revision))
		if err != nil {
			return nil, 0, err
		}
		if revision == 0 {
			revision = resp.Header.Revision
		}
		for _, kv := range resp.Kvs {
			kvs = append(kvs, fromEtcd(kv))
		}
		if !resp.More {
			return kvs, metastore.Revision(revision), nil
		}
		from = kvs[len(kvs)-1].Key + "\x00"
	}
}

// read tries a linearizable read a few times while its context lasts.
func (s *Store) read(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	for attempt := 1; ; attempt++ {
		if err := s.begin(ctx); err != nil {
			return nil, err
		}
		var resp *clientv3.GetResponse
		err := s.attempt(ctx, func(ctx context.Context) (err error) {
			resp, err = s.cli.Get(ctx, key, opts...)
			return err
		})
		if err == nil {
			return resp, nil
		}
		if ctx.Err() != nil || s.ctx.Err() != nil || attempt == readAttempts || errors.Is(err, rpctypes.ErrCompacted) {
			return nil, s.closedOr(readError(err))
		}
		if err := s.pause(ctx, attempt); err != nil {
			return nil, err
		}
	}
}

// pause waits a little longer after each attempt that failed.
func (s *Store) pause(ctx context.Context, attempt int) error {
	timer := time.NewTimer(min(20*time.Millisecond<<attempt, time.Second))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-s.ctx.Done():
		return metastore.ErrClosed
	}
}

func fromEtcd(kv *mvccpb.KeyValue) metastore.KV {
	return metastore.KV{
		Key:            string(kv.Key),
		Value:          kv.Value,
		CreateRevision: metastore.Revision(kv.CreateRevision),
		ModRevision:    metastore.Revision(kv.ModRevision),
		Lease:          metastore.LeaseID(kv.Lease),
	}
}
