package console

import (
	"context"
	"net/http"
	"net/url"

	"tidemark/internal/broker/mirror"
)

// Drills are forks of a mirror that clients may write to.
type Drills interface {
	Drill(ctx context.Context, name string, r mirror.DrillRequest) (mirror.DrillReport, error)
	Drills(ctx context.Context) ([]mirror.Drill, error)
	DeleteDrill(ctx context.Context, drill string, dryRun bool) ([]string, error)
	// Would says in words what a verb would do, and changes nothing.
	Would(ctx context.Context, name, verb string, topics []string) ([]string, error)
}

// DrillList is what GET /api/v1/drills tells.
type DrillList struct {
	Drills []mirror.Drill `json:"drills"`
}

func (s *Server) drillRoutes() []route {
	return []route{
		{"POST", "/api/v1/mirrors/{name}/drill", s.mirrorDrill},
		{"GET", "/api/v1/drills", s.drillList},
		{"DELETE", "/api/v1/drills/{drill}", s.drillDelete},
	}
}

// isDryRun reports ?dryRun=true.
func isDryRun(r *http.Request) bool { return r.URL.Query().Get("dryRun") == "true" }

func (s *Server) mirrorDrill(w http.ResponseWriter, r *http.Request) error {
	var req mirror.DrillRequest
	if err := readJSON(r, &req); err != nil {
		return err
	}
	// What an operator interrupts half-way leaves nothing.
	report, err := s.node.Mirrors().Drill(r.Context(), r.PathValue("name"), req)
	if err != nil {
		return err
	}
	return answer(w, report)
}

func (s *Server) drillList(w http.ResponseWriter, r *http.Request) error {
	list, err := s.node.Mirrors().Drills(r.Context())
	if err != nil {
		return err
	}
	return answer(w, DrillList{Drills: list})
}

func (s *Server) drillDelete(w http.ResponseWriter, r *http.Request) error {
	words, err := s.node.Mirrors().DeleteDrill(context.WithoutCancel(r.Context()), r.PathValue("drill"), isDryRun(r))
	if err != nil {
		return err
	}
	return answer(w, Done{Message: words})
}

// Drill makes a fork of a mirror's topics, or only says what it would fork.
func (c *Client) Drill(ctx context.Context, name string, r mirror.DrillRequest) (report mirror.DrillReport, err error) {
	err = c.call(ctx, http.MethodPost, mirrorPath(name, "/drill"), r, &report)
	return report, err
}

// Drills lists the forks that are there.
func (c *Client) Drills(ctx context.Context) ([]mirror.Drill, error) {
	var l DrillList
	err := c.call(ctx, http.MethodGet, "/api/v1/drills", nil, &l)
	return l.Drills, err
}

// DeleteDrill deletes a drill's topics, or only says which.
func (c *Client) DeleteDrill(ctx context.Context, drill string, dryRun bool) ([]string, error) {
	path := "/api/v1/drills/" + url.PathEscape(drill)
	if dryRun {
		path += "?dryRun=true"
	}
	var d Done
	err := c.call(ctx, http.MethodDelete, path, nil, &d)
	return d.Message, err
}

// TryVerb says what start, pause or resume would do.
func (c *Client) TryVerb(ctx context.Context, name, verb string) (st mirror.Status, err error) {
	err = c.call(ctx, http.MethodPost, mirrorPath(name, "/"+verb+"?dryRun=true"), nil, &st)
	return st, err
}

// TryDelete says whether a mirror would be forgotten.
func (c *Client) TryDelete(ctx context.Context, name string) ([]string, error) {
	var d Done
	err := c.call(ctx, http.MethodDelete, mirrorPath(name, "?dryRun=true"), nil, &d)
	return d.Message, err
}
