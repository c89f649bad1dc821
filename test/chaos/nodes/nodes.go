//go:build chaos && linux

// Package nodes starts brokers as processes at places of a network that a test
// can cut (package links), with their disk and clock under its switches.
//
// A Node keeps its folders, its place and its command line across restarts, and
// tells when the process ends unasked. The tests of chaos and chaosmirror use
// it; they are its tests too.
package nodes

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"tidemark/internal/vfs/switchboard"
	"tidemark/test/chaos/links"
	"tidemark/test/process"
)

// Network gives namespaces for so many nodes, or proxies where those can't be
// made or the test wants them. It ends with the test.
func Network(t testing.TB, count int, proxies bool) links.Network {
	t.Helper()
	var n links.Network
	var why, err error
	if proxies {
		n, err = links.Proxies(count)
	} else {
		n, why, err = links.New(count)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Logf("network: %s", n.Name())
	if why != nil {
		t.Logf("metadata can't be cut off: %v", why)
	}
	return n
}

// Node is one broker process.
type Node struct {
	*process.Process
	ID    int // of the broker, and its place in the network
	Dir   string
	Place links.Place
	Board *switchboard.Board
	// HTTP asks nodes from the clients' place.
	HTTP *http.Client
	// Disk is the node's own, if it has one (OwnDisk).
	Disk links.Disks
	// OwnEnd is called when the process ends by itself.
	OwnEnd func(n *Node, err error)

	t    testing.TB
	net  links.Network
	seen string // where the test finds Dir, if not by its name
}

// New gives node id its folders below root and its place. It joins the cluster of
// the node whose HTTP address join is, or begins one.
func New(t testing.TB, root string, id int, net links.Network, join string, settings ...string) *Node {
	t.Helper()
	n := &Node{t: t, ID: id, Dir: filepath.Join(root, fmt.Sprintf("node-%d", id)), Place: net.Place(id), net: net}
	boardAt := filepath.Join(root, fmt.Sprintf("switches-%d", id))
	n.Process = &process.Process{Bin: os.Getenv("TIDEMARK_BIN"), LogFile: filepath.Join(root, fmt.Sprintf("node-%d.log", id)), Env: []string{"TIDEMARK_SWITCHBOARD=" + boardAt},
		Launch: func(cmd *exec.Cmd) error { return net.Start(id, cmd) }, OwnEnd: func(err error) { n.OwnEnd(n, err) }}
	n.HTTP = &http.Client{Transport: &http.Transport{DialContext: net.Dial, DisableKeepAlives: true}}
	var err error
	if n.Board, err = switchboard.Create(boardAt); err != nil {
		t.Fatal(err)
	}
	n.Args = []string{"serve", "--node-id", fmt.Sprint(id), "--data-dir", n.Dir, "--listen", n.Place.Kafka, "--advertise", n.Place.Advertise,
		"--http", n.Place.HTTP, "--set", "metadata.host=" + n.Place.Host}
	if join != "" {
		n.Args = append(n.Args, "--join", join)
	}
	for _, s := range settings {
		n.Args = append(n.Args, "--set", s)
	}
	t.Cleanup(func() {
		n.End(syscall.SIGKILL)
		if err := n.Board.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

// OwnDisk makes the node's folder a disk of its own with room for so many bytes,
// before the first start. Its error says why the network or the system can't.
func (n *Node) OwnDisk(bytes int64) error {
	d, ok := n.net.(links.Disks)
	if !ok {
		return fmt.Errorf("%s have no disks of their own", n.net.Name())
	}
	if err := os.MkdirAll(n.Dir, 0o755); err != nil {
		return err
	}
	seen, err := d.Mount(n.ID, n.Dir, bytes)
	if err != nil {
		return err
	}
	n.Disk, n.seen = d, seen
	n.Board.Root = strings.TrimSuffix(seen, n.Dir)
	return nil
}

// Folder is where the test finds the node's files.
func (n *Node) Folder() string {
	if n.seen != "" {
		return n.seen
	}
	return n.Dir
}

// Start runs the process unless it runs.
func (n *Node) Start() {
	if err := n.Process.Start(); err != nil {
		n.t.Error(err)
	}
}

// Ready asks the node itself.
func (n *Node) Ready() error { return process.Ready(n.HTTP, n.Place.HTTP) }

// LastWords is the end of the node's log.
func (n *Node) LastWords() string {
	raw, err := os.ReadFile(n.LogFile)
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

// Complaints counts the lines of severity error in the node's log by their
// message, and what panicked: its message begins with PANIC.
func (n *Node) Complaints() map[string]int {
	raw, err := os.ReadFile(n.LogFile)
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
