package e2e

import (
	"slices"
	"testing"

	"tidemark/test/e2e/harness"
)

func TestProduceAndConsumeAcrossARestart(t *testing.T) {
	b := harness.StartBroker(t)
	b.CreateTopic(t, "orders", 2, nil)
	if o := b.Produce(t, "orders", 1, "a", "b", "c"); o != 0 {
		t.Errorf("first offset %d, want 0", o)
	}
	if got := b.Consume(t, "orders", 1, 0, 3); !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Errorf("read %q", got)
	}
	b = b.Restart(t)
	if o := b.Produce(t, "orders", 1, "d"); o != 3 {
		t.Errorf("offset after the restart %d, want 3", o)
	}
	if got := b.Consume(t, "orders", 1, 0, 4); !slices.Equal(got, []string{"a", "b", "c", "d"}) {
		t.Errorf("read after the restart %q", got)
	}
}
