package source

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"tidemark/internal/config"
)

// Config is what a client properties file says, checked and with defaults.
type Config struct {
	// Bootstrap are the addresses (host:port) that are tried for the first connection.
	Bootstrap []string
	// ClientID is the request header's client id; the source's quotas and logs see it.
	ClientID string
	// TLS is nil for plaintext connections. ServerName is filled in per connection.
	TLS *tls.Config
	// SASL is nil for connections without log-in.
	SASL *SASLConfig
	// RequestTimeout bounds one request from write to answer, beyond a long poll's wait.
	RequestTimeout time.Duration
	// ConnectTimeout bounds dialling, TLS and log-in together.
	ConnectTimeout time.Duration
	// MaxIdle closes a connection without requests; the source's own limit should be larger.
	MaxIdle time.Duration
	// FetchMaxBytes and FetchMaxPartitionBytes are the soft limits of one fetch, in bytes.
	FetchMaxBytes, FetchMaxPartitionBytes int32
	// FetchMinBytes and FetchMaxWait make a fetch wait at the source until there is as much data.
	FetchMinBytes int32
	FetchMaxWait  time.Duration
	// Dial makes connections; nil: TCP as usual.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// Unused are the keys that Kafka clients know and that mean nothing to a mirror.
	Unused []string
}

// SASLConfig is a log-in by user and password.
type SASLConfig struct {
	// Mechanism is PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512.
	Mechanism          string
	Username, Password string
	// Advice says what to do when the log-in is refused, and OtherAdvice when the broker
	// doesn't offer Mechanism; both end a sentence.
	Advice, OtherAdvice string
}

// Defaults of the properties that a mirror uses, as in Kafka's clients unless said.
const (
	defaultClientID       = "tidemark-mirror"
	defaultRequestTimeout = 30 * time.Second
	defaultConnectTimeout = 10 * time.Second
	defaultMaxIdle        = 9 * time.Minute
	// defaultFetchMaxBytes is less than Kafka's 50 MiB: the answer is held in memory until it is on disk.
	defaultFetchMaxBytes          = 8 << 20
	defaultFetchMaxPartitionBytes = 1 << 20
	defaultFetchMaxWait           = 500 * time.Millisecond
)

// usedKeys are the properties that NewConfig acts on.
var usedKeys = []string{
	"bootstrap.servers", "client.id", "security.protocol", "sasl.mechanism", "sasl.jaas.config",
	"ssl.truststore.location", "ssl.truststore.type", "ssl.truststore.certificates", "ssl.truststore.password",
	"ssl.keystore.location", "ssl.keystore.type", "ssl.keystore.key", "ssl.keystore.certificate.chain",
	"ssl.keystore.password", "ssl.key.password", "ssl.endpoint.identification.algorithm",
	"ssl.enabled.protocols", "ssl.protocol", "request.timeout.ms", "socket.connection.setup.timeout.ms",
	"connections.max.idle.ms", "fetch.max.bytes", "max.partition.fetch.bytes", "fetch.min.bytes", "fetch.max.wait.ms",
}

// unusedKeys are properties of Kafka's clients that change nothing for a mirror; a file that serves
// other tools too may hold them.
var unusedKeys = []string{
	"acks", "allow.auto.create.topics", "auto.commit.interval.ms", "auto.include.jmx.reporter", "auto.offset.reset",
	"batch.size", "buffer.memory", "check.crcs", "client.dns.lookup", "client.rack", "compression.type",
	"default.api.timeout.ms", "delivery.timeout.ms", "enable.auto.commit", "enable.idempotence", "enable.metrics.push",
	"group.id", "group.instance.id", "group.protocol", "heartbeat.interval.ms", "interceptor.classes",
	"isolation.level", "key.deserializer", "key.serializer", "linger.ms", "max.block.ms",
	"max.in.flight.requests.per.connection", "max.poll.interval.ms", "max.poll.records", "max.request.size",
	"metadata.max.age.ms", "metadata.recovery.strategy", "metric.reporters", "metrics.num.samples",
	"metrics.recording.level", "metrics.sample.window.ms", "partition.assignment.strategy", "partitioner.class",
	"receive.buffer.bytes", "reconnect.backoff.max.ms", "reconnect.backoff.ms", "retries", "retry.backoff.max.ms",
	"retry.backoff.ms", "send.buffer.bytes", "session.timeout.ms", "socket.connection.setup.timeout.max.ms",
	"ssl.cipher.suites", "ssl.keymanager.algorithm", "ssl.provider", "ssl.secure.random.implementation",
	"ssl.trustmanager.algorithm", "transaction.timeout.ms", "transactional.id", "value.deserializer",
	"value.serializer",
}

// refusedKeys are properties that ask for something that can't be given, and the way out.
var refusedKeys = map[string]string{
	"sasl.username":                      `set sasl.jaas.config to: org.apache.kafka.common.security.plain.PlainLoginModule required username="…" password="…";`,
	"sasl.password":                      `set sasl.jaas.config to: org.apache.kafka.common.security.plain.PlainLoginModule required username="…" password="…";`,
	"sasl.mechanisms":                    "Kafka's name is sasl.mechanism",
	"ssl.ca.location":                    "Kafka's names are ssl.truststore.location with ssl.truststore.type=PEM",
	"ssl.certificate.location":           "put certificate chain and key into one PEM file: ssl.keystore.location with ssl.keystore.type=PEM",
	"ssl.key.location":                   "put certificate chain and key into one PEM file: ssl.keystore.location with ssl.keystore.type=PEM",
	"sasl.kerberos.service.name":         "Kerberos is not supported; give the mirror a SCRAM user",
	"sasl.client.callback.handler.class": "Java classes can't be loaded; give the mirror a SCRAM or PLAIN user",
	"sasl.login.callback.handler.class":  "Java classes can't be loaded; give the mirror a SCRAM or PLAIN user",
	"sasl.login.class":                   "Java classes can't be loaded; give the mirror a SCRAM or PLAIN user",
	"ssl.engine.factory.class":           "Java classes can't be loaded; use PEM files",
	"security.providers":                 "Java classes can't be loaded",
}

// IsSecret reports whether a property's value must not be shown.
func IsSecret(key string) bool {
	return key == "sasl.jaas.config" || key == "ssl.keystore.key" || strings.Contains(key, "password")
}

// Redact copies properties with the values of secrets replaced.
func Redact(props map[string]string) map[string]string {
	m := make(map[string]string, len(props))
	for k, v := range props {
		if IsSecret(k) {
			v = "[hidden]"
		}
		m[k] = v
	}
	return m
}

// NewConfig checks client properties. bootstrap, if not empty, goes before bootstrap.servers.
func NewConfig(bootstrap []string, props map[string]string) (*Config, error) {
	c := &Config{
		ClientID: defaultClientID, RequestTimeout: defaultRequestTimeout, ConnectTimeout: defaultConnectTimeout,
		MaxIdle: defaultMaxIdle, FetchMaxBytes: defaultFetchMaxBytes,
		FetchMaxPartitionBytes: defaultFetchMaxPartitionBytes, FetchMinBytes: 1, FetchMaxWait: defaultFetchMaxWait,
	}
	if err := c.checkKeys(props); err != nil {
		return nil, err
	}
	if len(bootstrap) == 0 {
		bootstrap = splitList(props["bootstrap.servers"])
	}
	for _, a := range bootstrap {
		if err := checkAddress(a); err != nil {
			return nil, err
		}
		c.Bootstrap = append(c.Bootstrap, a)
	}
	if len(c.Bootstrap) == 0 {
		return nil, configError("bootstrap.servers", "names no broker; want HOST:PORT[,HOST:PORT…]")
	}
	if v := props["client.id"]; v != "" {
		c.ClientID = v
	}
	if err := c.setNumbers(props); err != nil {
		return nil, err
	}
	return c, c.setSecurity(props)
}

func (c *Config) checkKeys(props map[string]string) error {
	keys := make([]string, 0, len(props))
	for k := range props {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		switch {
		case slices.Contains(usedKeys, k):
		case slices.Contains(unusedKeys, k):
			c.Unused = append(c.Unused, k)
		case refusedKeys[k] != "":
			return configError(k, "not supported: %s", refusedKeys[k])
		default:
			if near := config.Nearest(k, slices.Concat(usedKeys, unusedKeys)); near != "" {
				return configError(k, "unknown key: did you mean %s?", near)
			}
			return configError(k, "unknown key, unlike any of a Kafka client")
		}
	}
	return nil
}

func (c *Config) setNumbers(props map[string]string) error {
	for _, n := range []struct {
		key      string
		min, max int64
		set      func(int64)
	}{
		{"request.timeout.ms", 100, 3_600_000, func(v int64) { c.RequestTimeout = time.Duration(v) * time.Millisecond }},
		{"socket.connection.setup.timeout.ms", 100, 600_000, func(v int64) { c.ConnectTimeout = time.Duration(v) * time.Millisecond }},
		{"connections.max.idle.ms", 1000, 86_400_000, func(v int64) { c.MaxIdle = time.Duration(v) * time.Millisecond }},
		{"fetch.max.bytes", 1024, 1 << 30, func(v int64) { c.FetchMaxBytes = int32(v) }},
		{"max.partition.fetch.bytes", 1024, 1 << 30, func(v int64) { c.FetchMaxPartitionBytes = int32(v) }},
		{"fetch.min.bytes", 0, 1 << 30, func(v int64) { c.FetchMinBytes = int32(v) }},
		{"fetch.max.wait.ms", 0, 60_000, func(v int64) { c.FetchMaxWait = time.Duration(v) * time.Millisecond }},
	} {
		text := strings.TrimSpace(props[n.key])
		if text == "" {
			continue
		}
		v, err := strconv.ParseInt(text, 10, 64)
		if err != nil || v < n.min || v > n.max {
			return configError(n.key, "%q is not a number between %d and %d", text, n.min, n.max)
		}
		n.set(v)
	}
	return nil
}

func (c *Config) setSecurity(props map[string]string) error {
	protocol := strings.ToUpper(strings.TrimSpace(props["security.protocol"]))
	switch protocol {
	case "", "PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL":
	default:
		return configError("security.protocol", "%q is none of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL", protocol)
	}
	if strings.HasSuffix(protocol, "SSL") {
		t, err := tlsFromProperties(props)
		if err != nil {
			return err
		}
		c.TLS = t
	} else {
		for _, k := range []string{"ssl.truststore.location", "ssl.keystore.location"} {
			if props[k] != "" {
				return configError(k, "is set, but security.protocol is not SSL or SASL_SSL")
			}
		}
	}
	if strings.HasPrefix(protocol, "SASL_") {
		s, err := saslFromProperties(props)
		if err != nil {
			return err
		}
		c.SASL = s
	} else if props["sasl.jaas.config"] != "" {
		return configError("sasl.jaas.config", "is set, but security.protocol is not SASL_PLAINTEXT or SASL_SSL")
	}
	return nil
}

func saslFromProperties(props map[string]string) (*SASLConfig, error) {
	mechanism := strings.ToUpper(strings.TrimSpace(props["sasl.mechanism"]))
	module := "ScramLoginModule"
	switch mechanism {
	case "PLAIN":
		module = "PlainLoginModule"
	case "SCRAM-SHA-256", "SCRAM-SHA-512":
	case "":
		return nil, configError("sasl.mechanism", "must be set to PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512 (Kafka's default, GSSAPI, is not supported)")
	default:
		return nil, configError("sasl.mechanism", "%q is not supported; PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512 are", mechanism)
	}
	if props["sasl.jaas.config"] == "" {
		return nil, configError("sasl.jaas.config", "must be set for security.protocol=%s", props["security.protocol"])
	}
	l, err := parseJAAS(props["sasl.jaas.config"])
	if err != nil {
		return nil, &Error{Kind: ErrConfig, Op: "sasl.jaas.config", Sentence: "can't be read", Cause: err}
	}
	if !strings.HasSuffix(l.module, "."+module) && l.module != module {
		return nil, configError("sasl.jaas.config", "login module %s doesn't fit sasl.mechanism=%s, which wants %s", l.module, mechanism, module)
	}
	if l.options["username"] == "" {
		return nil, configError("sasl.jaas.config", `names no username="…"`)
	}
	if strings.EqualFold(l.options["tokenauth"], "true") {
		return nil, configError("sasl.jaas.config", "delegation tokens (tokenauth) are not supported; give the mirror a SCRAM user")
	}
	return &SASLConfig{Mechanism: mechanism, Username: l.options["username"], Password: l.options["password"],
		Advice: "check user name and password in sasl.jaas.config", OtherAdvice: "set sasl.mechanism to one of them"}, nil
}

func checkAddress(a string) error {
	host, port, err := net.SplitHostPort(a)
	if err == nil && host != "" {
		if n, perr := strconv.ParseUint(port, 10, 16); perr == nil && n > 0 {
			return nil
		}
	}
	return configError("bootstrap.servers", "%q is not HOST:PORT", a)
}

func splitList(s string) []string {
	var out []string
	for f := range strings.SplitSeq(s, ",") {
		if f = strings.TrimSpace(f); f != "" {
			out = append(out, f)
		}
	}
	return out
}

func configError(key, format string, args ...any) error {
	return &Error{Kind: ErrConfig, Op: key, Sentence: fmt.Sprintf(format, args...)}
}
