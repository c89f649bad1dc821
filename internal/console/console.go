// Package console serves a node's HTTP admin API: health, metrics, and JSON
// under /api/v1 for mirrors, metadata, the vault and events. Client is the
// same API from the other side, as the command line uses it.
//
// It decides nothing: each handler checks its input, calls the node and
// encodes the answer. openapi.json describes every path; a test compares it
// with the routes and with real answers. The listener is bound to loopback
// unless the operator says otherwise; Access has it ask for a token and speak TLS.
package console

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"tidemark/internal/broker/mirror"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	tidenet "tidemark/internal/net"
	"tidemark/internal/vault"
)

// Limits of the HTTP server.
const (
	requestBytesMax   = 1 << 20
	readHeaderTimeout = 10 * time.Second
	idleTimeout       = 2 * time.Minute
)

// Node is what the API shows and changes.
type Node interface {
	// Ready is nil once the node serves; else it says what it waits for.
	Ready() error
	// Healthy is nil unless something is broken that an operator must see to.
	Healthy() error
	ClusterID() string
	NodeID() types.BrokerID
	Image() *meta.Image
	Gatherer() prometheus.Gatherer
	Mirrors() Mirrors
	Vault() Vault
	Membership() Membership
}

// Mirrors are the node's mirrors. Every error names the mirror and the way out.
type Mirrors interface {
	Create(ctx context.Context, spec mirror.Spec) error
	Start(ctx context.Context, name string) error
	Pause(ctx context.Context, name string) error
	Resume(ctx context.Context, name string) error
	// FailoverOf promotes the partitions of the order's topics, or of all when it names none.
	FailoverOf(ctx context.Context, name string, order mirror.FailoverOrder) (mirror.Status, error)
	// StatusEverywhere is how a mirror's partitions stand, each as its leader knows it.
	StatusEverywhere(ctx context.Context, name string) (mirror.Status, error)
	Describe(ctx context.Context, name string) (mirror.Description, error)
	List(ctx context.Context) ([]mirror.Status, error)
	// Verify compares both sides; progress is called now and then from the same goroutine.
	Verify(ctx context.Context, name string, progress func(mirror.Verify)) (mirror.Verify, error)
	Delete(ctx context.Context, name string) error
	Changes
	MirrorTools
	Events() []mirror.Event
}

// Vault is what cuts removed.
type Vault interface {
	List() ([]vault.Entry, error)
	Show(id string) (vault.Entry, error)
	Export(id string, format vault.Format, w io.Writer) error
	Purge(id string) error
	// NoteReplay writes down that an entry's records are in a topic again.
	NoteReplay(id string, r vault.Replay) error
	Usage() vault.Usage
}

// Server is the running API.
type Server struct {
	node   Node
	access Access
	log    *slog.Logger
	http   *http.Server
	ln     net.Listener
	stop   context.CancelFunc
	done   chan struct{}
}

// Listen opens the API's address (HOST:PORT), before there is a node to serve.
func Listen(addr string) (net.Listener, error) {
	ln, err := tidenet.Bind(addr, "--http (key http.listener)")
	if err != nil {
		return nil, fmt.Errorf("HTTP API: %w", err)
	}
	return ln, nil
}

// Serve answers on ln until Close, which closes it. It fails if access names a certificate that can't be used.
func Serve(ln net.Listener, node Node, access Access, log *slog.Logger) (*Server, error) {
	ctx, stop := context.WithCancel(context.Background())
	ln, err := access.secure(ctx, ln, log)
	if err != nil {
		stop()
		return nil, err
	}
	s := &Server{node: node, access: access, log: log, ln: ln, stop: stop, done: make(chan struct{})}
	s.http = &http.Server{Handler: s.handler(), ReadHeaderTimeout: readHeaderTimeout, IdleTimeout: idleTimeout,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)}
	go func() {
		defer close(s.done)
		if err := s.http.Serve(ln); err != nil && !errors.Is(err, http.ErrServerClosed) {
			log.Error("HTTP API stopped", "err", err)
		}
	}()
	return s, nil
}

// Addr is where the API listens.
func (s *Server) Addr() string { return s.ln.Addr().String() }

// Close stops listening, lets requests end until ctx does, and then cuts them off.
func (s *Server) Close(ctx context.Context) error {
	defer s.stop()
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, s.http.Close())
	}
	<-s.done
	return err
}

// route is one method and path of the API; the tests compare them with openapi.json.
type route struct {
	method, path string
	handle       func(w http.ResponseWriter, r *http.Request) error
}

func (s *Server) routes() []route {
	return append(append(s.toolRoutes(), s.drillRoutes()...), []route{
		{"GET", "/healthz", s.health},
		{"GET", "/readyz", s.ready},
		{"GET", "/api/v1/cluster", s.cluster},
		{"POST", "/api/v1/cluster/join", s.clusterJoin},
		{"DELETE", "/api/v1/cluster/members/{id}", s.memberRemove},
		{"POST", "/api/v1/cluster/nodes/{id}/decommission", s.decommission},
		{"POST", "/api/v1/cluster/nodes/{id}/replace", s.nodeReplace},
		{"DELETE", "/api/v1/cluster/nodes/{id}", s.nodeForget},
		{"GET", "/api/v1/cluster/addition", s.clusterAddition},
		{"GET", "/api/v1/cluster/backup", s.clusterBackup},
		{"POST", "/api/v1/cluster/features", s.clusterFeatures},
		{"POST", "/api/v1/cluster/recover", s.clusterRecover},
		{"GET", "/api/v1/meta", s.meta},
		{"GET", "/api/v1/events", s.events},
		{"GET", "/api/v1/vault", s.vaultList},
		{"GET", "/api/v1/vault/{id}", s.vaultShow},
		{"DELETE", "/api/v1/vault/{id}", s.vaultPurge},
		{"GET", "/api/v1/vault/{id}/export", s.vaultExport},
		{"POST", "/api/v1/vault/{id}/replays", s.vaultReplayed},
		{"GET", "/api/v1/mirrors", s.mirrorList},
		{"POST", "/api/v1/mirrors", s.mirrorCreate},
		{"GET", "/api/v1/mirrors/{name}", s.mirrorStatus},
		{"DELETE", "/api/v1/mirrors/{name}", s.mirrorDelete},
		{"GET", "/api/v1/mirrors/{name}/describe", s.mirrorDescribe},
		{"POST", "/api/v1/mirrors/{name}/start", s.verb("start", Mirrors.Start)},
		{"POST", "/api/v1/mirrors/{name}/pause", s.verb("pause", Mirrors.Pause)},
		{"POST", "/api/v1/mirrors/{name}/resume", s.verb("resume", Mirrors.Resume)},
		{"POST", "/api/v1/mirrors/{name}/failover", s.mirrorFailover},
		{"POST", "/api/v1/mirrors/{name}/preview", s.mirrorPreview},
		{"POST", "/api/v1/mirrors/{name}/failback", s.mirrorFailback},
		{"POST", "/api/v1/mirrors/{name}/switchover", s.mirrorSwitchover},
		{"POST", "/api/v1/mirrors/{name}/abandon", s.words("abandon", abandon)},
		{"POST", "/api/v1/mirrors/{name}/accept-gap", s.words("accept-gap", acceptGap)},
		{"POST", "/api/v1/fences/reopen", s.words("reopen", reopen)},
		{"POST", "/api/v1/mirrors/{name}/verify", s.mirrorVerify},
		{"GET", "/api/v1/openapi.json", s.openapi},
	}...)
}

func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	for _, rt := range s.routes() {
		mux.HandleFunc(rt.method+" "+rt.path, func(w http.ResponseWriter, r *http.Request) {
			r.Body = http.MaxBytesReader(w, r.Body, requestBytesMax)
			if err := rt.handle(w, r); err != nil {
				s.refuse(w, r, err)
			}
		})
	}
	gatherers := prometheus.Gatherers{s.node.Gatherer()}
	mux.Handle("GET /metrics", promhttp.HandlerFor(gatherers, promhttp.HandlerOpts{}))
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		s.refuse(w, r, fmt.Errorf("%w: no %s %s here: /api/v1/openapi.json lists what there is", errNotFound, r.Method, r.URL.Path))
	})
	return s.guard(mux)
}
