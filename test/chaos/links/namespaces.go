//go:build linux

package links

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	kafkaPort = 9092
	httpPort  = 9644
	// mtu is as large as packets may be: the fewer, the less the switch costs.
	mtu = 65000
	// queueMax bounds the packets that a slow link holds; more are dropped, as by any router.
	queueMax = 4096
)

// namespaces is a switch between network namespaces.
type namespaces struct {
	*ways
	members []*member // by place
	queues  map[[2]int]chan late
	dropped atomic.Int64
	work    sync.WaitGroup
	closing chan struct{}
}

// late is a packet on a slow link.
type late struct {
	due    time.Time
	packet []byte
}

// member is a namespace, kept by a thread of its own.
type member struct {
	do  chan func() // runs in the namespace
	tun *os.File
	ns  int // descriptor of the namespace
	// mounts says that the thread has a mount namespace of its own too; only it asks.
	mounts bool
}

func ip(place int) net.IP { return net.IPv4(10, 99, 0, byte(place+1)).To4() }

// Namespaces makes one namespace for each node and one for the clients.
func Namespaces(nodes int) (Network, error) {
	n := &namespaces{ways: newWays(), queues: map[[2]int]chan late{}, closing: make(chan struct{})}
	for place := range nodes + 1 {
		m, err := newMember(ip(place))
		if err != nil {
			return nil, errors.Join(err, n.Close())
		}
		n.members = append(n.members, m)
	}
	for from := range n.members {
		for to := range n.members {
			q := make(chan late, queueMax)
			n.queues[[2]int{from, to}] = q
			n.work.Go(func() { n.deliver(to, q) })
		}
	}
	for from := range n.members {
		n.work.Go(func() { n.forward(from) })
	}
	return n, nil
}

// newMember makes a namespace with a TUN device of the address given.
func newMember(addr net.IP) (*member, error) {
	m := &member{do: make(chan func())}
	made := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine, and the namespace with it
		err := m.enter(addr)
		made <- err
		if err != nil {
			return
		}
		for f := range m.do {
			f()
		}
	}()
	if err := <-made; err != nil {
		return nil, err
	}
	return m, nil
}

// enter moves the calling thread into a namespace of its own.
func (m *member) enter(addr net.IP) (err error) {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("a network namespace: %w", err)
	}
	if m.ns, err = unix.Open(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()), unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
		return err
	}
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return errors.Join(fmt.Errorf("/dev/net/tun: %w", err), unix.Close(m.ns))
	}
	if err := configure(fd, addr); err != nil {
		return errors.Join(err, unix.Close(fd), unix.Close(m.ns))
	}
	m.tun = os.NewFile(uintptr(fd), "tun") // only now: a device that isn't attached can't be waited for
	return nil
}

// configure names the TUN device and brings it and loopback up.
func configure(tun int, addr net.IP) error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	var faults []error
	request := func(fd int, what uint, device string, fill func(*unix.Ifreq) error) {
		r, err := unix.NewIfreq(device)
		if err == nil {
			err = fill(r)
		}
		if err == nil {
			err = unix.IoctlIfreq(fd, what, r)
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("set up %s: %w", device, err))
		}
	}
	flags := func(v uint16) func(*unix.Ifreq) error {
		return func(r *unix.Ifreq) error { r.SetUint16(v); return nil }
	}
	const device = "tun0"
	request(tun, unix.TUNSETIFF, device, flags(unix.IFF_TUN|unix.IFF_NO_PI))
	request(s, unix.SIOCSIFADDR, device, func(r *unix.Ifreq) error { return r.SetInet4Addr(addr) })
	request(s, unix.SIOCSIFNETMASK, device, func(r *unix.Ifreq) error { return r.SetInet4Addr([]byte{255, 255, 255, 0}) })
	request(s, unix.SIOCSIFMTU, device, func(r *unix.Ifreq) error { r.SetUint32(mtu); return nil })
	request(s, unix.SIOCSIFFLAGS, device, flags(unix.IFF_UP|unix.IFF_RUNNING))
	request(s, unix.SIOCSIFFLAGS, "lo", flags(unix.IFF_UP|unix.IFF_RUNNING))
	return errors.Join(faults...)
}

// forward takes the packets that leave a place.
func (n *namespaces) forward(from int) {
	buf := make([]byte, 1<<16)
	for {
		size, err := n.members[from].tun.Read(buf)
		if err != nil {
			return // closed
		}
		packet := buf[:size]
		to, isKafka, ok := parse(packet)
		if !ok || to >= len(n.members) || to == from {
			continue
		}
		way, _ := n.get(from, to)
		if isKafka && way.CutKafka || !isKafka && way.CutOther {
			n.dropped.Add(1)
			continue
		}
		if way.Delay == 0 {
			_, _ = n.members[to].tun.Write(packet) // a full queue drops it, as queues do
			continue
		}
		select {
		case n.queues[[2]int{from, to}] <- late{time.Now().Add(way.Delay), append([]byte(nil), packet...)}:
		default:
			n.dropped.Add(1)
		}
	}
}

// parse gives a TCP packet's destination; ok is false for whatever else.
func parse(packet []byte) (to int, isKafka, ok bool) {
	if len(packet) < 20 || packet[0]>>4 != 4 || packet[9] != unix.IPPROTO_TCP {
		return 0, false, false
	}
	header := int(packet[0]&0xf) * 4
	if len(packet) < header+4 {
		return 0, false, false
	}
	source, dest := binary.BigEndian.Uint16(packet[header:]), binary.BigEndian.Uint16(packet[header+2:])
	return int(packet[19]) - 1, source == kafkaPort || dest == kafkaPort, packet[16] == 10 && packet[19] > 0
}

// deliver hands late packets over when they are due.
func (n *namespaces) deliver(to int, q <-chan late) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		var l late
		select {
		case l = <-q:
		case <-n.closing:
			return
		}
		timer.Reset(time.Until(l.due))
		select {
		case <-timer.C:
			_, _ = n.members[to].tun.Write(l.packet)
		case <-n.closing:
			return
		}
	}
}

func (n *namespaces) Name() string { return "network namespaces" }

func (n *namespaces) CanCutOther() bool { return true }

func (n *namespaces) Place(node int) Place {
	host := ip(node).String()
	kafka := net.JoinHostPort(host, fmt.Sprint(kafkaPort))
	return Place{Kafka: kafka, Advertise: kafka, HTTP: net.JoinHostPort(host, fmt.Sprint(httpPort)), Host: host}
}

// Dial makes the socket in the clients' namespace; it stays in it.
func (n *namespaces) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	runtime.LockOSThread()
	here, err := unix.Open(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		runtime.UnlockOSThread()
		return nil, err
	}
	defer unix.Close(here)
	if err := unix.Setns(n.members[Clients].ns, unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return nil, err
	}
	var d net.Dialer
	nc, err := d.DialContext(ctx, network, address)
	if back := unix.Setns(here, unix.CLONE_NEWNET); back != nil {
		return nc, errors.Join(err, back) // the thread stays locked and ends with the goroutine
	}
	runtime.UnlockOSThread()
	return nc, err
}

func (n *namespaces) Set(from, to int, w Way) { n.set(from, to, w) }

func (n *namespaces) Heal() { n.heal() }

func (n *namespaces) Dropped() int64 { return n.dropped.Load() }

func (n *namespaces) Close() error {
	close(n.closing)
	var faults []error
	for _, m := range n.members {
		close(m.do)
		faults = append(faults, m.tun.Close(), unix.Close(m.ns))
	}
	n.work.Wait()
	return errors.Join(faults...)
}
