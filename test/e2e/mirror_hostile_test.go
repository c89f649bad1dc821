package e2e

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"

	"tidemark/internal/batch"
	"tidemark/internal/broker/mirror"
	"tidemark/internal/core/meta"
	core "tidemark/internal/core/mirror"
	"tidemark/test/e2e/harness"
)

func newKfake(t testing.TB, opts ...kfake.Opt) (*kfake.Cluster, *kgo.Client) {
	t.Helper()
	k, err := kfake.NewCluster(opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	return k, harness.Connect(t, kgo.SeedBrokers(k.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
}

func produceTo(t testing.TB, c *kgo.Client, topic string, partition int32, values ...string) {
	t.Helper()
	for _, v := range values {
		if err := c.ProduceSync(harness.Context(t), &kgo.Record{Topic: topic, Partition: partition, Value: []byte(v)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
}

// poisoned breaks the word POISON in everything that a kfake sends, so that the
// batch that holds it no longer fits its checksum.
func poisoned(network, address string) (net.Listener, error) {
	ln, err := net.Listen(network, address)
	return &poisonedListener{ln}, err
}

type poisonedListener struct{ net.Listener }

func (l *poisonedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return &poisonedConn{c}, err
}

type poisonedConn struct{ net.Conn }

func (c *poisonedConn) Write(b []byte) (int, error) {
	return c.Conn.Write(bytes.ReplaceAll(b, []byte("POISON"), []byte("P0ISON")))
}

// TestPendingGroupOffset: a group is further at the source than the mirror's data
// goes. Its offset waits, and is brought down to the log at a failover.
func TestPendingGroupOffset(t *testing.T) {
	k, c := newKfake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "t"), kfake.ListenFn(poisoned))
	standby := startStandby(t)
	mirrorOf(t, standby, mirror.Spec{Bootstrap: k.ListenAddrs(), Groups: "read.*"})
	produceTo(t, c, "t", 0, "good", "POISON", "never")
	awaitReason(t, standby, "t", 0, core.CorruptSource)
	commit(t, kadm.NewClient(c), "readers", "t", 3)
	commit(t, kadm.NewClient(c), "others", "t", 1)
	harness.Eventually(t, "the offset waits", func() bool {
		d, err := standby.Mirrors().Describe(harness.Context(t), "m")
		return err == nil && len(d.Groups) == 1 && d.Groups[0].Reason == "PENDING" && d.Groups[0].Source == 3 && d.Groups[0].Standby == -1
	})
	st := failover(t, standby)
	if at := committed(t, standby.Admin(t), "readers", "t", 0); at != 1 {
		t.Errorf("after the failover the group is at %d, want 1", at)
	}
	if at := committed(t, standby.Admin(t), "others", "t", 0); at != -1 {
		t.Errorf("a group that is filtered out is at %d", at)
	}
	if !strings.Contains(strings.Join(st.Message, "\n"), "at most 2 records are missing") {
		t.Errorf("message: %q", st.Message)
	}
}

func TestPoisonedPartitionHurtsNoOther(t *testing.T) {
	k, c := newKfake(t, kfake.NumBrokers(1), kfake.SeedTopics(3, "t"), kfake.ListenFn(poisoned))
	standby := startStandby(t)
	mirrorOf(t, standby, mirror.Spec{Bootstrap: k.ListenAddrs()})
	produceTo(t, c, "t", 1, "good", "POISON", "never")
	for i := range 20 {
		produceTo(t, c, "t", 0, fmt.Sprint(i))
		produceTo(t, c, "t", 2, fmt.Sprint(i))
	}
	awaitEnd(t, standby, "t", 0, 20)
	awaitEnd(t, standby, "t", 2, 20)
	if p := awaitReason(t, standby, "t", 1, core.CorruptSource); p.End != 1 {
		t.Errorf("the poisoned partition: %+v", p)
	}
	produceTo(t, c, "t", 0, "more")
	awaitEnd(t, standby, "t", 0, 21)
}

// rewriteFolder gives a stopped source's partition other bytes at the same offsets and epochs.
func rewriteFolder(t testing.TB, source *harness.Broker, partition, old, changed string) {
	t.Helper()
	path := filepath.Join(source.Dir, partition, "00000000000000000000.log")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for it := batch.Iterate(data); it.Next(); {
		if at := bytes.Index(it.Raw, []byte(old)); at >= 0 {
			copy(it.Raw[at:], changed)
			binary.BigEndian.PutUint32(it.Raw[17:], batch.Checksum(it.Raw))
			n++
		}
	}
	if n == 0 {
		t.Fatalf("%q is not in %s", old, path)
	}
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestSourceRewritten(t *testing.T) {
	source := harness.StartBroker(t)
	at := newProxy(t, source.Addr)
	standby := startStandby(t)
	source.CreateTopic(t, "t", 1, nil)
	mirrorOf(t, standby, mirror.Spec{Bootstrap: []string{at.ln.Addr().String()}})
	source.Produce(t, "t", 0, "first", "second")
	awaitEnd(t, standby, "t", 0, 2)
	source.Stop(t)
	rewriteFolder(t, source, "t-0", "second", "SECOND")
	source = source.Restart(t)
	at.setTarget(source.Addr)
	p := awaitReason(t, standby, "t", 0, core.SourceRewritten)
	if p.End != 2 {
		t.Errorf("partition: %+v", p)
	}
	if got := standby.Consume(t, "t", 0, 0, 2); got[1] != "second" {
		t.Errorf("reads %q", got)
	}
}

func TestVerifyFindsADifference(t *testing.T) {
	source := harness.StartBroker(t)
	standby := startStandby(t)
	at := newProxy(t, source.Addr)
	source.CreateTopic(t, "t", 1, nil)
	mirrorOf(t, standby, mirror.Spec{Bootstrap: []string{at.ln.Addr().String()}})
	source.Produce(t, "t", 0, "a", "first", "second", "third")
	awaitEnd(t, standby, "t", 0, 4)
	checkVerify(t, standby)
	source.Stop(t)
	rewriteFolder(t, source, "t-0", "second", "SECOND")
	source = source.Restart(t)
	at.setTarget(source.Addr)
	v, err := standby.Mirrors().Verify(harness.Context(t), "m", nil)
	if err != nil {
		t.Fatal(err)
	}
	if p := v.Partitions[0]; v.Equal || !strings.Contains(p.Difference, "offset 2: CRC") || p.VerifiedTo != 2 {
		t.Errorf("verify: %+v", v)
	}
}

func TestOldFetchVersions(t *testing.T) {
	versions := kversion.V2_3_0()
	k, c := newKfake(t, kfake.NumBrokers(2), kfake.SeedTopics(2, "t"), kfake.MaxVersions(versions))
	standby := startStandby(t)
	mirrorOf(t, standby, mirror.Spec{Bootstrap: k.ListenAddrs()})
	produceTo(t, c, "t", 0, "1", "2")
	awaitEnd(t, standby, "t", 0, 2)
	k.ShufflePartitionLeaders()
	produceTo(t, c, "t", 0, "3")
	produceTo(t, c, "t", 1, "x")
	awaitEnd(t, standby, "t", 0, 3)
	awaitEnd(t, standby, "t", 1, 1)
	standby = standby.Restart(t)
	produceTo(t, c, "t", 0, "4")
	awaitEnd(t, standby, "t", 0, 4)
	checkVerify(t, standby)
}

func TestSourceWithLogIn(t *testing.T) {
	k, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.EnableSASL(), kfake.Superuser("SCRAM-SHA-256", "mirror", "right"), kfake.SeedTopics(1, "t"))
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	standby := startStandby(t)
	props := func(password string) map[string]string {
		return map[string]string{
			"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-256",
			"sasl.jaas.config": `org.apache.kafka.common.security.scram.ScramLoginModule required username="mirror" password="` + password + `";`,
		}
	}
	mirrorOf(t, standby, mirror.Spec{Bootstrap: k.ListenAddrs(), ClientConfig: props("right")})
	harness.Eventually(t, "the topic mirrors", func() bool { return statusOf(t, standby, "t", 0).State == meta.MirrorMirroring })
	d, err := standby.Mirrors().Describe(harness.Context(t), "m")
	if err != nil || strings.Contains(fmt.Sprint(d), "right") {
		t.Errorf("describe shows the password: %v, %v", d, err)
	}
	wrong := mirror.Spec{Name: "wrong", Bootstrap: k.ListenAddrs(), ClientConfig: props("wrong")}
	if err := standby.Mirrors().Create(harness.Context(t), wrong); err != nil {
		t.Fatal(err)
	}
	if err := standby.Mirrors().Start(harness.Context(t), "wrong"); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "a wrong password is told", func() bool {
		st, err := standby.Mirrors().Status(harness.Context(t), "wrong")
		return err == nil && st.State == "CONNECTING" && strings.Contains(st.Reason, `user "mirror"`)
	})
}
