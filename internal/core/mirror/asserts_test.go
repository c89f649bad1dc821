package mirror

import (
	"testing"

	"tidemark/internal/assert/asserttest"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/timeline"
	"tidemark/internal/core/types"
)

// What is asserted of a result behind the code that makes it is shown to the assertion itself.
func TestResultsThatMayNotBe(t *testing.T) {
	for _, at := range []types.Offset{4, 11} { // below the log's start, and raised above its end
		c := &cutter{parts: []TxnFacts{{From: 5, End: 10}}, cuts: []types.Offset{12}}
		asserttest.Breaks(t, "I-340", func() { c.lower(0, at) })
	}

	checkPromotedAt(7, &meta.PromotionRecord{LogEnd: 7, HighWatermark: 6})
	for _, made := range []meta.PromotionRecord{{LogEnd: 8, HighWatermark: 6}, {LogEnd: 7, HighWatermark: 8}, {LogEnd: 6, HighWatermark: 6}} {
		asserttest.Breaks(t, "I-341", func() { checkPromotedAt(7, &made) })
	}

	root, own := timeline.Entry{ID: "root"}, timeline.Entry{ID: "own", FirstEpoch: 8, FirstOffset: 20}
	taken := timeline.Entry{ID: "taken", FirstEpoch: 8, FirstOffset: 20}
	checkTakenOver(timeline.List{root, taken}, 7)
	asserttest.Breaks(t, "I-350", func() { checkTakenOver(timeline.List{root, own, taken}, 7) })
	asserttest.Breaks(t, "I-350", func() { checkTakenOver(timeline.List{root, taken}, 8) })
}
