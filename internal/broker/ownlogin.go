package broker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"tidemark/internal/auth"
	"tidemark/internal/config"
	"tidemark/internal/core/control"
	"tidemark/internal/core/meta"
	"tidemark/internal/source"
)

// listenerBetweenBrokers names the listener by which brokers reach each other. Of its
// two keys one at most is set; the second has Kafka's meaning: the listener of the protocol's name.
func listenerBetweenBrokers(c *config.Broker) string {
	return cmp.Or(c.InterBrokerListener, c.InterBrokerProtocol, c.Listeners[0].Name)
}

// securePeers completes the client of connections between brokers: it shows the
// certificate as it is renewed, and says what a refused log-in means for a broker.
func (b *Broker) securePeers(cfg *source.Config) error {
	if cfg.TLS != nil {
		own, err := b.tlsConfig()
		if err != nil {
			return err
		}
		cfg.TLS.Certificates, cfg.TLS.GetClientCertificate = nil, own.GetClientCertificate
	}
	if cfg.SASL != nil {
		cfg.SASL.Advice = fmt.Sprintf("this node's own log-in at other brokers is sasl.jaas.config: give it the password that the cluster has for %s, or the cluster that one: tidemark user passwd %s",
			cfg.SASL.Username, cfg.SASL.Username)
		cfg.SASL.OtherAdvice = "sasl.mechanism.inter.broker.protocol must be one that every broker has in sasl.enabled.mechanisms"
		b.ownLogIn = cfg.SASL
	}
	return nil
}

// settleOwnLogIn makes the first user of a cluster that has none, and says whether
// this node can log in at others.
//
// A password that is wrong never stops a start: if all nodes were started with one
// that the cluster doesn't have yet, nobody could give it to the cluster any more.
func (b *Broker) settleOwnLogIn(ctx context.Context) error {
	if b.ownLogIn == nil {
		return nil
	}
	if err := b.makeFirstUser(ctx); err != nil {
		return err
	}
	if why := b.ownLogInFault(b.Image()); why != "" {
		b.logger.Error("this node can't log in at other brokers: its replicas will stay behind", "user", b.ownLogIn.Username, "mechanism", b.ownLogIn.Mechanism, "why", why)
	}
	return nil
}

// makeFirstUser gives a cluster without a single user this node's own one: else
// nobody could ever log in where every listener wants it (ADR 21). Of nodes that
// start at once one makes it.
func (b *Broker) makeFirstUser(ctx context.Context) error {
	var records []meta.ScramRecord
	for _, mechanism := range []string{auth.ScramSHA256, auth.ScramSHA512} {
		c, err := auth.NewCredential(mechanism, b.ownLogIn.Password)
		if err != nil {
			return fmt.Errorf("sasl.jaas.config: %w", err)
		}
		records = append(records, meta.ScramRecord{User: b.ownLogIn.Username, Mechanism: mechanism,
			Salt: c.Salt, StoredKey: c.StoredKey, ServerKey: c.ServerKey, Iterations: int32(c.Iterations)})
	}
	made := false
	err := b.plan(ctx, func(i *meta.Image) ([]meta.Plan, error) {
		made = false
		for range i.Scrams() {
			return nil, nil
		}
		plan, err := control.ChangeCredentials(i, control.CredentialChange{Set: records}, b.me())
		if errors.Is(err, control.ErrSecurityLevel) {
			return nil, nil // an older program's cluster: it has no users until it is upgraded
		}
		made = err == nil
		return []meta.Plan{plan}, err
	})
	if err == nil && made {
		b.logger.Warn("the cluster had no users: it has this node's own one now, by sasl.jaas.config", "user", b.ownLogIn.Username)
	}
	return err
}

// ownLogInFault compares this node's password with what the cluster has of it; empty: it will do.
func (b *Broker) ownLogInFault(image *meta.Image) string {
	own, mechanisms := b.ownLogIn, []string{b.ownLogIn.Mechanism}
	if own.Mechanism == auth.Plain {
		mechanisms = []string{auth.ScramSHA512, auth.ScramSHA256}
	}
	found := false
	for _, mechanism := range mechanisms {
		e, ok := image.Scram(meta.ScramID{User: own.Username, Mechanism: mechanism})
		if !ok {
			continue
		}
		found = true
		if credentialOf(e.Record).IsPassword(mechanism, own.Password) {
			return ""
		}
	}
	if !found {
		return fmt.Sprintf("the cluster has no password for %s: tidemark user add %s, or passwd with --mechanism; or name another user in sasl.jaas.config",
			strings.Join(mechanisms, " or "), own.Username)
	}
	return "the cluster has another password: " + own.Advice
}

func credentialOf(r *meta.ScramRecord) auth.Credential {
	return auth.Credential{Salt: r.Salt, StoredKey: r.StoredKey, ServerKey: r.ServerKey, Iterations: int(r.Iterations)}
}
