//go:build kafka

package kafka_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"tidemark/internal/compare"
	"tidemark/test/kafka/cluster"
)

// certificate makes a self-signed certificate for the names and gives it and its key as PEM.
func certificate(t *testing.T, names ...string) (certPEM, keyPEM string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: names[0]}, DNSNames: names, IsCA: true,
		BasicConstraintsValid: true, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}))
}

// oneLine writes PEM as Java's properties take it.
func oneLine(pemText string) string {
	return strings.ReplaceAll(strings.TrimSpace(pemText), "\n", "\\n")
}

func writeFile(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func sslProps(certPEM, keyPEM string) map[string]string {
	return map[string]string{"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": oneLine(certPEM), "ssl.keystore.key": oneLine(keyPEM),
		"ssl.client.auth": "none"}
}

func tlsOf(t *testing.T, certPEM, serverName string) *tls.Config {
	t.Helper()
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM([]byte(certPEM))
	return &tls.Config{RootCAs: pool, ServerName: serverName}
}

func fillTopic(ctx context.Context, t *testing.T, cl *kgo.Client, topic string, n int) {
	t.Helper()
	createTopic(ctx, t, cl, topic, 1, 1)
	for i := range n {
		cl.Produce(ctx, &kgo.Record{Topic: topic, Value: []byte(fmt.Sprint("v", i))}, nil)
	}
	if err := cl.Flush(ctx); err != nil {
		t.Fatal(err)
	}
}

// TestSourceOverTLS mirrors over TLS, and says what is wrong with a certificate that doesn't match the address.
func TestSourceOverTLS(t *testing.T) {
	ctx := testContext(t, 4*time.Minute)
	t.Run("match", func(t *testing.T) {
		certPEM, keyPEM := certificate(t, "localhost")
		kafka := cluster.Start(t, cluster.Options{Listener: "SSL", Host: "localhost", Props: sslProps(certPEM, keyPEM)})
		cl := client(t, kafka.Bootstrap(), kgo.DialTLSConfig(tlsOf(t, certPEM, "localhost")))
		fillTopic(ctx, t, cl, "secret", 100)
		config := writeFile(t, "client.properties", "security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location="+writeFile(t, "ca.pem", certPEM)+"\n")
		standby := startStandby(t, kafka.Bootstrap(), "--source-config", config)
		standby.waitCaughtUp(30*time.Second, ends(ctx, t, cl, "secret"))
		mustBeEqual(ctx, t, cl, client(t, standby.kafka), []string{"secret"}, compare.Options{})
	})
	t.Run("mismatch", func(t *testing.T) {
		certPEM, keyPEM := certificate(t, "elsewhere.example")
		kafka := cluster.Start(t, cluster.Options{Listener: "SSL", Host: "localhost", Props: sslProps(certPEM, keyPEM)})
		config := writeFile(t, "client.properties", "security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location="+writeFile(t, "ca.pem", certPEM)+"\n")
		standby := startStandby(t, kafka.Bootstrap(), "--source-config", config)
		standby.waitSaid(30*time.Second, "certificate", "elsewhere.example")
	})
}

// TestSourceWithPasswords mirrors over SASL PLAIN and SCRAM, and says so when the password is wrong.
func TestSourceWithPasswords(t *testing.T) {
	ctx := testContext(t, 5*time.Minute)
	jaas := func(module, user, password string) string {
		return fmt.Sprintf("org.apache.kafka.common.security.%s required username=%q password=%q;", module, user, password)
	}
	kafka := cluster.Start(t, cluster.Options{Listener: "SASL_PLAINTEXT", FormatArgs: []string{"--add-scram", "SCRAM-SHA-256=[name=bob,password=bobs]",
		"--add-scram", "SCRAM-SHA-512=[name=bob,password=bobs]"},
		Props: map[string]string{"sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
			"listener.name.client.plain.sasl.jaas.config":         `org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="alices";`,
			"listener.name.client.scram-sha-256.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required;",
			"listener.name.client.scram-sha-512.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required;"}})
	cl := client(t, kafka.Bootstrap(), kgo.SASL(plain.Auth{User: "alice", Pass: "alices"}.AsMechanism()))
	fillTopic(ctx, t, cl, "guarded", 100)
	// Calibration: Kafka itself takes the SCRAM user.
	if err := client(t, kafka.Bootstrap(), kgo.SASL(scram.Auth{User: "bob", Pass: "bobs"}.AsSha256Mechanism())).Ping(ctx); err != nil {
		t.Fatal(err)
	}
	f := func(mechanism, module, user, password string) {
		t.Helper()
		t.Run(mechanism+" "+user+" "+password, func(t *testing.T) {
			config := writeFile(t, "client.properties", "security.protocol=SASL_PLAINTEXT\nsasl.mechanism="+mechanism+"\nsasl.jaas.config="+jaas(module, user, password)+"\n")
			standby := startStandby(t, kafka.Bootstrap(), "--source-config", config)
			if password == "wrong" {
				standby.waitSaid(30*time.Second, "password", user)
				return
			}
			standby.waitCaughtUp(30*time.Second, ends(ctx, t, cl, "guarded"))
			mustBeEqual(ctx, t, cl, client(t, standby.kafka), []string{"guarded"}, compare.Options{})
		})
	}
	f("PLAIN", "plain.PlainLoginModule", "alice", "alices")
	f("SCRAM-SHA-256", "scram.ScramLoginModule", "bob", "bobs")
	f("SCRAM-SHA-512", "scram.ScramLoginModule", "bob", "bobs")
	f("PLAIN", "plain.PlainLoginModule", "alice", "wrong")
	f("SCRAM-SHA-512", "scram.ScramLoginModule", "bob", "wrong")
}

// waitSaid waits until `mirror describe` holds each of the words, in whatever case: the sentence that an operator needs.
func (n *node) waitSaid(limit time.Duration, words ...string) {
	n.t.Helper()
	eventually(n.t, limit, "the mirror says what is wrong", func() error {
		code, out, errOut := n.tidemark("mirror", "describe", "standby")
		if code != 0 {
			return fmt.Errorf("mirror describe: exit %d: %s", code, errOut)
		}
		for _, w := range words {
			if !strings.Contains(strings.ToLower(out), strings.ToLower(w)) {
				return fmt.Errorf("no %q in:\n%s", w, out)
			}
		}
		return nil
	})
}
