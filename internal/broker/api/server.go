package api

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/core/meta"
	"tidemark/internal/wire"
)

// Server answers requests: it implements net.Handler.
type Server struct {
	Deps
	byKey map[wire.Key]entry
	keys  []entry // in the order of keys: what ApiVersions says
	own   []entry // what it says beside them to our own clients
	// rules say who may ask what, where there is an authorizer.
	rules map[wire.Key]rule

	sessions *sessionCache
	// draining is closed when the server shuts down: requests that only wait end.
	draining  chan struct{}
	drainOnce sync.Once
}

// ErrClose is returned by handlers (wrapped with the reason) when the
// connection must be closed without an answer.
var ErrClose = errors.New("close the connection")

// NewServer makes the server of all registered APIs.
func NewServer(d Deps) *Server {
	s := &Server{Deps: d, byKey: make(map[wire.Key]entry), rules: accessRules(),
		sessions: newSessionCache(d.Settings), draining: make(chan struct{})}
	for _, e := range slices.Concat(coreAPIs(), groupAPIs(), transactionAPIs(), securityAPIs()) {
		s.byKey[e.key] = e
	}
	s.own = ownAPIs()
	for _, e := range s.own {
		s.byKey[e.key] = e
	}
	for _, a := range wire.APIs() {
		if e, ok := s.byKey[a.Key]; ok {
			s.keys = append(s.keys, e)
		}
	}
	if d.ClusterMirrors {
		for _, e := range draftAPIs() {
			s.byKey[e.key] = e
			s.keys = append(s.keys, e)
		}
	}
	return s
}

// Drain ends the requests that only wait (Fetch, JoinGroup, SyncGroup). It implements net.Drainer.
func (s *Server) Drain() {
	s.drainOnce.Do(func() {
		close(s.draining)
		if s.Groups != nil {
			s.Groups.Drain()
		}
	})
}

// FetchSessions is the number of fetch sessions, for metrics.
func (s *Server) FetchSessions() int { return s.sessions.count() }

// Call is one request on its way through a handler.
type Call struct {
	*Server
	Ctx context.Context
	Req *wire.Request
	// Image is the one image of this request (R9).
	Image *meta.Image
	// quiet: what may not be had is left out and not refused (Call.quietly).
	quiet bool
	// last: nothing is to follow the answer on this connection.
	last bool
}

// entry is one row of the table of handlers.
type entry struct {
	key wire.Key
	// encode answers the request completely; for the APIs whose answer isn't a
	// plain message.
	encode func(c *Call, in kmsg.Request) (*wire.Response, error)
	// handle gives the answer's message; nil for the APIs whose answer isn't a plain one.
	handle func(c *Call, in kmsg.Request) (kmsg.Response, error)
}

// on makes a row for a handler that answers with a message. f gets the decoded
// request; byte slices in it are valid until f returns, and must be copied to be
// kept. An answer of nil means that there is none; an error (wrap ErrClose
// with the reason) closes the connection.
func on[In kmsg.Request](key wire.Key, f func(c *Call, in In) (kmsg.Response, error)) entry {
	handle := func(c *Call, in kmsg.Request) (kmsg.Response, error) {
		msg, ok := in.(In)
		if !ok {
			return nil, fmt.Errorf("%w: %s decoded as %T", ErrClose, key, in)
		}
		return f(c, msg)
	}
	return entry{key: key, handle: handle, encode: func(c *Call, in kmsg.Request) (*wire.Response, error) {
		out, err := handle(c, in)
		if err != nil || out == nil {
			return nil, err
		}
		r := wire.Encode(c.Req, out)
		if c.last {
			r.EndConnection()
		}
		return r, nil
	}}
}

// Handle answers one request. It implements net.Handler.
func (s *Server) Handle(ctx context.Context, req *wire.Request) (*wire.Response, error) {
	e, ok := s.byKey[req.Key]
	if !ok {
		return nil, fmt.Errorf("%w: %s isn't served", ErrClose, req.Key)
	}
	if api, _ := wire.LookupAPI(req.Key); !api.HasVersion(req.Version) {
		return unknownVersion(s, req)
	}
	msg, err := req.Decode()
	if err != nil {
		return nil, err
	}
	call := &Call{Server: s, Ctx: ctx, Req: req, Image: s.Image()}
	if s.Access != nil {
		return s.guarded(call, e, msg)
	}
	return e.encode(call, msg)
}
