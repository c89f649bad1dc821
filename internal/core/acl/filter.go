package acl

import "strings"

// Filter finds bindings. Fields that are nil or Any… match everything.
type Filter struct {
	Resource ResourceType
	// Pattern: with Match, Name is the name of a resource, and every binding is
	// found that would be looked at for it; with AnyPattern, Literal and Prefixed it
	// is compared as it is.
	Pattern    PatternType
	Name       *string
	Principal  *string
	Host       *string
	Operation  Operation
	Permission Permission
}

// Validate says what is wrong with a filter.
func (f Filter) Validate() error {
	b := Binding{Resource: f.Resource, Pattern: f.Pattern, Name: "x", Principal: Everyone, Host: Wildcard, Operation: f.Operation, Permission: f.Permission}
	if f.Resource == AnyResource || f.Resource == Cluster {
		b.Resource = Topic
	}
	if f.Pattern == AnyPattern || f.Pattern == Match {
		b.Pattern = Literal
	}
	if f.Operation == AnyOperation {
		b.Operation = All
	}
	if f.Permission == AnyPermission {
		b.Permission = Allow
	}
	return b.Validate()
}

// Matches reports whether the filter finds a binding.
func (f Filter) Matches(b Binding) bool {
	switch {
	case f.Resource != AnyResource && f.Resource != b.Resource:
	case f.Operation != AnyOperation && f.Operation != b.Operation:
	case f.Permission != AnyPermission && f.Permission != b.Permission:
	case f.Principal != nil && *f.Principal != b.Principal:
	case f.Host != nil && *f.Host != b.Host:
	default:
		return f.matchesName(b)
	}
	return false
}

func (f Filter) matchesName(b Binding) bool {
	if (f.Pattern == Literal || f.Pattern == Prefixed) && f.Pattern != b.Pattern {
		return false
	}
	if f.Name == nil {
		return true
	}
	if f.Pattern != Match {
		return *f.Name == b.Name
	}
	if b.Pattern == Prefixed {
		return strings.HasPrefix(*f.Name, b.Name)
	}
	return b.Name == *f.Name || b.Name == Wildcard
}
