package broker

import (
	"testing"

	"tidemark/internal/assert/asserttest"
	"tidemark/internal/core/types"
)

// No replica can say a log start that lifts the low watermark: it is shown to the assertion itself.
func TestALowWatermarkAboveTheLeader(t *testing.T) {
	checkLow(types.TopicPartition{Topic: "t"}, 5, 5)
	asserttest.Breaks(t, "I-233", func() { checkLow(types.TopicPartition{Topic: "t"}, 6, 5) })
}
