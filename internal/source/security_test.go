package source

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
)

// authority signs certificates for a test.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{}
	a.cert, a.key, a.pem = issue(t, nil, &x509.Certificate{
		Subject: pkix.Name{CommonName: "test authority"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	})
	return a
}

// issue makes a certificate signed by a, or by itself if a is nil.
func issue(t *testing.T, a *authority, template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.NotBefore = time.Now().Add(-time.Hour)
	if template.NotAfter.IsZero() {
		template.NotAfter = time.Now().Add(time.Hour)
	}
	parent, signer := template, key
	if a != nil {
		parent, signer = a.cert, a.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// pair gives a certificate with its key, as a tls.Certificate and as one PEM text.
func (a *authority) pair(t *testing.T, template *x509.Certificate) (tls.Certificate, string) {
	t.Helper()
	_, key, certPEM := issue(t, a, template)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	keyPEM := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	c, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		t.Fatal(err)
	}
	return c, string(certPEM) + string(keyPEM)
}

func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestTLS(t *testing.T) {
	ca, stranger := newAuthority(t), newAuthority(t)
	loopback := []net.IP{net.IPv4(127, 0, 0, 1)}
	good, _ := ca.pair(t, &x509.Certificate{IPAddresses: loopback})
	otherName, _ := ca.pair(t, &x509.Certificate{DNSNames: []string{"kafka.example"}})
	expired, _ := ca.pair(t, &x509.Certificate{IPAddresses: loopback, NotAfter: time.Now().Add(-time.Minute)})
	_, clientPEM := ca.pair(t, &x509.Certificate{Subject: pkix.Name{CommonName: "mirror"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	pool := x509.NewCertPool()
	pool.AddCert(ca.cert)
	trust := map[string]string{"security.protocol": "SSL", "ssl.truststore.location": writeFile(t, "ca.pem", string(ca.pem)), "ssl.truststore.type": "PEM"}
	with := func(more ...string) map[string]string {
		m := map[string]string{}
		for k, v := range trust {
			m[k] = v
		}
		for i := 0; i < len(more); i += 2 {
			m[more[i]] = more[i+1]
		}
		return m
	}
	for _, tc := range []struct {
		name   string
		server *tls.Config
		props  map[string]string
		kind   error
		want   string
	}{
		{"trusted", &tls.Config{Certificates: []tls.Certificate{good}}, trust, nil, ""},
		{"inline trust", &tls.Config{Certificates: []tls.Certificate{good}}, map[string]string{"security.protocol": "SSL", "ssl.truststore.certificates": string(ca.pem)}, nil, ""},
		{"stranger's certificate", &tls.Config{Certificates: []tls.Certificate{good}}, with("ssl.truststore.location", writeFile(t, "other.pem", string(stranger.pem))), ErrTLS, "authority that the trust store lacks"},
		{"another name", &tls.Config{Certificates: []tls.Certificate{otherName}}, trust, ErrTLS, `is for kafka.example, not for "127.0.0.1"`},
		{"another name, not checked", &tls.Config{Certificates: []tls.Certificate{otherName}}, with("ssl.endpoint.identification.algorithm", ""), nil, ""},
		{"stranger, name not checked", &tls.Config{Certificates: []tls.Certificate{good}}, with("ssl.endpoint.identification.algorithm", "", "ssl.truststore.location", writeFile(t, "other.pem", string(stranger.pem))), ErrTLS, "trust store"},
		{"expired", &tls.Config{Certificates: []tls.Certificate{expired}}, trust, ErrTLS, "not valid"},
		{"client certificate wanted", &tls.Config{Certificates: []tls.Certificate{good}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool}, trust, ErrTLS, "ssl.keystore.location"},
		{"client certificate given", &tls.Config{Certificates: []tls.Certificate{good}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool}, with("ssl.keystore.location", writeFile(t, "me.pem", clientPEM)), nil, ""},
		{"TLS to a plain port", nil, trust, ErrTimeout, "does the port speak TLS"},
		{"plain to a TLS port", &tls.Config{Certificates: []tls.Certificate{good}}, map[string]string{}, ErrUnreachable, "does security.protocol fit the port"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			opts := []kfake.Opt{kfake.NumBrokers(1)}
			if tc.server != nil {
				opts = append(opts, kfake.TLS(tc.server))
			}
			k := newKfake(t, opts...)
			tc.props["socket.connection.setup.timeout.ms"] = "1000"
			_, err := openTo(t, k.ListenAddrs(), tc.props, Options{}).Metadata(t.Context(), nil)
			checkKind(t, err, tc.kind, tc.want)
		})
	}
}

// checkKind wants an error of the kind with the words, or none.
func checkKind(t *testing.T, err, kind error, want string) {
	t.Helper()
	switch {
	case kind == nil && err != nil:
		t.Errorf("got %v, want none", err)
	case kind != nil && (!errors.Is(err, kind) || !strings.Contains(err.Error(), want)):
		t.Errorf("got %v, want %v with %q", err, kind, want)
	}
}

func TestSASL(t *testing.T) {
	jaas := func(module, user, password string) string {
		return module + ` required username="` + user + `" password="` + password + `";`
	}
	for _, tc := range []struct {
		name, mechanism, module, password string
		kind                              error
		want                              string
	}{
		{"plain", "PLAIN", "PlainLoginModule", "right", nil, ""},
		{"scram 256", "SCRAM-SHA-256", "ScramLoginModule", "right", nil, ""},
		{"scram 512", "SCRAM-SHA-512", "ScramLoginModule", "right", nil, ""},
		{"plain, wrong password", "PLAIN", "PlainLoginModule", "wrong", ErrAuth, `"mirror"`},
		{"scram 256, wrong password", "SCRAM-SHA-256", "ScramLoginModule", "wrong", ErrAuth, `"mirror"`},
		{"scram 512, wrong password", "SCRAM-SHA-512", "ScramLoginModule", "wrong", ErrAuth, `"mirror"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			k := newKfake(t, kfake.NumBrokers(1), kfake.EnableSASL(), kfake.Superuser(tc.mechanism, "mirror", "right"))
			_, err := openTo(t, k.ListenAddrs(), map[string]string{
				"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": tc.mechanism, "sasl.jaas.config": jaas(tc.module, "mirror", tc.password),
				"socket.connection.setup.timeout.ms": "5000",
			}, Options{}).Metadata(t.Context(), nil)
			checkKind(t, err, tc.kind, tc.want)
		})
	}
	t.Run("no log-in where one is wanted", func(t *testing.T) {
		k := newKfake(t, kfake.NumBrokers(1), kfake.EnableSASL(), kfake.Superuser("PLAIN", "mirror", "right"))
		_, err := openTo(t, k.ListenAddrs(), nil, Options{}).Metadata(t.Context(), nil)
		checkKind(t, err, ErrAuth, "may want SASL")
	})
}
