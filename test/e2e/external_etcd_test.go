package e2e

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	etcdserver "go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"tidemark/internal/metastore/etcd"
	"tidemark/internal/metastore/storetest"
	"tidemark/test/e2e/harness"
)

// startUsersEtcd runs an etcd of the user's own, with TLS and a user for Tidemark,
// and gives the settings that a node needs for it.
func startUsersEtcd(t *testing.T) []harness.Option {
	t.Helper()
	authority := storetest.NewAuthority(t)
	cert := authority.Certificate("127.0.0.1")
	cfg := etcdserver.NewConfig()
	cfg.Dir, cfg.UnsafeNoFsync, cfg.EnableGRPCGateway = t.TempDir(), true, false
	cfg.BcryptCost = 4 // the least: clients log in for each stream, and a busy machine has no time for more
	cfg.ZapLoggerBuilder = etcdserver.NewZapLoggerBuilder(zap.NewNop())
	nowhere := url.URL{Scheme: "http", Host: "127.0.0.1:0"}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{nowhere}, []url.URL{nowhere}
	cfg.InitialCluster = cfg.Name + "=" + nowhere.String()
	client := url.URL{Scheme: "https", Host: "127.0.0.1:0"}
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	cfg.ClientTLSInfo = transport.TLSInfo{CertFile: cert, KeyFile: cert, TrustedCAFile: authority.File, ClientCertAuth: true}
	e, err := etcdserver.StartEtcd(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	harness.Receive(t, "etcd is ready", e.Server.ReadyNotify())
	addr := e.Clients[0].Addr().String()
	makeUser(t, addr, &etcd.TLSFiles{Cert: cert, CA: authority.File})
	return []harness.Option{
		harness.WithSetting("metadata", "etcd://"+addr), harness.WithSetting("metadata.username", "tidemark"), harness.WithSetting("metadata.password", "secret"),
		harness.WithSetting("metadata.ssl.keystore.location", cert), harness.WithSetting("metadata.ssl.truststore.location", authority.File),
	}
}

// makeUser makes a user who may touch Tidemark's keys alone, and turns authentication on.
func makeUser(t *testing.T, addr string, files *etcd.TLSFiles) {
	t.Helper()
	tls, err := files.Config()
	if err != nil {
		t.Fatal(err)
	}
	cli, err := clientv3.New(clientv3.Config{Endpoints: []string{"https://" + addr}, TLS: tls, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer cli.Close()
	ctx := harness.Context(t)
	for i, do := range []func() error{
		func() error { _, err := cli.UserAdd(ctx, "root", "r"); return err },
		func() error { _, err := cli.UserGrantRole(ctx, "root", "root"); return err },
		func() error { _, err := cli.UserAdd(ctx, "tidemark", "secret"); return err },
		func() error { _, err := cli.RoleAdd(ctx, "tidemark"); return err },
		func() error {
			_, err := cli.RoleGrantPermission(ctx, "tidemark", "/tidemark/", clientv3.GetPrefixRangeEnd("/tidemark/"), clientv3.PermissionType(clientv3.PermReadWrite))
			return err
		},
		func() error { _, err := cli.UserGrantRole(ctx, "tidemark", "tidemark"); return err },
		func() error { _, err := cli.AuthEnable(ctx); return err },
	} {
		if err := do(); err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
	}
}

// TestThreeBrokersOnAUsersEtcd: replicas, elections and a controlled shutdown,
// with the metadata in an etcd that wants certificates and a user.
func TestThreeBrokersOnAUsersEtcd(t *testing.T) {
	settings := startUsersEtcd(t)
	nodes := make(map[int]*harness.Broker)
	for id := 1; id <= 3; id++ {
		nodes[id] = harness.StartBroker(t, append([]harness.Option{harness.WithSetting("node.id", fmt.Sprint(id)), harness.WithSetting("min.insync.replicas", "2")}, settings...)...)
	}
	harness.Eventually(t, "everybody knows everybody", func() bool { return known(nodes[1]) == 3 && known(nodes[2]) == 3 && known(nodes[3]) == 3 })
	if _, err := nodes[1].Admin(t).CreateTopic(harness.Context(t), 3, 3, nil, "a"); err != nil {
		t.Fatal(err)
	}
	produce := func(b *harness.Broker, value string) {
		t.Helper()
		cl := b.Client(t, kgo.RequiredAcks(kgo.AllISRAcks()), kgo.RecordPartitioner(kgo.ManualPartitioner()))
		for n := range int32(3) {
			if err := cl.ProduceSync(harness.Context(t), &kgo.Record{Topic: "a", Partition: n, Value: []byte(value)}).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
	}
	produce(nodes[1], "x")
	nodes[3].Stop(t)
	produce(nodes[1], "y")
	again := nodes[3].Restart(t)
	harness.Eventually(t, "the third is in sync again", func() bool {
		for n := range int32(3) {
			if r := nodes[1].RecordOf("a", n); r == nil || len(r.ISR) != 3 {
				return false
			}
		}
		return true
	})
	if got := again.Consume(t, "a", 0, 0, 2); strings.Join(got, "") != "xy" {
		t.Errorf("%v", got)
	}
	all, err := nodes[1].Members(context.Background())
	if err != nil || len(all) != 0 {
		t.Errorf("members of somebody else's etcd: %+v, %v", all, err)
	}
	wrong := append([]harness.Option{harness.WithSetting("node.id", "4")}, settings...)
	_, err = harness.TryBroker(t, append(wrong, harness.WithSetting("metadata.password", "x"))...)
	if err == nil || !strings.Contains(err.Error(), "metadata.password") {
		t.Errorf("a wrong password: %v", err)
	}
}
