package broker

import (
	"strings"
	"testing"

	"tidemark/internal/core/control"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
)

// levels is what a program of some version supports.
func levels(low, high int16) meta.Features {
	return meta.Features{meta.FeatureMetadata: {Min: low, Max: high}}
}

// TestRollingUpgrade: one broker after the other gets a newer program; the level
// rises once all have it, and a program that is too old for it doesn't start any more.
func TestRollingUpgrade(t *testing.T) {
	w := newWorld(t)
	program := func(f meta.Features) *world {
		v := w.with()
		v.features = f
		return v
	}
	b := program(levels(1, 1)).open()
	createTopic(t, b, "a", 1)
	mustAppend(t, mustPartition(t, b, "a", 0), "x")
	if got := b.Image().FeatureLevel(meta.FeatureMetadata); got != 1 {
		t.Fatalf("a new cluster is at level %d", got)
	}
	raise := func(b *Broker, level int16) error {
		return b.UpdateFeatures(testContext(t), []control.FeatureChange{{Name: meta.FeatureMetadata, Level: level}}, false)
	}
	if err := raise(b, 2); err == nil || !strings.Contains(err.Error(), "supports 1 to 1") {
		t.Errorf("above what the program supports: %v", err)
	}
	closeNode(t, b)

	b = program(levels(1, 2)).open()
	if err := b.UpdateFeatures(testContext(t), []control.FeatureChange{{Name: meta.FeatureMetadata, Level: 2}}, true); err != nil || b.Image().FeatureLevel(meta.FeatureMetadata) != 1 {
		t.Errorf("a dry run: %v", err)
	}
	if err := raise(b, 2); err != nil {
		t.Fatal(err)
	}
	mustAppend(t, mustPartition(t, b, "a", 0), "y")
	closeNode(t, b)

	if b, err := program(levels(1, 1)).try(); err == nil || !strings.Contains(err.Error(), "too old for the cluster") || !strings.Contains(err.Error(), "start a newer tidemark") {
		if err == nil {
			closeNode(t, b)
		}
		t.Errorf("the old program: %v", err)
	}
	b = program(levels(2, 3)).open()
	if end := logEnd(t, mustPartition(t, b, "a", 0)); end != types.Offset(2) {
		t.Errorf("log end %d", end)
	}
}
