package api

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/core/acl"
	"tidemark/internal/wire"
)

// guard looks at a request before its handler: it takes out what the client may
// not ask for, and says what becomes of the rest.
type guard func(c *Call, in kmsg.Request) verdict

// verdict is what a guard found. The zero value lets the request pass.
type verdict struct {
	// answer, if not nil, is the whole answer: the handler isn't asked.
	answer kmsg.Response
	// amend, if not nil, adds the refusals to the handler's answer, or takes out of
	// it what the client may not see.
	amend func(out kmsg.Response)
	// err closes the connection.
	err error
}

// rule says what one API takes, by Kafka's table of operations and resources.
type rule struct {
	key wire.Key
	// guard is nil where everybody may ask, or the handler looks by itself (Call.may).
	guard guard
}

// accessRules is the table of all rules. An API that isn't in it is closed while
// there is an authorizer: its connection is, because nothing can be said.
func accessRules() map[wire.Key]rule {
	all := make(map[wire.Key]rule)
	for _, list := range [][]rule{openRules(), topicRules(), groupRules(), clusterRules(), transactionRules(), draftRules()} {
		for _, r := range list {
			all[r.key] = r
		}
	}
	return all
}

// openRules are those of APIs that everybody may ask, or whose handlers look by themselves.
func openRules() []rule {
	return []rule{
		{key: wire.KeyApiVersions},   // before a log-in, even
		{key: wire.KeySaslHandshake}, // the log-in itself
		{key: wire.KeySaslAuthenticate},
		{key: wire.KeyFetch},                     // READ of each topic; CLUSTER_ACTION for replicas: fetchCall.mayFetch
		{key: wire.KeyMetadata},                  // DESCRIBE of each topic, CREATE of what is missing: Call.metadata
		{key: wire.KeyDescribeCluster},           // open, as in Kafka; its bits are the client's
		{key: wire.KeyDescribeTopicPartitions},   // DESCRIBE of each topic: Call.describeTopicPartitions
		{key: wire.KeyGetTelemetrySubscriptions}, // open, as in Kafka
		{key: wire.KeyPushTelemetry},
	}
}

// guarded answers a request as far as the client may ask it.
func (s *Server) guarded(c *Call, e entry, in kmsg.Request) (*wire.Response, error) {
	r, ok := s.rules[e.key]
	if !ok {
		return nil, fmt.Errorf("%w: no rule says who may ask %s", ErrClose, e.key)
	}
	if r.guard == nil {
		return e.encode(c, in)
	}
	v := r.guard(c, in)
	switch {
	case v.err != nil:
		return nil, v.err
	case v.answer != nil:
		return wire.Encode(c.Req, v.answer), nil
	case v.amend == nil:
		return e.encode(c, in)
	}
	out, err := e.handle(c, in)
	if err != nil || out == nil {
		return nil, err
	}
	v.amend(out)
	return wire.Encode(c.Req, out), nil
}

// asWhole guards a request that may be asked as a whole or not at all: refuse fills
// an empty answer for who may not.
func asWhole[In kmsg.Request, Out kmsg.Response](may func(*Call, In) wire.ErrCode, refuse func(in In, out Out, code wire.ErrCode)) guard {
	return func(c *Call, m kmsg.Request) verdict {
		in := m.(In)
		code := may(c, in)
		if code == wire.None {
			return verdict{}
		}
		out := m.ResponseKind()
		refuse(in, out.(Out), code)
		return verdict{answer: out}
	}
}

// onCluster is asWhole for an operation on the cluster.
func onCluster[In kmsg.Request, Out kmsg.Response](op acl.Operation, refuse func(in In, out Out, code wire.ErrCode)) guard {
	return asWhole(func(c *Call, _ In) wire.ErrCode { return codeUnless(c.mayCluster(op), acl.Cluster) }, refuse)
}

// codeUnless is the denial's code, None if it is allowed.
func codeUnless(allowed bool, resource acl.ResourceType) wire.ErrCode {
	if allowed {
		return wire.None
	}
	return denialOf(resource)
}

// eachOf guards a request for several things, each for itself: what the client may
// not have is taken out of the list, and refuse adds it to the answer. The handler
// isn't asked if nothing is left, because an empty list may mean everything.
func eachOf[In kmsg.Request, Out kmsg.Response, T any](list func(In) *[]T, may func(*Call, In, *T) wire.ErrCode, refuse func(in In, out Out, item *T, code wire.ErrCode)) guard {
	return func(c *Call, m kmsg.Request) verdict {
		in := m.(In)
		kept, refused := sift(*list(in), func(item *T) wire.ErrCode { return may(c, in, item) })
		if len(refused) == 0 {
			return verdict{}
		}
		*list(in) = kept
		amend := func(out kmsg.Response) {
			for i := range refused {
				refuse(in, out.(Out), &refused[i].item, refused[i].code)
			}
		}
		if len(kept) > 0 {
			return verdict{amend: amend}
		}
		out := m.ResponseKind()
		amend(out)
		return verdict{answer: out}
	}
}

// refusal is an item that was taken out, and why.
type refusal[T any] struct {
	item T
	code wire.ErrCode
}

// sift parts a list into what may stay, never nil, and what may not. The list stays as it is.
func sift[T any](list []T, may func(*T) wire.ErrCode) (kept []T, refused []refusal[T]) {
	kept = make([]T, 0, len(list))
	for i := range list {
		if code := may(&list[i]); code != wire.None {
			refused = append(refused, refusal[T]{list[i], code})
		} else {
			kept = append(kept, list[i])
		}
	}
	return kept, refused
}
