package embed

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"

	"go.etcd.io/etcd/client/pkg/v3/transport"

	"tidemark/internal/metastore/etcd"
)

// ErrPlaintext is matched when a member would listen without TLS where others than this machine reach it.
var ErrPlaintext = errors.New("the metadata would be open to anyone on the network")

// scheme is how members and clients are spoken to.
func (o Options) scheme() string {
	if o.TLS != nil {
		return "https"
	}
	return "http"
}

func (o Options) url(host string) url.URL { return url.URL{Scheme: o.scheme(), Host: host} }

// tlsInfo is etcd's form of the files, the same for peers and clients: both sides
// show a certificate. The names in a client's certificate aren't compared with its
// address, because the authority signs for nobody but this cluster's nodes.
func (o Options) tlsInfo() transport.TLSInfo {
	if o.TLS == nil {
		return transport.TLSInfo{}
	}
	return transport.TLSInfo{
		CertFile: o.TLS.Cert, KeyFile: o.TLS.KeyFile(), TrustedCAFile: o.TLS.CA,
		ClientCertAuth: true, SkipClientSANVerify: true, MinVersion: tls.VersionTLS12, Logger: etcd.Logger(o.Logger),
	}
}

// clientTLS is the configuration of connections to members, nil for plain ones.
func (o Options) clientTLS() (*tls.Config, error) {
	if o.TLS == nil {
		return nil, nil
	}
	return o.TLS.Config()
}

// mayListen refuses to open ports without TLS on an address that other machines
// reach, unless the operator said that the network may be trusted.
func (o Options) mayListen() error {
	if o.TLS != nil {
		_, err := o.TLS.Config()
		return err
	}
	if o.Plaintext || isLoopback(o.Host) {
		return nil
	}
	return fmt.Errorf("%w: this node's metadata member would listen on %s without TLS, and who reaches it can read and change everything; "+
		"set metadata.ssl.keystore.location and metadata.ssl.truststore.location on every node, or, on a network that only the nodes reach, metadata.plaintext=true", ErrPlaintext, o.Host)
}

func isLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// sameScheme refuses a folder whose member speaks otherwise than the settings
// say: the other members know its address with its scheme.
func (o Options) sameScheme(p *place) error {
	if p.TLS == (o.TLS != nil) {
		return nil
	}
	have, want := "without TLS", "with TLS"
	if p.TLS {
		have, want = want, have
	}
	return fmt.Errorf("metadata folder %s: its member has run %s and the settings (metadata.ssl.*) say %s; to change a cluster, stop all nodes, "+
		"make one of them the only member (tidemark cluster reset), start it with the new settings, and join the others with empty metadata folders", o.Dir, have, want)
}

// probe looks at the members as this node will speak to them, before it asks to be one.
func (s *Server) probe(ctx context.Context, endpoints []string) error {
	cfg, err := s.o.clientTLS()
	if err != nil {
		return err
	}
	var faults []string
	for _, endpoint := range endpoints {
		err := etcd.Probe(ctx, endpoint, cfg)
		if err == nil {
			return nil
		}
		faults = append(faults, err.Error())
	}
	if len(faults) == 0 {
		return nil
	}
	return fmt.Errorf("this node can't speak to the cluster's metadata members: %s", strings.Join(faults, "; "))
}
