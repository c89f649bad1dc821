package timeline

import (
	"testing"

	"tidemark/internal/assert/asserttest"
)

func TestAStepThatRaisesNothing(t *testing.T) {
	for _, step := range []int32{0, -1} {
		asserttest.Breaks(t, "I-81", func() { _, _ = PromotedEpoch(step, 7) })
	}
}
