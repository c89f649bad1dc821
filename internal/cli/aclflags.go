package cli

import (
	"fmt"
	"slices"
	"strings"

	"tidemark/internal/core/acl"
)

// aclResources choose resources, by the options of kafka-acls.
type aclResources struct {
	Topic               []string `help:"A topic; repeatable. * stands for all." placeholder:"NAME" sep:"none"`
	Group               []string `help:"A consumer group; repeatable." placeholder:"NAME" sep:"none"`
	TransactionalID     []string `name:"transactional-id" help:"A transactional id; repeatable." placeholder:"ID" sep:"none"`
	DelegationToken     []string `help:"A delegation token, by its owner; repeatable." placeholder:"TOKEN" sep:"none"`
	Cluster             bool     `help:"The cluster itself."`
	ResourcePatternType string   `help:"literal or prefixed; to list and remove also any, or match: whatever concerns a resource of that name." enum:"literal,prefixed,any,match,LITERAL,PREFIXED,ANY,MATCH" default:"literal" placeholder:"TYPE"`
}

// resource is one resource that was named.
type resource struct {
	kind acl.ResourceType
	name string
}

func (c *aclResources) resources() []resource {
	var out []resource
	for _, of := range []struct {
		kind  acl.ResourceType
		names []string
	}{{acl.Topic, c.Topic}, {acl.Group, c.Group}, {acl.TransactionalID, c.TransactionalID}, {acl.DelegationToken, c.DelegationToken}} {
		for _, name := range of.names {
			out = append(out, resource{of.kind, name})
		}
	}
	if c.Cluster {
		out = append(out, resource{acl.Cluster, acl.ClusterName})
	}
	return out
}

func (c *aclResources) pattern() (acl.PatternType, error) {
	var p acl.PatternType
	return p, p.UnmarshalText([]byte(strings.ToUpper(c.ResourcePatternType)))
}

// filters find the entries of the resources, whatever they say; none if none was named.
func (c *aclResources) filters() ([]acl.Filter, error) {
	pattern, err := c.pattern()
	if err != nil {
		return nil, fmt.Errorf("%w: --resource-pattern-type: %w", errUsage, err)
	}
	var out []acl.Filter
	for _, r := range c.resources() {
		p := pattern
		if r.kind == acl.Cluster {
			p = acl.Literal
		}
		out = append(out, acl.Filter{Resource: r.kind, Pattern: p, Name: &r.name, Operation: acl.AnyOperation, Permission: acl.AnyPermission})
	}
	return out, nil
}

// aclEntries say who may do what, by the options of kafka-acls.
type aclEntries struct {
	AllowPrincipal []string `help:"Who may, TYPE:NAME; repeatable. User:* is everybody." placeholder:"User:NAME" sep:"none"`
	DenyPrincipal  []string `help:"Who may not; repeatable. A denial goes over every permission." placeholder:"User:NAME" sep:"none"`
	AllowHost      []string `help:"From which address --allow-principal may; repeatable. Default: any." placeholder:"IP"`
	DenyHost       []string `help:"From which address --deny-principal may not; repeatable. Default: any." placeholder:"IP"`
	Operation      []string `help:"What: read, write, create, delete, alter, describe, cluster-action, describe-configs, alter-configs, idempotent-write, two-phase-commit or all; repeatable. Default: all." placeholder:"OPERATION"`
	Producer       bool     `help:"All that a producer needs: WRITE, DESCRIBE and CREATE of the topics, WRITE and DESCRIBE of its transactional ids."`
	Consumer       bool     `help:"All that a consumer needs: READ and DESCRIBE of the topics, READ of its groups."`
	Idempotent     bool     `help:"With --producer: idempotent writes, for clusters older than Kafka 2.8."`
}

// operationNamed reads an operation as people write it: read, DESCRIBE_CONFIGS, DescribeConfigs or describe-configs.
func operationNamed(text string) (acl.Operation, error) {
	plain := func(s string) string { return strings.NewReplacer("_", "", "-", "").Replace(strings.ToLower(s)) }
	for op := acl.All; op <= acl.TwoPhaseCommit; op++ {
		if plain(op.String()) == plain(text) {
			return op, nil
		}
	}
	return 0, fmt.Errorf("%w: --operation %s: there is no such operation", errUsage, text)
}

func (c *aclEntries) operations() ([]acl.Operation, error) {
	if len(c.Operation) == 0 {
		return []acl.Operation{acl.All}, nil
	}
	var out []acl.Operation
	for _, text := range c.Operation {
		op, err := operationNamed(text)
		if err != nil {
			return nil, err
		}
		out = append(out, op)
	}
	return out, nil
}

// grants are the resources with what is said of each.
func (c *aclEntries) grants(r *aclResources) ([]acl.Grant, error) {
	if err := c.checkConvenience(r); err != nil {
		return nil, err
	}
	var out []acl.Grant
	if c.Producer {
		out = append(out, acl.ProducerGrants(r.Topic, r.TransactionalID, c.Idempotent)...)
	}
	if c.Consumer {
		out = append(out, acl.ConsumerGrants(r.Topic, r.Group)...)
	}
	if c.Producer || c.Consumer {
		return out, nil
	}
	ops, err := c.operations()
	if err != nil {
		return nil, err
	}
	for _, res := range r.resources() {
		for _, op := range ops {
			if !slices.Contains(acl.Applicable(res.kind), op) {
				return nil, fmt.Errorf("%w: %s means nothing for a resource of type %s; %v do", errUsage, op, res.kind, acl.Applicable(res.kind))
			}
		}
		out = append(out, acl.Grant{Resource: res.kind, Name: res.name, Operations: ops})
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%w: name what it is about: --topic, --group, --transactional-id, --delegation-token or --cluster", errUsage)
	}
	return out, nil
}

// checkConvenience refuses what doesn't go with --producer and --consumer, as kafka-acls does.
func (c *aclEntries) checkConvenience(r *aclResources) error {
	chosen := c.Producer || c.Consumer
	wrong := func(why string) error { return fmt.Errorf("%w: %s", errUsage, why) }
	switch {
	case c.Idempotent && !c.Producer:
		return wrong("--idempotent goes with --producer")
	case !chosen:
		return nil
	case len(c.Operation) > 0 || len(c.DenyPrincipal) > 0 || len(c.DenyHost) > 0:
		return wrong("--producer and --consumer allow what they stand for: leave out --operation, --deny-principal and --deny-host")
	case len(r.Topic) == 0:
		return wrong("--producer and --consumer want a --topic")
	case c.Consumer && len(r.Group) == 0:
		return wrong("--consumer wants a --group")
	case !c.Consumer && len(r.Group) > 0:
		return wrong("--producer has no use for a --group")
	case !c.Producer && len(r.TransactionalID) > 0:
		return wrong("--consumer has no use for a --transactional-id")
	case r.Cluster || len(r.DelegationToken) > 0:
		return wrong("--producer and --consumer are about topics, groups and transactional ids")
	}
	return nil
}

// whom is one permission with those it names.
type whom struct {
	permission        acl.Permission
	principals, hosts []string
}

func (c *aclEntries) whoms() ([]whom, error) {
	var out []whom
	for _, w := range []struct {
		whom
		flag string
	}{{whom{acl.Allow, c.AllowPrincipal, c.AllowHost}, "allow"}, {whom{acl.Deny, c.DenyPrincipal, c.DenyHost}, "deny"}} {
		switch {
		case len(w.principals) == 0 && len(w.hosts) > 0:
			return nil, fmt.Errorf("%w: --%s-host goes with --%s-principal", errUsage, w.flag, w.flag)
		case len(w.principals) == 0:
			continue
		case len(w.hosts) == 0:
			w.hosts = []string{acl.Wildcard}
		}
		out = append(out, w.whom)
	}
	return out, nil
}

// asked is what the flags are about, and whom.
func (c *aclEntries) asked(r *aclResources) (grants []acl.Grant, who []whom, err error) {
	if grants, err = c.grants(r); err == nil {
		who, err = c.whoms()
	}
	return grants, who, err
}

// bindings are the entries to add.
func (c *aclEntries) bindings(r *aclResources) ([]acl.Binding, error) {
	grants, who, err := c.asked(r)
	if err != nil {
		return nil, err
	}
	if len(who) == 0 {
		return nil, fmt.Errorf("%w: say who: --allow-principal or --deny-principal", errUsage)
	}
	pattern, err := r.pattern()
	if err != nil || pattern != acl.Literal && pattern != acl.Prefixed {
		return nil, fmt.Errorf("%w: --resource-pattern-type %s: an entry is literal or prefixed", errUsage, r.ResourcePatternType)
	}
	var out []acl.Binding
	for _, g := range grants {
		for _, b := range spread(g, who, pattern) {
			if err := b.Validate(); err != nil {
				return nil, fmt.Errorf("%w: %w", errUsage, err)
			}
			out = append(out, b)
		}
	}
	slices.SortFunc(out, acl.Compare)
	return slices.Compact(out), nil
}

// spread gives the entries that a grant comes to. The cluster has no prefixes.
func spread(g acl.Grant, who []whom, pattern acl.PatternType) []acl.Binding {
	if g.Resource == acl.Cluster {
		pattern = acl.Literal
	}
	var out []acl.Binding
	for _, op := range g.Operations {
		for _, w := range who {
			for _, principal := range w.principals {
				for _, host := range w.hosts {
					out = append(out, acl.Binding{Resource: g.Resource, Pattern: pattern, Name: g.Name, Principal: principal, Host: host, Operation: op, Permission: w.permission})
				}
			}
		}
	}
	return out
}

// removal finds the entries to remove: those that add would make, under any pattern that was
// asked for, or without principals and operations all of the resources.
func (c *aclEntries) removal(r *aclResources) ([]acl.Filter, error) {
	grants, who, err := c.asked(r)
	if err != nil {
		return nil, err
	}
	pattern, err := r.pattern()
	if err != nil {
		return nil, fmt.Errorf("%w: --resource-pattern-type: %w", errUsage, err)
	}
	if len(who) == 0 {
		if len(c.Operation) > 0 || c.Producer || c.Consumer {
			return nil, fmt.Errorf("%w: say whose entries: --allow-principal or --deny-principal; without operations too, all entries of the resources go", errUsage)
		}
		return r.filters()
	}
	var out []acl.Filter
	for _, g := range grants {
		for _, b := range spread(g, who, pattern) {
			out = append(out, acl.Filter{Resource: b.Resource, Pattern: b.Pattern, Name: &b.Name, Principal: &b.Principal, Host: &b.Host, Operation: b.Operation, Permission: b.Permission})
		}
	}
	return out, nil
}
