package source

import (
	"context"
	"time"

	"tidemark/internal/core/types"
	"tidemark/internal/wire"
)

// Verb asks a Tidemark broker for its part of a mirror's verb (key 32001,
// docs/format/mirror-verb-api.md), for at most patience. A broker that doesn't offer the key is
// ErrTooOld. A refusal is an ErrAnswer with the broker's sentence.
func (c *Client) Verb(ctx context.Context, broker types.BrokerID, verb string, body []byte, patience time.Duration) ([]byte, error) {
	cn, err := c.brokerConn(ctx, broker, purposeRequests)
	if err != nil {
		return nil, err
	}
	req := &wire.MirrorVerbRequest{Verb: verb, Body: body}
	version, err := cn.versions.choose(cn.address, req.Key())
	if err != nil {
		return nil, err
	}
	req.SetVersion(version)
	kr, _, err := cn.roundTrip(ctx, req, patience, wire.VerbBodyBytesMax+wire.VerbMessageBytesMax+1024, nil)
	if err != nil {
		return nil, err
	}
	resp := kr.(*wire.MirrorVerbResponse)
	if resp.ErrorCode != 0 {
		return nil, &Error{Kind: ErrAnswer, Broker: cn.address, Op: "MirrorVerb " + verb, Code: Code(resp.ErrorCode), Sentence: resp.Message}
	}
	return resp.Body, nil
}
