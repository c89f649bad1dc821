package source

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestLoadProperties(t *testing.T) {
	file := filepath.Join(t.TempDir(), "client.properties")
	if err := os.WriteFile(file, []byte("client.id:me\nbootstrap.servers = a:1,\\\n   b:2\nclient.id=later\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := LoadProperties(file)
	if want := map[string]string{"client.id": "later", "bootstrap.servers": "a:1,b:2"}; err != nil || !maps.Equal(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
	for name, bad := range map[string]string{"a key store": "\xfe\xed\xfe\xed", "no key": "=x", "short unicode": `a=\u12`} {
		if err := os.WriteFile(file, []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if p, err := LoadProperties(file); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: read as %v, %v", name, p, err)
		}
	}
}

func TestJAAS(t *testing.T) {
	l, err := parseJAAS(`org.apache.kafka.common.security.scram.ScramLoginModule required
  username="al\"ice" password='p;w=1' ;`)
	if err != nil {
		t.Fatal(err)
	}
	if l.module != "org.apache.kafka.common.security.scram.ScramLoginModule" || l.options["username"] != `al"ice` || l.options["password"] != "p;w=1" {
		t.Errorf("got %+v", l)
	}
	for name, bad := range map[string]string{
		"no semicolon":  `M required username="a"`,
		"open quote":    `M required username="a;`,
		"no flag":       `M username="a";`,
		"two modules":   `M required a="b"; N required;`,
		"option alone":  `M required username;`,
		"empty":         ``,
		"no assignment": `M required username "a";`,
	} {
		if l, err := parseJAAS(bad); err == nil {
			t.Errorf("%s: read as %+v", name, l)
		}
	}
}

func TestConfig(t *testing.T) {
	c, err := NewConfig(nil, map[string]string{
		"bootstrap.servers": "k1:9092, [::1]:9093", "request.timeout.ms": "1500", "client.id": "m", "linger.ms": "5",
		"security.protocol": "sasl_plaintext", "sasl.mechanism": "scram-sha-512",
		"sasl.jaas.config": `org.apache.kafka.common.security.scram.ScramLoginModule required username="u" password="p";`,
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Bootstrap) != 2 || c.Bootstrap[1] != "[::1]:9093" || c.RequestTimeout != 1500*time.Millisecond || c.ClientID != "m" {
		t.Errorf("got %+v", c)
	}
	if s := c.SASL; s.Mechanism != "SCRAM-SHA-512" || s.Username != "u" || s.Password != "p" || c.TLS != nil || len(c.Unused) != 1 {
		t.Errorf("got %+v %+v", c, c.SASL)
	}
}

func TestConfigRefusals(t *testing.T) {
	dir := t.TempDir()
	jks, p12, junk := filepath.Join(dir, "a.jks"), filepath.Join(dir, "a.p12"), filepath.Join(dir, "junk")
	for name, data := range map[string]string{jks: "\xfe\xed\xfe\xed\x00", p12: "\x30\x82\x01", junk: "hello"} {
		if err := os.WriteFile(name, []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	plain := `PlainLoginModule required username="u" password="p";`
	for _, tc := range []struct {
		name  string
		props map[string]string
		want  string // part of the sentence
	}{
		{"no bootstrap", map[string]string{"bootstrap.servers": ""}, "names no broker"},
		{"address without port", map[string]string{"bootstrap.servers": "localhost"}, "not HOST:PORT"},
		{"port out of range", map[string]string{"bootstrap.servers": "h:70000"}, "not HOST:PORT"},
		{"unknown key", map[string]string{"security.protokol": "SSL"}, "did you mean security.protocol?"},
		{"librdkafka's key", map[string]string{"ssl.ca.location": "x"}, "ssl.truststore.location"},
		{"protocol", map[string]string{"security.protocol": "TLS"}, "none of PLAINTEXT"},
		{"number", map[string]string{"request.timeout.ms": "soon"}, "between 100 and"},
		{"number too small", map[string]string{"request.timeout.ms": "1"}, "between 100 and"},
		{"mechanism missing", map[string]string{"security.protocol": "SASL_PLAINTEXT"}, "GSSAPI, is not supported"},
		{"mechanism unknown", map[string]string{"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}, "not supported"},
		{"no jaas", map[string]string{"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}, "must be set"},
		{"wrong module", map[string]string{"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": plain}, "doesn't fit"},
		{"no user", map[string]string{"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": `PlainLoginModule required password="p";`}, "no username"},
		{"sasl without protocol", map[string]string{"sasl.jaas.config": plain}, "security.protocol is not SASL"},
		{"jks type", map[string]string{"security.protocol": "SSL", "ssl.truststore.location": jks, "ssl.truststore.type": "JKS"}, "convert it to PEM"},
		{"jks content", map[string]string{"security.protocol": "SSL", "ssl.truststore.location": jks}, "is a JKS store"},
		{"pkcs12 content", map[string]string{"security.protocol": "SSL", "ssl.keystore.location": p12}, "PKCS12"},
		{"junk", map[string]string{"security.protocol": "SSL", "ssl.truststore.location": junk}, "not a PEM file"},
		{"missing file", map[string]string{"security.protocol": "SSL", "ssl.truststore.location": filepath.Join(dir, "none")}, "no such file"},
		{"tls without protocol", map[string]string{"ssl.truststore.location": junk}, "security.protocol is not SSL"},
		{"tls version", map[string]string{"security.protocol": "SSL", "ssl.enabled.protocols": "TLSv1.1"}, "not supported"},
		{"encrypted key", map[string]string{"security.protocol": "SSL", "ssl.keystore.key": "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n", "ssl.keystore.certificate.chain": "x"}, "openssl pkcs8"},
		{"key without chain", map[string]string{"security.protocol": "SSL", "ssl.keystore.key": "x"}, "set together"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if _, ok := tc.props["bootstrap.servers"]; !ok {
				tc.props["bootstrap.servers"] = "h:1"
			}
			_, err := NewConfig(nil, tc.props)
			if !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want a sentence with %q", err, tc.want)
			}
		})
	}
}

func TestRedact(t *testing.T) {
	m := Redact(map[string]string{"sasl.jaas.config": "secret", "ssl.key.password": "secret", "client.id": "me"})
	if m["sasl.jaas.config"] == "secret" || m["ssl.key.password"] == "secret" || m["client.id"] != "me" {
		t.Errorf("got %v", m)
	}
}
