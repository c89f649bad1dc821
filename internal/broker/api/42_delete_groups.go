package api

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/core/errcode"
)

// DeleteGroups, versions 0 to 3: groups without members go with their offsets.
// NON_EMPTY_GROUP with members; GROUP_ID_NOT_FOUND if there is no such group.
// v3 adds a message to the error.
func deleteGroups(c *Call, req *kmsg.DeleteGroupsRequest) (kmsg.Response, error) {
	resp := req.ResponseKind().(*kmsg.DeleteGroupsResponse)
	for _, id := range req.Groups {
		out := kmsg.NewDeleteGroupsResponseGroup()
		out.Group = id
		code := c.Groups.DeleteGroup(c.Ctx, id)
		out.ErrorCode = wireCode(code)
		switch code {
		case errcode.NonEmptyGroup:
			out.ErrorMessage = nullable("The group has members: stop its consumers first.")
		case errcode.GroupIDNotFound:
			out.ErrorMessage = nullable("There is no such group.")
		}
		resp.Groups = append(resp.Groups, out)
	}
	return resp, nil
}
