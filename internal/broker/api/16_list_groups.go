package api

import (
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ListGroups, versions 0 to 5: the groups that this broker coordinates. v4
// filters by state, v5 by type ("classic" and "consumer" are those there are here);
// letter case doesn't matter, and a filter that names nothing known matches nothing.
func listGroups(c *Call, req *kmsg.ListGroupsRequest) (kmsg.Response, error) {
	resp := req.ResponseKind().(*kmsg.ListGroupsResponse)
	all, code := c.Groups.List(c.Ctx, req.StatesFilter, req.TypesFilter)
	resp.ErrorCode = wireCode(code)
	for _, g := range all {
		out := kmsg.NewListGroupsResponseGroup()
		out.Group, out.ProtocolType, out.GroupState, out.GroupType = g.Group, g.ProtocolType, g.State.String(), g.Type
		resp.Groups = append(resp.Groups, out)
	}
	return resp, nil
}
