package embed_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"tidemark/internal/metastore/embed"
	"tidemark/internal/metastore/etcd"
	"tidemark/internal/metastore/storetest"
)

// secured gives every node of a cluster a certificate of one authority.
func secured(t *testing.T, a *storetest.Authority) *grown {
	g := newGrown(t)
	file := a.Certificate("127.0.0.1", "localhost")
	g.options = func(_ string, o *embed.Options) { o.TLS = &etcd.TLSFiles{Cert: file, CA: a.File} }
	return g
}

// refused starts a node that must not get in, and looks that the cluster counts it nowhere.
func (g *grown) refused(name string, words string) {
	g.t.Helper()
	_, err := g.try(within(g.t), name, "a")
	if err == nil || !strings.Contains(err.Error(), words) {
		g.t.Errorf("%s: %v, want %q", name, err, words)
	}
	all, err := g.nodes["a"].Members(within(g.t))
	if err != nil || len(all) != 1 {
		g.t.Errorf("%s: members %+v, %v", name, all, err)
	}
}

// TestTLSCluster: members show each other certificates of one authority; who
// has none, or another's, gets in nowhere and is told why, before it is counted.
func TestTLSCluster(t *testing.T) {
	own, other := storetest.NewAuthority(t), storetest.NewAuthority(t)
	g := secured(t, own)
	g.start("a", "")
	trusting := g.options
	with := func(name string, files *etcd.TLSFiles) {
		g.options = func(n string, o *embed.Options) {
			if trusting(n, o); n == name {
				o.TLS = files
			}
		}
	}
	with("plain", nil)
	g.refused("plain", "would speak http")
	with("stranger", &etcd.TLSFiles{Cert: other.Certificate("127.0.0.1"), CA: other.File})
	g.refused("stranger", "isn't signed by an authority in this node's metadata.ssl.truststore.location")
	with("impostor", &etcd.TLSFiles{Cert: other.Certificate("127.0.0.1"), CA: own.File})
	g.refused("impostor", "doesn't accept this node's certificate")
	with("no file", &etcd.TLSFiles{Cert: "/nowhere/cert.pem", CA: own.File})
	g.refused("no file", "/nowhere/cert.pem")
	with("no authority", &etcd.TLSFiles{Cert: own.Certificate("127.0.0.1"), CA: "/nowhere/ca.pem"})
	g.refused("no authority", "metadata.ssl.truststore.location")

	g.options = trusting
	g.start("b", "a")
	all := g.voters("a", 2)
	for _, m := range all {
		if !strings.HasPrefix(m.Peer, "https://") || !strings.HasPrefix(m.Client, "https://") || !m.Healthy {
			t.Errorf("%+v", m)
		}
	}
	g.put("b", "/k", "1")
	g.want("a", "/k", "1")
	if err := etcd.Probe(within(t), all[0].Client, nil); err == nil || !strings.Contains(err.Error(), "TLS") {
		t.Errorf("a plain client: %v", err)
	}
	g.stop("b")
	g.start("b", "")
	g.want("b", "/k", "1")
	g.stop("b")
	with("b", nil)
	if _, err := g.try(within(t), "b", ""); err == nil || !strings.Contains(err.Error(), "has run with TLS") {
		t.Errorf("a member that lost its settings: %v", err)
	}
}

// TestWrongName: a certificate that isn't made for the member's address is named as such.
func TestWrongName(t *testing.T) {
	a := storetest.NewAuthority(t)
	g := secured(t, a)
	trusting := g.options
	file := a.Certificate("elsewhere.example")
	g.options = func(name string, o *embed.Options) {
		if trusting(name, o); name == "a" {
			o.TLS = &etcd.TLSFiles{Cert: file, CA: a.File}
		}
	}
	g.start("a", "")
	g.refused("b", "isn't made for that name")
}

// TestPlaintextStaysAtHome: a member opens no port without TLS where other machines reach it.
func TestPlaintextStaysAtHome(t *testing.T) {
	g := newGrown(t)
	g.options = func(name string, o *embed.Options) {
		if name == "a" {
			o.Host = "192.0.2.1" // nobody's (RFC 5737)
		}
	}
	g.start("a", "")
	_, err := g.try(within(t), "b", "a")
	if !errors.Is(err, embed.ErrPlaintext) || !strings.Contains(err.Error(), "metadata.plaintext=true") {
		t.Errorf("%v", err)
	}
	g.put("a", "/goes-on", "1")
	allowed := embed.Options{Dir: filepath.Join(t.TempDir(), "m"), Name: "x", Host: "192.0.2.1", Plaintext: true, UnsafeNoSync: true}
	s, err := embed.Start(context.Background(), allowed)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Admit(within(t), joinOf("y", "http://127.0.0.1:1")); errors.Is(err, embed.ErrPlaintext) || err == nil {
		t.Errorf("with metadata.plaintext it must fail for want of the address alone: %v", err)
	}
}
