package api

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/core/group"
)

// SyncGroup, versions 0 to 5. v3 adds the instance id; v5 protocol type and
// name, which are compared with the group's when they are there.
//
// The leader brings everybody's assignment, the others wait for it. The answer
// comes once the assignment is durable.
func syncGroup(c *Call, req *kmsg.SyncGroupRequest) (kmsg.Response, error) {
	ev := group.Sync{
		Group: req.Group, MemberID: req.MemberID, InstanceID: text(req.InstanceID), Generation: req.Generation,
		ProtocolType: text(req.ProtocolType), Protocol: text(req.Protocol),
	}
	for _, a := range req.GroupAssignment {
		ev.Assignments = append(ev.Assignments, group.Assignment{MemberID: a.MemberID, Data: a.MemberAssignment})
	}
	r := c.Groups.Sync(c.Ctx, ev)
	resp := req.ResponseKind().(*kmsg.SyncGroupResponse)
	resp.ErrorCode, resp.MemberAssignment = wireCode(r.Code), r.Assignment
	resp.ProtocolType, resp.Protocol = nullable(r.ProtocolType), nullable(r.Protocol)
	return resp, nil
}
