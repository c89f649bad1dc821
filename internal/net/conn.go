package net

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime/debug"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"tidemark/internal/wire"
)

// conn is one connection: a reader goroutine that receives requests, at most
// Options.Pipeline ahead, and a worker goroutine that handles them one at a
// time and writes the answers. So answers keep the order of requests
// (Invariant I-61), as Kafka's do.
type conn struct {
	server *Server
	nc     net.Conn
	ip     string
	name   string // of the listener
	tls    *tls.Conn
	// owner names the owner of a certificate; login is nil without SASL (login.go).
	owner     func(*x509.Certificate) string
	principal string
	login     *loginGate
	in        *bufio.Reader
	out       writer

	ctx    context.Context
	cancel context.CancelFunc
	// queue holds received requests; closed by the reader.
	queue chan received
	// busy counts requests that are received and not yet answered.
	busy atomic.Int32
	// active is when the last request came or was answered, in ns since the server's clock began.
	active atomic.Int64
}

// received is a request with what it holds of the server.
type received struct {
	req    *wire.Request
	frame  *frameBuffer
	memory int64
	budget *semaphore.Weighted // that memory is a part of
	// isStep: it came before the log-in was done; the reader waits for its answer.
	isStep bool
}

var (
	errIdle = errors.New("idle")
	errLast = errors.New("the answer ends the connection")
)

// lastWait is how long a client may take to close a connection by itself after an answer that
// ends it. Java's (4.4) may forget an end that it meets in the same round as the answer.
const lastWait = time.Second

func newConn(s *Server, nc net.Conn, l Listener) *conn {
	c := &conn{server: s, nc: nc, ip: ipOf(nc.RemoteAddr()), name: l.Name, owner: l.PrincipalOf,
		principal: anonymous, queue: make(chan received, s.opts.Pipeline)}
	if l.Login != nil {
		c.login = newLoginGate(l.Login(l.TLS != nil))
	}
	if l.TLS != nil {
		c.tls = tls.Server(nc, l.TLS)
		c.nc = c.tls
	}
	c.in = bufio.NewReaderSize(c.nc, 8<<10)
	c.out = newWriter(c.nc, s.opts.StallTimeout)
	c.ctx, c.cancel = context.WithCancel(s.ctx)
	c.active.Store(now())
	return c
}

var began = time.Now()

func now() int64 { return int64(time.Since(began)) }

// drain ends the reading of new requests.
func (c *conn) drain() { _ = c.nc.SetReadDeadline(time.Unix(1, 0)) }

// abort cuts the connection off.
func (c *conn) abort() {
	c.cancel()
	_ = c.nc.Close() // the connection is given up whatever Close says
}

func (c *conn) serve() {
	defer c.server.leave(c)
	defer c.abort()
	if !c.handshake() {
		return
	}
	read, ended := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(ended)
		err := c.read()
		// A client that is gone waits for nothing: end its long polls.
		if err != nil && !c.server.draining.Load() {
			c.cancel()
		}
		read <- err
		close(c.queue)
	}()
	err := c.work()
	if errors.Is(err, errLast) {
		limit := time.NewTimer(lastWait)
		defer limit.Stop()
		select {
		case <-ended:
		case <-limit.C:
		}
	}
	if err != nil {
		c.abort() // ends the reader
	}
	for r := range c.queue {
		c.release(r)
	}
	c.note(errors.Join(err, <-read))
}

func (c *conn) handshake() bool {
	if c.tls == nil {
		return true
	}
	ctx, cancel := context.WithTimeout(c.ctx, c.server.opts.StallTimeout)
	defer cancel()
	if err := c.tls.HandshakeContext(ctx); err != nil {
		c.server.stats.Faulty.Add(1)
		if c.ctx.Err() == nil { // not ended by this side
			c.server.opts.Audit.HandshakeFailed(c.name, c.ip, err)
		}
		return false
	}
	if shown := c.tls.ConnectionState().PeerCertificates; len(shown) > 0 && c.owner != nil {
		c.principal = c.owner(shown[0])
	}
	return true
}

// note counts and logs why the connection ended.
func (c *conn) note(err error) {
	s := c.server
	switch {
	case err == nil, errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF), s.draining.Load():
		return
	case errors.Is(err, errIdle):
		s.stats.Idle.Add(1)
	case errors.Is(err, os.ErrDeadlineExceeded):
		s.stats.Stalled.Add(1)
	case errors.Is(err, wire.ErrFrameSize), errors.Is(err, wire.ErrMalformed), errors.Is(err, errLogin),
		errors.Is(err, wire.ErrUnknownAPI), errors.Is(err, wire.ErrUnknownVersion):
		s.stats.Faulty.Add(1)
	}
	s.opts.Logger.Debug("connection closed", "remote", c.nc.RemoteAddr(), "listener", c.name, "error", err)
}

// read receives requests until the connection ends or the server drains.
func (c *conn) read() error {
	for !c.server.draining.Load() {
		r, err := c.receive()
		if err != nil {
			return err
		}
		c.busy.Add(1)
		select {
		case c.queue <- r:
		case <-c.ctx.Done():
			c.release(r)
			return c.ctx.Err()
		}
		if err := c.login.awaitStep(c.ctx, r.isStep); err != nil {
			return err
		}
	}
	return nil
}

// receive reads one frame. Memory for it is taken only after its size was
// judged and the budget has room.
func (c *conn) receive() (received, error) {
	s := c.server
	head, err := c.prefix()
	if err != nil {
		return received{}, err
	}
	isStep := c.login.isPending()
	p, err := wire.ParsePrefix(head, c.login.limits(s.limits, isStep))
	if err == nil && isStep {
		err = c.login.admit(p)
	}
	if err != nil {
		return received{}, err
	}
	r := received{memory: min(p.Cost(), s.opts.MemoryBytes), budget: s.memory, isStep: isStep}
	if p.IsAwaited() {
		r.budget = s.awaited
	}
	if !r.budget.TryAcquire(r.memory) {
		s.stats.MemoryWaits.Add(1)
		if err := r.budget.Acquire(c.ctx, r.memory); err != nil {
			return received{}, err
		}
	}
	r.frame = newFrameBuffer(p)
	if err := c.fill(r.frame.bytes); err != nil {
		c.releaseMemory(r)
		return received{}, err
	}
	r.req, err = wire.ParseRequest(r.frame.bytes)
	if err != nil && !(errors.Is(err, wire.ErrUnknownVersion) && r.req.Key == wire.KeyApiVersions) {
		c.releaseMemory(r)
		return received{}, err
	}
	c.describe(r.req)
	c.active.Store(now())
	s.stats.Requests.Add(1)
	s.stats.BytesIn.Add(int64(p.Size) + 4)
	return r, nil
}

func (c *conn) describe(r *wire.Request) {
	r.Listener, r.Principal = c.name, c.principal
	if c.login != nil {
		r.Login = c.login.login
		r.Principal = c.login.principal()
	}
	r.Remote, r.Local = c.nc.RemoteAddr(), c.nc.LocalAddr()
	r.Secure = c.tls != nil
}

// prefix waits for the first bytes of the next frame; they stay in the buffer.
func (c *conn) prefix() ([]byte, error) {
	idle := c.login.patience(c.server.opts)
	for {
		left := idle - time.Duration(now()-c.active.Load())
		if c.busy.Load() > 0 {
			left = idle
		}
		if left <= 0 {
			return nil, errIdle
		}
		if _, err := c.peek(1, left); err == nil {
			break
		} else if !errors.Is(err, os.ErrDeadlineExceeded) || c.server.draining.Load() {
			return nil, err
		}
	}
	b, err := c.peek(wire.PrefixSize, c.server.opts.StallTimeout)
	if errors.Is(err, io.EOF) {
		// A client may leave without a word only between frames.
		return nil, fmt.Errorf("%w: frame header of %d bytes", io.ErrUnexpectedEOF, len(b))
	}
	return b, err
}

func (c *conn) peek(n int, wait time.Duration) ([]byte, error) {
	if c.in.Buffered() < n {
		if err := c.readBy(wait); err != nil {
			return nil, err
		}
	}
	return c.in.Peek(n)
}

// readBy sets the read deadline, unless the server drains: then the past one
// that drain has set must stay.
func (c *conn) readBy(wait time.Duration) error {
	if err := c.nc.SetReadDeadline(time.Now().Add(wait)); err != nil {
		return err
	}
	if c.server.draining.Load() {
		c.drain()
	}
	return nil
}

// fill reads a frame whose size field is still in front of it into b. Each
// read must bring something within the stall time.
func (c *conn) fill(b []byte) error {
	if _, err := c.in.Discard(4); err != nil {
		return err
	}
	for len(b) > 0 {
		if c.in.Buffered() == 0 {
			if err := c.readBy(c.server.opts.StallTimeout); err != nil {
				return err
			}
		}
		n, err := c.in.Read(b)
		b = b[n:]
		if err != nil && len(b) > 0 {
			if errors.Is(err, io.EOF) {
				return io.ErrUnexpectedEOF
			}
			return err
		}
	}
	return nil
}

// work handles queued requests in order until the queue ends or one closes the connection.
func (c *conn) work() error {
	for r := range c.queue {
		err := c.answer(r)
		c.release(r)
		if err == nil {
			err = c.login.stepDone(r.isStep)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *conn) answer(r received) error {
	resp, err := c.handle(r.req)
	if err != nil || resp == nil {
		return err
	}
	defer resp.Done()
	if err := c.out.write(resp); err != nil {
		return fmt.Errorf("write answer of %s: %w", r.req.Key, err)
	}
	c.server.stats.BytesOut.Add(resp.Size())
	if resp.EndsConnection() {
		return errLast
	}
	return nil
}

// handle calls the handler; its panic costs this connection, not the process.
func (c *conn) handle(req *wire.Request) (resp *wire.Response, err error) {
	defer func() {
		if p := recover(); p != nil {
			c.server.stats.Panics.Add(1)
			c.server.opts.Logger.Error("handler panicked: this is a bug", "api", req.Key, "version", req.Version,
				"client", req.ClientID, "remote", req.Remote, "panic", p, "stack", string(debug.Stack()))
			resp, err = nil, fmt.Errorf("handler of %s panicked", req.Key)
		}
	}()
	if err := c.login.mayHandle(req.Key); err != nil {
		return nil, err
	}
	return c.server.opts.Handler.Handle(c.ctx, req)
}

func (c *conn) release(r received) {
	c.releaseMemory(r)
	c.active.Store(now())
	c.busy.Add(-1)
}

func (c *conn) releaseMemory(r received) {
	r.frame.free()
	r.budget.Release(r.memory)
}
