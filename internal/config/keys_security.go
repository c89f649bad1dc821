package config

import (
	"slices"
	"strings"
)

// Security holds who clients are and what they may do.
type Security struct {
	Authorizer      string // off, acl
	AuthorizerClass string // Kafka's name of an authorizer; empty: as Authorizer says
	SuperUsersText  string // principals, separated by semicolons
	AllowIfNoACL    bool
	// SASL of listeners, and this node's own log-in at other brokers.
	Mechanisms           []string
	MaxReauthMs          int64 // 0: log-ins last as long as their connections
	FailureDelayMs       int64
	InterBrokerMechanism string
	JAAS                 string
}

// Authorizes reports whether access control entries decide anything on this node.
func (s *Security) Authorizes() bool { return s.Authorizer == "acl" || s.AuthorizerClass != "" }

// kafkaAuthorizers are the classes that authorizer=acl stands for.
var kafkaAuthorizers = []string{"org.apache.kafka.metadata.authorizer.StandardAuthorizer", "kafka.security.authorizer.AclAuthorizer"}

// keysSecurity lists authorization and SASL.
func keysSecurity() []key {
	return []key{
		{name: "authorizer", def: "off", rule: words("off", "acl"), bind: func(b *Broker) any { return &b.Security.Authorizer }, own: true,
			doc: "Who decides what clients may do: off lets everybody do everything, acl asks the cluster's ACLs (kafka-acls), as Kafka's StandardAuthorizer."},
		{name: "authorizer.class.name", def: "", rule: words(append([]string{""}, kafkaAuthorizers...)...), bind: func(b *Broker) any { return &b.Security.AuthorizerClass },
			doc: "Kafka's name of authorizer: its own authorizer class means acl; others can't be loaded."},
		{name: "super.users", def: "", rule: text(), bind: func(b *Broker) any { return &b.Security.SuperUsersText },
			doc: "Principals that may do everything, separated by semicolons: User:CN=broker1;User:admin. The nodes of a cluster must be among them, or have CLUSTER_ACTION."},
		{name: "allow.everyone.if.no.acl.found", def: "false", rule: boolean(), bind: func(b *Broker) any { return &b.Security.AllowIfNoACL },
			doc: "Whether resources that no ACL is about are open to everybody."},
		{name: "sasl.enabled.mechanisms", def: "SCRAM-SHA-512,SCRAM-SHA-256", rule: someOf("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN"), bind: func(b *Broker) any { return &b.Security.Mechanisms },
			doc: "Mechanisms that listeners of protocol SASL_PLAINTEXT and SASL_SSL take. PLAIN is taken over TLS alone, and checks the password against the user's SCRAM credential. Kafka's default is GSSAPI."},
		{name: "sasl.mechanism.inter.broker.protocol", def: "SCRAM-SHA-512", rule: words("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN"), bind: func(b *Broker) any { return &b.Security.InterBrokerMechanism },
			doc: "Mechanism by which this node logs in at other brokers, where the listener between brokers wants it."},
		{name: "sasl.jaas.config", def: "", rule: text(), bind: func(b *Broker) any { return &b.Security.JAAS }, sensitive: true,
			doc: "This node's own log-in at other brokers: org.apache.kafka.common.security.scram.ScramLoginModule required username=\"...\" password=\"...\";"},
		{name: "connections.max.reauth.ms", def: "0", rule: longs(0), bind: func(b *Broker) any { return &b.Security.MaxReauthMs },
			doc: "How long a log-in lasts before the client must renew it (KIP-368); 0: as long as its connection."},
		{name: "connection.failed.authentication.delay.ms", def: "100", rule: longs(0), bind: func(b *Broker) any { return &b.Security.FailureDelayMs },
			doc: "How long the answer to a log-in that failed is held back."},
	}
}

// Principals reads the value of super.users.
func Principals(text string) []string {
	var out []string
	for _, p := range strings.Split(text, ";") {
		if p = strings.TrimSpace(p); p != "" {
			out = append(out, p)
		}
	}
	return out
}

// HasTLS reports whether a listener speaks TLS.
func (b *Broker) HasTLS(listener string) bool { return strings.HasSuffix(b.Protocol(listener), "SSL") }

// HasSASL reports whether clients log in at a listener.
func (b *Broker) HasSASL(listener string) bool {
	return strings.HasPrefix(b.Protocol(listener), "SASL_")
}

// security checks who clients are and what they may do.
func (b *Broker) security(fault func(name, allowed string)) {
	b.betweenBrokers(fault)
	if s, set := b.settings["authorizer"]; set && strings.TrimSpace(s.Value) == "off" && b.Security.AuthorizerClass != "" {
		fault("authorizer", "acl, or unset, because authorizer.class.name asks for ACLs")
	}
	for _, p := range Principals(b.Security.SuperUsersText) {
		if kind, name, ok := strings.Cut(p, ":"); !ok || kind == "" || name == "" {
			fault("super.users", "a list of TYPE:NAME separated by semicolons, such as User:admin")
			return
		}
	}
}

// betweenBrokers checks the listener between brokers: one that isn't there would
// leave every replica of this node behind.
func (b *Broker) betweenBrokers(fault func(name, allowed string)) {
	isListener := func(name string) bool {
		return slices.ContainsFunc(b.Listeners, func(l Listener) bool { return l.Name == name })
	}
	switch {
	case b.InterBrokerListener != "" && b.InterBrokerProtocol != "":
		fault("security.inter.broker.protocol", "empty, because inter.broker.listener.name says which listener it is")
	case b.InterBrokerListener != "" && !isListener(b.InterBrokerListener):
		fault("inter.broker.listener.name", "the name of one of listeners, in its spelling, or empty")
	case b.InterBrokerProtocol != "" && !isListener(b.InterBrokerProtocol):
		fault("security.inter.broker.protocol", "the name of one of listeners; where they have names of their own, inter.broker.listener.name says which")
	}
}
