package api

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/core/acl"
	"tidemark/internal/core/errcode"
	"tidemark/internal/core/group"
)

// What everybody may do with a group as long as there are no ACLs: READ,
// DELETE, DESCRIBE, DESCRIBE_CONFIGS and ALTER_CONFIGS, as Kafka's bit field.
const allGroupOperations = 1<<3 | 1<<6 | 1<<8 | 1<<10 | 1<<11

// DescribeGroups, versions 0 to 6.
//
// A group that doesn't exist is "Dead" without an error up to v5, and
// GROUP_ID_NOT_FOUND from v6 on (KIP-1043); so is one of the new protocol, which
// ConsumerGroupDescribe tells of. Members' metadata and assignments
// are there in a Stable group only.
func describeGroups(c *Call, req *kmsg.DescribeGroupsRequest) (kmsg.Response, error) {
	resp := req.ResponseKind().(*kmsg.DescribeGroupsResponse)
	for _, id := range req.Groups {
		resp.Groups = append(resp.Groups, c.describeGroup(id, req))
	}
	return resp, nil
}

func (c *Call) describeGroup(id string, req *kmsg.DescribeGroupsRequest) kmsg.DescribeGroupsResponseGroup {
	out := kmsg.NewDescribeGroupsResponseGroup()
	out.Group = id
	d, code := c.Groups.Describe(c.Ctx, id)
	if code != errcode.None {
		out.ErrorCode = wireCode(code)
		return out
	}
	if d.State == group.Dead && req.Version >= 6 {
		message := fmt.Sprintf("Group %s not found.", id)
		if d.OtherType {
			message = fmt.Sprintf("Group %s is not a classic group.", id)
		}
		out.ErrorCode, out.ErrorMessage = wireCode(errcode.GroupIDNotFound), &message
	}
	out.State, out.ProtocolType, out.Protocol = d.State.String(), d.ProtocolType, d.Protocol
	if req.IncludeAuthorizedOperations {
		out.AuthorizedOperations = c.operations(acl.Group, id, allGroupOperations)
	}
	for _, m := range d.Members {
		member := kmsg.NewDescribeGroupsResponseGroupMember()
		member.MemberID, member.InstanceID = m.MemberID, nullable(m.InstanceID)
		member.ClientID, member.ClientHost = m.ClientID, m.ClientHost
		member.ProtocolMetadata, member.MemberAssignment = m.Metadata, m.Assignment
		out.Members = append(out.Members, member)
	}
	return out
}
