//go:build linux

// Package links is a network between processes of one machine that a test can
// cut, in one direction or both, and slow down.
//
// Each process has a place, numbered from 1; the test and its clients are place
// 0. Namespaces gives each place a network namespace whose only way out is a TUN
// device, and carries the packets between them itself: no interface, name or
// rule is made in the namespace that the test runs in, and everything ends with
// the test's process, however that ends. It needs the right to make namespaces
// (root, as a rule). Proxies is for machines without it: places are ports on
// loopback, and proxies stand in the Kafka connections alone.
//
// Tests: the same ones for both (links_test.go).
package links

import (
	"context"
	"net"
	"os/exec"
	"sync"
	"time"
)

// Clients is the place of the test itself.
const Clients = 0

// Place says where a node listens, as HOST:PORT, and by what it is reached.
type Place struct {
	Kafka     string // where it listens for Kafka clients
	Advertise string // where others connect for that
	HTTP      string // its HTTP API
	Host      string // where members of the metadata store listen
}

// Way is the state of the traffic from one place to another.
type Way struct {
	CutKafka bool // no byte of a Kafka connection passes
	CutOther bool // no other packet passes: metadata and HTTP
	Delay    time.Duration
}

// Cut lets nothing pass.
var Cut = Way{CutKafka: true, CutOther: true}

// Network connects places.
type Network interface {
	// Name says which kind it is.
	Name() string
	// CanCutOther reports whether Way.CutOther has an effect.
	CanCutOther() bool
	// Place gives the addresses of a node.
	Place(node int) Place
	// Start starts a process at a place. It ends with the network at the latest.
	Start(node int, cmd *exec.Cmd) error
	// Dial connects from the place of the clients.
	Dial(ctx context.Context, network, address string) (net.Conn, error)
	// Set changes the traffic of one direction, of connections that are there too.
	Set(from, to int, w Way)
	// Heal lets everything pass everywhere.
	Heal()
	// Dropped counts packets, or holds of a connection, that a cut caused.
	Dropped() int64
	// Close ends the network.
	Close() error
}

// New gives namespaces where the system allows them, else proxies; why says what
// stood against namespaces.
func New(nodes int) (n Network, why, err error) {
	if n, why = Namespaces(nodes); why == nil {
		return n, nil, nil
	}
	n, err = Proxies(nodes)
	return n, why, err
}

// ways is the state of all directions.
type ways struct {
	mu      sync.RWMutex // guards the following
	all     map[[2]int]Way
	changed chan struct{} // closed with each change
}

func newWays() *ways { return &ways{all: map[[2]int]Way{}, changed: make(chan struct{})} }

func (w *ways) set(from, to int, v Way) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all[[2]int{from, to}] = v
	close(w.changed)
	w.changed = make(chan struct{})
}

func (w *ways) heal() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.all)
	close(w.changed)
	w.changed = make(chan struct{})
}

// get gives a direction's state, and what is closed when any changes.
func (w *ways) get(from, to int) (Way, <-chan struct{}) {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return w.all[[2]int{from, to}], w.changed
}
