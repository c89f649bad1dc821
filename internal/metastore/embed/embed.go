// Package embed runs etcd inside the process.
package embed

import (
	"context"
	"log/slog"

	"tidemark/internal/metastore"
)

// Options say where and how the embedded etcd runs.
type Options struct {
	// Dir is the data folder, made if absent.
	Dir string
	// Name is the member's name; it is kept with the folder and must not change.
	Name string
	// Logger gets etcd's warnings and errors.
	Logger *slog.Logger
}

// Server is an embedded etcd of one member without a port.
type Server struct{}

// Start runs the embedded etcd and waits until it answers.
func Start(ctx context.Context, o Options) (*Server, error) { return nil, metastore.ErrUnavailable }

// Store gives the store of the server. It lives as long as the server.
func (s *Server) Store() metastore.Store { return nil }

// Close stops the server.
func (s *Server) Close() error { return nil }
