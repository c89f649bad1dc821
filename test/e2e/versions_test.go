package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"

	"tidemark/test/e2e/harness"
)

// roundTrip writes with one client and reads with another.
func roundTrip(t *testing.T, b *harness.Broker, topic string, opts ...kgo.Opt) {
	t.Helper()
	producer := b.Client(t, append(opts, kgo.DefaultProduceTopic(topic))...)
	const n = 100
	for i := range n {
		producer.Produce(harness.Context(t), &kgo.Record{Value: fmt.Append(nil, i)}, func(_ *kgo.Record, err error) {
			if err != nil {
				t.Error(err)
			}
		})
	}
	if err := producer.Flush(harness.Context(t)); err != nil {
		t.Fatal(err)
	}
	consumer := b.Client(t, append(opts, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))...)
	seen := make(map[string]int)
	for ctx := harness.Context(t); len(seen) < n; {
		fetches := consumer.PollFetches(ctx)
		if errs := fetches.Errors(); len(errs) > 0 {
			t.Fatalf("%d of %d records: %v", len(seen), n, errs)
		}
		fetches.EachRecord(func(r *kgo.Record) { seen[string(r.Value)]++ })
	}
	for v, times := range seen {
		if times != 1 {
			t.Errorf("record %s was seen %d times", v, times)
		}
	}
}

// Clients of every age of the protocol write and read.
func TestClientsOfEveryAge(t *testing.T) {
	b := harness.StartBroker(t)
	for i, v := range []*kversion.Versions{kversion.V0_11_0(), kversion.V1_1_0(), kversion.V2_1_0(), kversion.V2_8_0(), kversion.V3_9_0(), kversion.V4_1_0(), kversion.Tip()} {
		t.Run(v.VersionGuess(), func(t *testing.T) {
			topic := fmt.Sprintf("t%d", i)
			b.CreateTopic(t, topic, 3, nil)
			opts := []kgo.Opt{kgo.MaxVersions(v)}
			if i == 0 {
				opts = append(opts, kgo.DisableIdempotentWrite())
			}
			roundTrip(t, b, topic, opts...)
		})
	}
}

// Each version of Produce and of Fetch by itself.
func TestEveryVersionOfProduceAndFetch(t *testing.T) {
	b := harness.StartBroker(t)
	for v := int16(3); v <= 18; v++ {
		t.Run(fmt.Sprint(v), func(t *testing.T) {
			topic := fmt.Sprintf("t%d", v)
			b.CreateTopic(t, topic, 1, nil)
			max := kversion.Stable()
			max.SetMaxKeyVersion(0, min(v, 13))
			max.SetMaxKeyVersion(1, v+1)
			if v == 18 {
				max.SetMaxKeyVersion(1, 18)
			}
			roundTrip(t, b, topic, kgo.MaxVersions(max))
		})
	}
}

// sarama negotiates by its configured version.
func TestSaramaProducesAndConsumes(t *testing.T) {
	b := harness.StartBroker(t)
	for i, version := range []sarama.KafkaVersion{sarama.V0_11_0_0, sarama.V2_1_0_0, sarama.MaxVersion} {
		t.Run(version.String(), func(t *testing.T) {
			topic := fmt.Sprintf("t%d", i)
			b.CreateTopic(t, topic, 1, nil)
			cfg := sarama.NewConfig()
			cfg.Version = version
			cfg.Producer.Return.Successes = true
			cfg.Producer.Compression = sarama.CompressionLZ4
			if version.IsAtLeast(sarama.V2_1_0_0) {
				cfg.Producer.Idempotent, cfg.Producer.RequiredAcks, cfg.Net.MaxOpenRequests = true, sarama.WaitForAll, 1
			}
			p, err := sarama.NewSyncProducer([]string{b.Addr}, cfg)
			if err != nil {
				t.Fatal(err)
			}
			for n := range 20 {
				_, offset, err := p.SendMessage(&sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder(fmt.Sprint(n))})
				if err != nil || offset != int64(n) {
					t.Fatalf("message %d: offset %d, %v", n, offset, err)
				}
			}
			c, err := sarama.NewConsumer([]string{b.Addr}, cfg)
			if err != nil {
				t.Fatal(err)
			}
			pc, err := c.ConsumePartition(topic, 0, sarama.OffsetOldest)
			if err != nil {
				t.Fatal(err)
			}
			for n := range 20 {
				select {
				case m := <-pc.Messages():
					if string(m.Value) != fmt.Sprint(n) {
						t.Errorf("message %d is %s", n, m.Value)
					}
				case <-harness.Context(t).Done():
					t.Fatalf("no message %d", n)
				}
			}
			if err := errors.Join(pc.Close(), c.Close(), p.Close()); err != nil {
				t.Error(err)
			}
		})
	}
}

// A TLS listener serves the same, records through buffers in place of sendfile.
func TestTLSListener(t *testing.T) {
	dir := t.TempDir()
	pool := writeCertificate(t, filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"))
	b := harness.StartBroker(t, harness.WithSetting("listeners", "SSL://127.0.0.1:0"),
		harness.WithSetting("ssl.keystore.location", filepath.Join(dir, "cert.pem")), harness.WithSetting("ssl.key.location", filepath.Join(dir, "key.pem")))
	secure := kgo.DialTLSConfig(&tls.Config{RootCAs: pool, ServerName: "localhost"})
	adm := b.Client(t, secure)
	if err := adm.Ping(harness.Context(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := kadm.NewClient(adm).CreateTopic(harness.Context(t), 3, 1, nil, "t"); err != nil {
		t.Fatal(err)
	}
	roundTrip(t, b, "t", secure)
	plain := b.Client(t, kgo.RetryTimeout(time.Second))
	if err := plain.Ping(harness.Context(t)); err == nil {
		t.Error("a client without TLS was served")
	}
}

func writeCertificate(t *testing.T, certFile, keyFile string) *x509.CertPool {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "localhost"}, DNSNames: []string{"localhost"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	keyPEM := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
	if err := errors.Join(os.WriteFile(certFile, certPEM, 0o600), os.WriteFile(keyFile, keyPEM, 0o600)); err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(certPEM)
	return pool
}
