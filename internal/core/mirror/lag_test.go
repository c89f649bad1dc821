package mirror

import (
	"testing"

	"tidemark/internal/core/types"
)

func TestLagIsTheAgeOfTheOldestRecordWeLack(t *testing.T) {
	var l lagBook
	check := func(now types.Millis, own types.Offset, want LagNow) {
		t.Helper()
		if got := l.now(now, own); got != want {
			t.Errorf("at %d, own end %d: %+v, want %+v", now, own, got, want)
		}
	}
	check(0, 0, LagNow{})
	l.copied(1000, 10)
	l.seen(100, 10, 10)
	check(150, 10, LagNow{})
	l.seen(200, 20, 10)
	l.seen(300, 30, 10)
	check(350, 10, LagNow{Records: 20, Bytes: 2000, Millis: 150})
	check(350, 20, LagNow{Records: 10, Bytes: 1000, Millis: 50})
	l.reached(30)
	check(400, 30, LagNow{})
	// The end seen again later doesn't make its records younger.
	l.seen(500, 40, 30)
	l.seen(600, 40, 30)
	check(700, 30, LagNow{Records: 10, Bytes: 1000, Millis: 200})
	// An unclean election at the source: its end falls.
	l.seen(800, 35, 30)
	check(900, 30, LagNow{Records: 5, Bytes: 500, Millis: 100})
}

// TestLagMemoryIsBounded: with many sightings the age may be too high, never too low.
func TestLagMemoryIsBounded(t *testing.T) {
	var l lagBook
	for i := range types.Offset(10_000) {
		l.seen(types.Millis(i), i+1, 0)
		if len(l.sightings) > sightingsMax {
			t.Fatalf("%d sightings", len(l.sightings))
		}
	}
	for own := types.Offset(0); own < 10_000; own += 7 {
		exact := types.Millis(20_000) - types.Millis(own)
		if got := l.now(20_000, own).Millis; got < exact {
			t.Fatalf("own end %d: %d ms, at least %d", own, got, exact)
		}
	}
}
