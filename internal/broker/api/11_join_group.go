package api

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/core/group"
	"tidemark/internal/core/types"
)

// JoinGroup, versions 0 to 9.
//
//   - v0 has no rebalance timeout: the session timeout stands for it. From v4
//     on a dynamic member without id gets MEMBER_ID_REQUIRED and an id (KIP-394);
//     v5 adds static members; v7 the protocol type in the answer, and a null
//     protocol where there is none; v9 "skip assignment" (KIP-814).
//   - Waits for the rebalance. The leader alone is told of all members.
func joinGroup(c *Call, req *kmsg.JoinGroupRequest) (kmsg.Response, error) {
	ev := group.Join{
		Group: req.Group, MemberID: req.MemberID, InstanceID: text(req.InstanceID),
		ClientID: c.Req.ClientID, ClientHost: clientHost(c.Req),
		SessionTimeout:     types.Millis(req.SessionTimeoutMillis),
		ProtocolType:       req.ProtocolType,
		RequireKnownMember: req.Version >= 4,
		CanSkipAssignment:  req.Version >= 9,
	}
	if req.Version >= 1 {
		ev.RebalanceTimeout = types.Millis(req.RebalanceTimeoutMillis)
	}
	for _, p := range req.Protocols {
		ev.Protocols = append(ev.Protocols, group.Protocol{Name: p.Name, Metadata: p.Metadata})
	}
	r := c.Groups.Join(c.Ctx, ev)
	resp := req.ResponseKind().(*kmsg.JoinGroupResponse)
	resp.ErrorCode = wireCode(r.Code)
	resp.Generation, resp.LeaderID, resp.MemberID, resp.SkipAssignment = r.Generation, r.Leader, r.MemberID, r.SkipAssignment
	resp.ProtocolType, resp.Protocol = nullable(r.ProtocolType), nullable(r.Protocol)
	for _, m := range r.Members {
		out := kmsg.NewJoinGroupResponseMember()
		out.MemberID, out.InstanceID, out.ProtocolMetadata = m.MemberID, nullable(m.InstanceID), m.Metadata
		resp.Members = append(resp.Members, out)
	}
	return resp, nil
}
