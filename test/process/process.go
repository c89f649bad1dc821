//go:build linux

// Package process runs a node of the product for a test, from the binary that users run.
//
// A Process keeps its command line and its log across restarts, and ends with the
// test that started it, however that ends. It knows nothing of what it runs: where,
// with which folders and settings is the caller's. The tests beside Apache Kafka, of
// performance and of chaos use it; they are its tests too.
package process

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Binary is the product's, as TIDEMARK_BIN names it; without, the test fails and says what makes it.
func Binary(t testing.TB, target string) string {
	t.Helper()
	bin := os.Getenv("TIDEMARK_BIN")
	if bin == "" {
		t.Fatalf("TIDEMARK_BIN names no binary: run `make %s`", target)
	}
	return bin
}

// Process is one node.
type Process struct {
	Bin     string
	Args    []string
	Env     []string // beside the test's own
	LogFile string   // of what it prints; it grows across restarts
	// Launch starts the command; nil: as any command is started.
	Launch func(*exec.Cmd) error
	// OwnEnd is called when the process ends and nobody here has ended it; nil: nothing is.
	OwnEnd func(err error)

	mu       sync.Mutex // guards the following
	cmd      *exec.Cmd
	done     chan struct{}
	expected bool // it was ended here
	starts   int
}

// Start runs the process unless it runs.
func (p *Process) Start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd != nil {
		return nil
	}
	log, err := os.OpenFile(p.LogFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(p.Bin, p.Args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(os.Environ(), p.Env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	launch := p.Launch
	if launch == nil {
		launch = (*exec.Cmd).Start
	}
	if err := launch(cmd); err != nil {
		return err
	}
	done := make(chan struct{})
	p.cmd, p.done, p.expected = cmd, done, false
	p.starts++
	go func() {
		err := cmd.Wait()
		p.mu.Lock()
		own := !p.expected
		p.cmd = nil
		p.mu.Unlock()
		if own && p.OwnEnd != nil {
			p.OwnEnd(err)
		}
		close(done)
	}()
	return nil
}

// End sends the signal and returns when the process is gone.
func (p *Process) End(sig syscall.Signal) {
	p.mu.Lock()
	if p.cmd == nil {
		p.mu.Unlock()
		return
	}
	p.expected = true
	_ = p.cmd.Process.Signal(sig)
	done := p.done
	p.mu.Unlock()
	<-done
}

// Signal only sends it.
func (p *Process) Signal(sig syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd != nil {
		p.expected = p.expected || sig == syscall.SIGKILL
		_ = p.cmd.Process.Signal(sig)
	}
}

// Starts counts how often the process was started.
func (p *Process) Starts() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.starts
}

// Running reports whether there is a process.
func (p *Process) Running() bool { return p.PID() != 0 }

// PID is the system's number of the process, 0 if there is none.
func (p *Process) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return 0
	}
	return p.cmd.Process.Pid
}

// LogEnd is the end of what it printed, so many bytes at most.
func (p *Process) LogEnd(most int) string {
	raw, err := os.ReadFile(p.LogFile)
	if err != nil {
		return err.Error()
	}
	return string(raw[max(0, len(raw)-most):])
}

// Ready asks the node at an HTTP address whether it is.
func Ready(cl *http.Client, addr string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/readyz", nil)
	if err != nil {
		return err
	}
	resp, err := cl.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("readyz says %s", resp.Status)
	}
	return nil
}

// CPUSeconds is the processor time that a process of the machine has used so far.
func CPUSeconds(t testing.TB, pid int) float64 {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	text := string(stat)
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+2:])
	user, _ := strconv.ParseFloat(fields[11], 64)
	system, _ := strconv.ParseFloat(fields[12], 64)
	return (user + system) / 100 // USER_HZ
}

// ResidentMiB is a process's resident memory, without the page cache.
func ResidentMiB(t testing.TB, pid int) float64 {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, _ := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			return kib / 1024
		}
	}
	return 0
}
