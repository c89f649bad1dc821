package timeline

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"

	"tidemark/internal/core/types"
)

// LastMirrored is what a promoted cluster that speaks KIP-1279 says that it had copied of
// another one: the last mirrored epoch (LME, 0 or more) and the end of what it had
// copied (LMO, NoOffset if it isn't said).
type LastMirrored struct {
	Epoch types.LeaderEpoch
	End   types.Offset
}

// TakenOver names the timeline that a promotion at a cluster without timelines began (R16):
// the id follows from that cluster, the topic and what was mirrored last, so that everybody who
// asks it derives the same. The proposal says of the promoted epoch only that it is
// above the last mirrored one: the first epoch is the lowest that it can be. at
// stands in for an end that isn't said.
func TakenOver(clusterID string, topic types.TopicID, m LastMirrored, at types.Offset) Entry {
	if m.End != types.NoOffset {
		at = m.End
	}
	h := sha256.New()
	fmt.Fprintf(h, "tidemark timeline taken over\n%s\n%s\n%d %d\n", clusterID, topic, m.Epoch, m.End)
	return Entry{ID: derivedPrefix + base64.RawURLEncoding.EncodeToString(h.Sum(nil)[:12]), FirstEpoch: m.Epoch + 1, FirstOffset: at}
}

// IsTakenOver reports whether an entry is TakenOver's of that cluster and topic.
func (e Entry) IsTakenOver(clusterID string, topic types.TopicID) bool {
	for _, end := range []types.Offset{e.FirstOffset, types.NoOffset} {
		if TakenOver(clusterID, topic, LastMirrored{Epoch: e.FirstEpoch - 1, End: end}, e.FirstOffset) == e {
			return true
		}
	}
	return false
}

// SharedUpTo is the list of a cluster that was promoted after it had copied records of l
// up to an epoch: l's entries that begin at or below it, then the promotion's own.
func (l List) SharedUpTo(epoch types.LeaderEpoch, own Entry) List {
	n := 0
	for n < len(l) && l[n].FirstEpoch <= epoch {
		n++
	}
	return append(l[:n:n], own)
}
