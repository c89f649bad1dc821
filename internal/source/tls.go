package source

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
)

// tlsFromProperties builds the client's TLS settings from the ssl.* properties
// (KIP-651 for PEM). Without a trust store the system's roots are used, as in Java.
func tlsFromProperties(props map[string]string) (*tls.Config, error) {
	t := &tls.Config{MinVersion: tls.VersionTLS12}
	if err := setTLSVersions(t, props); err != nil {
		return nil, err
	}
	trust, err := pemProperty(props, "ssl.truststore", "ssl.truststore.certificates")
	if err != nil {
		return nil, err
	}
	if trust != nil {
		t.RootCAs = x509.NewCertPool()
		if !t.RootCAs.AppendCertsFromPEM(trust) {
			return nil, configError("ssl.truststore", "holds no PEM certificate")
		}
	}
	if err := setKeyPair(t, props); err != nil {
		return nil, err
	}
	algorithm, set := props["ssl.endpoint.identification.algorithm"]
	switch {
	case !set || strings.EqualFold(algorithm, "https"):
	case strings.TrimSpace(algorithm) == "":
		verifyChainOnly(t)
	default:
		return nil, configError("ssl.endpoint.identification.algorithm", "%q is not supported; https, or empty to accept any host name", algorithm)
	}
	return t, nil
}

func setTLSVersions(t *tls.Config, props map[string]string) error {
	known := map[string]uint16{"TLSv1.2": tls.VersionTLS12, "TLSv1.3": tls.VersionTLS13}
	names := splitList(props["ssl.enabled.protocols"])
	if len(names) == 0 {
		return nil
	}
	t.MinVersion, t.MaxVersion = 0, 0
	for _, n := range names {
		v, ok := known[n]
		if !ok {
			return configError("ssl.enabled.protocols", "%q is not supported; TLSv1.2 and TLSv1.3 are", n)
		}
		if t.MinVersion == 0 || v < t.MinVersion {
			t.MinVersion = v
		}
		t.MaxVersion = max(t.MaxVersion, v)
	}
	return nil
}

// setKeyPair loads the client's certificate, if there is one.
func setKeyPair(t *tls.Config, props map[string]string) error {
	var chain, key []byte
	switch {
	case props["ssl.keystore.key"] != "" || props["ssl.keystore.certificate.chain"] != "":
		chain, key = []byte(props["ssl.keystore.certificate.chain"]), []byte(props["ssl.keystore.key"])
		if len(chain) == 0 || len(key) == 0 {
			return configError("ssl.keystore", "ssl.keystore.key and ssl.keystore.certificate.chain must be set together")
		}
	case props["ssl.keystore.location"] != "":
		both, err := pemProperty(props, "ssl.keystore", "")
		if err != nil {
			return err
		}
		chain, key = both, both
	default:
		return nil
	}
	if encrypted(key) {
		return configError("ssl.keystore", "the private key is encrypted; write it in the clear into a file that only the broker's user can read: openssl pkcs8 -in key.pem -out clear.pem")
	}
	pair, err := tls.X509KeyPair(chain, key)
	if err != nil {
		return &Error{Kind: ErrConfig, Op: "ssl.keystore", Sentence: "key and certificate can't be used", Cause: err}
	}
	t.Certificates = []tls.Certificate{pair}
	return nil
}

func encrypted(key []byte) bool {
	for {
		var block *pem.Block
		if block, key = pem.Decode(key); block == nil {
			return false
		}
		if block.Type == "ENCRYPTED PRIVATE KEY" || strings.Contains(block.Headers["Proc-Type"], "ENCRYPTED") {
			return true
		}
	}
}

// pemProperty gives the PEM text of prefix.location or of the inline key, nil if neither is set.
func pemProperty(props map[string]string, prefix, inline string) ([]byte, error) {
	location := props[prefix+".location"]
	kind := strings.ToUpper(strings.TrimSpace(props[prefix+".type"]))
	wayOut := "convert it to PEM (keytool -importkeystore … -deststoretype PKCS12, then openssl pkcs12 -in store.p12 -out store.pem -nodes) and set " + prefix + ".type=PEM"
	switch kind {
	case "", "PEM":
	case "JKS", "PKCS12", "BCFKS":
		return nil, configError(prefix+".type", "%s stores can't be read; %s", kind, wayOut)
	default:
		return nil, configError(prefix+".type", "%q is not supported; PEM is", kind)
	}
	if inline != "" && props[inline] != "" {
		if location != "" {
			return nil, configError(inline, "can't be set together with %s.location", prefix)
		}
		return []byte(props[inline]), nil
	}
	if location == "" {
		return nil, nil
	}
	data, err := os.ReadFile(location)
	if err != nil {
		return nil, &Error{Kind: ErrConfig, Op: prefix + ".location", Sentence: "can't be read", Cause: err}
	}
	switch {
	case bytes.HasPrefix(data, []byte{0xFE, 0xED, 0xFE, 0xED}):
		return nil, configError(prefix+".location", "%s is a JKS store; %s", location, wayOut)
	case bytes.HasPrefix(data, []byte{0x30}) && !bytes.Contains(data, []byte("-----BEGIN")):
		return nil, configError(prefix+".location", "%s is a PKCS12 or DER file; %s", location, wayOut)
	case !bytes.Contains(data, []byte("-----BEGIN")):
		return nil, configError(prefix+".location", "%s is not a PEM file; %s", location, wayOut)
	}
	return data, nil
}

// verifyChainOnly accepts any host name but still wants a trusted chain, which
// is what Java does with an empty identification algorithm.
func verifyChainOnly(t *tls.Config) {
	t.InsecureSkipVerify = true // the chain is verified below; only the name is not
	t.VerifyConnection = func(s tls.ConnectionState) error {
		if len(s.PeerCertificates) == 0 {
			return errors.New("the broker sent no certificate")
		}
		rest := x509.NewCertPool()
		for _, c := range s.PeerCertificates[1:] {
			rest.AddCert(c)
		}
		_, err := s.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: t.RootCAs, Intermediates: rest})
		return err
	}
}

// handshakeTLS turns a TCP connection into a TLS one.
func handshakeTLS(ctx context.Context, nc net.Conn, t *tls.Config, address string) (net.Conn, error) {
	host, _, _ := net.SplitHostPort(address)
	t = t.Clone()
	t.ServerName = host
	tc := tls.Client(nc, t)
	if err := tc.HandshakeContext(ctx); err != nil {
		return nil, tlsError(ctx, address, host, err)
	}
	return tc, nil
}

// tlsError says in the operator's words why a handshake failed.
func tlsError(ctx context.Context, address, host string, err error) error {
	e := &Error{Kind: ErrTLS, Broker: address, Op: "TLS handshake", Cause: err}
	var name x509.HostnameError
	var unknown x509.UnknownAuthorityError
	var invalid x509.CertificateInvalidError
	var record tls.RecordHeaderError
	switch {
	case errors.As(err, &name):
		e.Sentence = fmt.Sprintf("the broker's certificate is for %s, not for %q; connect by a name that it has, or set ssl.endpoint.identification.algorithm to empty",
			certificateNames(name.Certificate), host)
		e.Cause = nil
	case errors.As(err, &unknown):
		e.Sentence = "the broker's certificate is signed by an authority that the trust store lacks; add it to ssl.truststore.location"
	case errors.As(err, &invalid):
		e.Sentence = "the broker's certificate is not valid"
	case errors.As(err, &record):
		e.Sentence = "the broker doesn't speak TLS on this port; check security.protocol and the port"
		e.Cause = nil
	case isAlert(err):
		return alertError(address, err)
	case errors.Is(err, io.EOF):
		e.Sentence = "the broker closed the connection; does the port speak TLS?"
		e.Cause = nil
	case ctx.Err() != nil:
		e.Kind, e.Sentence = ErrTimeout, "no answer in time; does the port speak TLS?"
	default:
		var ne *net.OpError
		if errors.As(err, &ne) && !strings.Contains(err.Error(), "tls:") {
			return ioError(address, "TLS handshake", err)
		}
		e.Sentence = "failed (does the port speak TLS, and does it want a client certificate?)"
	}
	return e
}

// isAlert reports whether the broker answered with a TLS alert. With TLS 1.3 the
// refusal of a client certificate comes only after the handshake.
func isAlert(err error) bool { return strings.Contains(err.Error(), "remote error: tls:") }

func alertError(address string, err error) error {
	return &Error{Kind: ErrTLS, Broker: address, Op: "TLS", Cause: err,
		Sentence: "the broker refused the connection; if it wants client certificates, set ssl.keystore.location"}
}

func certificateNames(c *x509.Certificate) string {
	names := append([]string(nil), c.DNSNames...)
	for _, ip := range c.IPAddresses {
		names = append(names, ip.String())
	}
	if len(names) == 0 {
		return fmt.Sprintf("subject %q without alternative names", c.Subject.CommonName)
	}
	return strings.Join(names, ", ")
}
