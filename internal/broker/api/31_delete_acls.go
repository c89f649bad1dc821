package api

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/core/acl"
	"tidemark/internal/wire"
)

// DeleteAcls (key 31): removes the access control entries that filters find.
//
// Behaviour
//   - Each filter has its own result and lists what it found, each with its error.
//     A filter that finds nothing is fine. An entry that two filters find is in both results.
//   - Entries that a mirror copied go too; while its source has them, they come back.
//
// Versions
//   - As CreateAcls.
func (c *Call) deleteACLs(in *kmsg.DeleteACLsRequest) (kmsg.Response, error) {
	out := kmsg.NewPtrDeleteACLsResponse()
	out.Results = make([]kmsg.DeleteACLsResponseResult, len(in.Filters))
	disabled := c.securityDisabled()
	var remove []acl.Binding
	found := make([][]acl.Binding, len(in.Filters))
	for i := range in.Filters {
		f := &in.Filters[i]
		filter := filterOf(f.ResourceType, f.ResourceName, f.ResourcePatternType, f.Principal, f.Host, f.Operation, f.PermissionType)
		err := disabled
		if err == nil {
			err = checkFilter(filter)
		}
		if err != nil {
			out.Results[i].ErrorCode, out.Results[i].ErrorMessage = int16(CodeOf(err)), MessageOf(err)
			continue
		}
		for e := range c.Image.ACLs().All() {
			if b := e.Record.Binding(); filter.Matches(b) {
				found[i] = append(found[i], b)
			}
		}
		remove = append(remove, found[i]...)
	}
	var failed error
	if len(remove) > 0 {
		if failed = c.Security.ChangeACLs(c.Ctx, nil, remove); failed != nil {
			c.failed(wire.KeyDeleteAcls, failed)
		}
	}
	for i := range found {
		for _, b := range found[i] {
			out.Results[i].MatchingACLs = append(out.Results[i].MatchingACLs, kmsg.DeleteACLsResponseResultMatchingACL{
				ErrorCode: int16(CodeOf(failed)), ErrorMessage: MessageOf(failed),
				ResourceType: kmsg.ACLResourceType(b.Resource), ResourceName: b.Name, ResourcePatternType: kmsg.ACLResourcePatternType(b.Pattern),
				Principal: b.Principal, Host: b.Host, Operation: kmsg.ACLOperation(b.Operation), PermissionType: kmsg.ACLPermissionType(b.Permission)})
		}
	}
	return out, nil
}
