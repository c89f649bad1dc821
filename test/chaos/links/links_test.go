//go:build linux

package links

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

const (
	short = 300 * time.Millisecond // in which nothing may pass a cut
	long  = 60 * time.Second       // in which everything passes once it is healed
)

// TestMain is also the process at a place: it answers each line, and at the word
// of the test connects to another place.
func TestMain(m *testing.M) {
	if addr := os.Getenv("LINKS_TEST_LISTEN"); addr != "" {
		echo(addr)
		return
	}
	os.Exit(m.Run())
}

// echo answers lines: "via ADDRESS" sends a line on to another process and gives its answer.
func echo(addr string) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	for {
		nc, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer nc.Close()
			lines := bufio.NewScanner(nc)
			var on net.Conn
			for lines.Scan() {
				var next string
				if n, _ := fmt.Sscanf(lines.Text(), "via %s", &next); n == 0 {
					fmt.Fprintln(nc, lines.Text())
					continue
				}
				if on == nil {
					if on, err = net.Dial("tcp", next); err != nil {
						fmt.Fprintln(nc, err)
						return
					}
				}
				fmt.Fprintln(on, "hello")
				answer, err := bufio.NewReader(on).ReadString('\n')
				fmt.Fprintf(nc, "%s", answer)
				if err != nil {
					return
				}
			}
		}()
	}
}

// each runs a test on both kinds of network, with two processes.
func each(t *testing.T, f func(t *testing.T, n Network)) {
	for name, make := range map[string]func(int) (Network, error){"namespaces": Namespaces, "proxies": Proxies} {
		t.Run(name, func(t *testing.T) {
			n, err := make(2)
			if errors.Is(err, os.ErrPermission) || errors.Is(err, os.ErrNotExist) {
				t.Skipf("not allowed here: %v", err)
			}
			if err != nil {
				t.Fatal(err)
			}
			for node := 1; node <= 2; node++ {
				cmd := exec.Command("/proc/self/exe")
				cmd.Env = append(os.Environ(), "LINKS_TEST_LISTEN="+n.Place(node).Kafka)
				cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
				cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
				if err := n.Start(node, cmd); err != nil {
					t.Fatal(err)
				}
				defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
			}
			f(t, n)
			if err := n.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// line is a connection of the clients that asks and reads answers.
type line struct {
	t  *testing.T
	nc net.Conn
	r  *bufio.Reader
}

func connect(t *testing.T, n Network, node int) *line {
	t.Helper()
	until := time.Now().Add(long)
	for {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		nc, err := n.Dial(ctx, "tcp", n.Place(node).Advertise)
		cancel()
		if err == nil {
			l := &line{t, nc, bufio.NewReader(nc)}
			// A proxy takes the connection before its process listens, and ends it then.
			if l.ask("ping", time.Second) == nil {
				t.Cleanup(func() { _ = nc.Close() })
				return l
			}
			_ = nc.Close()
		} else if time.Now().After(until) {
			t.Fatal(err)
		}
	}
}

func (l *line) send(text string) {
	l.t.Helper()
	if _, err := fmt.Fprintln(l.nc, text); err != nil {
		l.t.Fatal(err)
	}
}

func (l *line) answer(within time.Duration) error {
	if err := l.nc.SetReadDeadline(time.Now().Add(within)); err != nil {
		return err
	}
	_, err := l.r.ReadString('\n')
	return err
}

func (l *line) ask(text string, within time.Duration) error {
	l.send(text)
	return l.answer(within)
}

func (l *line) silent(why string) {
	l.t.Helper()
	if err := l.answer(short); !errors.Is(err, os.ErrDeadlineExceeded) {
		l.t.Fatalf("%s: %v", why, err)
	}
}

func (l *line) answered(why string) {
	l.t.Helper()
	if err := l.answer(long); err != nil {
		l.t.Fatalf("%s: %v", why, err)
	}
}

// TestCut cuts the way to a node, from it, and both, of a connection in use.
func TestCut(t *testing.T) {
	each(t, func(t *testing.T, n Network) {
		l := connect(t, n, 1)
		for _, way := range [][2]int{{Clients, 1}, {1, Clients}} {
			n.Set(way[0], way[1], Cut)
			l.send("cut")
			l.silent(fmt.Sprintf("through a cut from %d to %d", way[0], way[1]))
			n.Heal()
			l.answered("after the cut was healed")
		}
		if n.Dropped() == 0 {
			t.Error("nothing was dropped")
		}
	})
}

// TestCutBetweenNodes cuts two processes off from each other; clients reach both.
func TestCutBetweenNodes(t *testing.T) {
	each(t, func(t *testing.T, n Network) {
		connect(t, n, 2)
		l, via := connect(t, n, 1), "via "+n.Place(2).Advertise
		if err := l.ask(via, long); err != nil {
			t.Fatal(err)
		}
		n.Set(1, 2, Cut)
		n.Set(2, 1, Cut)
		l.send(via)
		l.silent("between nodes that are cut off from each other")
		other := connect(t, n, 2)
		if err := other.ask("still here", long); err != nil {
			t.Error(err)
		}
		n.Heal()
		l.answered("after the cut was healed")
		n.Set(Clients, 2, Cut)
		if err := l.ask(via, long); err != nil {
			t.Errorf("a cut of clients is one of nodes: %v", err)
		}
	})
}

// TestDelay: an answer takes as long as both ways.
func TestDelay(t *testing.T) {
	each(t, func(t *testing.T, n Network) {
		l := connect(t, n, 1)
		n.Set(Clients, 1, Way{Delay: short})
		n.Set(1, Clients, Way{Delay: short})
		from := time.Now()
		if err := l.ask("slow", long); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(from); took < 2*short {
			t.Errorf("answered in %v over ways of %v each", took, short)
		}
	})
}

// TestOnlyKafka: metadata may be cut alone, and Kafka alone.
func TestOnlyKafka(t *testing.T) {
	each(t, func(t *testing.T, n Network) {
		l := connect(t, n, 1)
		n.Set(Clients, 1, Way{CutOther: true})
		if !n.CanCutOther() {
			if err := l.ask("nothing is cut", long); err != nil {
				t.Fatalf("a network that says it can't cut metadata alone: %v", err)
			}
			return
		}
		if err := l.ask("metadata is cut", long); err != nil {
			t.Error(err)
		}
		n.Set(Clients, 1, Way{CutKafka: true})
		l.send("Kafka is cut")
		l.silent("through a cut of Kafka's connections")
	})
}

// TestDisks: a process at a place whose folder is a disk of its own fills it for
// real, and goes on when there is more room; nobody else sees the mount.
func TestDisks(t *testing.T) {
	n, err := Namespaces(2)
	if err != nil {
		t.Skipf("no namespaces: %v", err)
	}
	defer func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	}()
	d, dir := n.(Disks), t.TempDir()
	seen, err := d.Mount(1, dir, 1<<20)
	if err != nil {
		t.Skipf("no mounts: %v", err)
	}
	write := func(place int, name string, kilobytes int) error {
		cmd := exec.Command("dd", "if=/dev/zero", "of="+filepath.Join(dir, name), "bs=1024", fmt.Sprint("count=", kilobytes))
		if err := n.Start(place, cmd); err != nil {
			return err
		}
		return cmd.Wait()
	}
	if err := write(1, "large", 2048); err == nil {
		t.Error("2 MB fit a disk of 1 MB")
	}
	if _, free, err := d.Usage(seen); err != nil || free > 4096 {
		t.Errorf("%d bytes are free on a full disk, %v", free, err)
	}
	if err := d.Resize(1, dir, 8<<20); err != nil {
		t.Fatal(err)
	}
	if err := write(1, "more", 2048); err != nil {
		t.Errorf("with more room: %v", err)
	}
	if st, err := os.Stat(filepath.Join(seen, "more")); err != nil || st.Size() != 2<<20 {
		t.Errorf("the test doesn't see what the process wrote: %v", err)
	}
	if err := write(2, "elsewhere", 1); err != nil {
		t.Error(err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 || entries[0].Name() != "elsewhere" {
		t.Errorf("outside of the place there is %v, %v", entries, err)
	}
}
