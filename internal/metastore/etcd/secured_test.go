package etcd_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"tidemark/internal/core/meta"
	"tidemark/internal/metastore"
	"tidemark/internal/metastore/etcd"
	"tidemark/internal/metastore/storetest"
)

// startSecured runs an etcd that wants certificates and users: root, tidemark
// (who may touch /tidemark/) and nobody (who may touch nothing).
func startSecured(t *testing.T, a *storetest.Authority) (addr string, files *etcd.TLSFiles) {
	t.Helper()
	const anyPort = "127.0.0.1:0"
	cert := a.Certificate("127.0.0.1")
	p := launch(t, member{Name: "m", Dir: filepath.Join(t.TempDir(), "etcd"), Client: anyPort, Peer: anyPort, Cluster: "m=http://" + anyPort,
		MaxTxnOps: 128, Cert: cert, CA: a.File}).ready()
	files = &etcd.TLSFiles{Cert: cert, CA: a.File}
	cfg, err := files.Config()
	if err != nil {
		t.Fatal(err)
	}
	cli, err := clientv3.New(clientv3.Config{Endpoints: []string{"https://" + p.addr}, TLS: cfg, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer cli.Close()
	ctx := bounded(t)
	steps := []func() error{
		func() error { _, err := cli.UserAdd(ctx, "root", "r"); return err },
		func() error { _, err := cli.UserGrantRole(ctx, "root", "root"); return err },
		func() error { _, err := cli.UserAdd(ctx, "tidemark", "secret"); return err },
		func() error { _, err := cli.UserAdd(ctx, "nobody", "n"); return err },
		func() error { _, err := cli.RoleAdd(ctx, "tidemark"); return err },
		func() error {
			_, err := cli.RoleGrantPermission(ctx, "tidemark", "/tidemark/", clientv3.GetPrefixRangeEnd("/tidemark/"), clientv3.PermissionType(clientv3.PermReadWrite))
			return err
		},
		func() error { _, err := cli.UserGrantRole(ctx, "tidemark", "tidemark"); return err },
		func() error { _, err := cli.AuthEnable(ctx); return err },
	}
	for i, do := range steps {
		if err := do(); err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
	}
	return "https://" + p.addr, files
}

// TestSecuredEtcd: with certificates and a user everything works, and what is
// missing or wrong is said in a sentence.
func TestSecuredEtcd(t *testing.T) {
	own, other := storetest.NewAuthority(t), storetest.NewAuthority(t)
	addr, files := startSecured(t, own)
	dialAs := func(f *etcd.TLSFiles, addr, user, password string) (*etcd.Store, error) {
		o := etcd.DialOptions{Options: etcd.Options{AttemptTimeout: 3 * time.Second}, Endpoints: []string{addr}, Username: user, Password: password}
		if f != nil {
			cfg, err := f.Config()
			if err != nil {
				t.Fatal(err)
			}
			o.TLS = cfg
		}
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		return etcd.Dial(ctx, o)
	}
	refused := func(f *etcd.TLSFiles, addr, user, password, words string) {
		t.Helper()
		s, err := dialAs(f, addr, user, password)
		if err == nil {
			s.Close()
		}
		if !errors.Is(err, metastore.ErrUnavailable) || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v, want %q", user, err, words)
		}
	}
	refused(files, addr, "tidemark", "wrong", "metadata.password")
	refused(files, addr, "", "", "grant-permission") // the certificate's name is a user's, to etcd
	refused(files, addr, "nobody", "n", "grant-permission")
	refused(&etcd.TLSFiles{Cert: other.Certificate("127.0.0.1"), CA: own.File}, addr, "tidemark", "secret", "doesn't accept this node's certificate")
	refused(&etcd.TLSFiles{Cert: own.Certificate("127.0.0.1"), CA: other.File}, addr, "tidemark", "secret", "isn't signed by an authority")
	refused(nil, strings.Replace(addr, "https", "http", 1), "", "", "metadata.ssl.truststore.location")

	s, err := dialAs(files, addr, "tidemark", "secret")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	lease, err := s.Grant(bounded(t), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	plan := meta.Plan{Why: "write", If: []meta.Compare{meta.Absent("/tidemark/a")}, Then: []meta.Op{meta.PutLeased("/tidemark/a", []byte("1"), lease), meta.Put("/tidemark/b", []byte("2"))}}
	at, err := metastore.Commit(bounded(t), s, plan)
	if err != nil {
		t.Fatal(err)
	}
	if kvs, _, err := s.Range(bounded(t), "/tidemark/"); err != nil || len(kvs) != 2 {
		t.Errorf("%v, %v", kvs, err)
	}
	w := s.Watch(bounded(t), "/tidemark/", at-1)
	defer w.Close()
	if events, err := w.Next(bounded(t)); err != nil || len(events.Events) != 2 {
		t.Errorf("%+v, %v", events, err)
	}
	if _, err := s.KeepAlive(bounded(t), lease); err != nil {
		t.Error(err)
	}
	if err := s.Revoke(bounded(t), lease); err != nil {
		t.Error(err)
	}
}
