package etcd

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strings"
	"time"
)

// TLSFiles are PEM files: who we are, and whom we believe. They are read again
// for each connection, so that a renewed certificate needs no restart.
type TLSFiles struct {
	// Cert holds the certificate chain, Key the private key (empty: it is in Cert
	// too). Both are empty for a client that shows no certificate.
	Cert, Key string
	// CA holds the authorities that may sign the other side's certificate.
	CA string
}

// KeyFile is the file that holds the private key.
func (f *TLSFiles) KeyFile() string {
	if f.Key == "" {
		return f.Cert
	}
	return f.Key
}

// Config makes a client's configuration. Its errors name the file and what is missing in it.
func (f *TLSFiles) Config() (*tls.Config, error) {
	text, err := os.ReadFile(f.CA)
	if err != nil {
		return nil, fmt.Errorf("metadata.ssl.truststore.location: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("metadata.ssl.truststore.location: %s holds no certificate in PEM form (%s)", f.CA, firstBlock(text))
	}
	cfg := &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"}}
	if f.Cert == "" {
		return cfg, nil
	}
	if _, err := f.pair(); err != nil {
		return nil, err
	}
	cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return f.pair() }
	return cfg, nil
}

func (f *TLSFiles) pair() (*tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(f.Cert, f.KeyFile())
	if err != nil {
		return nil, fmt.Errorf("metadata.ssl.keystore.location %s, metadata.ssl.key.location %s: %w", f.Cert, f.KeyFile(), err)
	}
	return &pair, nil
}

func firstBlock(text []byte) string {
	if block, _ := pem.Decode(text); block != nil {
		return "it begins with a " + block.Type
	}
	return "it isn't PEM"
}

// probeTimeout bounds one look at an endpoint.
const probeTimeout = 3 * time.Second

// Probe looks at one address as a client would, and says in a sentence what is
// in the way: nobody listens, the other side speaks another protocol, or one doesn't
// believe the other's certificate. cfg is nil for plain connections.
func Probe(ctx context.Context, endpoint string, cfg *tls.Config) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	host := endpoint
	if u, err := url.Parse(endpoint); err == nil && u.Host != "" {
		host = u.Host
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", host)
	if err != nil {
		return fmt.Errorf("%s: nobody answers there: %w", host, err)
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(deadline) // a connection without one fails below
	}
	if cfg == nil {
		return greet(host, conn)
	}
	cfg = cfg.Clone()
	if name, _, err := net.SplitHostPort(host); err == nil && cfg.ServerName == "" {
		cfg.ServerName = name
	}
	secure := tls.Client(conn, cfg)
	if err := secure.HandshakeContext(ctx); err != nil {
		return handshakeFault(host, err)
	}
	// In TLS 1.3 a server that doesn't like our certificate says so after our handshake is done.
	if err := greet(host, secure); err != nil {
		return handshakeFault(host, err)
	}
	return nil
}

// preface is how HTTP/2 begins, with empty settings; a server answers with its own.
const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"

func greet(host string, conn net.Conn) error {
	if _, err := conn.Write([]byte(preface)); err != nil {
		return fmt.Errorf("%s: %w", host, err)
	}
	first := make([]byte, 1)
	switch _, err := io.ReadFull(conn, first); {
	case err != nil:
		return fmt.Errorf("%s: it ends the connection: does it want TLS? (metadata.ssl.truststore.location and metadata.ssl.keystore.location): %w", host, err)
	case first[0] == tlsAlert:
		return fmt.Errorf("%s: it wants TLS: set metadata.ssl.truststore.location and metadata.ssl.keystore.location", host)
	}
	return nil
}

// tlsAlert is the first byte of what a TLS server answers to plain text.
const tlsAlert = 0x15

// handshakeFault says what a failed handshake means, and what to change.
func handshakeFault(host string, err error) error {
	var unknown x509.UnknownAuthorityError
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	var header tls.RecordHeaderError
	var alert tls.AlertError
	switch text := err.Error(); {
	case errors.As(err, &unknown):
		return fmt.Errorf("%s: its certificate isn't signed by an authority in this node's metadata.ssl.truststore.location: %w", host, err)
	case errors.As(err, &name):
		return fmt.Errorf("%s: its certificate isn't made for that name: make one that lists it, or set metadata.host there to a name that it lists: %w", host, err)
	case errors.As(err, &invalid):
		return fmt.Errorf("%s: its certificate can't be used: %w", host, err)
	case errors.As(err, &header):
		return fmt.Errorf("%s: it speaks no TLS; set metadata.ssl.keystore.location and metadata.ssl.truststore.location there too, or leave them out here: %w", host, err)
	case errors.As(err, &alert), strings.Contains(text, "remote error: tls"):
		return fmt.Errorf("%s: it doesn't accept this node's certificate (metadata.ssl.keystore.location): an authority in its metadata.ssl.truststore.location must have signed it: %w", host, err)
	}
	return fmt.Errorf("%s: %w", host, err)
}

// explain adds to a failure to use any endpoint what is in the way of each.
func explain(ctx context.Context, o DialOptions, err error) error {
	if says := authFault(err); says != "" {
		return fmt.Errorf("%w: %s", err, says)
	}
	return Explain(ctx, o.Endpoints, o.TLS, err)
}

// Explain adds to a failure to reach any of several endpoints what is in the way of each.
func Explain(ctx context.Context, endpoints []string, cfg *tls.Config, err error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), probeTimeout)
	defer cancel()
	found := make([]error, len(endpoints))
	done := make(chan int)
	for i, endpoint := range endpoints {
		go func() {
			found[i] = Probe(ctx, endpoint, cfg)
			done <- i
		}()
	}
	for range endpoints {
		<-done
	}
	if why := errors.Join(found...); why != nil {
		return fmt.Errorf("%w: %s", err, strings.ReplaceAll(why.Error(), "\n", "; "))
	}
	return err
}
