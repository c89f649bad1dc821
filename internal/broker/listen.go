package broker

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"tidemark/internal/auth"
	"tidemark/internal/config"
	"tidemark/internal/core/meta"
	"tidemark/internal/net"
	"tidemark/internal/telemetry"
	"tidemark/internal/wire"
)

// certificateReload is how often the certificate files are looked at.
const certificateReload = 10 * time.Second

// gate holds requests back until the node is ready: the listeners are bound
// early, so that a busy port is found before anything is written.
type gate struct {
	once  sync.Once
	open  chan struct{}
	gone  sync.Once
	ended chan struct{} // closed when it will never open
	inner net.Handler
	count *telemetry.Requests
}

func newGate(count *telemetry.Requests) *gate {
	return &gate{open: make(chan struct{}), ended: make(chan struct{}), count: count}
}

// errNeverReady closes the connections of those who waited for a node that could not start.
var errNeverReady = errors.New("the node could not start")

// release lets requests through to h.
func (g *gate) release(h net.Handler) {
	g.once.Do(func() {
		g.inner = h
		close(g.open)
	})
}

// Handle implements net.Handler.
func (g *gate) Handle(ctx context.Context, req *wire.Request) (*wire.Response, error) {
	select {
	case <-g.open:
		return g.measured(ctx, req)
	case <-g.ended:
		return nil, errNeverReady
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// measured handles a request and counts it.
func (g *gate) measured(ctx context.Context, req *wire.Request) (*wire.Response, error) {
	name, from := req.Key.String(), time.Now()
	resp, err := g.inner.Handle(ctx, req)
	g.count.Count.WithLabelValues(name, strconv.Itoa(int(req.Version))).Inc()
	g.count.TimeMs.WithLabelValues(name).Observe(float64(time.Since(from).Microseconds()) / 1000)
	if err != nil {
		g.count.Closed.WithLabelValues(name).Inc()
	}
	return resp, err
}

// Drain implements net.Drainer. A start that failed must not wait for requests
// that wait for it.
func (g *gate) Drain() {
	select {
	case <-g.open:
		if d, ok := g.inner.(net.Drainer); ok {
			d.Drain()
		}
	default:
		g.gone.Do(func() { close(g.ended) })
	}
}

// listen binds every listener and works out what is advertised.
func (b *Broker) listen(context.Context) error {
	c := b.cfg
	memory := c.QueuedMaxRequestBytes
	if memory < 0 {
		memory = 1 << 62
	}
	b.server = net.NewServer(net.Options{
		Handler: b.gate, Logger: b.logger, Audit: b.audit, MaxFrameBytes: c.SocketRequestMaxBytes, MemoryBytes: memory,
		MaxConns: int(c.MaxConnections), MaxConnsPerIP: int(c.MaxConnectionsPerIP),
		IdleTimeout: time.Duration(c.ConnectionsMaxIdleMs) * time.Millisecond,
	})
	bound := make(map[string]int32)
	logins := b.verifier()
	for _, l := range c.Listeners {
		nl := net.Listener{Name: l.Name, Address: l.Addr(), PrincipalOf: auth.CertificatePrincipal}
		if c.HasSASL(l.Name) {
			nl.Login = func(secure bool) wire.Login { return logins.NewLogin(secure) }
		}
		if c.HasTLS(l.Name) {
			cfg, err := b.tlsConfig()
			if err != nil {
				return fmt.Errorf("listener %s: %w", l.Name, err)
			}
			nl.TLS = cfg
		}
		addr, err := b.server.Listen(nl)
		if err != nil {
			return err
		}
		port, err := portOf(addr.String())
		if err != nil {
			return err
		}
		bound[l.Name] = port
	}
	return b.advertise(bound)
}

func portOf(addr string) (int32, error) {
	i := strings.LastIndexByte(addr, ':')
	var port int32
	_, err := fmt.Sscanf(addr[i+1:], "%d", &port)
	return port, err
}

// advertise fills in what the configuration leaves open: the bound port, this host's name.
func (b *Broker) advertise(bound map[string]int32) error {
	for _, l := range b.cfg.AdvertisedListeners {
		if l.Port == 0 {
			l.Port = bound[l.Name]
		}
		if l.Host == "" || l.Host == "0.0.0.0" || l.Host == "::" {
			host, err := os.Hostname()
			if err != nil {
				return fmt.Errorf("listener %s: advertised.listeners is needed, because this host's name is unknown: %w", l.Name, err)
			}
			l.Host = host
		}
		b.addrs = append(b.addrs, meta.Endpoint{Listener: l.Name, Host: l.Host, Port: l.Port, Security: b.cfg.Protocol(l.Name)})
	}
	return nil
}

func (b *Broker) tlsConfig() (*tls.Config, error) {
	base := &tls.Config{MinVersion: tls.VersionTLS12}
	if file := b.cfg.SSLTruststoreLocation; file != "" {
		pem, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("ssl.truststore.location: %w", err)
		}
		base.ClientCAs = x509.NewCertPool()
		if !base.ClientCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("ssl.truststore.location: %s holds no certificate in PEM", file)
		}
	}
	switch b.cfg.SSLClientAuth {
	case "required":
		base.ClientAuth = tls.RequireAndVerifyClientCert
	case "requested":
		base.ClientAuth = tls.VerifyClientCertIfGiven
	}
	key := b.cfg.SSLKeyLocation
	if key == "" {
		key = b.cfg.SSLKeystoreLocation
	}
	return net.ReloadTLS(b.ctx, base, b.cfg.SSLKeystoreLocation, key, certificateReload, b.logger)
}

func (b *Broker) describeListeners() string {
	var out []string
	for _, e := range b.addrs {
		out = append(out, config.Listener{Name: e.Listener, Host: e.Host, Port: e.Port}.String())
	}
	return strings.Join(out, ",")
}
