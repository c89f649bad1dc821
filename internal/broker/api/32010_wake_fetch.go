package api

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/wire"
)

// WakeFetch (key 32010, Tidemark's own): a follower whose fetch waits here has
// more to ask in that session, and wants the answer now.
//
// Behaviour
//   - The request of the session that carries the given epoch is answered as soon
//     as it would wait, also if it comes later than this one.
//   - A session that isn't known, or an epoch that has passed, changes nothing.
//
// Versions
//   - 0: all of it.
func (c *Call) wakeFetch(in *wire.WakeFetchRequest) (kmsg.Response, error) {
	if s := c.sessions.find(in.SessionID); s != nil {
		s.wake(in.SessionEpoch)
	}
	return &wire.WakeFetchResponse{}, nil
}
