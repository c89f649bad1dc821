package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/core/acl"
	"tidemark/internal/core/meta"
	"tidemark/internal/wire"
)

// Security changes ACLs and credentials.
type Security interface {
	// ChangeACLs adds and removes bindings, which are valid. What is so already is
	// fine; after an error a part may be done, and asking again does the rest.
	ChangeACLs(ctx context.Context, add, remove []acl.Binding) error
	// ChangeCredentials sets and deletes SCRAM credentials, all or none:
	// RESOURCE_NOT_FOUND for a deletion of what isn't there, UNACCEPTABLE_CREDENTIAL for what can't be.
	ChangeCredentials(ctx context.Context, set []meta.ScramRecord, remove []meta.ScramID) error
}

// DescribeAcls (key 29): the access control entries that a filter finds.
//
// Behaviour
//   - A filter with pattern type MATCH finds every entry that concerns a resource of
//     that name, wildcards and prefixes included (KIP-290).
//   - One resource of the answer for each pattern, in order.
//   - Without an authorizer: SECURITY_DISABLED, as in Kafka; entries that a mirror
//     copied are there nevertheless.
//   - The password-like parts of a cluster aren't here: see DescribeUserScramCredentials.
//
// Versions
//   - 1: pattern types (KIP-290). 2: flexible. 3: resource type USER (KIP-373).
func (c *Call) describeACLs(in *kmsg.DescribeACLsRequest) (kmsg.Response, error) {
	out := kmsg.NewPtrDescribeACLsResponse()
	f := filterOf(in.ResourceType, in.ResourceName, in.ResourcePatternType, in.Principal, in.Host, in.Operation, in.PermissionType)
	err := c.securityDisabled()
	if err == nil {
		err = checkFilter(f)
	}
	if err != nil {
		out.ErrorCode, out.ErrorMessage = int16(CodeOf(err)), MessageOf(err)
		return out, nil
	}
	for e := range c.Image.ACLs().All() {
		b := e.Record.Binding()
		if !f.Matches(b) {
			continue
		}
		last := len(out.Resources) - 1
		if last < 0 || !isPattern(&out.Resources[last], b) {
			r := kmsg.NewDescribeACLsResponseResource()
			r.ResourceType, r.ResourceName, r.ResourcePatternType = kmsg.ACLResourceType(b.Resource), b.Name, kmsg.ACLResourcePatternType(b.Pattern)
			out.Resources = append(out.Resources, r)
			last++
		}
		out.Resources[last].ACLs = append(out.Resources[last].ACLs, kmsg.DescribeACLsResponseResourceACL{
			Principal: b.Principal, Host: b.Host, Operation: kmsg.ACLOperation(b.Operation), PermissionType: kmsg.ACLPermissionType(b.Permission)})
	}
	return out, nil
}

func isPattern(r *kmsg.DescribeACLsResponseResource, b acl.Binding) bool {
	return acl.ResourceType(r.ResourceType) == b.Resource && acl.PatternType(r.ResourcePatternType) == b.Pattern && r.ResourceName == b.Name
}

// securityDisabled is the error of ACL requests where nothing enforces them (KIP-140).
func (c *Call) securityDisabled() error {
	if c.Access == nil {
		return wire.Errorf(wire.ErrSecurityDisabled, "No authorizer is configured: set authorizer=acl.")
	}
	return nil
}

// filterOf reads a filter.
func filterOf(resource kmsg.ACLResourceType, name *string, pattern kmsg.ACLResourcePatternType, principal, host *string, op kmsg.ACLOperation, permission kmsg.ACLPermissionType) acl.Filter {
	return acl.Filter{Resource: acl.ResourceType(resource), Pattern: acl.PatternType(pattern), Name: name, Principal: principal, Host: host,
		Operation: acl.Operation(op), Permission: acl.Permission(permission)}
}

func checkFilter(f acl.Filter) error {
	if err := f.Validate(); err != nil {
		return wire.Errorf(wire.ErrInvalidRequest, "The filter can't be used: %s.", err)
	}
	return nil
}
