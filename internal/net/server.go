package net

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"tidemark/internal/telemetry"
	"tidemark/internal/wire"
)

// Options say how a Server behaves. Zero fields take the default named there.
type Options struct {
	// Handler answers the requests. Required.
	Handler Handler
	// Logger gets connections closed for a fault, at debug, and panics, at error.
	Logger *slog.Logger
	// Audit is told of TLS handshakes that fail; nil for none.
	Audit *telemetry.Audit
	// MaxFrameBytes is socket.request.max.bytes: the largest Produce request; default 100 MiB.
	MaxFrameBytes int32
	// MaxControlBytes is the largest request of any other kind; default 16 MiB.
	MaxControlBytes int32
	// MemoryBytes bounds what the requests being received or handled take
	// together; default 512 MiB. A request larger than the bound takes all of it.
	// Those that others wait for (wire.Prefix.IsAwaited) have as much of their own.
	MemoryBytes int64
	// MaxConns is max.connections; default 10,000.
	MaxConns int
	// MaxConnsPerIP is max.connections.per.ip; default MaxConns.
	MaxConnsPerIP int
	// IdleTimeout is connections.max.idle.ms: a connection without a request
	// for so long is closed; default 10 minutes.
	IdleTimeout time.Duration
	// StallTimeout closes a connection whose begun frame, TLS handshake or
	// answer makes no progress for so long; default 30 s.
	StallTimeout time.Duration
	// Pipeline is how many requests of one connection are read ahead of the
	// one being handled; default 4.
	Pipeline int
}

func (o *Options) setDefaults() {
	setDefault(&o.MaxFrameBytes, 100<<20)
	setDefault(&o.MaxControlBytes, min(16<<20, o.MaxFrameBytes))
	setDefault(&o.MemoryBytes, 512<<20)
	setDefault(&o.MaxConns, 10_000)
	setDefault(&o.MaxConnsPerIP, o.MaxConns)
	setDefault(&o.IdleTimeout, 10*time.Minute)
	setDefault(&o.StallTimeout, 30*time.Second)
	setDefault(&o.Pipeline, 4)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
}

func setDefault[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

// Listener is one address to listen at.
type Listener struct {
	// Name is the listener's name (PLAINTEXT, SSL, or one of the operator's).
	Name string
	// Address is host:port; port 0 takes a free one.
	Address string
	// TLS, if set, makes it a TLS listener.
	TLS *tls.Config
	// Login, if set, begins the log-in (SASL) that a connection must go through
	// before anything else; secure is one over TLS.
	Login func(secure bool) wire.Login
	// PrincipalOf names the owner of a TLS client's certificate, which was verified;
	// nil: certificates name nobody.
	PrincipalOf func(*x509.Certificate) string
}

// Server accepts connections and feeds their requests to the handler.
type Server struct {
	opts   Options
	limits wire.Limits
	memory *semaphore.Weighted
	// awaited is the memory of requests that others wait for while they hold theirs.
	awaited *semaphore.Weighted
	stats   Stats

	ctx      context.Context // ends when connections must
	cancel   context.CancelFunc
	draining atomic.Bool
	work     sync.WaitGroup // accept loops and connections

	mu sync.Mutex // guards the following
	// Invariant I-60: len(conns) is the sum of perIP's counts, and at most MaxConns.
	conns     map[*conn]struct{}
	perIP     map[string]int
	listeners []net.Listener
	closed    bool
}

// NewServer makes a server without listeners.
func NewServer(o Options) *Server {
	o.setDefaults()
	ctx, cancel := context.WithCancel(context.Background())
	return &Server{
		opts:    o,
		limits:  wire.Limits{Frame: o.MaxFrameBytes, Control: o.MaxControlBytes},
		memory:  semaphore.NewWeighted(o.MemoryBytes),
		awaited: semaphore.NewWeighted(o.MemoryBytes),
		ctx:     ctx,
		cancel:  cancel,
		conns:   make(map[*conn]struct{}),
		perIP:   make(map[string]int),
	}
}

// ErrServerClosed is returned by Listen after Shutdown.
var ErrServerClosed = errors.New("the server is shut down")

// Listen binds l's address and accepts connections there until Shutdown. It
// returns the bound address. The error of a busy port names the address.
func (s *Server) Listen(l Listener) (net.Addr, error) {
	ln, err := Bind(l.Address, "--listen (key listeners)")
	if err != nil {
		return nil, fmt.Errorf("listener %s: %w", l.Name, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errors.Join(ErrServerClosed, ln.Close())
	}
	s.listeners = append(s.listeners, ln)
	s.work.Go(func() { s.accept(ln, l) })
	return ln.Addr(), nil
}

// Stats gives the server's counters.
func (s *Server) Stats() *Stats { return &s.stats }

func (s *Server) accept(ln net.Listener, l Listener) {
	var pause time.Duration
	for {
		nc, err := ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			// Out of descriptors, mostly: wait for some to come back.
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			s.opts.Logger.Warn("accept failed", "listener", l.Name, "error", err, "retry_in", pause)
			if !s.rest(pause) {
				return
			}
			continue
		}
		pause = 0
		c := newConn(s, nc, l)
		if !s.admit(c) {
			_ = nc.Close() // refused: nothing was sent yet
			continue
		}
		s.work.Go(c.serve)
	}
}

// rest waits for d; false if the server stopped meanwhile.
func (s *Server) rest(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return !s.draining.Load()
	case <-s.ctx.Done():
		return false
	}
}

// Drainer may be implemented by a Handler to learn that the server shuts down,
// so that it ends requests that only wait.
type Drainer interface{ Drain() }

// Shutdown stops accepting and reading, lets the requests that were received
// be answered, and closes the connections. When ctx ends first, what is left is
// cut off and ctx's error returned. Either way no goroutine is left.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	s.draining.Store(true)
	for _, ln := range s.listeners {
		_ = ln.Close() // can fail only if it is closed already
	}
	s.listeners = nil
	for c := range s.conns {
		c.drain()
	}
	s.mu.Unlock()
	if d, ok := s.opts.Handler.(Drainer); ok {
		d.Drain()
	}
	done := make(chan struct{})
	go func() {
		s.work.Wait()
		close(done)
	}()
	select {
	case <-done:
		s.cancel()
		return nil
	case <-ctx.Done():
	}
	s.cancel()
	s.mu.Lock()
	for c := range s.conns {
		c.abort()
	}
	s.mu.Unlock()
	<-done
	return ctx.Err()
}
