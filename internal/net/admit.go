package net

import (
	"net"
	"sync/atomic"

	"tidemark/internal/assert"
)

// Stats are the server's counters; all may be read at any time.
type Stats struct {
	// Open is the number of connections that are open now.
	Open atomic.Int64
	// Accepted and Refused count connections: let in, and closed at once for a limit.
	Accepted, Refused atomic.Int64
	// Requests counts requests received whole, BytesIn their bytes, BytesOut
	// the bytes of answers written.
	Requests, BytesIn, BytesOut atomic.Int64
	// Faulty counts connections closed for what the client sent; Idle those
	// closed for silence; Stalled those closed in the middle of a frame or answer.
	Faulty, Idle, Stalled atomic.Int64
	// Panics counts panics of the handler, each a bug.
	Panics atomic.Int64
	// MemoryWaits counts requests that waited for room in the memory budget.
	MemoryWaits atomic.Int64
}

// admit counts c in, or says false if a limit is reached or the server stops.
func (s *Server) admit(c *conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	if len(s.conns) >= s.opts.MaxConns || s.perIP[c.ip] >= s.opts.MaxConnsPerIP {
		s.stats.Refused.Add(1)
		s.opts.Logger.Debug("connection refused: too many", "remote", c.nc.RemoteAddr(),
			"open", len(s.conns), "from_address", s.perIP[c.ip])
		return false
	}
	s.conns[c] = struct{}{}
	s.perIP[c.ip]++
	s.stats.Accepted.Add(1)
	s.stats.Open.Add(1)
	return true
}

func (s *Server) leave(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, known := s.conns[c]
	assert.That(known && s.perIP[c.ip] > 0, "I-60: connection from %s counted out twice", c.ip)
	delete(s.conns, c)
	if s.perIP[c.ip]--; s.perIP[c.ip] == 0 {
		delete(s.perIP, c.ip)
	}
	s.stats.Open.Add(-1)
}

func ipOf(a net.Addr) string {
	host, _, err := net.SplitHostPort(a.String())
	if err != nil {
		return a.String()
	}
	return host
}
