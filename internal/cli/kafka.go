package cli

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"tidemark/internal/source"
)

// clientOptions say how to reach the target's Kafka address: as anybody may, or with
// what the properties file of --command-config says of TLS and log-ins.
func (t Target) clientOptions() ([]kgo.Opt, error) {
	seeds := strings.Split(t.Bootstrap, ",")
	opts := []kgo.Opt{kgo.SeedBrokers(seeds...), kgo.ClientID("tidemark-cli"), kgo.DialTimeout(5 * time.Second)}
	if t.CommandConfig == "" {
		return opts, nil
	}
	props, err := source.LoadProperties(t.CommandConfig)
	if err != nil {
		return nil, fmt.Errorf("%w: --command-config: %w", errUsage, err)
	}
	cfg, err := source.NewConfig(seeds, props)
	if err != nil {
		return nil, fmt.Errorf("%w: --command-config %s: %w", errUsage, t.CommandConfig, err)
	}
	if cfg.TLS != nil {
		opts = append(opts, kgo.DialTLSConfig(cfg.TLS))
	}
	if cfg.SASL != nil {
		opts = append(opts, kgo.SASL(logIn(cfg.SASL)))
	}
	return opts, nil
}

// logIn gives the client's side of a log-in; package source has checked the mechanism.
func logIn(s *source.SASLConfig) sasl.Mechanism {
	switch s.Mechanism {
	case mechanism512:
		return scram.Auth{User: s.Username, Pass: s.Password}.AsSha512Mechanism()
	case mechanism256:
		return scram.Auth{User: s.Username, Pass: s.Password}.AsSha256Mechanism()
	default:
		return plain.Auth{User: s.Username, Pass: s.Password}.AsMechanism()
	}
}

// reach adds the address to an error of a request, and where a listener hung up
// without a word what it most likely wanted.
func (t Target) reach(err error) error {
	if err == nil {
		return nil
	}
	var silent *kgo.ErrFirstReadEOF
	if t.CommandConfig == "" && (errors.As(err, &silent) || errors.Is(err, io.EOF)) {
		return fmt.Errorf("%s: %w; if that listener wants TLS or a log-in, name a file with them by --command-config", t.Bootstrap, err)
	}
	var dial *net.OpError
	if errors.As(err, &dial) && dial.Op == "dial" {
		return fmt.Errorf("no answer from %s: %w (is the node running? --bootstrap names its Kafka address)", t.Bootstrap, err)
	}
	return fmt.Errorf("%s: %w", t.Bootstrap, err)
}
