//go:build linux

package links

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// proxies stands in the Kafka connections of nodes on loopback.
type proxies struct {
	*ways
	places    []Place // by place; of Clients none
	listeners []net.Listener
	held      atomic.Int64
	work      sync.WaitGroup
	closing   chan struct{}

	mu   sync.Mutex // guards the following
	pids map[int]int
	open map[net.Conn]bool
}

// Proxies gives each node ports on loopback, and a proxy before the one for Kafka.
func Proxies(nodes int) (Network, error) {
	p := &proxies{ways: newWays(), places: make([]Place, nodes+1), closing: make(chan struct{}), pids: map[int]int{}, open: map[net.Conn]bool{}}
	for node := 1; node <= nodes; node++ {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, errors.Join(err, p.Close())
		}
		p.listeners = append(p.listeners, l)
		kafka, err1 := freeAddress()
		http, err2 := freeAddress()
		if err := errors.Join(err1, err2); err != nil {
			return nil, errors.Join(err, p.Close())
		}
		p.places[node] = Place{Kafka: kafka, Advertise: l.Addr().String(), HTTP: http, Host: "127.0.0.1"}
		p.work.Go(func() { p.accept(node, l) })
	}
	return p, nil
}

func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

func (p *proxies) accept(to int, l net.Listener) {
	for {
		nc, err := l.Accept()
		if err != nil {
			return // closed
		}
		if !p.keep(nc) {
			return
		}
		p.work.Go(func() { p.carry(nc, to) })
	}
}

// keep notes a connection for Close; false: it is too late.
func (p *proxies) keep(nc net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.closing:
		_ = nc.Close()
		return false
	default:
		p.open[nc] = true
		return true
	}
}

func (p *proxies) drop(nc net.Conn) {
	p.mu.Lock()
	delete(p.open, nc)
	p.mu.Unlock()
	_ = nc.Close()
}

// carry connects a node with whoever asked for it.
func (p *proxies) carry(near net.Conn, to int) {
	defer p.drop(near)
	from := p.whose(near)
	ended := make(chan struct{}) // of this connection
	if !p.wait(from, to, ended) || !p.wait(to, from, ended) {
		return
	}
	far, err := net.DialTimeout("tcp", p.places[to].Kafka, 5*time.Second)
	if err != nil || !p.keep(far) {
		return
	}
	defer p.drop(far)
	var both sync.WaitGroup
	var once sync.Once
	end := func() { once.Do(func() { close(ended); near.Close(); far.Close() }) }
	both.Go(func() { defer end(); p.pump(far, near, from, to, ended) })
	both.Go(func() { defer end(); p.pump(near, far, to, from, ended) })
	both.Wait()
}

// wait returns when bytes may pass; false: the connection has ended.
func (p *proxies) wait(from, to int, ended <-chan struct{}) bool {
	for first := true; ; first = false {
		way, changed := p.get(from, to)
		if !way.CutKafka {
			return true
		}
		if first {
			p.held.Add(1)
		}
		select {
		case <-changed:
		case <-ended:
			return false
		case <-p.closing:
			return false
		}
	}
}

// pump carries bytes of one direction, each as late as the way says.
func (p *proxies) pump(dst io.Writer, src io.Reader, from, to int, ended <-chan struct{}) {
	queue := make(chan late, 64)
	var reads sync.WaitGroup
	defer reads.Wait()
	reads.Go(func() {
		defer close(queue)
		for {
			buf := make([]byte, 32<<10)
			size, err := src.Read(buf)
			way, _ := p.get(from, to)
			if size > 0 {
				select {
				case queue <- late{time.Now().Add(way.Delay), buf[:size]}:
				case <-ended:
					return
				}
			}
			if err != nil {
				return
			}
		}
	})
	timer := time.NewTimer(0)
	defer timer.Stop()
	for l := range queue {
		timer.Reset(time.Until(l.due))
		select {
		case <-timer.C:
		case <-ended:
			return
		}
		if !p.wait(from, to, ended) {
			return
		}
		if _, err := dst.Write(l.packet); err != nil {
			return
		}
	}
	p.wait(from, to, ended) // the end of a connection doesn't pass a cut either
}

// whose finds the place of the process at a connection's other end.
func (p *proxies) whose(nc net.Conn) int {
	inode := socketInode(nc.RemoteAddr().(*net.TCPAddr).Port, nc.LocalAddr().(*net.TCPAddr).Port)
	p.mu.Lock()
	defer p.mu.Unlock()
	for node, pid := range p.pids {
		fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
		if err != nil || inode == "" {
			continue
		}
		for _, fd := range fds {
			if name, err := os.Readlink(filepath.Join("/proc", fmt.Sprint(pid), "fd", fd.Name())); err == nil && name == "socket:["+inode+"]" {
				return node
			}
		}
	}
	return Clients
}

// socketInode finds the socket on loopback with a local and a remote port.
func socketInode(local, remote int) string {
	f, err := os.Open("/proc/thread-self/net/tcp") // another thread may be in another namespace
	if err != nil {
		return ""
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	from, to := fmt.Sprintf("0100007F:%04X", local), fmt.Sprintf("0100007F:%04X", remote)
	for lines.Scan() {
		if fields := strings.Fields(lines.Text()); len(fields) > 9 && fields[1] == from && fields[2] == to {
			return fields[9]
		}
	}
	return ""
}

func (p *proxies) Name() string { return "proxies on loopback" }

func (p *proxies) CanCutOther() bool { return false }

func (p *proxies) Place(node int) Place { return p.places[node] }

func (p *proxies) Start(node int, cmd *exec.Cmd) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := cmd.Start(); err != nil {
		return err
	}
	p.pids[node] = cmd.Process.Pid
	return nil
}

func (p *proxies) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, network, address)
}

func (p *proxies) Set(from, to int, w Way) { p.set(from, to, w) }

func (p *proxies) Heal() { p.heal() }

func (p *proxies) Dropped() int64 { return p.held.Load() }

func (p *proxies) Close() error {
	var faults []error
	for _, l := range p.listeners {
		faults = append(faults, l.Close())
	}
	p.mu.Lock()
	close(p.closing)
	for nc := range p.open {
		_ = nc.Close()
	}
	p.mu.Unlock()
	p.work.Wait()
	return errors.Join(faults...)
}
