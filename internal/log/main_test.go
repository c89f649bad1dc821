package log

import (
	"testing"

	"tidemark/internal/await"
)

func TestMain(m *testing.M) { await.NoLeaks(m) }
