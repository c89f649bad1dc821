package harness

import (
	"context"
	"net"
	"sync"

	"tidemark/internal/core/types"
)

// Gates stand in the connections by which the nodes of a cluster fetch from each
// other, one for each pair of follower and leader.
type Gates struct {
	mu   sync.Mutex // guards the following
	all  map[pair]*gate
	node func(address string) types.BrokerID
}

type pair struct{ follower, leader types.BrokerID }

// gate lets requests and answers of one pair through, or keeps them for later.
type gate struct {
	mu                sync.Mutex // guards the following
	requests, answers chan struct{}
	asked             int // writes since the last hold of answers
}

// open is a gate's channel when everything passes.
var open = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

func newGates(node func(string) types.BrokerID) *Gates {
	return &Gates{all: make(map[pair]*gate), node: node}
}

func (g *Gates) of(follower, leader types.BrokerID) *gate {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := pair{follower, leader}
	if g.all[p] == nil {
		g.all[p] = &gate{requests: open, answers: open}
	}
	return g.all[p]
}

// HoldRequests keeps back what a follower sends to a leader from now on.
func (g *Gates) HoldRequests(follower, leader types.BrokerID) {
	one := g.of(follower, leader)
	one.mu.Lock()
	defer one.mu.Unlock()
	if one.requests == open {
		one.requests = make(chan struct{})
	}
}

// HoldAnswers keeps back what a leader answers to a follower from now on.
func (g *Gates) HoldAnswers(follower, leader types.BrokerID) {
	one := g.of(follower, leader)
	one.mu.Lock()
	defer one.mu.Unlock()
	if one.answers == open {
		one.answers = make(chan struct{})
		one.asked = 0
	}
}

// Asked counts what a follower has sent to a leader since its answers are held.
func (g *Gates) Asked(follower, leader types.BrokerID) int {
	one := g.of(follower, leader)
	one.mu.Lock()
	defer one.mu.Unlock()
	return one.asked
}

// Hold keeps back both. A fetch that waits at the leader is answered late then.
func (g *Gates) Hold(follower, leader types.BrokerID) {
	g.HoldRequests(follower, leader)
	g.HoldAnswers(follower, leader)
}

// Release lets everything through again, what was kept first.
func (g *Gates) Release(follower, leader types.BrokerID) {
	one := g.of(follower, leader)
	one.mu.Lock()
	defer one.mu.Unlock()
	for _, c := range []*chan struct{}{&one.requests, &one.answers} {
		if *c != open {
			close(*c)
			*c = open
		}
	}
}

// dialer gives the way in which a node makes its connections to the others.
func (g *Gates) dialer(follower types.BrokerID) func(context.Context, string) (net.Conn, error) {
	return func(ctx context.Context, address string) (net.Conn, error) {
		var d net.Dialer
		nc, err := d.DialContext(ctx, "tcp", address)
		if err != nil {
			return nil, err
		}
		return &gatedConn{Conn: nc, gate: func() *gate { return g.of(follower, g.node(address)) }, closed: make(chan struct{})}, nil
	}
}

type gatedConn struct {
	net.Conn
	gate   func() *gate
	once   sync.Once
	closed chan struct{}

	mu   sync.Mutex // guards the following
	kept []byte     // requests for later
}

// Read implements net.Conn.
func (c *gatedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	g := c.gate()
	g.mu.Lock()
	answers := g.answers
	g.mu.Unlock()
	select {
	case <-answers:
	case <-c.closed:
	}
	return n, err
}

// Write implements net.Conn. What is kept back is written later, so that the
// writer goes on as with a network that loses packets.
func (c *gatedConn) Write(b []byte) (int, error) {
	g := c.gate()
	g.mu.Lock()
	requests := g.requests
	g.asked++
	g.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if requests == open && len(c.kept) == 0 {
		return c.Conn.Write(b)
	}
	if len(c.kept) == 0 {
		go c.writeLater(requests)
	}
	c.kept = append(c.kept, b...)
	return len(b), nil
}

func (c *gatedConn) writeLater(requests <-chan struct{}) {
	select {
	case <-requests:
	case <-c.closed:
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	_, _ = c.Conn.Write(c.kept) // its reader sees a connection that fails
	c.kept = nil
}

// Close implements net.Conn.
func (c *gatedConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}
