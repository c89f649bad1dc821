package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"tidemark/internal/broker"
	"tidemark/internal/broker/mirror"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/internal/metastore/storetest"
	"tidemark/test/e2e/harness"
)

// brokersLogIn are the settings of a node's own log-in at other brokers.
func brokersLogIn(mechanism, password string) []harness.Option {
	module := "scram.ScramLoginModule"
	if mechanism == "PLAIN" {
		module = "plain.PlainLoginModule"
	}
	return []harness.Option{harness.WithSetting("sasl.mechanism.inter.broker.protocol", mechanism),
		harness.WithSetting("sasl.jaas.config", fmt.Sprintf(`org.apache.kafka.common.security.%s required username="broker" password="%s";`, module, password))}
}

// securedTrio are the settings of a cluster whose brokers reach each other over mutual
// TLS and by a log-in; its first listener is the operator's.
func securedTrio(t *testing.T, mechanism string) []harness.Option {
	authority := storetest.NewAuthority(t)
	return append(brokersLogIn(mechanism, "secret"),
		harness.WithSetting("listeners", "PLAINTEXT://127.0.0.1:0,INTERNAL://localhost:0"),
		harness.WithSetting("listener.security.protocol.map", "PLAINTEXT:PLAINTEXT,INTERNAL:SASL_SSL"), harness.WithSetting("inter.broker.listener.name", "INTERNAL"),
		harness.WithSetting("ssl.keystore.location", authority.Certificate("localhost")), harness.WithSetting("ssl.truststore.location", authority.File),
		harness.WithSetting("ssl.client.auth", "required"), harness.WithSetting("sasl.enabled.mechanisms", "SCRAM-SHA-512,SCRAM-SHA-256,PLAIN"),
		harness.WithSetting("authorizer", "acl"), harness.WithSetting("super.users", "User:ANONYMOUS;User:broker"), harness.WithSetting("connection.failed.authentication.delay.ms", "1"))
}

var allThree = []types.BrokerID{1, 2, 3}

// TestBrokersLogInAtEachOther: the first node makes the user that all of them have, the
// cluster replicates over mutual TLS and SASL, and elects when its leader is gone.
func TestBrokersLogInAtEachOther(t *testing.T) {
	for _, mechanism := range []string{"SCRAM-SHA-512", "PLAIN"} {
		t.Run(mechanism, func(t *testing.T) {
			c := harness.StartCluster(t, 3, securedTrio(t, mechanism)...)
			users, err := c.Any().Admin(t).DescribeUserSCRAMs(harness.Context(t))
			if err != nil || len(users) != 1 || len(users["broker"].CredInfos) != 2 {
				t.Fatalf("users %+v, %v", users, err)
			}
			c.CreateTopic(t, "orders", allThree, map[string]string{"min.insync.replicas": "2"})
			c.AwaitISR(t, "orders", 1, 2, 3)
			c.ProduceAll(t, "orders", kgo.AllISRAcks(), harness.Values("before", 5)...)
			c.AwaitEqual(t, "orders", 1, 2, 3)
			c.Lapse(t, 1)
			harness.Eventually(t, "another one leads", func() bool {
				leader := c.Record("orders", 0).Leader
				return leader == 2 || leader == 3
			})
			c.ProduceAll(t, "orders", kgo.AllISRAcks(), harness.Values("after", 5)...)
			c.AwaitEqual(t, "orders", 2, 3)
			if got := c.Nodes[2].Consume(t, "orders", 0, 0, 10); got[0] != "before-0" || got[9] != "after-4" {
				t.Errorf("read %q", got)
			}
		})
	}
}

// logBook keeps what nodes log.
type logBook struct {
	mu   sync.Mutex // guards the following
	text bytes.Buffer
}

// Write implements io.Writer.
func (l *logBook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// has reports whether one line holds all of the texts.
func (l *logBook) has(texts ...string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(strings.Split(l.text.String(), "\n"), func(line string) bool {
		return !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(line, text) })
	})
}

// TestABrokersWrongPassword: the node says which setting is wrong and what to do, at
// its start and when it is refused; the others go on; and what it says to do helps.
func TestABrokersWrongPassword(t *testing.T) {
	book := &logBook{}
	opts := append(securedTrio(t, "SCRAM-SHA-512"), harness.WithSetting("replica.lag.time.max.ms", "1000"),
		harness.WithOptions(broker.Options{Logger: slog.New(slog.NewTextHandler(book, nil))}))
	c := harness.StartCluster(t, 3, opts...)
	c.CreateTopic(t, "orders", []types.BrokerID{1, 2, 3}, map[string]string{"min.insync.replicas": "2"})
	c.AwaitISR(t, "orders", 1, 2, 3)
	c.RestartWith(t, 3, brokersLogIn("SCRAM-SHA-512", "forgotten")...)
	if !book.has("can't log in at other brokers", "sasl.jaas.config", "tidemark user passwd broker", "user=broker") {
		t.Error("it doesn't say at its start what is wrong")
	}
	c.ProduceAll(t, "orders", kgo.AllISRAcks(), harness.Values("v", 3)...)
	harness.Eventually(t, "the refusal names the setting", func() bool {
		return book.has("fetch from a leader failed", "SCRAM-SHA-512", "sasl.jaas.config", "tidemark user passwd broker")
	})
	harness.Eventually(t, "the leader's audit names who was refused", func() bool { return book.has("log-in refused", "audit=true", "user=broker", "listener=INTERNAL") })
	c.AwaitISR(t, "orders", 1, 2)
	setPassword(t, c.Nodes[1], "broker", "forgotten")
	c.AwaitISR(t, "orders", 1, 2, 3)
	c.AwaitEqual(t, "orders", 1, 2, 3)
}

// TestABrokersMechanismThatIsntTaken: the setting is another one then.
func TestABrokersMechanismThatIsntTaken(t *testing.T) {
	book := &logBook{}
	c := harness.StartCluster(t, 2, append(securedTrio(t, "SCRAM-SHA-512"), harness.WithSetting("sasl.enabled.mechanisms", "SCRAM-SHA-512"),
		harness.WithOptions(broker.Options{Logger: slog.New(slog.NewTextHandler(book, nil))}))...)
	c.CreateTopic(t, "orders", []types.BrokerID{1, 2}, nil)
	c.AwaitISR(t, "orders", 1, 2)
	c.RestartWith(t, 2, brokersLogIn("SCRAM-SHA-256", "secret")...)
	harness.Eventually(t, "the refusal names the setting", func() bool { return book.has("doesn't offer SCRAM-SHA-256", "sasl.mechanism.inter.broker.protocol") })
}

// TestRotationOfTheBrokersPassword: the new password is set for the other mechanism first,
// the nodes are restarted with it one after the other, and then the old one goes. Nobody notices.
func TestRotationOfTheBrokersPassword(t *testing.T) {
	c := harness.StartCluster(t, 3, securedTrio(t, "SCRAM-SHA-512")...)
	c.CreateTopic(t, "orders", allThree, map[string]string{"min.insync.replicas": "2"})
	c.AwaitISR(t, "orders", 1, 2, 3)
	ctx, stop := context.WithCancel(t.Context())
	acked, client := make(chan []string, 1), c.Client(t)
	var written atomic.Int64
	go func() {
		var values []string
		for i := 0; ctx.Err() == nil; i++ {
			value := fmt.Sprint("v", i)
			if err := client.ProduceSync(ctx, &kgo.Record{Topic: "orders", Value: []byte(value)}).FirstErr(); err == nil {
				values = append(values, value)
				written.Add(1)
			} else if ctx.Err() == nil {
				t.Errorf("write %d: %v", i, err)
			}
		}
		acked <- values
	}()
	change := func(m kadm.ScramMechanism) {
		t.Helper()
		out, err := c.Any().Admin(t).AlterUserSCRAMs(harness.Context(t), nil, []kadm.UpsertSCRAM{{User: "broker", Mechanism: m, Iterations: 4096, Password: "fresh"}})
		if err == nil {
			err = out.Error()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	goesOn := func() {
		t.Helper()
		before := written.Load()
		harness.Eventually(t, "writes go on", func() bool { return written.Load() > before+1 })
	}
	goesOn()
	change(kadm.ScramSha256)
	for _, id := range allThree {
		back := c.RestartWith(t, id, brokersLogIn("SCRAM-SHA-256", "fresh")...)
		c.AwaitISR(t, "orders", 1, 2, 3)
		back.AwaitKnown(t, client)
		goesOn()
	}
	change(kadm.ScramSha512)
	c.Restart(t, 2) // new connections both ways
	c.AwaitISR(t, "orders", 1, 2, 3)
	goesOn()
	stop()
	values, _ := harness.Receive(t, "the writer ends", acked)
	if len(values) == 0 {
		t.Fatal("nothing was written")
	}
	got := c.Nodes[1].Consume(t, "orders", 0, 0, len(values))
	for _, v := range values {
		if !slices.Contains(got, v) {
			t.Errorf("%q was acknowledged and is gone", v)
		}
	}
}

// lockedSide is a node whose mirrors and brokers must log in.
func lockedSide(t *testing.T) *harness.Broker {
	t.Helper()
	b := guardedBroker(t, append(brokersLogIn("SCRAM-SHA-512", "inner"), append(slices.Clone(quick),
		harness.WithSetting("inter.broker.listener.name", "SASL_PLAINTEXT"), harness.WithSetting("connection.failed.authentication.delay.ms", "1"),
		harness.WithSetting("super.users", "User:ANONYMOUS;User:broker;User:mirror"))...)...)
	setPassword(t, b, "mirror", "between")
	return b
}

func mirrorLogIn(password string) map[string]string {
	return map[string]string{"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-256",
		"sasl.jaas.config": fmt.Sprintf(`org.apache.kafka.common.security.scram.ScramLoginModule required username="mirror" password="%s";`, password)}
}

// TestLockedSidesChangeRoles: the way back has credentials of its own, at the old
// side; a switchover that asks for it is refused, with what is missing, before anything is closed.
func TestLockedSidesChangeRoles(t *testing.T) {
	a, b := lockedSide(t), lockedSide(t)
	a.CreateTopic(t, "orders", 1, nil)
	a.Produce(t, "orders", 0, "a")
	mirrorOf(t, b, mirror.Spec{Bootstrap: []string{at(t, a, "SASL_PLAINTEXT")}, ClientConfig: mirrorLogIn("between")})
	awaitEnd(t, b, "orders", 0, 1)
	harness.Eventually(t, "it mirrors", func() bool { return statusOf(t, b, "orders", 0).State == meta.MirrorMirroring })
	refused := func(what string, texts ...string) {
		t.Helper()
		_, err := b.Mirrors().Switchover(harness.Context(t), "m", mirror.SwitchoverRequest{Reverse: true})
		for _, text := range append(texts, "nothing was changed", at(t, b, "SASL_PLAINTEXT")) {
			if err == nil || !errors.Is(err, mirror.ErrState) || !strings.Contains(err.Error(), text) {
				t.Errorf("%s: %v doesn't say %q", what, err, text)
			}
		}
		a.Produce(t, "orders", 0, what) // the old side takes writes as before
	}
	refused("no log-in at all", "mirror create m-back --no-start", "--source-config")
	back := mirror.Spec{Name: "m-back", Bootstrap: []string{at(t, b, "SASL_PLAINTEXT")}, ClientConfig: mirrorLogIn("wrong")}
	if err := a.Mirrors().Create(harness.Context(t), back); err != nil {
		t.Fatal(err)
	}
	refused("a wrong password", "mirror alter m-back --source-config", "SCRAM-SHA-256")
	if _, err := a.Mirrors().Alter(harness.Context(t), "m-back", mirror.Alteration{ClientConfig: mirrorLogIn("between")}); err != nil {
		t.Fatal(err)
	}
	st, err := b.Mirrors().Switchover(harness.Context(t), "m", mirror.SwitchoverRequest{Reverse: true})
	if err != nil || !strings.Contains(strings.Join(st.Message, "\n"), "mirrors this cluster now") {
		t.Fatalf("%v, %q", err, st.Message)
	}
	b.Produce(t, "orders", 0, "b")
	a.AwaitEnd(t, "orders", 4)
	if err := produceAs(t, a.Client(t, kgo.RecordRetries(0)), "orders"); err == nil {
		t.Error("the old side is written")
	}
	if _, err := a.Mirrors().Switchover(harness.Context(t), "m-back", mirror.SwitchoverRequest{}); err != nil {
		t.Fatalf("and back: %v", err)
	}
	if got := a.Produce(t, "orders", 0, "home"); got != 4 {
		t.Errorf("the next offset at home is %d", got)
	}
}

// TestRefusalsAreCounted: who was refused what shows in the metrics, what a list leaves out doesn't.
func TestRefusalsAreCounted(t *testing.T) {
	b := guardedBroker(t, harness.WithSetting("connection.failed.authentication.delay.ms", "1"))
	b.CreateTopic(t, "orders", 1, nil)
	setPassword(t, b, "alice", "secret")
	counted := func(name string, labels ...string) float64 {
		t.Helper()
		families, err := b.Gatherer().Gather()
		if err != nil {
			t.Fatal(err)
		}
		sum := 0.0
		for _, f := range families {
			if f.GetName() != name {
				continue
			}
			for _, m := range f.GetMetric() {
				fits := 0
				for _, l := range m.GetLabel() {
					if slices.Contains(labels, l.GetValue()) {
						fits++
					}
				}
				if fits == len(labels) {
					sum += m.GetCounter().GetValue()
				}
			}
		}
		return sum
	}
	const denials, failed, passed = "tidemark_security_denials_total", "kafka_server_socketservermetrics_failed_authentication_total", "kafka_server_socketservermetrics_successful_authentication_total"
	cl := as(t, b, sha256Of("alice", "secret"))
	if _, err := kadm.NewClient(cl).ListTopics(harness.Context(t)); err != nil {
		t.Fatal(err)
	}
	if counted(denials) != 0 || counted(passed, "SASL_PLAINTEXT", "SCRAM-SHA-256") < 1 || counted(failed) != 0 {
		t.Errorf("after a list: %v denials, %v log-ins, %v failed", counted(denials), counted(passed), counted(failed))
	}
	if err := produceAs(t, cl, "orders"); !errors.Is(err, kerr.TopicAuthorizationFailed) {
		t.Errorf("orders: %v", err)
	}
	if counted(denials, "TOPIC") < 1 {
		t.Error("the denial isn't counted")
	}
	if err := as(t, b, sha256Of("alice", "wrong"), kgo.RequestRetries(0)).Ping(harness.Context(t)); err == nil {
		t.Error("a wrong password is taken")
	}
	if counted(failed, "SASL_PLAINTEXT", "SCRAM-SHA-256") < 1 {
		t.Error("the failed log-in isn't counted")
	}
}

// TestTheFirstUser: a node whose only listener wants a log-in is of use from its first
// start on; a user that was taken away stays away while there is another one.
func TestTheFirstUser(t *testing.T) {
	b := harness.StartBroker(t, append(brokersLogIn("SCRAM-SHA-256", "first"), harness.WithSetting("listeners", "SASL_PLAINTEXT://127.0.0.1:0"),
		harness.WithSetting("authorizer", "acl"), harness.WithSetting("super.users", "User:broker;User:alice"), harness.WithSetting("connection.failed.authentication.delay.ms", "1"))...)
	admin := func(user, password string) *kadm.Client {
		return kadm.NewClient(as(t, b, sha256Of(user, password), kgo.RequestRetries(0)))
	}
	alter := func(by *kadm.Client, remove []kadm.DeleteSCRAM, set []kadm.UpsertSCRAM) {
		t.Helper()
		out, err := by.AlterUserSCRAMs(harness.Context(t), remove, set)
		if err == nil {
			err = out.Error()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	isIn := func(user, password string) bool {
		_, err := admin(user, password).ListBrokers(harness.Context(t))
		if err != nil && !errors.Is(err, kerr.SaslAuthenticationFailed) {
			t.Fatal(err)
		}
		return err == nil
	}
	alter(admin("broker", "first"), nil, []kadm.UpsertSCRAM{{User: "alice", Mechanism: kadm.ScramSha256, Iterations: 4096, Password: "a"}})
	for _, m := range []kadm.ScramMechanism{kadm.ScramSha256, kadm.ScramSha512} {
		alter(admin("alice", "a"), []kadm.DeleteSCRAM{{User: "broker", Mechanism: m}}, nil)
	}
	b = b.Restart(t)
	if isIn("broker", "first") || !isIn("alice", "a") {
		t.Error("a user that was taken away is back")
	}
	alter(admin("alice", "a"), []kadm.DeleteSCRAM{{User: "alice", Mechanism: kadm.ScramSha256}}, nil)
	b = b.Restart(t)
	if !isIn("broker", "first") {
		t.Error("nobody can ever log in here again")
	}
}
