package acl

import "slices"

// MayOnAny reports whether who may do op on at least one resource of a type that
// could exist (KIP-679). It walks the type's bindings once: whoever asks often keeps the answer.
func (r *Rules) MayOnAny(index Index, who Who, op Operation, resource ResourceType) bool {
	// Super users, wildcards and AllowIfNone decide for a name as good as any.
	if r.May(index, who, op, resource, "hardcode") {
		return true
	}
	d := decision{index: index, principals: principalsOf(who), hosts: hostsOf(who), op: op}
	everything := Binding{Resource: resource, Pattern: Literal, Name: Wildcard}
	if d.has(everything, Deny, op) || d.has(everything, Deny, All) {
		return false
	}
	var allowed []Binding
	denied := make(map[string]bool)         // literal names
	deniedPrefixes := make(map[string]bool) // prefixes
	for b := range index.From(Binding{Resource: resource}) {
		if b.Resource != resource {
			break
		}
		switch {
		case !d.concerns(b):
		case b.Permission == Allow:
			allowed = append(allowed, b)
		case b.Pattern == Prefixed:
			deniedPrefixes[b.Name] = true
		default:
			denied[b.Name] = true
		}
	}
	for _, b := range allowed {
		isEverything := b.Pattern == Literal && b.Name == Wildcard
		if isEverything || !(b.Pattern == Literal && denied[b.Name]) && !coveredByPrefix(deniedPrefixes, b.Name) {
			return true
		}
	}
	return false
}

// concerns reports whether a binding names the principal, the host and the operation.
func (d *decision) concerns(b Binding) bool {
	return (b.Operation == d.op || b.Operation == All) && slices.Contains(d.principals, b.Principal) && slices.Contains(d.hosts, b.Host)
}

func coveredByPrefix(prefixes map[string]bool, name string) bool {
	if len(prefixes) == 0 {
		return false
	}
	for n := range len(name) + 1 {
		if prefixes[name[:n]] {
			return true
		}
	}
	return false
}
