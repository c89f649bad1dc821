package console

import (
	"context"
	"net/http"

	"tidemark/internal/broker/mirror"
)

// MirrorTools are what an operator has around a mirror's life, beside its verbs.
type MirrorTools interface {
	// LastVerify gives the report of the last comparison that the node made.
	LastVerify(name string) (mirror.VerifyReport, error)
	// Alter changes what a mirror copies, where from, and how; or only says what it would change.
	Alter(ctx context.Context, name string, a mirror.Alteration) (mirror.Altered, error)
	// Groups tells of each mirrored group offset.
	Groups(ctx context.Context, name string) ([]mirror.GroupSync, error)
}

func (s *Server) toolRoutes() []route {
	return []route{
		{"GET", "/api/v1/mirrors/{name}/verify", s.mirrorLastVerify},
		{"GET", "/api/v1/mirrors/{name}/groups", s.mirrorGroups},
		{"PATCH", "/api/v1/mirrors/{name}", s.mirrorAlter},
	}
}

func (s *Server) mirrorLastVerify(w http.ResponseWriter, r *http.Request) error {
	report, err := s.node.Mirrors().LastVerify(r.PathValue("name"))
	if err != nil {
		return err
	}
	return answer(w, report)
}

// LastVerify gives the report of the last comparison that the node made.
func (c *Client) LastVerify(ctx context.Context, name string) (r mirror.VerifyReport, err error) {
	err = c.call(ctx, http.MethodGet, mirrorPath(name, "/verify"), nil, &r)
	return r, err
}

// MirrorGroups is what GET /api/v1/mirrors/{name}/groups tells.
type MirrorGroups struct {
	Groups []mirror.GroupSync `json:"groups"`
}

func (s *Server) mirrorGroups(w http.ResponseWriter, r *http.Request) error {
	list, err := s.node.Mirrors().Groups(r.Context(), r.PathValue("name"))
	if err != nil {
		return err
	}
	if list == nil {
		list = []mirror.GroupSync{}
	}
	return answer(w, MirrorGroups{Groups: list})
}

// Groups tells of each mirrored group offset of the groups that the node coordinates.
func (c *Client) Groups(ctx context.Context, name string) ([]mirror.GroupSync, error) {
	var l MirrorGroups
	err := c.call(ctx, http.MethodGet, mirrorPath(name, "/groups"), nil, &l)
	return l.Groups, err
}

func (s *Server) mirrorAlter(w http.ResponseWriter, r *http.Request) error {
	var a mirror.Alteration
	if err := readJSON(r, &a); err != nil {
		return err
	}
	done, err := s.node.Mirrors().Alter(r.Context(), r.PathValue("name"), a)
	if err != nil {
		return err
	}
	return answer(w, done)
}

// Alter changes a mirror, or only says what would change.
func (c *Client) Alter(ctx context.Context, name string, a mirror.Alteration) (done mirror.Altered, err error) {
	err = c.call(ctx, http.MethodPatch, mirrorPath(name, ""), a, &done)
	return done, err
}
