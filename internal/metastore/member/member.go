// Package member holds what nodes say to each other when one joins the
// cluster of another: the question, the answer, and the list of members.
//
// It owns the forms alone. metastore/embed asks and answers, the HTTP API
// carries (POST /api/v1/cluster/join), the command line prints. Nothing here
// changes anything.
package member

import "tidemark/internal/core/types"

// JoinRequest is a node's wish to join.
type JoinRequest struct {
	NodeID types.BrokerID `json:"nodeId"`
	// ClusterID is the cluster that the node's folder belongs to, empty if to none yet.
	ClusterID string `json:"clusterId,omitempty"`
	// DirectoryID names the node's data folder.
	DirectoryID string `json:"directoryId"`
	// Name is the member's, fresh for each folder; PeerURL is where it will
	// listen for other members. Both are empty for a node that is to keep no metadata.
	Name    string `json:"name,omitempty"`
	PeerURL string `json:"peerUrl,omitempty"`
	// Probe asks only where the members are: nothing is changed, but that a lone member opens its ports.
	Probe bool `json:"probe,omitempty"`
}

// JoinAnswer says how to take part.
type JoinAnswer struct {
	ClusterID string `json:"clusterId"`
	// Voter: the node is a member, a learner at first. Else it only asks the members.
	Voter bool `json:"voter"`
	// Members lists name=peer URL of every member, the new one included.
	Members []string `json:"members,omitempty"`
	// Endpoints are the client addresses of the members that can be asked now.
	Endpoints []string `json:"endpoints"`
}

// Info is one member of the metadata quorum.
type Info struct {
	ID      string `json:"id"` // hexadecimal
	Name    string `json:"name,omitempty"`
	Peer    string `json:"peer"`
	Client  string `json:"client,omitempty"`
	Learner bool   `json:"learner,omitempty"`
	// Started: it has told its name since it was added.
	Started bool `json:"started"`
	// Healthy: it answers now.
	Healthy bool `json:"healthy"`
}
