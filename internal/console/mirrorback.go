package console

import (
	"context"
	"fmt"
	"net/http"

	"tidemark/internal/broker/mirror"
)

// Changes are the verbs that change sides.
type Changes interface {
	// Preview plays a failback and changes nothing.
	Preview(ctx context.Context, name string, r mirror.PreviewRequest) (mirror.Preview, error)
	Failback(ctx context.Context, name string, r mirror.FailbackRequest) (mirror.Preview, error)
	Switchover(ctx context.Context, name string, r mirror.SwitchoverRequest) (mirror.Status, error)
	// AbandonOf takes a start back, the present one if start is empty.
	AbandonOf(ctx context.Context, name string, topics []string, start string) ([]string, error)
	AcceptGap(ctx context.Context, name string, topics []string) ([]string, error)
	Reopen(ctx context.Context, topics []string) ([]string, error)
	Drills
}

// Done is what a verb did, in words.
type Done struct {
	Message []string `json:"message"`
}

// TopicsRequest bounds a verb to topics; empty means all that it fits.
type TopicsRequest struct {
	Topics []string `json:"topics,omitempty"`
	// DryRun: only say what would be done.
	DryRun bool `json:"dryRun,omitempty"`
	// StartID names the mirror's start that an abandon takes back; empty: the present one.
	StartID string `json:"startId,omitempty"`
}

func (s *Server) mirrorPreview(w http.ResponseWriter, r *http.Request) error {
	var req mirror.PreviewRequest
	if err := readJSON(r, &req); err != nil {
		return err
	}
	p, err := s.node.Mirrors().Preview(r.Context(), r.PathValue("name"), req)
	if err != nil {
		return err
	}
	return answer(w, p)
}

func (s *Server) mirrorFailback(w http.ResponseWriter, r *http.Request) error {
	var req mirror.FailbackRequest
	if err := readJSON(r, &req); err != nil {
		return err
	}
	// As a failover's, the decision doesn't end with the connection.
	p, err := s.node.Mirrors().Failback(context.WithoutCancel(r.Context()), r.PathValue("name"), req)
	if err != nil {
		return err
	}
	return answer(w, p)
}

func (s *Server) mirrorSwitchover(w http.ResponseWriter, r *http.Request) error {
	var req mirror.SwitchoverRequest
	if err := readJSON(r, &req); err != nil {
		return err
	}
	// An operator who interrupts it before it has promoted takes it back.
	st, err := s.node.Mirrors().Switchover(r.Context(), r.PathValue("name"), req)
	if err != nil {
		return err
	}
	return answer(w, st)
}

// words answers a verb on topics with what it did.
func (s *Server) words(verb string, do func(m Mirrors, ctx context.Context, name string, req TopicsRequest) ([]string, error)) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		var req TopicsRequest
		if err := readJSON(r, &req); err != nil {
			return err
		}
		ctx, name, mirrors := context.WithoutCancel(r.Context()), r.PathValue("name"), s.node.Mirrors()
		var words []string
		var err error
		if req.DryRun {
			words, err = mirrors.Would(ctx, name, verb, req.Topics)
		} else {
			words, err = do(mirrors, ctx, name, req)
		}
		if err != nil {
			return err
		}
		if words == nil {
			words = []string{}
		}
		return answer(w, Done{Message: words})
	}
}

func abandon(m Mirrors, ctx context.Context, name string, req TopicsRequest) ([]string, error) {
	return m.AbandonOf(ctx, name, req.Topics, req.StartID)
}

func acceptGap(m Mirrors, ctx context.Context, name string, req TopicsRequest) ([]string, error) {
	if err := startless(req); err != nil {
		return nil, err
	}
	return m.AcceptGap(ctx, name, req.Topics)
}

func reopen(m Mirrors, ctx context.Context, _ string, req TopicsRequest) ([]string, error) {
	if err := startless(req); err != nil {
		return nil, err
	}
	return m.Reopen(ctx, req.Topics)
}

// startless refuses a start where none is compared: it would promise too much.
func startless(req TopicsRequest) error {
	if req.StartID != "" {
		return fmt.Errorf("%w: startId belongs to an abandon, not to this verb", errInput)
	}
	return nil
}

// Preview plays a failback.
func (c *Client) Preview(ctx context.Context, name string, r mirror.PreviewRequest) (p mirror.Preview, err error) {
	err = c.call(ctx, http.MethodPost, mirrorPath(name, "/preview"), r, &p)
	return p, err
}

// Failback makes topics that exist on the node mirrors.
func (c *Client) Failback(ctx context.Context, name string, r mirror.FailbackRequest) (p mirror.Preview, err error) {
	err = c.call(ctx, http.MethodPost, mirrorPath(name, "/failback"), r, &p)
	return p, err
}

// Switchover changes sides without loss. Ending ctx before it has promoted takes it back.
func (c *Client) Switchover(ctx context.Context, name string, r mirror.SwitchoverRequest) (st mirror.Status, err error) {
	err = c.call(ctx, http.MethodPost, mirrorPath(name, "/switchover"), r, &st)
	return st, err
}

// OnTopics has a mirror's verb (abandon, accept-gap) done on topics, or says what it would do.
func (c *Client) OnTopics(ctx context.Context, name, verb string, r TopicsRequest) ([]string, error) {
	var d Done
	err := c.call(ctx, http.MethodPost, mirrorPath(name, "/"+verb), r, &d)
	return d.Message, err
}

// Reopen opens what a switchover left closed to writes, or says what that is.
func (c *Client) Reopen(ctx context.Context, r TopicsRequest) ([]string, error) {
	var d Done
	err := c.call(ctx, http.MethodPost, "/api/v1/fences/reopen", r, &d)
	return d.Message, err
}
