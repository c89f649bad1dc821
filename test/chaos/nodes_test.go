//go:build chaos && linux

package chaos_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"tidemark/internal/await"
	"tidemark/internal/vfs/switchboard"
	"tidemark/test/chaos/links"
)

// node is one broker process.
type node struct {
	t       testing.TB
	id      int
	dir     string
	logFile string
	args    []string
	place   links.Place
	net     links.Network
	board   *switchboard.Board
	boardAt string
	http    *http.Client
	// ownEnd is called when the process ends by itself.
	ownEnd func(n *node, err error)

	mu       sync.Mutex
	cmd      *exec.Cmd
	done     chan struct{}
	expected bool // the nemesis ended it
}

// newNode gives node id its folders and its place; they stay the same across restarts.
func newNode(t testing.TB, root string, id int, net links.Network, join string, settings ...string) *node {
	t.Helper()
	n := &node{t: t, id: id, dir: filepath.Join(root, fmt.Sprintf("node-%d", id)), logFile: filepath.Join(root, fmt.Sprintf("node-%d.log", id)),
		place: net.Place(id), net: net, boardAt: filepath.Join(root, fmt.Sprintf("switches-%d", id))}
	n.http = &http.Client{Transport: &http.Transport{DialContext: net.Dial, DisableKeepAlives: true}}
	var err error
	if n.board, err = switchboard.Create(n.boardAt); err != nil {
		t.Fatal(err)
	}
	n.args = []string{"serve", "--node-id", fmt.Sprint(id), "--data-dir", n.dir, "--listen", n.place.Kafka, "--advertise", n.place.Advertise,
		"--http", n.place.HTTP, "--set", "metadata.host=" + n.place.Host}
	if join != "" {
		n.args = append(n.args, "--join", join)
	}
	for _, s := range settings {
		n.args = append(n.args, "--set", s)
	}
	t.Cleanup(func() {
		n.end(syscall.SIGKILL)
		if err := n.board.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
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
	cmd.Env = append(os.Environ(), "TIDEMARK_SWITCHBOARD="+n.boardAt)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := n.net.Start(n.id, cmd); err != nil {
		n.t.Error(err)
		return
	}
	done := make(chan struct{})
	n.cmd, n.done, n.expected = cmd, done, false
	go func() {
		err := cmd.Wait()
		n.mu.Lock()
		own := !n.expected
		n.cmd = nil
		n.mu.Unlock()
		if own {
			n.ownEnd(n, err)
		}
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

// running reports whether there is a process.
func (n *node) running() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.cmd != nil
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
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.place.HTTP+"/readyz", nil)
	if err != nil {
		return err
	}
	resp, err := n.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("readyz says %s", resp.Status)
	}
	return nil
}

// lastWords is the end of the node's log.
func (n *node) lastWords() string {
	raw, err := os.ReadFile(n.logFile)
	if err != nil {
		return err.Error()
	}
	lines := bytes.Split(bytes.TrimSpace(raw), []byte("\n"))
	return string(lines[len(lines)-1])
}

// isPanic recognises the lines of a program error in a log.
func isPanic(line string) bool {
	return strings.HasPrefix(line, "fatal error:") || strings.Contains(line, "invariant broken") || strings.Contains(line, "panic")
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
		if isPanic(s) {
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

// eventually asks f until it gives nil, and fails the test with its last answer.
func eventually(t testing.TB, limit time.Duration, what string, f func() error) {
	t.Helper()
	await.NoError(t, limit, what, f)
}
