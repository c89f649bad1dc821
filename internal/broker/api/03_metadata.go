package api

import (
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/core/acl"
	"tidemark/internal/core/control"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/internal/wire"
)

// Metadata (key 3): brokers, topics, leaders.
//
// Behaviour
//   - Null topics (version 0: an empty list) are all, an empty list none. The
//     order is the request's, or by name.
//   - Addresses are the ones advertised for the listener that the request came
//     in by; a broker that has none there isn't listed.
//   - A topic that doesn't exist is made if the request and
//     auto.create.topics.enable allow it. Unlike Kafka, which answers
//     LEADER_NOT_AVAILABLE at first, the answer shows the topic as made: clients
//     save one round. The image is taken anew after that. A coordinator's own topic
//     is made as its coordinator makes it.
//   - A partition whose leader is dead, or can't be reached on this listener, is
//     LEADER_NOT_AVAILABLE (LISTENER_NOT_FOUND from version 6).
//   - Any broker takes admin requests; the controller is told for old clients.
//
// Versions
//   - 1: rack, controller, internal flag. 2: cluster id. 4: creation by flag.
//     5: offline replicas. 7: leader epochs. 8: authorized operations. 9:
//     flexible. 10: topic ids. 11: no cluster operations. 12: topics by id. 13:
//     an error for the whole answer (never used).
func (c *Call) metadata(in *kmsg.MetadataRequest) (kmsg.Response, error) {
	if in.Topics != nil && in.Version >= 4 && !in.AllowAutoTopicCreation {
		return c.metadataAnswer(in), nil
	}
	if c.Settings().AutoCreateTopics && c.createMissing(in) {
		c.Image = c.Server.Image()
	}
	return c.metadataAnswer(in), nil
}

// createMissing makes the topics that in names and that don't exist; true if
// there are new ones. What can't be made is left to the answer.
func (c *Call) createMissing(in *kmsg.MetadataRequest) bool {
	set := c.Settings()
	made := false
	for _, t := range in.Topics {
		if t.Topic == nil || !validTopicName(*t.Topic) || strings.HasPrefix(*t.Topic, ViewPrefix) {
			continue
		}
		if _, exists := c.Image.TopicByName(*t.Topic); exists || !c.mayCreate(*t.Topic) {
			continue
		}
		ask := CreateTopic{Name: *t.Topic, Partitions: set.DefaultPartitions, ReplicationFactor: set.DefaultReplicationFactor}
		if IsInternalTopic(ask.Name) {
			ask.Partitions, ask.ReplicationFactor = -1, -1 // its coordinator's
		}
		_, err := c.Topics.Create(c.Ctx, ask)
		if err != nil && CodeOf(err) != wire.ErrTopicAlreadyExists {
			c.Logger.Warn("automatic topic creation failed", "topic", *t.Topic, "client", c.Req.ClientID, "error", err)
			continue
		}
		made = true
	}
	return made
}

func (c *Call) metadataAnswer(in *kmsg.MetadataRequest) *kmsg.MetadataResponse {
	out := kmsg.NewPtrMetadataResponse()
	out.ClusterID, out.ControllerID = &c.ClusterID, int32(c.controllerID())
	if in.IncludeClusterAuthorizedOperations {
		out.AuthorizedOperations = c.clusterOperations()
	}
	for _, n := range c.nodes(c.Image) {
		out.Brokers = append(out.Brokers, kmsg.MetadataResponseBroker{NodeID: int32(n.ID), Host: n.Host, Port: n.Port, Rack: nullable(n.Rack)})
	}
	if in.Topics == nil || in.Version == 0 && len(in.Topics) == 0 {
		quiet := c.quietly()
		for t := range c.Image.TopicsByName() {
			if !quiet.mayTopic(acl.Describe, t.Record.Name) {
				continue
			}
			out.Topics = append(out.Topics, c.metadataTopic(in, t.Record))
			view := ViewPrefix + t.Record.Name
			if v, ok := viewRecord(c.Image, topicRef{name: view}); ok && c.HasVault != nil && c.HasVault(t.Record.Name) && quiet.mayTopic(acl.Describe, view) {
				out.Topics = append(out.Topics, c.metadataTopic(in, v))
			}
		}
		return out
	}
	for _, t := range in.Topics {
		out.Topics = append(out.Topics, c.askedTopic(in, t))
	}
	return out
}

// askedTopic answers one topic of the request.
func (c *Call) askedTopic(in *kmsg.MetadataRequest, t kmsg.MetadataRequestTopic) kmsg.MetadataResponseTopic {
	ref := topicRef{id: t.TopicID, useID: t.Topic == nil}
	if t.Topic != nil {
		ref.name = *t.Topic
	}
	rec, err := ref.find(c.Image)
	switch {
	case c.hidden(in, ref, err):
		rec, err = nil, wire.ErrTopicAuthorizationFailed
	case t.Topic == nil && in.Version < 12, t.Topic == nil && ref.id.IsZero():
		err = wire.ErrInvalidRequest // by id only from version 12 on
	case t.Topic != nil && err != nil && !validTopicName(ref.name):
		err = wire.ErrInvalidTopic
	}
	if err == nil {
		return c.metadataTopic(in, rec)
	}
	to := kmsg.NewMetadataResponseTopic()
	to.ErrorCode = int16(CodeOf(err)) // of what is hidden, neither name nor id is told that wasn't asked by
	to.Topic, to.TopicID = t.Topic, t.TopicID
	if in.Version < 12 && to.Topic == nil {
		to.Topic = new(string) // null isn't to be had before version 12
	}
	return to
}

// mayCreate reports whether the client may have a topic made by asking for it.
func (c *Call) mayCreate(name string) bool {
	return c.mayTopic(acl.Describe, name) && (c.quietly().mayCluster(acl.Create) || c.mayTopic(acl.Create, name))
}

// hidden reports whether the answer must be TOPIC_AUTHORIZATION_FAILED, whether or
// not there is such a topic: without DESCRIBE, or where one would have been made.
func (c *Call) hidden(in *kmsg.MetadataRequest, ref topicRef, notFound error) bool {
	if c.Access == nil {
		return false
	}
	makes := in.AllowAutoTopicCreation || in.Version < 4
	missing := notFound != nil && !ref.useID && makes && c.Settings().AutoCreateTopics
	return !c.mayRef(acl.Describe, ref) || missing && !c.mayCreate(ref.name)
}

func (c *Call) metadataTopic(in *kmsg.MetadataRequest, t *meta.TopicRecord) kmsg.MetadataResponseTopic {
	to := kmsg.NewMetadataResponseTopic()
	to.Topic, to.TopicID, to.IsInternal = &t.Name, t.ID, t.Internal
	if in.IncludeTopicAuthorizedOperations {
		to.AuthorizedOperations = c.operations(acl.Topic, t.Name, opsTopic)
	}
	to.Partitions = make([]kmsg.MetadataResponseTopicPartition, 0, t.Partitions)
	for p := range c.Image.PartitionsOf(shownID(c.Image, t)) {
		v := c.viewPartition(p, in.Version < 6)
		to.Partitions = append(to.Partitions, kmsg.MetadataResponseTopicPartition{
			ErrorCode: int16(v.code), Partition: p.ID.Number, Leader: int32(v.leader), LeaderEpoch: int32(v.epoch),
			Replicas: v.replicas, ISR: v.isr, OfflineReplicas: v.offline,
		})
	}
	return to
}

// partitionView is a partition record as clients are shown it.
type partitionView struct {
	code                   wire.ErrCode
	leader                 types.BrokerID
	epoch                  types.LeaderEpoch
	replicas, isr, offline []int32
}

// viewPartition shows a partition. Old clients don't know LISTENER_NOT_FOUND.
func (c *Call) viewPartition(p *meta.Partition, old bool) partitionView {
	r := p.Record
	if r == nil {
		return partitionView{code: wire.ErrLeaderNotAvailable, leader: types.NoBroker, epoch: types.NoLeaderEpoch,
			replicas: []int32{}, isr: []int32{}, offline: []int32{}}
	}
	v := partitionView{leader: r.Leader, epoch: r.LeaderEpoch, replicas: ids(r.Replicas), isr: ids(r.ISRIDs()), offline: []int32{}}
	for _, b := range r.Replicas {
		if _, live := c.Image.Broker(b); !live {
			v.offline = append(v.offline, int32(b))
		}
	}
	if _, reachable := c.node(c.Image, r.Leader); reachable && !control.NeedsLeader(c.Image, r) {
		return v
	}
	v.code, v.leader = wire.ErrLeaderNotAvailable, types.NoBroker
	if r.Leader != types.NoBroker && !old && !control.NeedsLeader(c.Image, r) && !slices.Contains(v.offline, int32(r.Leader)) {
		v.code = wire.ErrListenerNotFound
	}
	return v
}

// validTopicName follows Kafka: 1 to 249 of [a-zA-Z0-9._-], and neither "." nor "..".
func validTopicName(s string) bool {
	if s == "" || len(s) > 249 || s == "." || s == ".." {
		return false
	}
	for i := range len(s) {
		b := s[i]
		if (b < 'a' || b > 'z') && (b < 'A' || b > 'Z') && (b < '0' || b > '9') && b != '.' && b != '_' && b != '-' {
			return false
		}
	}
	return true
}
