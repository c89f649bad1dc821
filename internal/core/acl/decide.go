package acl

import "iter"

// Index holds bindings in the order of Compare.
type Index interface {
	// Has reports whether exactly this binding is there.
	Has(b Binding) bool
	// From walks the bindings in order, beginning with the first that is not below b.
	From(b Binding) iter.Seq[Binding]
}

// Rules are what decides beside the bindings.
type Rules struct {
	// SuperUsers may do everything, by principal (super.users).
	SuperUsers map[string]bool
	// AllowIfNone opens resources that no binding is about (allow.everyone.if.no.acl.found).
	AllowIfNone bool
}

// Who asks.
type Who struct {
	Principal string
	// Hosts are the texts that the address it comes from may have in a binding,
	// without a port. Java writes IPv6 addresses in full, where Go shortens them:
	// neither may slip past a denial.
	Hosts []string
}

// impliedBy lists the operations whose permission brings another one with it (not
// whose denial takes it: Kafka parity).
var impliedBy = map[Operation][]Operation{
	Describe:        {Read, Write, Delete, Alter},
	DescribeConfigs: {AlterConfigs},
}

// May reports whether who may do op on the resource of this type and name.
func (r *Rules) May(index Index, who Who, op Operation, resource ResourceType, name string) bool {
	if r.SuperUsers[who.Principal] {
		return true
	}
	d := decision{index: index, principals: principalsOf(who), hosts: hostsOf(who), op: op}
	if d.look(resource, Literal, Wildcard) || name != Wildcard && d.look(resource, Literal, name) || d.lookAtPrefixes(resource, name) {
		return false
	}
	if !d.found {
		return r.AllowIfNone
	}
	return d.allowed
}

// decision is what the patterns looked at so far come to.
type decision struct {
	index             Index
	principals, hosts []string
	op                Operation
	// found: a binding is about the resource, whomever it names.
	found, allowed bool
}

func principalsOf(who Who) []string {
	if who.Principal == Everyone {
		return []string{Everyone}
	}
	return []string{who.Principal, Everyone}
}

func hostsOf(who Who) []string { return append([]string{Wildcard}, who.Hosts...) }

// look takes a pattern into account and reports a denial, which ends everything.
func (d *decision) look(resource ResourceType, pattern PatternType, name string) (denied bool) {
	b := Binding{Resource: resource, Pattern: pattern, Name: name}
	first, ok := next(d.index, b)
	if !ok || first.Resource != resource || first.Pattern != pattern || first.Name != name {
		return false
	}
	d.found = true
	if d.has(b, Deny, d.op) || d.has(b, Deny, All) {
		return true
	}
	if d.allowed {
		return false
	}
	d.allowed = d.has(b, Allow, d.op) || d.has(b, Allow, All)
	for _, by := range impliedBy[d.op] {
		d.allowed = d.allowed || d.has(b, Allow, by)
	}
	return false
}

// has reports whether the pattern has a binding for whoever asks.
func (d *decision) has(b Binding, permission Permission, op Operation) bool {
	b.Permission, b.Operation = permission, op
	for _, b.Principal = range d.principals {
		for _, b.Host = range d.hosts {
			if d.index.Has(b) {
				return true
			}
		}
	}
	return false
}

// lookAtPrefixes looks at every prefixed pattern that name begins with. Each step
// goes to the next prefix of name that can be there at all: at most one step for
// each byte of name.
func (d *decision) lookAtPrefixes(resource ResourceType, name string) (denied bool) {
	for n := 0; n <= len(name); {
		b, ok := next(d.index, Binding{Resource: resource, Pattern: Prefixed, Name: name[:n]})
		if !ok || b.Resource != resource || b.Pattern != Prefixed {
			return false
		}
		same := common(b.Name, name)
		switch {
		case same == len(b.Name):
			if d.look(resource, Prefixed, b.Name) {
				return true
			}
			n = same + 1
		case same == len(name) || b.Name[same] > name[same]:
			return false // it, and all behind it, lie beyond every longer prefix of name
		default:
			n = same + 1
		}
	}
	return false
}

// next gives the first binding at or behind b.
func next(index Index, b Binding) (Binding, bool) {
	for found := range index.From(b) {
		return found, true
	}
	return Binding{}, false
}

// common is how many bytes two texts share at their front.
func common(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}
