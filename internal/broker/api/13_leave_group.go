package api

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/core/errcode"
	"tidemark/internal/core/group"
)

// LeaveGroup, versions 0 to 5.
//
// v0-2 name one member, whose error is the request's. From v3 on (KIP-345)
// several leave at once, each with its own error, and an operator may name a
// static member by its instance id alone.
func leaveGroup(c *Call, req *kmsg.LeaveGroupRequest) (kmsg.Response, error) {
	resp := req.ResponseKind().(*kmsg.LeaveGroupResponse)
	ev := group.Leave{Group: req.Group}
	if req.Version < 3 {
		ev.Members = []group.LeavingMember{{MemberID: req.MemberID}}
	}
	for _, m := range req.Members {
		ev.Members = append(ev.Members, group.LeavingMember{MemberID: m.MemberID, InstanceID: text(m.InstanceID)})
	}
	r := c.Groups.Leave(c.Ctx, ev)
	resp.ErrorCode = wireCode(r.Code)
	if r.Code != errcode.None {
		return resp, nil
	}
	if req.Version < 3 {
		resp.ErrorCode = wireCode(r.Members[0])
		return resp, nil
	}
	for i, m := range req.Members {
		out := kmsg.NewLeaveGroupResponseMember()
		out.MemberID, out.InstanceID, out.ErrorCode = m.MemberID, m.InstanceID, wireCode(r.Members[i])
		resp.Members = append(resp.Members, out)
	}
	return resp, nil
}
