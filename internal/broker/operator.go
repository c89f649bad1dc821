package broker

import (
	"context"
	"encoding/base64"
	"math"
	"net/url"
	"strconv"

	"tidemark/internal/broker/api"
	"tidemark/internal/core/control"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/internal/metastore/embed"
	"tidemark/internal/wire"
)

// operator serves requests about the cluster's nodes (api.Operator).
type operator struct{ b *Broker }

var _ api.Operator = operator{}

// Features implements api.Operator.
func (o operator) Features() meta.Features { return o.b.opts.Features }

// UpdateFeatures implements api.Operator.
func (o operator) UpdateFeatures(ctx context.Context, changes []control.FeatureChange, validateOnly bool) error {
	return topicFault(o.b.UpdateFeatures(ctx, changes, validateOnly))
}

// Forget implements api.Operator.
func (o operator) Forget(ctx context.Context, id types.BrokerID) error {
	return topicFault(o.b.Forget(ctx, id))
}

// Quorum implements api.Operator.
func (o operator) Quorum(ctx context.Context) (api.Quorum, error) {
	if o.b.quorum == nil {
		return api.Quorum{}, wire.Errorf(wire.ErrUnsupportedVersion, "The metadata lives in an etcd of its own: etcdctl endpoint status describes it.")
	}
	q, err := o.b.quorum.Quorum(ctx)
	if err != nil {
		return api.Quorum{}, topicFault(err)
	}
	image := o.b.Image()
	out := api.Quorum{Leader: types.NoBroker, Epoch: int32(min(q.Term, math.MaxInt32)), HighWatermark: int64(q.Committed) + 1}
	voters := make(map[types.BrokerID]bool)
	for _, m := range q.Members {
		r, known := quorumReplica(image, m)
		if !known {
			continue // a member that has never started has no name yet
		}
		if m.ID == q.Leader {
			out.Leader = r.ID
		}
		voters[r.ID] = true
		if m.Learner {
			out.Observers = append(out.Observers, r)
		} else {
			out.Voters = append(out.Voters, r)
		}
	}
	for b := range image.Brokers() {
		if !voters[b.ID] {
			out.Observers = append(out.Observers, api.QuorumReplica{ID: b.ID, Directory: directoryBytes(b.Record.DirectoryID), LogEnd: -1})
		}
	}
	return out, nil
}

func quorumReplica(image *meta.Image, m embed.QuorumMember) (api.QuorumReplica, bool) {
	id, ok := NodeOfMember(m.Name)
	r := api.QuorumReplica{ID: id, LogEnd: -1}
	if m.Answers {
		r.LogEnd = int64(m.Index) + 1
	}
	if n, known := image.Node(id); known && len(n.Record.Directories) > 0 {
		r.Directory = directoryBytes(n.Record.Directories[0])
	}
	if len(m.Peers) > 0 {
		if u, err := url.Parse(m.Peers[0]); err == nil {
			port, _ := strconv.ParseUint(u.Port(), 10, 16)
			r.Host, r.Port = u.Hostname(), int32(port)
		}
	}
	return r, ok
}

// directoryBytes reads a folder's id in Kafka's form; zero if it has another one.
func directoryBytes(id string) (out [16]byte) {
	if b, err := base64.RawURLEncoding.DecodeString(id); err == nil && len(b) == len(out) {
		copy(out[:], b)
	}
	return out
}
