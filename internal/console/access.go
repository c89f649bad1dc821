package console

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	tidenet "tidemark/internal/net"
	"tidemark/internal/telemetry"
)

// certificateReload is how often a renewed certificate is looked for.
const certificateReload = 10 * time.Second

// errUnauthorized is a request without the token that the node asks for.
var errUnauthorized = errors.New("this node's API asks for its token: name the file with it by --token-file or $TIDEMARK_TOKEN_FILE " +
	"(an Authorization header of \"Bearer TOKEN\"; the node's setting is http.token.file)")

// errReadOnly is a request that the token for reading doesn't cover.
var errReadOnly = errors.New("the token that was shown may only look, and this changes something or gives records or secrets away: show the other one (the node's http.token.file)")

// errCrossOrigin is a change that another site's page had a browser ask for.
var errCrossOrigin = errors.New("a page of another site may change nothing here")

// Access says who may use the API and what secures its connections. The zero value: whoever reaches it, without TLS.
type Access struct {
	// Token is asked for in all requests but those for /healthz and /readyz; empty: none.
	Token string
	// ReadToken, beside Token, lets its holder look: what GET tells, but for records and secrets. Empty: there is none.
	ReadToken string
	// Audit is told of refused requests; nil for none.
	Audit *telemetry.Audit
	// CertFile and KeyFile are PEM files; empty: no TLS. Renewed ones are taken up without a restart.
	CertFile, KeyFile string
}

// secure wraps a listener in TLS, if there is a certificate. Reloads end with ctx.
func (a Access) secure(ctx context.Context, ln net.Listener, log *slog.Logger) (net.Listener, error) {
	if a.CertFile == "" {
		return ln, nil
	}
	key := a.KeyFile
	if key == "" {
		key = a.CertFile
	}
	base := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
	cfg, err := tidenet.ReloadTLS(ctx, base, a.CertFile, key, certificateReload, log)
	if err != nil {
		return nil, fmt.Errorf("http.ssl.keystore.location: %w", err)
	}
	return tls.NewListener(ln, cfg), nil
}

// open are the paths that load balancers ask without a token; they tell nothing but whether the node serves.
var open = map[string]bool{"/healthz": true, "/readyz": true}

// closed are the routes that only read and that the token for reading doesn't cover: they give away records, whose readers
// ACLs choose, or passwords and keys (ADR 22).
var closed = map[string]bool{"GET /api/v1/vault/{id}/export": true, "GET /api/v1/cluster/backup": true}

// guard lets requests through that may be answered: those with a token that covers them, where one is asked for, and none that another
// site's page had a browser send.
func (s *Server) guard(mux *http.ServeMux) http.Handler {
	sites := http.NewCrossOriginProtection()
	sites.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.turnAway(w, r, "site", errCrossOrigin)
	}))
	return sites.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		given, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		_, pattern := mux.Handler(r)
		switch {
		case s.access.Token == "", open[r.URL.Path], bearer && isSecret(given, s.access.Token):
			mux.ServeHTTP(w, r)
		case !bearer || s.access.ReadToken == "" || !isSecret(given, s.access.ReadToken):
			w.Header().Set("WWW-Authenticate", `Bearer realm="tidemark"`)
			s.turnAway(w, r, "token", errUnauthorized)
		case r.Method != http.MethodGet && r.Method != http.MethodHead || closed[pattern]:
			s.turnAway(w, r, "rights", errReadOnly)
		default:
			mux.ServeHTTP(w, r)
		}
	}))
}

// isSecret compares in a time that tells nothing of where two secrets differ.
func isSecret(given, want string) bool {
	a, b := sha256.Sum256([]byte(given)), sha256.Sum256([]byte(want))
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1
}

// turnAway refuses a request for who sent it.
func (s *Server) turnAway(w http.ResponseWriter, r *http.Request, reason string, err error) {
	host, _, splitErr := net.SplitHostPort(r.RemoteAddr)
	if splitErr != nil {
		host = r.RemoteAddr
	}
	s.access.Audit.HTTPRefused(reason, host, r.Method, r.URL.Path)
	s.refuse(w, r, err)
}

// Credentials are what a client of the API shows and trusts. The zero value: nothing, and the system's authorities.
type Credentials struct {
	// TokenFile holds the token; empty: none is shown.
	TokenFile string
	// CAFile is a PEM file with the authorities that sign nodes' certificates; empty: the system's.
	CAFile string
}

// Transport is a client's side of Access: it speaks HTTP or HTTPS and shows the token on each request.
func (c Credentials) Transport() (http.RoundTripper, error) {
	if c == (Credentials{}) {
		return http.DefaultTransport, nil
	}
	cfg, err := tidenet.ClientTLS(c.CAFile)
	if err != nil {
		return nil, err
	}
	plain := http.DefaultTransport.(*http.Transport).Clone()
	plain.TLSClientConfig = cfg
	if c.TokenFile == "" {
		return plain, nil
	}
	token, err := tidenet.ReadToken(c.TokenFile)
	if err != nil {
		return nil, err
	}
	return bearer{token: token, next: plain}, nil
}

// bearer shows a token on each request.
type bearer struct {
	token string
	next  http.RoundTripper
}

// RoundTrip sends a copy of the request with the token.
func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return b.next.RoundTrip(r)
}
