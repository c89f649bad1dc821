package api

import (
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/wire"
)

// Verbs carry out this broker's part of a mirror's verb.
type Verbs interface {
	// Verb gives the answer's body. body is valid until it returns.
	Verb(ctx context.Context, verb string, body []byte) ([]byte, error)
}

// MirrorVerb (key 32001, Tidemark's own): what the brokers of a cluster, and a
// mirror and its source, ask of each other for failback and switchover
// (docs/format/mirror-verb-api.md).
//
// Behaviour
//   - The body is JSON and the verb's business; this handler passes it on.
//   - A refusal has a code and a sentence; what concerns single partitions is in the body.
//   - Listed in ApiVersions only for clients that name themselves Tidemark.
//
// Versions
//   - 0: all of it.
func (c *Call) mirrorVerb(in *wire.MirrorVerbRequest) (kmsg.Response, error) {
	out := &wire.MirrorVerbResponse{}
	if c.Verbs == nil {
		out.ErrorCode, out.Message = wire.ErrBrokerNotAvailable, "the broker is starting"
		return out, nil
	}
	body, err := c.Verbs.Verb(c.Ctx, in.Verb, slices.Clone(in.Body))
	switch {
	case err != nil:
		out.ErrorCode, out.Message = c.failed(wire.KeyMirrorVerb, err), err.Error()
	case len(body) > wire.VerbBodyBytesMax:
		out.ErrorCode, out.Message = wire.ErrMessageTooLarge, "the answer is too large: ask for fewer topics at a time"
	default:
		out.Body = body
	}
	return out, nil
}
