package console

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"tidemark/internal/core/control"
	"tidemark/internal/core/types"
	"tidemark/internal/metastore/backup"
	"tidemark/internal/metastore/member"
)

// FeaturesRequest asks for feature levels, all or none.
type FeaturesRequest struct {
	Levels map[string]int16 `json:"levels"`
	// Down allows a lower level; Unsafe also where records may have been written in a newer form.
	Down   bool `json:"down,omitempty"`
	Unsafe bool `json:"unsafe,omitempty"`
	DryRun bool `json:"dryRun,omitempty"`
}

// Accepted counts the partitions that may be led without the replicas that are missing.
type Accepted struct {
	Partitions int `json:"partitions"`
}

// nodeID reads the node id of a path.
func nodeID(r *http.Request) (types.BrokerID, error) {
	id, err := strconv.ParseInt(r.PathValue("id"), 10, 32)
	if err != nil || id < 0 {
		return 0, fmt.Errorf("%w: node %q: want a node id", errInput, r.PathValue("id"))
	}
	return types.BrokerID(id), nil
}

// clusterBackup streams the metadata; its last line tells whether it is whole.
func (s *Server) clusterBackup(w http.ResponseWriter, r *http.Request) error {
	taken, err := s.node.Membership().Backup(r.Context())
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/jsonlines")
	if err := taken.Write(w); err != nil {
		s.log.Warn("backup ended early", "err", err)
		panic(http.ErrAbortHandler)
	}
	return nil
}

func (s *Server) nodeReplace(w http.ResponseWriter, r *http.Request) error {
	id, err := nodeID(r)
	if err != nil {
		return err
	}
	out, err := s.node.Membership().ReplaceNode(r.Context(), id, r.URL.Query().Get("dryRun") == "true")
	if err != nil {
		return conflict(err)
	}
	return answer(w, out)
}

func (s *Server) nodeForget(w http.ResponseWriter, r *http.Request) error {
	id, err := nodeID(r)
	if err != nil {
		return err
	}
	if err := s.node.Membership().Forget(r.Context(), id); err != nil {
		return conflict(err)
	}
	return answer(w, struct{}{})
}

// clusterAddition says how a node may come in: ?node=N, or the lowest free id.
func (s *Server) clusterAddition(w http.ResponseWriter, r *http.Request) error {
	id := types.NoBroker
	if text := r.URL.Query().Get("node"); text != "" {
		n, err := strconv.ParseInt(text, 10, 32)
		if err != nil || n < 0 {
			return fmt.Errorf("%w: node %q: want a node id", errInput, text)
		}
		id = types.BrokerID(n)
	}
	out, err := s.node.Membership().MayAdd(r.Context(), id)
	if err != nil {
		return conflict(err)
	}
	return answer(w, out)
}

func (s *Server) clusterFeatures(w http.ResponseWriter, r *http.Request) error {
	var req FeaturesRequest
	if err := readJSON(r, &req); err != nil {
		return err
	}
	if len(req.Levels) == 0 {
		return fmt.Errorf("%w: no feature is named", errInput)
	}
	var changes []control.FeatureChange
	for name, level := range req.Levels {
		changes = append(changes, control.FeatureChange{Name: name, Level: level, Down: req.Down, Unsafe: req.Unsafe})
	}
	if err := s.node.Membership().UpdateFeatures(r.Context(), changes, req.DryRun); err != nil {
		return conflict(err)
	}
	return answer(w, struct{}{})
}

func (s *Server) clusterRecover(w http.ResponseWriter, r *http.Request) error {
	n, err := s.node.Membership().AcceptLoss(r.Context())
	if err != nil {
		return err
	}
	return answer(w, Accepted{Partitions: n})
}

// conflict marks a refusal of the cluster's, which is no failure of the node.
func conflict(err error) error {
	for _, refusal := range []error{control.ErrNodeIDInUse, control.ErrUnknownNode, control.ErrFeatureLevel, control.ErrInvalidRequest} {
		if errors.Is(err, refusal) {
			return fmt.Errorf("%w%w", errRefused, err)
		}
	}
	return err
}

// errRefused has no words of its own.
var errRefused = errors.New("")

// Backup takes the cluster's metadata and writes the file to w; what it gives was
// read back from the answer, so that it is whole.
func (c *Client) Backup(ctx context.Context, w io.Writer) (*backup.Backup, error) {
	body, err := c.request(ctx, http.MethodGet, "/api/v1/cluster/backup", nil)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	taken, err := backup.Read(io.TeeReader(body, w))
	if err != nil {
		return nil, fmt.Errorf("the node's answer: %w", err)
	}
	return taken, nil
}

// ReplaceNode lets a new machine take the id of a node that is lost; with dryRun it only says what that means.
func (c *Client) ReplaceNode(ctx context.Context, id int32, dryRun bool) (out member.Replaced, err error) {
	err = c.call(ctx, http.MethodPost, fmt.Sprintf("/api/v1/cluster/nodes/%d/replace?dryRun=%t", id, dryRun), nil, &out)
	return out, err
}

// Forget ends what the cluster remembers of a node that is gone.
func (c *Client) Forget(ctx context.Context, id int32) error {
	return c.call(ctx, http.MethodDelete, fmt.Sprintf("/api/v1/cluster/nodes/%d", id), nil, &struct{}{})
}

// Addition says how a node may come in; a negative id asks for a free one.
func (c *Client) Addition(ctx context.Context, id int32) (out member.Addition, err error) {
	path := "/api/v1/cluster/addition"
	if id >= 0 {
		path += fmt.Sprintf("?node=%d", id)
	}
	err = c.call(ctx, http.MethodGet, path, nil, &out)
	return out, err
}

// UpdateFeatures finalizes feature levels.
func (c *Client) UpdateFeatures(ctx context.Context, r FeaturesRequest) error {
	return c.call(ctx, http.MethodPost, "/api/v1/cluster/features", r, &struct{}{})
}

// Recover allows elections after a restore without the replicas that are missing.
func (c *Client) Recover(ctx context.Context) (out Accepted, err error) {
	err = c.call(ctx, http.MethodPost, "/api/v1/cluster/recover", nil, &out)
	return out, err
}
