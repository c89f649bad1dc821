package console

import (
	"context"
	"encoding/json"
	"net/http"

	"tidemark/internal/broker/mirror"
)

// MirrorList is what GET /api/v1/mirrors tells.
type MirrorList struct {
	Mirrors []mirror.Status `json:"mirrors"`
}

func (s *Server) mirrorList(w http.ResponseWriter, r *http.Request) error {
	mirrors, err := s.node.Mirrors().List(r.Context())
	if err != nil {
		return err
	}
	if mirrors == nil {
		mirrors = []mirror.Status{}
	}
	return answer(w, MirrorList{Mirrors: mirrors})
}

func (s *Server) mirrorCreate(w http.ResponseWriter, r *http.Request) error {
	var spec mirror.Spec
	if err := readJSON(r, &spec); err != nil {
		return err
	}
	if err := s.node.Mirrors().Create(r.Context(), spec); err != nil {
		return err
	}
	return s.statusOf(w, r, spec.Name)
}

func (s *Server) statusOf(w http.ResponseWriter, r *http.Request, name string) error {
	st, err := s.node.Mirrors().StatusEverywhere(r.Context(), name)
	if err != nil {
		return err
	}
	return answer(w, st)
}

func (s *Server) mirrorStatus(w http.ResponseWriter, r *http.Request) error {
	return s.statusOf(w, r, r.PathValue("name"))
}

func (s *Server) mirrorDescribe(w http.ResponseWriter, r *http.Request) error {
	d, err := s.node.Mirrors().Describe(r.Context(), r.PathValue("name"))
	if err != nil {
		return err
	}
	return answer(w, d)
}

func (s *Server) mirrorDelete(w http.ResponseWriter, r *http.Request) error {
	if isDryRun(r) {
		words, err := s.node.Mirrors().Would(r.Context(), r.PathValue("name"), "delete", nil)
		if err != nil {
			return err
		}
		return answer(w, Done{Message: words})
	}
	if err := s.node.Mirrors().Delete(r.Context(), r.PathValue("name")); err != nil {
		return err
	}
	return answer(w, struct{}{})
}

// verb answers a POST that changes a mirror's state with the state afterwards.
func (s *Server) verb(verb string, do func(Mirrors, context.Context, string) error) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		name := r.PathValue("name")
		if isDryRun(r) {
			return s.wouldVerb(w, r, name, verb)
		}
		if err := do(s.node.Mirrors(), r.Context(), name); err != nil {
			return err
		}
		return s.statusOf(w, r, name)
	}
}

// wouldVerb answers with the present state and what the verb would do, in words.
func (s *Server) wouldVerb(w http.ResponseWriter, r *http.Request, name, verb string) error {
	words, err := s.node.Mirrors().Would(r.Context(), name, verb, nil)
	if err != nil {
		return err
	}
	st, err := s.node.Mirrors().StatusEverywhere(r.Context(), name)
	if err != nil {
		return err
	}
	st.Message = words
	return answer(w, st)
}

// FailoverRequest is the body of a failover; empty means the whole mirror.
type FailoverRequest struct {
	Topics []string `json:"topics,omitempty"`
	// Consistent promotes at a cut at which no transaction is half mirrored; Plan,
	// if given, must be that of the preview.
	Consistent bool   `json:"consistent,omitempty"`
	Plan       string `json:"plan,omitempty"`
	// StartID names the mirror's start that is ended, as its status tells it; empty:
	// the present one. With it, what is sent twice is one order.
	StartID string `json:"startId,omitempty"`
}

func (s *Server) mirrorFailover(w http.ResponseWriter, r *http.Request) error {
	var req FailoverRequest
	if err := readJSON(r, &req); err != nil {
		return err
	}
	// The operator's decision stands once it has been sent: it doesn't end with the connection.
	st, err := s.node.Mirrors().FailoverOf(context.WithoutCancel(r.Context()), r.PathValue("name"), mirror.FailoverOrder{
		Topics: req.Topics, StartID: req.StartID, Consistent: req.Consistent, Plan: req.Plan,
	})
	if err != nil {
		return err
	}
	return answer(w, st)
}

// mirrorVerify streams progress as JSON lines; the last line has done=true.
func (s *Server) mirrorVerify(w http.ResponseWriter, r *http.Request) error {
	enc := json.NewEncoder(w)
	flusher, _ := w.(http.Flusher)
	begun := false
	send := func(v mirror.Verify) {
		if !begun {
			w.Header().Set("Content-Type", "application/jsonlines")
			begun = true
		}
		_ = enc.Encode(v) // a client that went away ends the context
		if flusher != nil {
			flusher.Flush()
		}
	}
	v, err := s.node.Mirrors().Verify(r.Context(), r.PathValue("name"), send)
	if err != nil && !begun {
		return err
	}
	v.Done = true
	if err != nil {
		v.Error, v.Equal = err.Error(), false
	}
	send(v)
	return nil
}
