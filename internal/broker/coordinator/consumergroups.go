package coordinator

import (
	"context"
	"encoding/base64"

	"tidemark/internal/core/errcode"
	"tidemark/internal/core/group"
)

// ConsumerHeartbeat implements api.Groups.
func (c *Coordinator) ConsumerHeartbeat(ctx context.Context, ev group.ConsumerHeartbeat) group.ConsumerHeartbeatResponse {
	// No loop is needed to say that a request makes no sense.
	if refused := ev.Validate(&c.o.Config.Group.Consumer, ev.Group); refused != nil {
		return group.ConsumerHeartbeatResponse{Code: refused.Code, Message: refused.Message}
	}
	if ev.MemberID == "" && ev.FreshMemberID == "" {
		var b [16]byte
		c.o.Random(b[:])
		ev.FreshMemberID = base64.RawURLEncoding.EncodeToString(b[:]) // Kafka's form of an id
	}
	r, code := submitTo[group.ConsumerHeartbeatResponse](ctx, c, ev.Group, func(id group.RequestID) group.Event {
		ev.Request = id
		return ev
	})
	if code != errcode.None {
		return group.ConsumerHeartbeatResponse{Code: code}
	}
	return r
}

// DescribeConsumer implements api.Groups.
func (c *Coordinator) DescribeConsumer(ctx context.Context, groupID string) (group.ConsumerDescription, errcode.Code) {
	return lookUp(ctx, c.home(groupID), func(t *group.Table) group.ConsumerDescription {
		t.SetTopics(c.topicsView())
		return t.DescribeConsumer(groupID)
	})
}

// CheckFetch implements api.Groups.
func (c *Coordinator) CheckFetch(ctx context.Context, groupID, memberID string, epoch int32) errcode.Code {
	answer, code := lookUp(ctx, c.home(groupID), func(t *group.Table) errcode.Code { return t.CheckFetch(groupID, memberID, epoch) })
	return oneOf(code, answer)
}
