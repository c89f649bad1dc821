package telemetry

import (
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Security counts log-ins and refusals.
type Security struct {
	LogIns, FailedLogIns *prometheus.CounterVec // listener, mechanism
	FailedHandshakes     *prometheus.CounterVec // listener
	Denials              *prometheus.CounterVec // operation, resource
	HTTPRefused          *prometheus.CounterVec // reason
	// Untold counts audit lines that were left out for their number.
	Untold prometheus.Counter
}

func newSecurity(r prometheus.Registerer) *Security {
	const p = "kafka_server_socketservermetrics_"
	return &Security{
		LogIns:           counterVec(r, p+"successful_authentication_total", "Log-ins by SASL that succeeded, renewals included, by listener and mechanism.", "listener", "mechanism"),
		FailedLogIns:     counterVec(r, p+"failed_authentication_total", "Log-ins by SASL that were refused, by listener and mechanism; OTHER is a mechanism that isn't taken.", "listener", "mechanism"),
		FailedHandshakes: counterVec(r, p+"failed_tls_handshake_total", "TLS handshakes of clients that failed, for a certificate that isn't trusted among others, by listener.", "listener"),
		Denials:          counterVec(r, "tidemark_security_denials_total", "Operations of clients that the ACLs denied, by operation and type of resource. What a list leaves out for lack of permission isn't counted.", "operation", "resource"),
		HTTPRefused:      counterVec(r, "tidemark_http_refused_total", "Requests that the HTTP API refused, by reason: token (none, or a wrong one), rights (a token for reading alone) or site (another site's page).", "reason"),
		Untold:           counter(r, "tidemark_security_untold_lines_total", "Audit lines left out of the log because there were too many. What they would have said is in the other counters."),
	}
}

const (
	// auditPause is how long a line that says the same isn't written again.
	auditPause = time.Minute
	// auditKeysMax bounds the lines that are remembered for that.
	auditKeysMax = 1024
	// auditBurst lines may come at once; auditRate, a second, is what is allowed on the whole.
	auditBurst, auditRate = 50, 5.0
	// auditTextMax bounds, in bytes, what a client said of itself in a line.
	auditTextMax = 128
)

// Audit counts refusals and log-ins, and writes a line of each kind of refusal: a
// client that is refused a thousand times a second makes one line a minute, which
// says how many there were, and all clients together a bounded number. All methods
// may be called on nil, by any goroutine.
type Audit struct {
	m   *Security
	log *slog.Logger
	now func() time.Time

	mu sync.Mutex
	// guards the following
	told   map[string]*toldLine
	room   float64 // lines that may be written now
	filled time.Time
	untold int64 // since the last line
}

// toldLine is what is remembered of a line.
type toldLine struct {
	at      time.Time
	repeats int64 // since then
}

// NewAudit makes the audit of a node that counts in m and writes to log.
func NewAudit(m *Metrics, log *slog.Logger) *Audit {
	return &Audit{m: m.Security, log: log, now: time.Now, told: make(map[string]*toldLine), room: auditBurst}
}

// Denial is an operation that the ACLs denied.
type Denial struct {
	Principal, Host, Listener, Client, API string
	Operation, Resource, Name              string
}

// Denied counts and tells a denial.
func (a *Audit) Denied(d Denial) {
	if a == nil {
		return
	}
	a.m.Denials.WithLabelValues(d.Operation, d.Resource).Inc()
	a.tell("denied", []string{d.Principal, d.Host, d.Operation, d.Resource, d.Name},
		"principal", d.Principal, "host", d.Host, "operation", d.Operation, "resource", d.Resource, "name", d.Name,
		"api", d.API, "listener", d.Listener, "client", d.Client)
}

// LogIn is an attempt to log in by SASL. User is what the client said, and proves nothing.
type LogIn struct {
	Mechanism, User, Host, Listener, Client, Reason string
}

// LoggedIn counts a log-in that succeeded.
func (a *Audit) LoggedIn(l LogIn) {
	if a != nil {
		a.m.LogIns.WithLabelValues(l.Listener, l.Mechanism).Inc()
	}
}

// LogInRefused counts and tells one that didn't.
func (a *Audit) LogInRefused(l LogIn) {
	if a == nil {
		return
	}
	mechanism := l.Mechanism
	if mechanism == "" {
		mechanism = "OTHER"
	}
	a.m.FailedLogIns.WithLabelValues(l.Listener, mechanism).Inc()
	a.tell("log-in refused", []string{l.User, l.Host, l.Listener, l.Reason},
		"user", l.User, "host", l.Host, "mechanism", mechanism, "listener", l.Listener, "client", l.Client, "reason", l.Reason)
}

// HandshakeFailed counts and tells a TLS handshake that failed.
func (a *Audit) HandshakeFailed(listener, host string, err error) {
	if a == nil {
		return
	}
	a.m.FailedHandshakes.WithLabelValues(listener).Inc()
	a.tell("TLS handshake failed", []string{host, listener}, "host", host, "listener", listener, "reason", err.Error())
}

// HTTPRefused counts and tells a request that the HTTP API refused.
func (a *Audit) HTTPRefused(reason, host, method, path string) {
	if a == nil {
		return
	}
	a.m.HTTPRefused.WithLabelValues(reason).Inc()
	a.tell("HTTP request refused", []string{reason, host, method, path}, "reason", reason, "host", host, "method", method, "path", path)
}

// tell writes a line unless one with the same key was written a moment ago, or too
// many lines were.
func (a *Audit) tell(what string, key []string, attrs ...string) {
	repeats, untold, ok := a.admit(what + "\x00" + strings.Join(key, "\x00"))
	if !ok {
		return
	}
	args := []any{"audit", true}
	for i := 0; i < len(attrs); i += 2 {
		args = append(args, attrs[i], clipped(attrs[i+1]))
	}
	if repeats > 0 {
		args = append(args, "repeats", repeats)
	}
	if untold > 0 {
		args = append(args, "untold", untold)
	}
	a.log.Warn(what, args...)
}

// clipped bounds what somebody else wrote.
func clipped(s string) string {
	if len(s) <= auditTextMax {
		return s
	}
	return strings.ToValidUTF8(s[:auditTextMax], "") + "..."
}

// admit decides whether a line is written now, and gives how often it wasn't since it last was.
func (a *Audit) admit(key string) (repeats, untold int64, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now()
	a.room = min(auditBurst, a.room+auditRate*max(0, now.Sub(a.filled).Seconds()))
	a.filled = now
	line := a.told[key]
	switch {
	case line != nil && now.Sub(line.at) < auditPause:
		line.repeats++
		return 0, 0, false
	case a.room < 1:
		a.untold++
		a.m.Untold.Inc()
		return 0, 0, false
	}
	a.room--
	if line == nil {
		a.forget(now)
		line = &toldLine{}
		a.told[key] = line
	}
	repeats, untold = line.repeats, a.untold
	*line, a.untold = toldLine{at: now}, 0
	return repeats, untold, true
}

// forget makes room for one more line to be remembered.
func (a *Audit) forget(now time.Time) {
	if len(a.told) < auditKeysMax {
		return
	}
	for key, line := range a.told {
		if now.Sub(line.at) >= auditPause {
			delete(a.told, key)
		}
	}
	if len(a.told) >= auditKeysMax {
		clear(a.told)
	}
}
