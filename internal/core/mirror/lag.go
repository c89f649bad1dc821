package mirror

import "tidemark/internal/core/types"

// LagNow is how far the copy is behind, as known here (DESIGN §6.5).
type LagNow struct {
	// Records is the source's end minus ours, 0 if not known yet.
	Records int64
	// Bytes is an estimate from the mean size per offset of what was copied last.
	Bytes int64
	// Millis is the age of the oldest source record that we lack, counted from
	// when we first saw the source's end pass it; 0 if we lack none.
	Millis types.Millis
}

// sightingsMax bounds the memory of a partition that is far behind. Beyond it
// neighbours are merged, which makes the age too high, never too low.
const sightingsMax = 32

// sighting says that the source's end was first seen at end at this time.
type sighting struct {
	end types.Offset
	at  types.Millis
}

// lagBook keeps when the source's end was first seen to pass what we hold. The
// zero value is ready.
type lagBook struct {
	sightings []sighting // ends rise; all above our end
	end       types.Offset
	known     bool
	perOffset float64 // bytes, smoothed
}

// seen takes note of the source's end; own is ours.
func (l *lagBook) seen(now types.Millis, end, own types.Offset) {
	l.end, l.known = end, true
	l.reached(own)
	for n := len(l.sightings); n > 0 && l.sightings[n-1].end > end; n = len(l.sightings) {
		l.sightings = l.sightings[:n-1] // the source's end fell: an unclean election there
	}
	if end <= own || len(l.sightings) > 0 && l.sightings[len(l.sightings)-1].end == end {
		return
	}
	if len(l.sightings) == sightingsMax {
		for i := range sightingsMax / 2 {
			l.sightings[i] = sighting{end: l.sightings[2*i+1].end, at: l.sightings[2*i].at}
		}
		l.sightings = l.sightings[:sightingsMax/2]
	}
	l.sightings = append(l.sightings, sighting{end: end, at: now})
}

// reached takes note of our end.
func (l *lagBook) reached(own types.Offset) {
	n := 0
	for n < len(l.sightings) && l.sightings[n].end <= own {
		n++
	}
	if n > 0 {
		l.sightings = append(l.sightings[:0], l.sightings[n:]...)
	}
}

// copied takes note of the size of what was copied.
func (l *lagBook) copied(bytes int, offsets int64) {
	if offsets <= 0 {
		return
	}
	const share = 0.2
	mean := float64(bytes) / float64(offsets)
	if l.perOffset == 0 {
		l.perOffset = mean
		return
	}
	l.perOffset += share * (mean - l.perOffset)
}

// now gives the lag at a time.
func (l *lagBook) now(at types.Millis, own types.Offset) LagNow {
	if !l.known || l.end <= own {
		return LagNow{}
	}
	lag := LagNow{Records: int64(l.end - own)}
	lag.Bytes = int64(float64(lag.Records) * l.perOffset)
	for _, s := range l.sightings {
		if s.end > own {
			lag.Millis = max(at-s.at, 0)
			break
		}
	}
	return lag
}
