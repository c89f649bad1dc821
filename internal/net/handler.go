package net

import (
	"context"

	"tidemark/internal/wire"
)

// Handler answers requests. Requests of one connection come one at a time, in
// order; those of different connections at once.
type Handler interface {
	// Handle answers req. A nil response means that the request gets no
	// answer; an error closes the connection, and so does an answer that ends it. ctx ends when the connection
	// does, or the server stops. req and what it refers to are valid until the
	// answer is written.
	Handle(ctx context.Context, req *wire.Request) (*wire.Response, error)
}
