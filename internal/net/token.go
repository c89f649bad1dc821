package net

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
)

// Bounds of a token, in bytes: shorter ones can be guessed, longer ones don't fit a header.
const (
	tokenBytesMin = 16
	tokenBytesMax = 4096
)

// ReadToken reads the secret that the HTTP admin API asks for: one line of 16 to 4,096 printable ASCII characters, in a file that only
// its owner (and group) may read.
func ReadToken(file string) (string, error) {
	fi, err := os.Stat(file)
	if err != nil {
		return "", fmt.Errorf("token file: %w", err)
	}
	if fi.Mode().Perm()&0o007 != 0 {
		return "", fmt.Errorf("token file %s is open to everyone on this machine (mode %o): chmod 600 it, and take a new token", file, fi.Mode().Perm())
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("token file: %w", err)
	}
	token := bytes.TrimSpace(raw)
	if len(token) < tokenBytesMin || len(token) > tokenBytesMax {
		return "", fmt.Errorf("token file %s: %d characters; a token has %d to %d: `openssl rand -hex 32` makes one", file, len(token), tokenBytesMin, tokenBytesMax)
	}
	for _, c := range token {
		if c <= ' ' || c > '~' {
			return "", fmt.Errorf("token file %s: a token is one line of printable ASCII without spaces: `openssl rand -hex 32` makes one", file)
		}
	}
	return string(token), nil
}

// ClientTLS trusts the authorities in a PEM file; empty: the system's.
func ClientTLS(truststore string) (*tls.Config, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if truststore == "" {
		return cfg, nil
	}
	pem, err := os.ReadFile(truststore)
	if err != nil {
		return nil, fmt.Errorf("authorities of the HTTP API: %w", err)
	}
	cfg.RootCAs = x509.NewCertPool()
	if !cfg.RootCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("authorities of the HTTP API: %s holds no certificate in PEM", truststore)
	}
	return cfg, nil
}
