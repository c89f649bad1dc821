// Package etcd is the metadata store on an etcd cluster.
package etcd

import (
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"tidemark/internal/metastore"
)

// Options tune the adapter. The zero value is good.
type Options struct {
	// AttemptTimeout bounds one attempt of a call, 2 s if 0.
	AttemptTimeout time.Duration
	// MaxTxnOps is the server's limit, 128 if 0.
	MaxTxnOps int
}

// New makes a store of a client, which it closes with itself.
func New(cli *clientv3.Client, o Options) metastore.Store { return nil }
