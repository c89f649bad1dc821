package console

import (
	"cmp"
	_ "embed"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"tidemark/internal/broker/mirror"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
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

// meta shows the records below ?prefix= (all without one), as JSON or with ?format=text as a table.
func (s *Server) meta(w http.ResponseWriter, r *http.Request) error {
	d := meta.Describe(s.node.Image(), r.URL.Query().Get("prefix"))
	switch format := r.URL.Query().Get("format"); format {
	case "", "json":
		return answer(w, d)
	case "text":
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write([]byte(d.Table())) // a client that went away needs no answer
		return nil
	default:
		return fmt.Errorf("%w: format %q: want json or text", errInput, format)
	}
}

// Events is what /api/v1/events tells, oldest first.
type Events struct {
	Events []mirror.Event `json:"events"`
}

// events tells all events, or those at or after ?since= (ms since 1970), of ?mirror= and of ?kind=.
func (s *Server) events(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	since, err := strconv.ParseInt(cmp.Or(q.Get("since"), "0"), 10, 64)
	if err != nil {
		return fmt.Errorf("%w: since %q: want milliseconds since 1970", errInput, q.Get("since"))
	}
	events := []mirror.Event{}
	for _, e := range s.node.Mirrors().Events() {
		if e.At >= types.Millis(since) && (q.Get("mirror") == "" || e.Mirror == q.Get("mirror")) && (q.Get("kind") == "" || slices.Contains(q["kind"], e.Kind)) {
			events = append(events, e)
		}
	}
	return answer(w, Events{Events: events})
}

func (s *Server) openapi(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(openapiDocument) // a client that went away needs no answer
	return nil
}
