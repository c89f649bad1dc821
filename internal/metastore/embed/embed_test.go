package embed_test

import (
	"context"
	"testing"
	"time"

	"tidemark/internal/metastore"
	"tidemark/internal/metastore/embed"
	"tidemark/internal/metastore/storetest"
)

func start(t *testing.T, o embed.Options) *embed.Server {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	s, err := embed.Start(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestConformance(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Subject {
		s := start(t, embed.Options{Dir: t.TempDir(), Name: "node-1", UnsafeNoSync: true})
		return storetest.Subject{
			Store: s.Store(),
			Compact: func(t *testing.T, revision metastore.Revision) {
				if err := s.Compact(context.Background(), revision); err != nil {
					t.Fatal(err)
				}
			},
		}
	})
}
