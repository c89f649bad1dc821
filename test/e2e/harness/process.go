package harness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"tidemark/internal/cli"
	"tidemark/internal/console"
	"tidemark/internal/core/meta"
)

// Program is what a Process runs.
type Program struct {
	// Name is its version, as it tells it.
	Name string
	// Levels are those of FeatureMetadata that it supports.
	Levels meta.LevelRange
	// Path is an executable; empty: the test's own, which is this version and
	// supports no levels but these.
	Path string
}

// programVariable tells the test's executable that it is a node, and which.
const programVariable = "TIDEMARK_E2E_PROGRAM"

// RunProgram makes this process the node that a Process has started, and ends with
// it; in any other process it does nothing. TestMain calls it first.
func RunProgram() {
	text := os.Getenv(programVariable)
	if text == "" {
		return
	}
	p := Program{}
	if _, err := fmt.Sscanf(text, "%d-%d %s", &p.Levels.Min, &p.Levels.Max, &p.Name); err != nil {
		fmt.Fprintf(os.Stderr, "%s=%q: %v\n", programVariable, text, err)
		os.Exit(1)
	}
	go func() { // ends with the test, however that ends
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
	os.Exit(cli.Main(os.Args[1:], cli.Streams{
		In: strings.NewReader(""), Out: os.Stdout, Err: os.Stderr, Version: p.Name, Features: meta.Features{meta.FeatureMetadata: p.Levels},
	}))
}

// Process is a node in a process of its own. It keeps its folder across restarts;
// its addresses are new with each.
type Process struct {
	ID  int
	Dir string
	// Addr and HTTP are the addresses of the process that runs.
	Addr, HTTP string

	t        testing.TB
	settings []string
	join     string
	log      *lateWriter
	cmd      *exec.Cmd
	stdin    io.Closer
	done     chan struct{} // closed when the process is gone
	said     *listener
}

// NewProcess gives a node its folder. It joins the cluster of a node that runs, or begins one. It ends with the test.
func NewProcess(t testing.TB, id int, join *Process, settings ...string) *Process {
	t.Helper()
	p := &Process{ID: id, Dir: t.TempDir(), t: t, settings: settings, log: &lateWriter{t: t}}
	if join != nil {
		p.join = join.HTTP
	}
	t.Cleanup(func() {
		p.end(os.Kill)
		p.log.show()
	})
	return p
}

// Start runs a program until it serves. The error of one that ends instead holds its last words.
func (p *Process) Start(program Program) error {
	args := []string{"serve", "--node-id", fmt.Sprint(p.ID), "--data-dir", p.Dir, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"}
	if p.join != "" {
		args = append(args, "--join", p.join)
	}
	for _, s := range p.settings {
		args = append(args, "--set", s)
	}
	path := program.Path
	if path == "" {
		var err error
		if path, err = os.Executable(); err != nil {
			return err
		}
	}
	cmd := exec.Command(path, args...)
	p.said = &listener{to: p.log, up: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = p.said, p.said
	if program.Path == "" {
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d-%d %s", programVariable, program.Levels.Min, program.Levels.Max, program.Name))
	}
	var err error
	if p.stdin, err = cmd.StdinPipe(); err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	done := make(chan struct{})
	p.cmd, p.done = cmd, done
	go func() {
		_ = cmd.Wait()
		close(done)
	}()
	return p.awaitUp()
}

func (p *Process) awaitUp() error {
	limit := time.NewTimer(Patience)
	defer limit.Stop()
	select {
	case <-p.said.up:
	case <-p.done:
		return fmt.Errorf("node %d: %s: %s", p.ID, p.cmd.ProcessState, p.said.lastLine())
	case <-limit.C:
		p.end(syscall.SIGQUIT)
		return fmt.Errorf("node %d isn't up within %v", p.ID, Patience)
	}
	p.HTTP = p.said.address()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	st, err := p.API().Cluster(ctx)
	if err != nil {
		return err
	}
	for _, b := range st.Brokers {
		if int(b.ID) == p.ID {
			p.Addr = fmt.Sprintf("%s:%d", b.Endpoints[0].Host, b.Endpoints[0].Port)
			return nil
		}
	}
	return fmt.Errorf("node %d isn't registered", p.ID)
}

// Stop ends the process in order.
func (p *Process) Stop() error {
	p.end(syscall.SIGTERM)
	if code := p.cmd.ProcessState.ExitCode(); code != 0 {
		return fmt.Errorf("node %d ended with exit code %d: %s", p.ID, code, p.said.lastLine())
	}
	return nil
}

// ExitCode is that of the last process, which has ended.
func (p *Process) ExitCode() int { return p.cmd.ProcessState.ExitCode() }

func (p *Process) end(sig os.Signal) {
	if p.cmd == nil {
		return
	}
	// One that doesn't end shows in its log where everybody waits there, and is killed.
	for i, s := range []os.Signal{sig, syscall.SIGQUIT, os.Kill} {
		if i > 0 {
			p.t.Errorf("node %d doesn't end within %v: %v", p.ID, overdue, s)
		}
		if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
			p.t.Errorf("node %d: %v", p.ID, err)
		}
		if p.hasEnded(overdue) {
			break
		}
	}
	_ = p.stdin.Close()
}

func (p *Process) hasEnded(within time.Duration) bool {
	limit := time.NewTimer(within)
	defer limit.Stop()
	select {
	case <-p.done:
		return true
	case <-limit.C:
		return false
	}
}

// API asks the node as an operator's command does.
func (p *Process) API() *console.Client {
	p.t.Helper()
	c, err := console.NewClient("http://"+p.HTTP, console.Credentials{})
	if err != nil {
		p.t.Fatal(err)
	}
	return c
}

// Command runs a command against this node and gives its exit code and what it printed.
func (p *Process) Command(args ...string) (code int, out string) {
	p.t.Helper()
	var b bytes.Buffer
	code = cli.Main(append(args, "--api", "http://"+p.HTTP), cli.Streams{In: strings.NewReader(""), Out: &b, Err: &b, Version: "test"})
	return code, b.String()
}

// Client connects a client that is closed with the test.
func (p *Process) Client(opts ...kgo.Opt) *kgo.Client {
	p.t.Helper()
	return Connect(p.t, append([]kgo.Opt{kgo.SeedBrokers(p.Addr), kgo.ClientID("e2e"), kgo.RetryTimeout(Patience)}, opts...)...)
}

// Admin connects an admin client that is closed with the test.
func (p *Process) Admin() *kadm.Client {
	p.t.Helper()
	return kadm.NewClient(p.Client())
}

// listener reads a process's log on its way.
type listener struct {
	to io.Writer
	up chan struct{} // closed when the address is known

	mu   sync.Mutex // guards the following
	text bytes.Buffer
	addr string
}

var apiIsUp = regexp.MustCompile(`msg="HTTP API is up" addr=(\S+)`)

// Write implements io.Writer.
func (l *listener) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.Write(b)
	if l.addr == "" {
		if m := apiIsUp.FindSubmatch(l.text.Bytes()); m != nil && bytes.HasSuffix(b, []byte("\n")) {
			l.addr = string(m[1])
			close(l.up)
		}
	}
	return l.to.Write(b)
}

func (l *listener) address() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.addr
}

func (l *listener) lastLine() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines := strings.Split(strings.TrimSpace(l.text.String()), "\n")
	return lines[len(lines)-1]
}
