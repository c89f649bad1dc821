//go:build chaos

package chaos_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// healLimit bounds each wait for a cluster that nothing harms any more.
const healLimit = 90 * time.Second

// node is one broker process.
type node struct {
	t       testing.TB
	id      int
	dir     string
	logFile string
	args    []string
	kafka   string
	http    string

	mu       sync.Mutex
	cmd      *exec.Cmd
	done     chan struct{}
	expected bool // the nemesis ended it
}

// newNode gives node id its folders and ports; they stay the same across restarts.
func newNode(t testing.TB, root string, id int, join string, settings ...string) *node {
	t.Helper()
	n := &node{t: t, id: id, dir: filepath.Join(root, fmt.Sprintf("node-%d", id)), logFile: filepath.Join(root, fmt.Sprintf("node-%d.log", id)),
		kafka: freeAddr(t), http: freeAddr(t)}
	n.args = []string{"serve", "--node-id", fmt.Sprint(id), "--data-dir", n.dir, "--listen", n.kafka, "--http", n.http}
	if join != "" {
		n.args = append(n.args, "--join", join)
	}
	for _, s := range settings {
		n.args = append(n.args, "--set", s)
	}
	t.Cleanup(func() { n.end(syscall.SIGKILL) })
	return n
}

func freeAddr(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// start runs the process unless it runs.
func (n *node) start() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cmd != nil {
		return
	}
	log, err := os.OpenFile(n.logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		n.t.Error(err)
		return
	}
	defer log.Close()
	cmd := exec.Command(os.Getenv("TIDEMARK_BIN"), n.args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		n.t.Error(err)
		return
	}
	done := make(chan struct{})
	n.cmd, n.done, n.expected = cmd, done, false
	go func() {
		err := cmd.Wait()
		n.mu.Lock()
		if !n.expected {
			n.t.Errorf("node %d ended by itself: %v", n.id, err)
		}
		n.cmd = nil
		n.mu.Unlock()
		close(done)
	}()
}

// end sends the signal and returns when the process is gone.
func (n *node) end(sig syscall.Signal) {
	n.mu.Lock()
	if n.cmd == nil {
		n.mu.Unlock()
		return
	}
	n.expected = true
	_ = n.cmd.Process.Signal(sig)
	done := n.done
	n.mu.Unlock()
	<-done
}

// signal only sends it.
func (n *node) signal(sig syscall.Signal) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cmd != nil {
		n.expected = n.expected || sig == syscall.SIGKILL
		_ = n.cmd.Process.Signal(sig)
	}
}

// ready asks the node itself.
func (n *node) ready() error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.http+"/readyz", nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("readyz says %s", resp.Status)
	}
	return nil
}

// eventually asks f until it gives nil, and fails the test with its last answer.
func eventually(t testing.TB, limit time.Duration, what string, f func() error) {
	t.Helper()
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := f()
		if err == nil {
			return
		}
		select {
		case <-deadline.C:
			t.Fatalf("not within %v: %s: %v", limit, what, err)
		case <-tick.C:
		}
	}
}

// complaints counts the lines of severity error in the node's log by their message, and what panicked.
func (n *node) complaints() map[string]int {
	raw, err := os.ReadFile(n.logFile)
	if err != nil {
		return map[string]int{err.Error(): 1}
	}
	out := map[string]int{}
	for line := range bytes.Lines(raw) {
		s := string(line)
		if strings.Contains(s, "panic") || strings.Contains(s, "assertion") || strings.HasPrefix(s, "fatal error") {
			out["PANIC "+strings.TrimSpace(s)]++
		} else if _, rest, ok := strings.Cut(s, "level=ERROR msg="); ok {
			msg := rest
			if quoted, isQuoted := strings.CutPrefix(rest, `"`); isQuoted {
				msg, _, _ = strings.Cut(quoted, `"`)
			} else {
				msg, _, _ = strings.Cut(rest, " ")
			}
			out[msg]++
		}
	}
	return out
}
