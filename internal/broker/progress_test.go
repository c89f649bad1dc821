package broker

import (
	"slices"
	"testing"
)

// Subscribers are called in the order in which they came, until they cancel.
func TestProgressOrder(t *testing.T) {
	var g progress
	var got []int
	var cancels []func()
	for n := range 6 {
		cancels = append(cancels, g.subscribe(func() { got = append(got, n) }))
	}
	fired := func() []int {
		got = nil
		g.fire()
		return got
	}
	if f := fired(); !slices.Equal(f, []int{0, 1, 2, 3, 4, 5}) {
		t.Errorf("got %v", f)
	}
	cancels[0]()
	cancels[3]()
	cancels[3]() // once more changes nothing
	if f := fired(); !slices.Equal(f, []int{1, 2, 4, 5}) {
		t.Errorf("without two: %v", f)
	}
	for _, cancel := range cancels {
		cancel()
	}
	if f := fired(); len(f) > 0 || g.subs != nil {
		t.Errorf("without any: %v, %v", f, g.subs)
	}
}

// What each append and each follower's fetch does beside its work allocates nothing.
func TestPublishAllocatesNothing(t *testing.T) {
	b := newWorld(t).open()
	createTopic(t, b, "a", 1)
	p := mustPartition(t, b, "a", 0)
	for range 2 {
		defer p.OnProgress(func() {})()
	}
	if n := testing.AllocsPerRun(100, p.moved.fire); n > 0 {
		t.Errorf("to tell two followers allocates %v times", n)
	}
	err := p.Do(t.Context(), func(*Owned) error {
		if n := testing.AllocsPerRun(100, func() { p.publish() }); n > 0 {
			t.Errorf("to publish what is the same allocates %v times", n)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
