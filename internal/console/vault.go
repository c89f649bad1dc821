package console

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"time"

	"tidemark/internal/core/types"
	"tidemark/internal/vault"
)

// VaultList is what /api/v1/vault tells, oldest first.
type VaultList struct {
	Entries []vault.Entry `json:"entries"`
	Usage   vault.Usage   `json:"usage"`
}

func (s *Server) vaultList(w http.ResponseWriter, _ *http.Request) error {
	entries, err := s.node.Vault().List()
	if err != nil {
		return err
	}
	if entries == nil {
		entries = []vault.Entry{}
	}
	return answer(w, VaultList{Entries: entries, Usage: s.node.Vault().Usage()})
}

// vaultError tells an entry that isn't there from a vault that can't be read.
func vaultError(err error) error {
	if errors.Is(err, vault.ErrNoEntry) || errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %w (`tidemark vault list` shows what there is)", errNotFound, err)
	}
	return err
}

func (s *Server) vaultShow(w http.ResponseWriter, r *http.Request) error {
	e, err := s.node.Vault().Show(r.PathValue("id"))
	if err != nil {
		return vaultError(err)
	}
	return answer(w, e)
}

func (s *Server) vaultPurge(w http.ResponseWriter, r *http.Request) error {
	if err := s.node.Vault().Purge(r.PathValue("id")); err != nil {
		return vaultError(err)
	}
	return answer(w, struct{}{})
}

// vaultReplayed notes a replay that whoever made it has found complete.
func (s *Server) vaultReplayed(w http.ResponseWriter, r *http.Request) error {
	var done vault.Replay
	if err := readJSON(r, &done); err != nil {
		return err
	}
	if done.Topic == "" || done.Partition < 0 {
		return fmt.Errorf("%w: a replay needs a topic and a partition", errInput)
	}
	done.At = types.Millis(time.Now().UnixMilli())
	if err := s.node.Vault().NoteReplay(r.PathValue("id"), done); err != nil {
		return vaultError(err)
	}
	return answer(w, struct{}{})
}

// vaultExport streams an entry as raw batches (?format=segments) or as one JSON record a line (?format=json).
func (s *Server) vaultExport(w http.ResponseWriter, r *http.Request) error {
	id, format := r.PathValue("id"), vault.Format(r.URL.Query().Get("format"))
	kind := map[vault.Format]string{vault.Segments: "application/octet-stream", vault.JSONLines: "application/jsonlines"}[format]
	if kind == "" {
		return fmt.Errorf("%w: format %q: want %s or %s", errInput, format, vault.Segments, vault.JSONLines)
	}
	if _, err := s.node.Vault().Show(id); err != nil {
		return vaultError(err)
	}
	w.Header().Set("Content-Type", kind)
	if err := s.node.Vault().Export(id, format, w); err != nil {
		// The answer has begun: only a broken connection can tell the client that it isn't whole.
		s.log.Warn("vault export ended early", "entry", id, "err", err)
		panic(http.ErrAbortHandler)
	}
	return nil
}
