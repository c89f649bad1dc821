package console

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"tidemark/internal/broker/mirror"
	"tidemark/internal/core/control"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/internal/metastore/backup"
	"tidemark/internal/metastore/member"
)

// Membership is which nodes keep the metadata and hold replicas.
type Membership interface {
	// Admit takes a node into the metadata quorum.
	Admit(ctx context.Context, r member.JoinRequest) (member.JoinAnswer, error)
	// Members lists the quorum; none where it is an etcd that the user runs.
	Members(ctx context.Context) ([]member.Info, error)
	RemoveMember(ctx context.Context, id string) error
	// Decommission moves every replica off a broker and gives how many partitions it still
	// holds; with dryRun it only says whether that can be done.
	Decommission(ctx context.Context, id types.BrokerID, dryRun bool) (left int, err error)
	// ReplaceNode lets a new machine take the id of a node that is lost for good.
	ReplaceNode(ctx context.Context, id types.BrokerID, dryRun bool) (member.Replaced, error)
	// Forget ends what is remembered of a node that is gone and holds nothing.
	Forget(ctx context.Context, id types.BrokerID) error
	// MayAdd says whether a node can be taken in now, and how; NoBroker: with a free id.
	MayAdd(ctx context.Context, id types.BrokerID) (member.Addition, error)
	// Backup takes the metadata, all of it at one revision.
	Backup(ctx context.Context) (*backup.Backup, error)
	// Recovery says how the elections after a restore stand; AcceptLoss lets them
	// do without the replicas that are missing.
	Recovery() member.Recovery
	AcceptLoss(ctx context.Context) (int, error)
	// Features are the levels that this node's program supports; UpdateFeatures finalizes levels.
	Features() meta.Features
	UpdateFeatures(ctx context.Context, changes []control.FeatureChange, dryRun bool) error
}

// Cluster is what /api/v1/cluster tells.
type Cluster struct {
	ClusterID string         `json:"clusterId"`
	NodeID    types.BrokerID `json:"nodeId"`
	// Controller is -1 while nobody is it.
	Controller types.BrokerID       `json:"controller"`
	Brokers    []*meta.BrokerRecord `json:"brokers"`
	Members    []member.Info        `json:"members"`
	// Nodes are those that are remembered, registered or not.
	Nodes []*meta.NodeRecord `json:"nodes"`
	// Levels are the finalized feature levels, Supported what this node's program supports.
	Levels    map[string]int16 `json:"levels"`
	Supported meta.Features    `json:"supported"`
	// Recovery says how the elections after a restore of the metadata stand.
	Recovery member.Recovery `json:"recovery"`
	// Closed are the partitions that switchovers have closed to clients' writes here.
	Closed []mirror.Closed `json:"closed"`
}

func (s *Server) cluster(w http.ResponseWriter, r *http.Request) error {
	image := s.node.Image()
	c := Cluster{ClusterID: s.node.ClusterID(), NodeID: s.node.NodeID(), Controller: types.NoBroker, Brokers: []*meta.BrokerRecord{}, Nodes: []*meta.NodeRecord{}}
	if office, ok := image.Controller(); ok {
		c.Controller = office.Record.Broker
	}
	for b := range image.Brokers() {
		c.Brokers = append(c.Brokers, b.Record)
	}
	for n := range image.Nodes() {
		c.Nodes = append(c.Nodes, n.Record)
	}
	c.Levels, _ = image.FinalizedFeatures()
	c.Supported, c.Recovery = s.node.Membership().Features(), s.node.Membership().Recovery()
	c.Closed = mirror.ClosedForSwitchover(image, types.Millis(time.Now().UnixMilli()))
	var err error
	if c.Members, err = s.node.Membership().Members(r.Context()); err != nil {
		return err
	}
	return answer(w, c)
}

func (s *Server) clusterJoin(w http.ResponseWriter, r *http.Request) error {
	var req member.JoinRequest
	if err := readJSON(r, &req); err != nil {
		return err
	}
	a, err := s.node.Membership().Admit(r.Context(), req)
	if err != nil {
		return err
	}
	return answer(w, a)
}

func (s *Server) memberRemove(w http.ResponseWriter, r *http.Request) error {
	if id := r.PathValue("id"); !isHex(id) {
		return fmt.Errorf("%w: member %q: want the hexadecimal id that tidemark cluster status shows", errInput, id)
	}
	if err := s.node.Membership().RemoveMember(r.Context(), r.PathValue("id")); err != nil {
		return err
	}
	return answer(w, struct{}{})
}

// isHex reports whether a text can be a member's id.
func isHex(id string) bool {
	_, err := strconv.ParseUint(id, 16, 64)
	return err == nil
}

// Decommissioned says how far a broker has been emptied.
type Decommissioned struct {
	// Left is the number of partitions that it still holds.
	Left int `json:"left"`
}

func (s *Server) decommission(w http.ResponseWriter, r *http.Request) error {
	id, err := nodeID(r)
	if err != nil {
		return err
	}
	left, err := s.node.Membership().Decommission(r.Context(), id, r.URL.Query().Get("dryRun") == "true")
	if err != nil {
		return err
	}
	return answer(w, Decommissioned{Left: left})
}

// Cluster tells of the brokers and the metadata quorum.
func (c *Client) Cluster(ctx context.Context) (out Cluster, err error) {
	err = c.call(ctx, http.MethodGet, "/api/v1/cluster", nil, &out)
	return out, err
}

// RemoveMember takes a member out of the metadata quorum.
func (c *Client) RemoveMember(ctx context.Context, id string) error {
	return c.call(ctx, http.MethodDelete, "/api/v1/cluster/members/"+url.PathEscape(id), nil, &struct{}{})
}

// Decommission has a broker emptied and tells how many partitions it still holds; with
// dryRun it only says whether that can be done.
func (c *Client) Decommission(ctx context.Context, id int32, dryRun bool) (out Decommissioned, err error) {
	err = c.call(ctx, http.MethodPost, fmt.Sprintf("/api/v1/cluster/nodes/%d/decommission?dryRun=%t", id, dryRun), nil, &out)
	return out, err
}
