package net

import (
	"context"
	"testing"

	"tidemark/internal/await"
	"tidemark/internal/wire"
)

// A produced record is acknowledged when the replicas have fetched it: their
// fetches can't wait for the memory that produce requests hold until then.
func TestFetchesDoNotWaitForProduces(t *testing.T) {
	fetched := make(chan struct{})
	s, addr := start(t, Options{MemoryBytes: 1 << 20, Handler: handlerFunc(func(ctx context.Context, req *wire.Request) (*wire.Response, error) {
		switch req.Key {
		case wire.KeyFetch:
			close(fetched)
		case wire.KeyProduce:
			<-fetched
		}
		return echo(ctx, req)
	})}, Listener{})
	first, second, replica := dial(t, addr), dial(t, addr), dial(t, addr)
	send(t, first, frame(wire.KeyProduce, 3, 1, make([]byte, 1<<20)))
	await.True(t, "the memory to be taken", func() bool { return s.Stats().Requests.Load() == 1 })
	send(t, second, frame(wire.KeyProduce, 3, 2, make([]byte, 1<<20)))
	await.True(t, "another request to wait for it", func() bool { return s.Stats().MemoryWaits.Load() == 1 })
	send(t, replica, frame(wire.KeyFetch, 4, 3, nil))
	wantAnswer(t, replica, 3)
	wantAnswer(t, first, 1)
	wantAnswer(t, second, 2)
}
