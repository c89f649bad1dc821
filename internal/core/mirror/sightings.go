package mirror

import (
	"math"
	"slices"

	"tidemark/internal/core/types"
)

// Sightings is what the answers of a source said, over time, of one partition's
// high watermark: by when a record was certainly committed there, and until when
// one certainly was not. Times are of this node's own clock. What is forgotten
// to stay small makes it less sharp and never wrong.
//
// A session begins with a ListOffsets that a new leader doesn't answer before its
// high watermark has reached where its epoch began (KIP-207), so the marks of one
// session don't lag behind what was acknowledged before it.
type Sightings struct {
	list []markSeen // by rising end
}

// markSeen says that the source's high watermark was first seen at or above
// End by Known, and last seen at End by an answer to a request sent at Sent.
type markSeen struct {
	end         types.Offset
	known, sent types.Millis
}

const (
	marksSeenMax = 256
	// marksSeenApart is the least time between two that are kept, in ms.
	marksSeenApart types.Millis = 20
)

// Never is the time of what has not been seen.
const Never types.Millis = math.MaxInt64

// Saw takes an answer, received at answered to a request sent at sent, that told
// the high watermark.
func (s *Sightings) Saw(sent, answered types.Millis, mark types.Offset) {
	n := len(s.list)
	switch {
	case mark < 0:
		return
	case n > 0 && mark < s.list[n-1].end:
		s.list = s.list[:0] // an unclean election, or another log
	case n > 0 && mark == s.list[n-1].end:
		s.list[n-1].sent = max(s.list[n-1].sent, sent)
		return
	case n > 1 && answered-s.list[n-2].known < marksSeenApart:
		s.list = s.list[:n-1]
	case n == marksSeenMax:
		s.thin()
	}
	s.list = append(s.list, markSeen{end: mark, known: answered, sent: sent})
}

// thin forgets every other one of the older half, so that what is long ago is remembered less sharply.
func (s *Sightings) thin() {
	kept := s.list[:0]
	for i, x := range s.list {
		if i >= marksSeenMax/2 || i%2 == 0 {
			kept = append(kept, x)
		}
	}
	s.list = kept
}

// Forget drops everything: the log was cut, or follows another source.
func (s *Sightings) Forget() { s.list = s.list[:0] }

// KnownBy is the earliest time by which the record at o was certainly committed at the source, Never if none is known.
func (s *Sightings) KnownBy(o types.Offset) types.Millis {
	for _, x := range s.list {
		if x.end > o {
			return x.known
		}
	}
	return Never
}

// AbsentAt is the latest time at which no record at or above o was committed at
// the source, -1 if none is known.
func (s *Sightings) AbsentAt(o types.Offset) types.Millis {
	at := types.Millis(-1)
	for _, x := range s.list {
		if x.end <= o {
			at = max(at, x.sent)
		}
	}
	return at
}

// Until is the highest offset below which everything was committed by the time given, -1 if none is known.
func (s *Sightings) Until(at types.Millis) types.Offset {
	o := types.NoOffset
	for _, x := range s.list {
		if x.known <= at {
			o = x.end
		}
	}
	return o
}

// Still says that an answer to a request sent at sent left the mark as it was.
func (s *Sightings) Still(sent types.Millis) {
	if n := len(s.list); n > 0 {
		s.list[n-1].sent = max(s.list[n-1].sent, sent)
	}
}

// Clone copies what is known.
func (s *Sightings) Clone() Sightings { return Sightings{list: slices.Clone(s.list)} }
