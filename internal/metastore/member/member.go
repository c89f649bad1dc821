// Package member holds what nodes say to each other when one joins the
// cluster of another: the question, the answer, and the list of members.
//
// It owns the forms alone. metastore/embed asks and answers, the HTTP API
// carries (POST /api/v1/cluster/join), the command line prints. Nothing here
// changes anything.
package member

import (
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
)

// JoinRequest is a node's wish to join.
type JoinRequest struct {
	NodeID types.BrokerID `json:"nodeId"`
	// ClusterID is the cluster that the node's folder belongs to, empty if to none yet.
	ClusterID string `json:"clusterId,omitempty"`
	// DirectoryID names the node's data folder, Directories all of them if there are several.
	DirectoryID string   `json:"directoryId"`
	Directories []string `json:"directories,omitempty"`
	// Features are the levels that the node's program supports.
	Features meta.Features `json:"features,omitempty"`
	// Name is the member's, fresh for each folder; PeerURL is where it will
	// listen for other members. Both are empty for a node that is to keep no metadata.
	Name    string `json:"name,omitempty"`
	PeerURL string `json:"peerUrl,omitempty"`
	// ClientURL is where it will answer nodes that are no members.
	ClientURL string `json:"clientUrl,omitempty"`
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

// Replaced says what a node was whose id a new machine takes.
type Replaced struct {
	// Replicas counts the partitions that the new node rebuilds a copy of; Only,
	// those that had no other replica: their records are lost.
	Replicas int `json:"replicas"`
	Only     int `json:"only"`
	// Member was the node's in the metadata quorum; empty if it had none.
	Member string `json:"member,omitempty"`
}

// Addition says how a new node may come in.
type Addition struct {
	NodeID    types.BrokerID `json:"nodeId"`
	ClusterID string         `json:"clusterId"`
	// Join is the HTTP address to give with --join; empty with Metadata, which is
	// the setting that names the etcd of all nodes then.
	Join     string `json:"join,omitempty"`
	Metadata string `json:"metadata,omitempty"`
	// Voter: it will be a member of the metadata quorum. TLS: it needs the settings metadata.ssl.*.
	Voter bool `json:"voter"`
	TLS   bool `json:"tls,omitempty"`
	// Unhealthy are members that don't answer now.
	Unhealthy []Info `json:"unhealthy,omitempty"`
}

// Recovery says how the elections after a restore of the metadata stand.
type Recovery struct {
	RestoredAt     types.Millis  `json:"restoredAt,omitempty"`
	BackupTakenAt  types.Millis  `json:"backupTakenAt,omitempty"`
	BackupRevision meta.Revision `json:"backupRevision,omitempty"`
	// Waiting partitions have no leader yet; For are the nodes whose word is missing.
	Waiting int              `json:"waiting,omitempty"`
	For     []types.BrokerID `json:"for,omitempty"`
}
