package console

import (
	_ "embed"
	"net/http"

	"tidemark/internal/broker/mirror"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/internal/vault"
)

//go:embed openapi.json
var openapiDocument []byte

// Health is the body of /healthz and /readyz.
type Health struct {
	Status string `json:"status"` // "ok", or what is wrong in a sentence
}

func answerHealth(w http.ResponseWriter, err error) error {
	if err != nil {
		writeJSON(w, http.StatusServiceUnavailable, Health{Status: err.Error()})
		return nil
	}
	return answer(w, Health{Status: "ok"})
}

func (s *Server) health(w http.ResponseWriter, _ *http.Request) error {
	return answerHealth(w, s.node.Healthy())
}

func (s *Server) ready(w http.ResponseWriter, _ *http.Request) error {
	return answerHealth(w, s.node.Ready())
}

// Cluster is what /api/v1/cluster tells.
type Cluster struct {
	ClusterID string               `json:"clusterId"`
	NodeID    types.BrokerID       `json:"nodeId"`
	Brokers   []*meta.BrokerRecord `json:"brokers"`
}

func (s *Server) cluster(w http.ResponseWriter, _ *http.Request) error {
	c := Cluster{ClusterID: s.node.ClusterID(), NodeID: s.node.NodeID(), Brokers: []*meta.BrokerRecord{}}
	for _, b := range s.node.Image().Brokers() {
		c.Brokers = append(c.Brokers, &b.BrokerRecord)
	}
	return answer(w, c)
}

func (s *Server) meta(w http.ResponseWriter, _ *http.Request) error {
	return answer(w, meta.Describe(s.node.Image()))
}

// Events is what /api/v1/events tells, oldest first.
type Events struct {
	Events []mirror.Event `json:"events"`
}

func (s *Server) events(w http.ResponseWriter, _ *http.Request) error {
	events := s.node.Mirrors().Events()
	if events == nil {
		events = []mirror.Event{}
	}
	return answer(w, Events{Events: events})
}

// VaultList is what /api/v1/vault tells, oldest first.
type VaultList struct {
	Entries []vault.Entry `json:"entries"`
}

func (s *Server) vaultList(w http.ResponseWriter, _ *http.Request) error {
	entries, err := s.node.Vault().List()
	if err != nil {
		return err
	}
	if entries == nil {
		entries = []vault.Entry{}
	}
	return answer(w, VaultList{Entries: entries})
}

func (s *Server) openapi(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(openapiDocument) // a client that went away needs no answer
	return nil
}
