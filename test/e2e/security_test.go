package e2e

import (
	"crypto/tls"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
	xdg "github.com/xdg-go/scram"

	"tidemark/internal/broker/mirror"
	"tidemark/internal/core/acl"
	"tidemark/internal/core/meta"
	"tidemark/test/e2e/harness"
)

// guardedBroker enforces ACLs. Its first listener, on loopback, is the operator's: it
// takes no log-ins, and whoever has none is a super user here.
func guardedBroker(t *testing.T, opts ...harness.Option) *harness.Broker {
	t.Helper()
	return harness.StartBroker(t, append([]harness.Option{
		harness.WithSetting("listeners", "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0"),
		harness.WithSetting("authorizer", "acl"), harness.WithSetting("super.users", "User:ANONYMOUS"),
		harness.WithSetting("mirror.acl.sync.ms", "100"), harness.WithSetting("mirror.scram.sync.ms", "100"), harness.WithSetting("mirror.metadata.refresh.ms", "200"),
	}, opts...)...)
}

// overTLS adds a listener for log-ins over TLS.
func overTLS(cert, key string) []harness.Option {
	return []harness.Option{harness.WithSetting("listeners", "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0,SASL_SSL://localhost:0"),
		harness.WithSetting("ssl.keystore.location", cert), harness.WithSetting("ssl.key.location", key)}
}

// at is the address of a listener.
func at(t *testing.T, b *harness.Broker, listener string) string {
	t.Helper()
	for _, e := range b.Endpoints() {
		if e.Listener == listener {
			return fmt.Sprintf("%s:%d", e.Host, e.Port)
		}
	}
	t.Fatalf("no listener %s", listener)
	return ""
}

// as connects to the listener that wants log-ins.
func as(t *testing.T, b *harness.Broker, m sasl.Mechanism, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	return b.Client(t, append([]kgo.Opt{kgo.SeedBrokers(at(t, b, "SASL_PLAINTEXT")), kgo.SASL(m), kgo.RecordRetries(0)}, opts...)...)
}

func sha256Of(user, password string) sasl.Mechanism {
	return scram.Auth{User: user, Pass: password}.AsSha256Mechanism()
}

// setPassword makes a user, or changes its password, for both mechanisms.
func setPassword(t *testing.T, b *harness.Broker, user, password string) {
	t.Helper()
	for _, m := range []kadm.ScramMechanism{kadm.ScramSha256, kadm.ScramSha512} {
		out, err := b.Admin(t).AlterUserSCRAMs(harness.Context(t), nil, []kadm.UpsertSCRAM{{User: user, Mechanism: m, Iterations: 4096, Password: password}})
		if err == nil {
			err = out.Error()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// grant lets a user do something, by the protocol.
func grant(t *testing.T, b *harness.Broker, bindings ...acl.Binding) {
	t.Helper()
	in := kmsg.NewPtrCreateACLsRequest()
	for _, a := range bindings {
		in.Creations = append(in.Creations, kmsg.CreateACLsRequestCreation{
			ResourceType: kmsg.ACLResourceType(a.Resource), ResourceName: a.Name, ResourcePatternType: kmsg.ACLResourcePatternType(a.Pattern),
			Principal: a.Principal, Host: a.Host, Operation: kmsg.ACLOperation(a.Operation), PermissionType: kmsg.ACLPermissionType(a.Permission)})
	}
	out, err := in.RequestWith(harness.Context(t), b.Client(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range out.Results {
		if err := kerr.ErrorForCode(r.ErrorCode); err != nil {
			t.Fatal(err)
		}
	}
}

func allowed(user string, op acl.Operation, resource acl.ResourceType, name string) acl.Binding {
	return acl.Binding{Resource: resource, Pattern: acl.Literal, Name: name, Principal: "User:" + user, Host: acl.Wildcard, Operation: op, Permission: acl.Allow}
}

// produceAs writes one record and gives the error.
func produceAs(t *testing.T, cl *kgo.Client, topic string) error {
	t.Helper()
	return cl.ProduceSync(harness.Context(t), &kgo.Record{Topic: topic, Value: []byte("v")}).FirstErr()
}

// TestLogIns: who has the password is in, by every mechanism and client; nobody else is.
func TestLogIns(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	pool := writeCertificate(t, cert, key)
	b := guardedBroker(t, append(overTLS(cert, key),
		harness.WithSetting("sasl.enabled.mechanisms", "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"), harness.WithSetting("connection.failed.authentication.delay.ms", "1"))...)
	setPassword(t, b, "alice", "secret")
	secured := []kgo.Opt{kgo.SeedBrokers(at(t, b, "SASL_SSL")), kgo.DialTLSConfig(&tls.Config{RootCAs: pool, ServerName: "localhost"})}
	f := func(name string, want error, m sasl.Mechanism, opts ...kgo.Opt) {
		t.Helper()
		err := as(t, b, m, append(opts, kgo.RequestRetries(0))...).Ping(harness.Context(t))
		if want == nil && err != nil || want != nil && !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
	}
	f("SHA-256", nil, sha256Of("alice", "secret"))
	f("SHA-512", nil, scram.Auth{User: "alice", Pass: "secret"}.AsSha512Mechanism())
	f("SHA-512 over TLS", nil, scram.Auth{User: "alice", Pass: "secret"}.AsSha512Mechanism(), secured...)
	f("PLAIN over TLS", nil, plain.Auth{User: "alice", Pass: "secret"}.AsMechanism(), secured...)
	f("PLAIN in the clear", kerr.UnsupportedSaslMechanism, plain.Auth{User: "alice", Pass: "secret"}.AsMechanism())
	f("wrong password", kerr.SaslAuthenticationFailed, sha256Of("alice", "Secret"))
	f("wrong password in PLAIN", kerr.SaslAuthenticationFailed, plain.Auth{User: "alice", Pass: "Secret"}.AsMechanism(), secured...)
	f("unknown user", kerr.SaslAuthenticationFailed, sha256Of("bob", "secret"))
	setPassword(t, b, "alice", "changed")
	f("the old password", kerr.SaslAuthenticationFailed, sha256Of("alice", "secret"))
	f("the new password", nil, sha256Of("alice", "changed"))
	next := b.Restart(t)
	b = next
	f("after a restart", nil, sha256Of("alice", "changed"))
	none := b.Client(t, kgo.SeedBrokers(at(t, b, "SASL_PLAINTEXT")), kgo.RequestRetries(0))
	if err := none.Ping(harness.Context(t)); err == nil {
		t.Error("a client without a log-in is answered")
	}
}

// saramaScram is the client's side of SCRAM as sarama takes it.
type saramaScram struct{ talk *xdg.ClientConversation }

func (s *saramaScram) Begin(user, password, authorized string) error {
	client, err := xdg.SHA256.NewClient(user, password, authorized)
	if err == nil {
		s.talk = client.NewConversation()
	}
	return err
}

func (s *saramaScram) Step(challenge string) (string, error) { return s.talk.Step(challenge) }
func (s *saramaScram) Done() bool                            { return s.talk.Done() }

// TestSaramaLogsIn, renews its log-in while it works, and reads what it may.
func TestSaramaLogsIn(t *testing.T) {
	b := guardedBroker(t, harness.WithSetting("connections.max.reauth.ms", "400"))
	b.CreateTopic(t, "orders", 1, nil)
	b.CreateTopic(t, "bills", 1, nil)
	b.Produce(t, "orders", 0, "a")
	setPassword(t, b, "alice", "secret")
	grant(t, b, allowed("alice", acl.Read, acl.Topic, "orders"))
	cfg := sarama.NewConfig()
	cfg.Net.SASL.Enable, cfg.Net.SASL.Mechanism, cfg.Net.SASL.User, cfg.Net.SASL.Password = true, sarama.SASLTypeSCRAMSHA256, "alice", "secret"
	cfg.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &saramaScram{} }
	c, err := sarama.NewConsumer([]string{at(t, b, "SASL_PLAINTEXT")}, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	p, err := c.ConsumePartition("orders", 0, sarama.OffsetOldest)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.Close() }()
	for i, want := range []string{"a", "b", "c"} {
		if i > 0 {
			// Two lifetimes pass between the records: the client has to renew.
			from := b.Now()
			harness.Eventually(t, "time passes", func() bool { return b.Now()-from > 900 })
			b.Produce(t, "orders", 0, want)
		}
		select {
		case m := <-p.Messages():
			if string(m.Value) != want {
				t.Fatalf("read %q, want %q", m.Value, want)
			}
		case <-harness.Context(t).Done():
			t.Fatalf("%q never came", want)
		}
	}
	if _, err := c.ConsumePartition("bills", 0, sarama.OffsetOldest); !errors.Is(err, sarama.ErrTopicAuthorizationFailed) {
		t.Errorf("bills: %v", err)
	}
}

// TestPermissions: franz-go's clients get Kafka's errors, and what they may not see isn't there.
func TestPermissions(t *testing.T) {
	b := guardedBroker(t)
	b.CreateTopic(t, "orders", 1, nil)
	b.CreateTopic(t, "bills", 1, nil)
	setPassword(t, b, "alice", "secret")
	grant(t, b, allowed("alice", acl.Write, acl.Topic, "orders"), allowed("alice", acl.Read, acl.Topic, "orders"), allowed("alice", acl.Read, acl.Group, "readers"))
	cl := as(t, b, sha256Of("alice", "secret"))
	if err := produceAs(t, cl, "orders"); err != nil {
		t.Error(err)
	}
	if err := produceAs(t, cl, "bills"); !errors.Is(err, kerr.TopicAuthorizationFailed) {
		t.Errorf("bills: %v", err)
	}
	topics, err := kadm.NewClient(cl).ListTopics(harness.Context(t))
	if err != nil || !topics.Has("orders") || topics.Has("bills") {
		t.Errorf("alice sees %v, %v", topics.Names(), err)
	}
	if _, err := kadm.NewClient(cl).CreateTopic(harness.Context(t), 1, 1, nil, "mine"); !errors.Is(err, kerr.TopicAuthorizationFailed) {
		t.Errorf("creation: %v", err)
	}
	group := as(t, b, sha256Of("alice", "secret"), kgo.ConsumeTopics("orders"), kgo.ConsumerGroup("readers"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if got := group.PollFetches(harness.Context(t)); got.Err() != nil || got.NumRecords() != 1 {
		t.Errorf("the group reads %d records, %v", got.NumRecords(), got.Err())
	}
	if err := group.CommitUncommittedOffsets(harness.Context(t)); err != nil {
		t.Error(err)
	}
	other := as(t, b, sha256Of("alice", "secret"), kgo.ConsumeTopics("orders"), kgo.ConsumerGroup("others"))
	if err := other.PollFetches(harness.Context(t)).Err(); !errors.Is(err, kerr.GroupAuthorizationFailed) {
		t.Errorf("another group: %v", err)
	}
	deny := allowed("alice", acl.Write, acl.Topic, "orders")
	deny.Permission = acl.Deny
	grant(t, b, deny)
	if err := produceAs(t, cl, "orders"); !errors.Is(err, kerr.TopicAuthorizationFailed) {
		t.Errorf("after a denial: %v", err)
	}
}

// TestMirrorCopiesSecurity: ACLs and users of a Tidemark source are at the standby,
// follow it, leave what is its own, and hold after the failover.
func TestMirrorCopiesSecurity(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	writeCertificate(t, cert, key)
	source, standby := guardedBroker(t, overTLS(cert, key)...), guardedBroker(t)
	source.CreateTopic(t, "orders", 1, nil)
	source.Produce(t, "orders", 0, "a")
	for user, password := range map[string]string{"mirror": "m", "alice": "secret"} {
		setPassword(t, source, user, password)
	}
	write, read := allowed("alice", acl.Write, acl.Topic, "orders"), allowed("alice", acl.Read, acl.Topic, "orders")
	broker := allowed("broker", acl.ClusterAction, acl.Cluster, acl.ClusterName)
	grant(t, source, write, read, broker, allowed("mirror", acl.Read, acl.Topic, "*"), allowed("mirror", acl.DescribeConfigs, acl.Topic, "*"),
		allowed("mirror", acl.Describe, acl.Group, "*"), allowed("mirror", acl.Alter, acl.Cluster, acl.ClusterName))
	own, same := allowed("operator", acl.All, acl.Topic, "*"), read
	grant(t, standby, own)
	mirrorOf(t, standby, mirror.Spec{Bootstrap: []string{at(t, source, "SASL_SSL")}, ClientConfig: map[string]string{
		"security.protocol": "SASL_SSL", "ssl.truststore.type": "PEM", "ssl.truststore.location": cert, "sasl.mechanism": "SCRAM-SHA-512",
		"sasl.jaas.config": `org.apache.kafka.common.security.scram.ScramLoginModule required username="mirror" password="m";`}})

	has := func(b acl.Binding) func() bool { return func() bool { return standby.Image().ACLs().Has(b) } }
	harness.Eventually(t, "the ACLs are at the standby", func() bool { return has(write)() && has(read)() })
	harness.Eventually(t, "so is alice", func() bool {
		_, ok := standby.Image().Scram(meta.ScramID{User: "alice", Mechanism: meta.ScramSHA256})
		return ok
	})
	if has(broker)() {
		t.Error("a broker of the source is one here")
	}
	if err := produceAs(t, as(t, standby, sha256Of("alice", "secret")), "orders"); err == nil {
		t.Error("a mirror is written to")
	}
	grant(t, standby, same) // from now on it is the standby's own
	deleteACLs(t, source, read)
	deleteACLs(t, source, write)
	harness.Eventually(t, "what the source has no more is gone", func() bool { return !has(write)() })
	if !has(own)() || !has(same)() {
		t.Error("the standby's own entries are gone")
	}
	grant(t, source, write)
	setPassword(t, source, "alice", "changed")
	harness.Eventually(t, "it comes back", has(write))
	harness.Eventually(t, "the new password is here", func() bool {
		a, _ := source.Image().Scram(meta.ScramID{User: "alice", Mechanism: meta.ScramSHA256})
		b, ok := standby.Image().Scram(meta.ScramID{User: "alice", Mechanism: meta.ScramSHA256})
		return ok && string(a.Record.StoredKey) == string(b.Record.StoredKey)
	})
	harness.Eventually(t, "the syncs are well", func() bool {
		d := describe(t, standby)
		return syncOf(d, "acls").Error == "" && strings.Contains(syncOf(d, "acls").Detail, "1 left out") && syncOf(d, "acls").AgeMs >= 0 && syncOf(d, "scram").Error == "" && strings.Contains(syncOf(d, "scram").Detail, "4 copied")
	})
	source.Stop(t)
	failover(t, standby)
	cl := as(t, standby, sha256Of("alice", "changed"))
	if err := produceAs(t, cl, "orders"); err != nil {
		t.Errorf("alice after the failover: %v", err)
	}
	if err := produceAs(t, cl, "other"); !errors.Is(err, kerr.TopicAuthorizationFailed) {
		t.Errorf("alice elsewhere: %v", err)
	}
	if _, ok := standby.Image().Scram(meta.ScramID{User: "mirror", Mechanism: meta.ScramSHA512}); !ok || !has(own)() {
		t.Error("the failover took something away")
	}
}

func deleteACLs(t *testing.T, b *harness.Broker, a acl.Binding) {
	t.Helper()
	in := kmsg.NewPtrDeleteACLsRequest()
	in.Filters = []kmsg.DeleteACLsRequestFilter{{ResourceType: kmsg.ACLResourceType(a.Resource), ResourceName: &a.Name, ResourcePatternType: kmsg.ACLResourcePatternType(a.Pattern),
		Principal: &a.Principal, Host: &a.Host, Operation: kmsg.ACLOperation(a.Operation), PermissionType: kmsg.ACLPermissionType(a.Permission)}}
	out, err := in.RequestWith(harness.Context(t), b.Client(t))
	if err != nil || len(out.Results[0].MatchingACLs) != 1 {
		t.Fatalf("%+v, %v", out, err)
	}
}

func describe(t *testing.T, b *harness.Broker) mirror.Description {
	t.Helper()
	d, err := b.Mirrors().Describe(harness.Context(t), "m")
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func syncOf(d mirror.Description, name string) mirror.SyncHealth {
	for _, s := range d.Syncs {
		if s.Name == name {
			return s
		}
	}
	return mirror.SyncHealth{AgeMs: -1}
}

// TestMirrorOfAnOpenSource: a source without an authorizer has no ACLs to copy and
// gives no keys; nothing here is taken for gone.
func TestMirrorOfAnOpenSource(t *testing.T) {
	source, standby := harness.StartBroker(t), guardedBroker(t)
	source.CreateTopic(t, "orders", 1, nil)
	setPassword(t, source, "alice", "secret")
	own := allowed("operator", acl.All, acl.Topic, "*")
	grant(t, standby, own)
	mirrorOf(t, standby, mirror.Spec{Bootstrap: []string{source.Addr}})
	harness.Eventually(t, "it is told what can't be copied", func() bool {
		d := describe(t, standby)
		return strings.Contains(syncOf(d, "acls").Error, "SECURITY_DISABLED") && strings.Contains(syncOf(d, "scram").Error, "authorizer=acl") &&
			strings.Contains(syncOf(d, "scram").Detail, "alice (SCRAM-SHA-256)")
	})
	if !standby.Image().ACLs().Has(own) {
		t.Error("the standby's own entry is gone")
	}
}
