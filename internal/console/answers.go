package console

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"tidemark/internal/broker/mirror"
)

// Kinds of errors that decide the HTTP status.
var (
	errNotFound = errors.New("not found")
	errInput    = errors.New("bad request")
)

// Problem is the body of every answer that isn't a success.
type Problem struct {
	Error string `json:"error"`
}

// refuse answers with the status that fits err and a sentence.
func (s *Server) refuse(w http.ResponseWriter, r *http.Request, err error) {
	status := http.StatusInternalServerError
	switch {
	case errors.Is(err, errUnauthorized):
		status = http.StatusUnauthorized
	case errors.Is(err, errCrossOrigin), errors.Is(err, errReadOnly):
		status = http.StatusForbidden
	case errors.Is(err, errInput), errors.Is(err, mirror.ErrSpec):
		status = http.StatusBadRequest
	case errors.Is(err, errNotFound), errors.Is(err, mirror.ErrUnknownMirror), errors.Is(err, mirror.ErrNone), errors.Is(err, mirror.ErrUnknownDrill):
		status = http.StatusNotFound
	case errors.Is(err, mirror.ErrExists), errors.Is(err, mirror.ErrState), errors.Is(err, mirror.ErrPlan), errors.Is(err, mirror.ErrRefusedParts), errors.Is(err, errRefused):
		status = http.StatusConflict
	}
	if status == http.StatusInternalServerError {
		s.log.Warn("HTTP request failed", "method", r.Method, "path", r.URL.Path, "err", err)
	}
	writeJSON(w, status, Problem{Error: err.Error()})
}

func writeJSON(w http.ResponseWriter, status int, value any) {
	b, err := json.Marshal(value)
	if err != nil {
		http.Error(w, `{"error":"the answer can't be written as JSON"}`, http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(b, '\n')) // a client that went away needs no answer
}

// answer writes a success.
func answer(w http.ResponseWriter, value any) error {
	writeJSON(w, http.StatusOK, value)
	return nil
}

// readJSON decodes a request body strictly; an empty body leaves into as it is.
func readJSON(r *http.Request, into any) error {
	dec := json.NewDecoder(r.Body)
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: body: %w", errInput, err)
	}
	return nil
}
