//go:build kafka

package perf_test

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"tidemark/internal/await"
	"tidemark/test/process"
)

// patience bounds every wait; a figure that takes longer is none.
const patience = 5 * time.Minute

// node is one Tidemark node, started from the binary that users run.
type node struct {
	*process.Process
	tb    testing.TB
	id    int
	dir   string
	kafka string
	http  string
}

func freeAddr(tb testing.TB) string {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// newNode gives node id a folder and ports, which stay the same across restarts.
func newNode(tb testing.TB, id int, join string, settings ...string) *node {
	tb.Helper()
	root := tb.TempDir()
	n := &node{tb: tb, id: id, dir: filepath.Join(root, "data"), kafka: freeAddr(tb), http: freeAddr(tb)}
	n.Process = &process.Process{Bin: process.Binary(tb, "bench-cluster"), LogFile: filepath.Join(root, "log"),
		Args: []string{"serve", "--node-id", fmt.Sprint(id), "--data-dir", n.dir, "--listen", n.kafka, "--http", n.http}}
	if join != "" {
		n.Args = append(n.Args, "--join", join)
	}
	for _, s := range settings {
		n.Args = append(n.Args, "--set", s)
	}
	tb.Cleanup(func() {
		n.End(syscall.SIGKILL)
		if tb.Failed() {
			tb.Logf("end of node %d's log:\n%s", id, n.LogEnd(4000))
		}
	})
	return n
}

func (n *node) start() {
	n.tb.Helper()
	if err := n.Start(); err != nil {
		n.tb.Fatal(err)
	}
}

func (n *node) waitReady() {
	n.tb.Helper()
	eventually(n.tb, patience, fmt.Sprintf("node %d is ready", n.id), func() error {
		if !n.Running() {
			return errors.New("it ended")
		}
		return process.Ready(http.DefaultClient, n.http)
	})
}

// eventually calls f until it gives nil, and fails with its last error when the limit has passed.
func eventually(tb testing.TB, limit time.Duration, what string, f func() error) {
	tb.Helper()
	await.NoError(tb, limit, what, f)
}
