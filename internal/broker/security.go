package broker

import (
	"context"
	"fmt"
	"net"
	"time"

	"tidemark/internal/auth"
	"tidemark/internal/broker/api"
	"tidemark/internal/config"
	"tidemark/internal/core/acl"
	"tidemark/internal/core/control"
	"tidemark/internal/core/meta"
)

// security changes ACLs and credentials (api.Security). A change is done when this
// node's image shows it: whoever was answered finds it enforced here.
type security struct{ b *Broker }

var _ api.Security = security{}

// ChangeACLs implements api.Security.
func (s security) ChangeACLs(ctx context.Context, add, remove []acl.Binding) error {
	change := control.ACLChange{Add: add, Remove: remove}
	return topicFault(s.b.plan(ctx, func(i *meta.Image) ([]meta.Plan, error) {
		return control.ChangeACLs(i, change, s.b.me(), s.b.limits())
	}))
}

// ChangeCredentials implements api.Security.
func (s security) ChangeCredentials(ctx context.Context, set []meta.ScramRecord, remove []meta.ScramID) error {
	change := control.CredentialChange{Set: set, Delete: remove}
	return topicFault(s.b.plan(ctx, func(i *meta.Image) ([]meta.Plan, error) {
		plan, err := control.ChangeCredentials(i, change, s.b.me())
		return []meta.Plan{plan}, err
	}))
}

// access is what decides who may do what; nil if the configuration asks for none.
func (b *Broker) access() *api.Access {
	s := &b.cfg.Security
	if !s.Authorizes() {
		return nil
	}
	super := make(map[string]bool)
	for _, p := range config.Principals(s.SuperUsersText) {
		super[p] = true
	}
	return api.NewAccess(acl.Rules{SuperUsers: super, AllowIfNone: s.AllowIfNoACL})
}

// verifier checks log-ins by the credentials of the newest image.
func (b *Broker) verifier() *auth.Verifier {
	s := &b.cfg.Security
	return auth.NewVerifier(auth.Options{
		Mechanisms: s.Mechanisms, Lifetime: time.Duration(s.MaxReauthMs) * time.Millisecond, FailureDelay: time.Duration(s.FailureDelayMs) * time.Millisecond,
		Lookup: func(user, mechanism string) (auth.Credential, bool) {
			e, ok := b.Image().Scram(meta.ScramID{User: user, Mechanism: mechanism})
			if !ok || e.Fault != nil {
				return auth.Credential{}, false // an old password must not outlive its change
			}
			return credentialOf(e.Record), true
		},
	})
}

// addLogIn gives the properties of a client between brokers this node's own log-in;
// false if it has none where one is needed, which a node alone in its cluster never notices.
func (b *Broker) addLogIn(props map[string]string) bool {
	if !b.cfg.HasSASL(b.interBroker) {
		return true
	}
	if b.cfg.Security.JAAS == "" {
		props["security.protocol"] = "PLAINTEXT" // of a client that never connects
		return false
	}
	props["sasl.mechanism"], props["sasl.jaas.config"] = b.cfg.Security.InterBrokerMechanism, b.cfg.Security.JAAS
	return true
}

// refuseToDial says what another broker can't be reached without.
func (b *Broker) refuseToDial(_ context.Context, address string) (net.Conn, error) {
	return nil, fmt.Errorf("%s: listener %s wants a log-in and this node has none: set sasl.jaas.config, or another inter.broker.listener.name", address, b.interBroker)
}
