package api

import (
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"tidemark/internal/core/acl"
	"tidemark/internal/core/meta"
	"tidemark/internal/telemetry"
	"tidemark/internal/wire"
)

// Access decides who may do what (authorizer=acl). Without one, everything is open.
//
// Answers are kept for as long as no ACL changes, so that a busy client costs one
// look into a map. What is kept is bounded, whoever asks for whatever.
type Access struct {
	rules acl.Rules

	mu sync.RWMutex
	// guards the following
	at      meta.Revision // the revision of the ACLs that the answers come from
	answers map[question]bool
}

// question is what an answer belongs to.
type question struct {
	principal, host string
	op              acl.Operation
	resource        acl.ResourceType
	name            string
	any             bool // on at least one resource of the type
}

const (
	// answersMax bounds the kept answers: beyond it they are dropped and gathered anew.
	answersMax = 1 << 14
	// questionBytesMax bounds the texts of a question whose answer is kept; a topic's
	// name has 249 bytes at most.
	questionBytesMax = 1024
)

// NewAccess makes what decides by these rules and the image's ACLs.
func NewAccess(rules acl.Rules) *Access {
	return &Access{rules: rules, answers: make(map[question]bool)}
}

// allows answers a question by the image's ACLs.
func (a *Access) allows(image *meta.Image, q question) bool {
	acls := image.ACLs()
	at := acls.Revision()
	keeps := len(q.principal)+len(q.host)+len(q.name) <= questionBytesMax
	if keeps {
		a.mu.RLock()
		answer, known := a.answers[q]
		known = known && a.at == at
		a.mu.RUnlock()
		if known {
			return answer
		}
	}
	answer := a.decide(acls, q)
	if keeps {
		a.keep(at, q, answer)
	}
	return answer
}

func (a *Access) decide(acls meta.ACLs, q question) bool {
	// An ACL that can't be read may deny anything: only super users pass (I-328).
	if acls.Err() != nil {
		return a.rules.SuperUsers[q.principal]
	}
	who := acl.Who{Principal: q.principal, Hosts: hostForms(q.host)}
	if q.any {
		return a.rules.MayOnAny(acls, who, q.op, q.resource)
	}
	return a.rules.May(acls, who, q.op, q.resource, q.name)
}

// keep remembers an answer, unless newer ACLs were asked meanwhile.
func (a *Access) keep(at meta.Revision, q question, answer bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if at < a.at {
		return
	}
	if at > a.at || len(a.answers) >= answersMax {
		clear(a.answers)
		a.at = at
	}
	a.answers[q] = answer
}

// hostForms lists the texts that a binding may have for an address: Go's, and
// Java's, which writes IPv6 in full.
func hostForms(host string) []string {
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return []string{host}
	}
	forms := []string{host}
	for _, form := range []string{addr.String(), addr.WithZone("").String(), addr.Unmap().String(), javaAddress(addr)} {
		if !slices.Contains(forms, form) {
			forms = append(forms, form)
		}
	}
	return forms
}

// javaAddress is what Java's InetAddress.getHostAddress says.
func javaAddress(addr netip.Addr) string {
	if addr = addr.Unmap(); addr.Is4() {
		return addr.String()
	}
	groups := strings.Split(addr.WithZone("").StringExpanded(), ":")
	for i, g := range groups {
		if groups[i] = strings.TrimLeft(g, "0"); groups[i] == "" {
			groups[i] = "0"
		}
	}
	return strings.Join(groups, ":")
}

// may reports whether the client may do op on a resource. Without an authorizer everybody may.
func (c *Call) may(op acl.Operation, resource acl.ResourceType, name string) bool {
	if c.Access == nil {
		return true
	}
	q := question{principal: c.Req.Principal, host: c.host(), op: op, resource: resource, name: name}
	return c.Access.allows(c.Image, q) || c.denied(q)
}

// denied tells the audit, unless nobody was refused anything by the answer. It says false.
func (c *Call) denied(q question) bool {
	if !c.quiet {
		c.Audit.Denied(telemetry.Denial{Principal: q.principal, Host: q.host, Listener: c.Req.Listener, Client: c.Req.ClientID,
			API: c.Req.Key.String(), Operation: q.op.String(), Resource: q.resource.String(), Name: q.name})
	}
	return false
}

// quietly gives a call whose questions are no denials: a list leaves out what the
// client may not see, and of two permissions that will do the first may be missing.
func (c *Call) quietly() *Call {
	if c.Access == nil || c.quiet {
		return c
	}
	q := *c
	q.quiet = true
	return &q
}

// describes gives the question whether the client may know of a topic, for whoever asks
// it behind the handler; nil: of all. Its no is no denial.
func (c *Call) describes() func(topic string) bool {
	if c.Access == nil {
		return nil
	}
	access, image := c.Access, c.Image
	q := question{principal: c.Req.Principal, host: c.host(), op: acl.Describe, resource: acl.Topic}
	return func(topic string) bool {
		q := q
		q.name = topic
		return access.allows(image, q)
	}
}

// mayCluster is may on the cluster.
func (c *Call) mayCluster(op acl.Operation) bool { return c.may(op, acl.Cluster, acl.ClusterName) }

// mayTopic is may on a topic. The vault's view of a topic shows what the topic
// held: it takes the permission for both names.
func (c *Call) mayTopic(op acl.Operation, name string) bool {
	if c.Access == nil {
		return true
	}
	viewed, isView := strings.CutPrefix(name, ViewPrefix)
	return c.may(op, acl.Topic, name) && (!isView || c.may(op, acl.Topic, viewed))
}

// mayRef is mayTopic for a topic as a request names it. An id that nobody has is
// let through: the handler says that it is unknown.
func (c *Call) mayRef(op acl.Operation, ref topicRef) bool {
	if c.Access == nil || !ref.useID {
		return c.mayTopic(op, ref.name)
	}
	t, err := ref.find(c.Image)
	return err != nil || c.mayTopic(op, t.Name)
}

// mayOnAny reports whether the client may do op on at least one resource of the type.
func (c *Call) mayOnAny(op acl.Operation, resource acl.ResourceType) bool {
	if c.Access == nil {
		return true
	}
	return c.Access.allows(c.Image, question{principal: c.Req.Principal, host: c.host(), op: op, resource: resource, any: true})
}

// host is the client's address without a port; empty in tests without a connection.
func (c *Call) host() string {
	if c.Req.Remote == nil {
		return ""
	}
	text := c.Req.Remote.String()
	if host, _, err := net.SplitHostPort(text); err == nil {
		return host
	}
	return text
}

// operations gives the bits of those operations in mask that the client may do (KIP-430).
func (c *Call) operations(resource acl.ResourceType, name string, mask int32) int32 {
	if c.Access == nil {
		return mask
	}
	c = c.quietly()
	var bits int32
	for op := acl.Read; op <= acl.TwoPhaseCommit; op++ {
		if mask&(1<<op) != 0 && c.may(op, resource, name) {
			bits |= 1 << op
		}
	}
	return bits
}

// clusterOperations are those on the cluster: none are told to who may not describe it.
func (c *Call) clusterOperations() int32 {
	if !c.quietly().mayCluster(acl.Describe) {
		return 0
	}
	return c.operations(acl.Cluster, acl.ClusterName, opsCluster)
}

// denialOf is the error code that goes with a resource.
func denialOf(resource acl.ResourceType) wire.ErrCode {
	switch resource {
	case acl.Topic:
		return wire.ErrTopicAuthorizationFailed
	case acl.Group:
		return wire.ErrGroupAuthorizationFailed
	case acl.TransactionalID:
		return wire.ErrTransactionalIDAuthorizationFailed
	default:
		return wire.ErrClusterAuthorizationFailed
	}
}
