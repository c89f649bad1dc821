package mirror

import (
	"fmt"
	"regexp"
	"strings"

	"tidemark/internal/core/acl"
)

// aclFilter says which access control entries of the source are copied (KIP-1279's
// acls.include). The zero value copies none.
type aclFilter struct{ include, exclude []aclRule }

// aclRule matches entries by its five fields; nil matches everything.
type aclRule struct {
	resource, name, operation, permission, principal func(string) bool
}

// newACLFilter reads rules of the form resource;name;operation;permission;principal.
// Fields that are left out, and *, match everything; name and principal are RE2
// expressions of the whole text. Exclude wins.
func newACLFilter(include, exclude []string) (aclFilter, error) {
	var f aclFilter
	for _, list := range []struct {
		key   string
		rules []string
		to    *[]aclRule
	}{{"mirror.acl.include", include, &f.include}, {"mirror.acl.exclude", exclude, &f.exclude}} {
		for _, text := range list.rules {
			r, err := parseACLRule(text)
			if err != nil {
				return aclFilter{}, fmt.Errorf("%w: %s: %q: %w", ErrSpec, list.key, text, err)
			}
			*list.to = append(*list.to, r)
		}
	}
	return f, nil
}

func parseACLRule(text string) (aclRule, error) {
	var r aclRule
	fields := strings.Split(text, ";")
	if len(fields) > 5 {
		return r, fmt.Errorf("%d fields; want resource;name;operation;permission;principal", len(fields))
	}
	var resource acl.ResourceType
	var operation acl.Operation
	var permission acl.Permission
	parts := []struct {
		to    *func(string) bool
		known interface{ UnmarshalText([]byte) error } // of words; nil: an expression
	}{{&r.resource, &resource}, {&r.name, nil}, {&r.operation, &operation}, {&r.permission, &permission}, {&r.principal, nil}}
	for i, field := range fields {
		field = strings.TrimSpace(field)
		if field == "" || field == acl.Wildcard {
			continue
		}
		if parts[i].known != nil {
			word := strings.ToUpper(field)
			if err := parts[i].known.UnmarshalText([]byte(word)); err != nil {
				return r, err
			}
			*parts[i].to = func(s string) bool { return s == word }
			continue
		}
		re, err := regexp.Compile("^(?:" + field + ")$")
		if err != nil {
			return r, fmt.Errorf("not an RE2 expression: %w", err)
		}
		*parts[i].to = re.MatchString
	}
	return r, nil
}

func (r aclRule) matches(b acl.Binding) bool {
	is := func(f func(string) bool, s string) bool { return f == nil || f(s) }
	return is(r.resource, b.Resource.String()) && is(r.name, b.Name) && is(r.operation, b.Operation.String()) &&
		is(r.permission, b.Permission.String()) && is(r.principal, b.Principal)
}

// copies reports whether an entry is copied.
func (f aclFilter) copies(b acl.Binding) bool {
	some := func(rules []aclRule) bool {
		for _, r := range rules {
			if r.matches(b) {
				return true
			}
		}
		return false
	}
	return some(f.include) && !some(f.exclude)
}
