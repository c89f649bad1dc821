package api

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/core/group"
)

// Heartbeat, versions 0 to 4. v3 adds the instance id.
//
// REBALANCE_IN_PROGRESS tells a member to join again; ILLEGAL_GENERATION that
// it has missed a rebalance; UNKNOWN_MEMBER_ID, also for an unknown group, that
// it is out. While the group's partition loads, heartbeats succeed, so that a
// restart costs no member its place.
func heartbeat(c *Call, req *kmsg.HeartbeatRequest) (kmsg.Response, error) {
	resp := req.ResponseKind().(*kmsg.HeartbeatResponse)
	resp.ErrorCode = wireCode(c.Groups.Heartbeat(c.Ctx, group.Heartbeat{
		Group: req.Group, MemberID: req.MemberID, InstanceID: text(req.InstanceID), Generation: req.Generation,
	}))
	return resp, nil
}
