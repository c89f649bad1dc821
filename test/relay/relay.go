// Package relay stands, for tests, at the one address that clients know of two
// clusters: it is pointed at one of them and later at the other, as a name or a
// load balancer would be, and it can keep producers from hearing what became of their batches.
package relay

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"

	"tidemark/internal/wire"
)

// API keys of Produce and ApiVersions.
const (
	produceKey     = 0
	apiVersionsKey = 18
)

// frameMax bounds a frame, in bytes: more is no Kafka.
const frameMax = 64 << 20

// Relay passes Kafka's frames on between the clients at its address and the broker that it points at.
type Relay struct {
	listener net.Listener
	work     sync.WaitGroup

	mu sync.Mutex
	// guards the following
	target  string
	holding bool
	renamed bool
	held    int
	pending int // Produce requests passed on that have no answer yet
	open    map[net.Conn]bool
	closed  bool
}

// Start opens an address on loopback that points nowhere, until the test ends.
func Start(t testing.TB) *Relay {
	t.Helper()
	return StartAt(t, "127.0.0.1:0")
}

// StartAt is Start at an address.
func StartAt(t testing.TB, address string) *Relay {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	r := &Relay{listener: l, open: map[net.Conn]bool{}}
	r.work.Go(r.accept)
	t.Cleanup(func() {
		_ = l.Close()
		r.mu.Lock()
		r.closed = true
		r.mu.Unlock()
		r.closeAll()
		r.work.Wait()
	})
	return r
}

// Addr is the address that clients are told.
func (r *Relay) Addr() string { return r.listener.Addr().String() }

// Port is the address's port.
func (r *Relay) Port() int { return r.listener.Addr().(*net.TCPAddr).Port }

// Point sends everybody to another broker: present connections end, and what was held back is lost with them.
func (r *Relay) Point(target string) {
	r.mu.Lock()
	r.target, r.holding, r.held, r.pending = target, false, 0, 0
	r.mu.Unlock()
	r.closeAll()
}

// HoldProduceAnswers lets Produce requests through from now on and none of
// their answers; what follows such an answer on its connection waits behind it.
func (r *Relay) HoldProduceAnswers() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.holding = true
}

// Held counts the connections on which an answer has been held back.
func (r *Relay) Held() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.held
}

// Pending counts the Produce requests that were passed on and not answered yet.
func (r *Relay) Pending() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pending
}

// RenameClients has every client name another software than it is in ApiVersions,
// so that a Tidemark behind the relay doesn't offer its own APIs to Tidemarks.
func (r *Relay) RenameClients() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.renamed = true
}

// rename replaces the software's name, which is this project's, by another of its length.
func (r *Relay) rename(frame []byte) []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.renamed {
		return frame
	}
	return bytes.ReplaceAll(frame, []byte(wire.SoftwareName), bytes.Repeat([]byte("x"), len(wire.SoftwareName)))
}

func (r *Relay) closeAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range r.open {
		_ = c.Close()
	}
	clear(r.open)
}

func (r *Relay) accept() {
	for {
		c, err := r.listener.Accept()
		if err != nil {
			return
		}
		r.work.Go(func() { r.pass(c) })
	}
}

// enter notes connections that Point and the end of the test close; false if they are closed already.
func (r *Relay) enter(target string, conns ...net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || target != r.target {
		return false
	}
	for _, c := range conns {
		r.open[c] = true
	}
	return true
}

func (r *Relay) pass(client net.Conn) {
	defer client.Close()
	r.mu.Lock()
	target := r.target
	r.mu.Unlock()
	broker, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer broker.Close()
	if !r.enter(target, client, broker) {
		return
	}
	p := &passage{relay: r, produced: map[int32]bool{}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.answers(client, broker)
		_ = broker.Close()
	}()
	p.requests(client, broker)
	_ = broker.Close()
	_ = client.Close()
	<-done
}

// passage is one client's connection.
type passage struct {
	relay *Relay

	mu       sync.Mutex
	produced map[int32]bool // guarded by mu; correlation ids of Produce requests without an answer; true: it is held back
}

// requests passes requests on and remembers which of them produce.
func (p *passage) requests(client, broker net.Conn) {
	for {
		frame, err := readFrame(client)
		if err != nil {
			return
		}
		if len(frame) >= 12 && binary.BigEndian.Uint16(frame[4:]) == produceKey {
			p.relay.mu.Lock()
			hold := p.relay.holding
			p.relay.pending++
			p.relay.mu.Unlock()
			p.mu.Lock()
			p.produced[int32(binary.BigEndian.Uint32(frame[8:]))] = hold
			p.mu.Unlock()
		}
		if len(frame) >= 12 && binary.BigEndian.Uint16(frame[4:]) == apiVersionsKey {
			frame = p.relay.rename(frame)
		}
		if _, err := broker.Write(frame); err != nil {
			return
		}
	}
}

// answers passes answers on until one is held back; from then on it reads and drops them.
func (p *passage) answers(client, broker net.Conn) {
	for {
		frame, err := readFrame(broker)
		if err != nil {
			return
		}
		id := int32(binary.BigEndian.Uint32(frame[4:]))
		p.mu.Lock()
		hold, produced := p.produced[id]
		delete(p.produced, id)
		p.mu.Unlock()
		if produced && hold {
			p.relay.mu.Lock()
			p.relay.held++
			p.relay.mu.Unlock()
			_, _ = io.Copy(io.Discard, broker)
			return
		}
		if produced {
			p.relay.mu.Lock()
			p.relay.pending--
			p.relay.mu.Unlock()
		}
		if _, err := client.Write(frame); err != nil {
			return
		}
	}
}

// readFrame reads one frame, its size included.
func readFrame(c net.Conn) ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(c, size[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(size[:])
	if n < 4 || n > frameMax {
		return nil, fmt.Errorf("a frame of %d bytes", n)
	}
	frame := make([]byte, 4+n)
	copy(frame, size[:])
	_, err := io.ReadFull(c, frame[4:])
	return frame, err
}
