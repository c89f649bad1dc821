package mem_test

import (
	"testing"
	"time"

	"tidemark/internal/await"
	"tidemark/internal/metastore"
	"tidemark/internal/metastore/mem"
	"tidemark/internal/metastore/storetest"
)

func TestMain(m *testing.M) { await.NoLeaks(m) }

func TestConformance(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Subject {
		s := mem.New()
		t.Cleanup(func() { s.Close() })
		return storetest.Subject{
			Store:   s,
			Advance: func(d time.Duration) { s.Advance(d) },
			Compact: func(_ *testing.T, revision metastore.Revision) { s.Compact(revision) },
		}
	})
}
