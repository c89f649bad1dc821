package net

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"
)

// ReloadTLS gives a TLS configuration that shows the certificate in certFile
// and keyFile (PEM), as a server and as a client, made from base (nil: TLS 1.2 and up), and looks for new
// ones every interval until ctx ends. Connections made after a reload get the
// new certificate. Files that can't be read are logged and the certificate in
// use stays: renewal writes two files, not one.
func ReloadTLS(ctx context.Context, base *tls.Config, certFile, keyFile string, interval time.Duration, log *slog.Logger) (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return nil, fmt.Errorf("load certificate %s: %w", certFile, err)
	}
	var current atomic.Pointer[tls.Certificate]
	current.Store(&pair)
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if base != nil {
		cfg = base.Clone()
	}
	cfg.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return current.Load(), nil }
	cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return current.Load(), nil }
	go func() {
		seen := stamp(certFile) + stamp(keyFile)
		tick := time.NewTicker(interval)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			now := stamp(certFile) + stamp(keyFile)
			if now == seen {
				continue
			}
			pair, err := tls.LoadX509KeyPair(certFile, keyFile)
			if err != nil {
				log.Warn("new certificate can't be used, the old one stays", "file", certFile, "error", err)
				continue
			}
			seen = now
			current.Store(&pair)
			log.Info("certificate reloaded", "file", certFile)
		}
	}()
	return cfg, nil
}

// stamp changes when the file does.
func stamp(name string) string {
	fi, err := os.Stat(name)
	if err != nil {
		return "-"
	}
	return fmt.Sprint(fi.ModTime().UnixNano(), "/", fi.Size(), " ")
}
