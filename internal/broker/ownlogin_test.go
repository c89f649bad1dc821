package broker

import (
	"crypto/tls"
	"testing"

	"tidemark/internal/config"
	"tidemark/internal/metastore/storetest"
	"tidemark/internal/source"
	"tidemark/internal/telemetry"
)

// TestPeersAreShownTheRenewedCertificate: the client between brokers asks for it with
// each connection, and keeps none of its own.
func TestPeersAreShownTheRenewedCertificate(t *testing.T) {
	file := storetest.NewAuthority(t).Certificate("localhost")
	b := &Broker{cfg: &config.Broker{SSLKeystoreLocation: file}, ctx: t.Context(), logger: telemetry.Discard()}
	cfg := &source.Config{TLS: &tls.Config{Certificates: make([]tls.Certificate, 1)}}
	if err := b.securePeers(cfg); err != nil {
		t.Fatal(err)
	}
	if cfg.TLS.Certificates != nil || cfg.TLS.GetClientCertificate == nil {
		t.Fatalf("the certificate of the start is shown for ever: %+v", cfg.TLS)
	}
	if shown, err := cfg.TLS.GetClientCertificate(nil); err != nil || len(shown.Certificate) == 0 {
		t.Errorf("shown %v, %v", shown, err)
	}
}

// TestListenerBetweenBrokers: by its name, by Kafka's protocol, else the first.
func TestListenerBetweenBrokers(t *testing.T) {
	f := func(want string, settings ...string) {
		t.Helper()
		all := []config.Setting{config.Flag("test", "listeners", "PLAINTEXT://h:1,SASL_PLAINTEXT://h:2")}
		for i := 0; i < len(settings); i += 2 {
			all = append(all, config.Flag("test", settings[i], settings[i+1]))
		}
		cfg, _, err := config.Resolve(all)
		if err != nil {
			t.Fatal(err)
		}
		if got := listenerBetweenBrokers(cfg); got != want {
			t.Errorf("%v: %s, want %s", settings, got, want)
		}
	}
	f("PLAINTEXT")
	f("SASL_PLAINTEXT", "security.inter.broker.protocol", "SASL_PLAINTEXT")
	f("SASL_PLAINTEXT", "inter.broker.listener.name", "SASL_PLAINTEXT")
}
