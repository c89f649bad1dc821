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
	lies    map[uint16]func(body []byte) []byte // by API key
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
// so that a Tidemark behind the relay doesn't offer its own APIs to Tidemarks. The
// nodes of one cluster, which may reach each other by this address too, keep their names.
func (r *Relay) RenameClients() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.renamed = true
}

// brokerClient begins the client ids of connections between the nodes of one cluster.
const brokerClient = "broker-"

// rename replaces the software's name, which is this project's, by another of its length.
func (r *Relay) rename(frame []byte) []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	const clientID = 14 // behind size, key, version, correlation id and its own length
	if !r.renamed || bytes.HasPrefix(frame[min(clientID, len(frame)):], []byte(brokerClient)) {
		return frame
	}
	return bytes.ReplaceAll(frame, []byte(wire.SoftwareName), bytes.Repeat([]byte("x"), len(wire.SoftwareName)))
}

// Lie has the answers to an API altered on their way from now on; nil: no longer. alter
// gets what follows the correlation id, and is called by many goroutines.
func (r *Relay) Lie(key wire.Key, alter func(body []byte) []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lies == nil {
		r.lies = map[uint16]func([]byte) []byte{}
	}
	delete(r.lies, uint16(key))
	if alter != nil {
		r.lies[uint16(key)] = alter
	}
}

// altered is an answer as the relay passes it on.
func (r *Relay) altered(key uint16, frame []byte) []byte {
	r.mu.Lock()
	alter := r.lies[key]
	r.mu.Unlock()
	if alter == nil {
		return frame
	}
	body := alter(frame[answerHead:])
	out := binary.BigEndian.AppendUint32(nil, uint32(answerHead-4+len(body)))
	return append(append(out, frame[4:answerHead]...), body...)
}

// answerHead is the length of an answer's size and correlation id, in bytes.
const answerHead = 8

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
	p := &passage{relay: r, asked: map[int32]request{}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if !p.answers(client, broker) {
			_ = client.Close() // it hears of the broker's end, unless it is to hear nothing
		}
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

	mu    sync.Mutex
	asked map[int32]request // guarded by mu; by correlation id: what has no answer yet
}

// request is one that was passed on.
type request struct {
	key  uint16
	hold bool // its answer is held back
}

// requests passes requests on and remembers what they ask.
func (p *passage) requests(client, broker net.Conn) {
	for {
		frame, err := readFrame(client)
		if err != nil {
			return
		}
		if len(frame) >= 12 {
			q := request{key: binary.BigEndian.Uint16(frame[4:])}
			if q.key == produceKey {
				p.relay.mu.Lock()
				q.hold = p.relay.holding
				p.relay.pending++
				p.relay.mu.Unlock()
			}
			p.mu.Lock()
			p.asked[int32(binary.BigEndian.Uint32(frame[8:]))] = q
			p.mu.Unlock()
			if q.key == apiVersionsKey {
				frame = p.relay.rename(frame)
			}
		}
		if _, err := broker.Write(frame); err != nil {
			return
		}
	}
}

// answers passes answers on until one is held back; from then on it reads and drops them. It
// gives whether one was.
func (p *passage) answers(client, broker net.Conn) (held bool) {
	for {
		frame, err := readFrame(broker)
		if err != nil {
			return false
		}
		id := int32(binary.BigEndian.Uint32(frame[4:]))
		p.mu.Lock()
		q, known := p.asked[id]
		delete(p.asked, id)
		p.mu.Unlock()
		if q.hold {
			p.relay.mu.Lock()
			p.relay.held++
			p.relay.mu.Unlock()
			_, _ = io.Copy(io.Discard, broker)
			return true
		}
		if known && q.key == produceKey {
			p.relay.mu.Lock()
			p.relay.pending--
			p.relay.mu.Unlock()
		}
		if known {
			frame = p.relay.altered(q.key, frame)
		}
		if _, err := client.Write(frame); err != nil {
			return false
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
