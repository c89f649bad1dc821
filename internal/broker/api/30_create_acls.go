package api

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/core/acl"
	"tidemark/internal/wire"
)

// CreateAcls (key 30): adds access control entries.
//
// Behaviour
//   - Each entry has its own result, in the order of the request: INVALID_REQUEST
//     with a sentence for one that can't be. An entry that exists is fine.
//   - An entry that a mirror had copied becomes this cluster's own: the mirror takes it away no more.
//   - Once it is answered, this broker enforces it; the others when they see it.
//   - Below level 2 of tidemark.version: UNSUPPORTED_VERSION.
//
// Versions
//   - 1: pattern types (KIP-290). 2: flexible. 3: resource type USER.
func (c *Call) createACLs(in *kmsg.CreateACLsRequest) (kmsg.Response, error) {
	out := kmsg.NewPtrCreateACLsResponse()
	out.Results = make([]kmsg.CreateACLsResponseResult, len(in.Creations))
	var add []acl.Binding
	disabled := c.securityDisabled()
	faults := make([]error, len(in.Creations))
	for i := range in.Creations {
		b := bindingOf(&in.Creations[i])
		if faults[i] = disabled; disabled != nil {
			continue
		}
		if err := b.Validate(); err != nil {
			faults[i] = wire.Errorf(wire.ErrInvalidRequest, "%s.", err)
			continue
		}
		add = append(add, b)
	}
	var failed error
	if len(add) > 0 {
		if failed = c.Security.ChangeACLs(c.Ctx, add, nil); failed != nil {
			c.failed(wire.KeyCreateAcls, failed)
		}
	}
	for i := range out.Results {
		err := faults[i]
		if err == nil {
			err = failed
		}
		out.Results[i].ErrorCode, out.Results[i].ErrorMessage = int16(CodeOf(err)), MessageOf(err)
	}
	return out, nil
}

func bindingOf(a *kmsg.CreateACLsRequestCreation) acl.Binding {
	return acl.Binding{Resource: acl.ResourceType(a.ResourceType), Pattern: acl.PatternType(a.ResourcePatternType), Name: a.ResourceName,
		Principal: a.Principal, Host: a.Host, Operation: acl.Operation(a.Operation), Permission: acl.Permission(a.PermissionType)}
}
