package api

import (
	"tidemark/internal/core/acl"
	"tidemark/internal/core/types"
	"tidemark/internal/wire"
)

// mayFetch asks for READ of a topic, and where a replica fetches for CLUSTER_ACTION.
// It is asked before each look at a partition, in a session too; by the newest image,
// not the request's: a fetch may wait for longer than a permission lasts.
func (f *fetchCall) mayFetch(ref topicRef) error {
	if f.Access == nil {
		return nil
	}
	now := *f.Call
	now.Image = f.Server.Image()
	allowed := false
	if f.replica != types.NoBroker {
		allowed = now.mayCluster(acl.ClusterAction)
	} else {
		allowed = now.mayRef(acl.Read, ref)
	}
	if !allowed {
		return wire.ErrTopicAuthorizationFailed
	}
	return nil
}
