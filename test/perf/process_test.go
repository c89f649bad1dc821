//go:build kafka

package perf_test

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"tidemark/internal/await"
)

// patience bounds every wait; a figure that takes longer is none.
const patience = 5 * time.Minute

// process is one Tidemark node, started from the binary that users run.
type process struct {
	tb      testing.TB
	id      int
	dir     string
	args    []string
	kafka   string
	http    string
	logFile string

	mu   sync.Mutex
	cmd  *exec.Cmd
	done chan struct{}
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

// newProcess gives node id a folder and ports, which stay the same across restarts.
func newProcess(tb testing.TB, id int, join string, settings ...string) *process {
	tb.Helper()
	root := tb.TempDir()
	p := &process{tb: tb, id: id, dir: filepath.Join(root, "data"), logFile: filepath.Join(root, "log"), kafka: freeAddr(tb), http: freeAddr(tb)}
	p.args = []string{"serve", "--node-id", fmt.Sprint(id), "--data-dir", p.dir, "--listen", p.kafka, "--http", p.http}
	if join != "" {
		p.args = append(p.args, "--join", join)
	}
	for _, s := range settings {
		p.args = append(p.args, "--set", s)
	}
	tb.Cleanup(func() {
		p.signal(syscall.SIGKILL)
		if tb.Failed() {
			log, _ := os.ReadFile(p.logFile)
			tb.Logf("end of node %d's log:\n%s", id, log[max(0, len(log)-4000):])
		}
	})
	return p
}

func (p *process) start() {
	p.tb.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	bin := os.Getenv("TIDEMARK_BIN")
	if bin == "" {
		p.tb.Fatal("TIDEMARK_BIN names no binary: run `make bench-cluster`")
	}
	log, err := os.OpenFile(p.logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		p.tb.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(bin, p.args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		p.tb.Fatal(err)
	}
	p.cmd, p.done = cmd, make(chan struct{})
	go func(done chan struct{}) { _ = cmd.Wait(); close(done) }(p.done)
}

// signal sends a signal that ends the process and waits until it is gone.
func (p *process) signal(sig syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Signal(sig)
	<-p.done
	p.cmd = nil
}

func (p *process) pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cmd.Process.Pid
}

func (p *process) waitReady() {
	p.tb.Helper()
	eventually(p.tb, patience, fmt.Sprintf("node %d is ready", p.id), func() error {
		select {
		case <-p.done:
			return fmt.Errorf("it ended")
		default:
		}
		resp, err := http.Get("http://" + p.http + "/readyz")
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("readyz says %s", resp.Status)
		}
		return nil
	})
}

// eventually calls f until it gives nil, and fails with its last error when the limit has passed.
func eventually(tb testing.TB, limit time.Duration, what string, f func() error) {
	tb.Helper()
	await.NoError(tb, limit, what, f)
}

// cpuSeconds is the processor time that a process has used so far.
func cpuSeconds(tb testing.TB, pid int) float64 {
	tb.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		tb.Fatal(err)
	}
	text := string(stat)
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+2:])
	user, _ := strconv.ParseFloat(fields[11], 64)
	system, _ := strconv.ParseFloat(fields[12], 64)
	return (user + system) / 100 // USER_HZ
}

// rssMiB is a process's resident memory, without the page cache.
func rssMiB(tb testing.TB, pid int) float64 {
	tb.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		tb.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, _ := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			return kib / 1024
		}
	}
	return 0
}
