package timeline

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"math"

	"tidemark/internal/assert"
	"tidemark/internal/core/epoch"
	"tidemark/internal/core/types"
)

// Relation says how two lists are related, seen from ours (R17).
type Relation int8

// The relations. Their texts are what ADOPTED tells.
const (
	Equal    Relation = iota
	Behind            // ours is a prefix of theirs
	Ahead             // theirs is a prefix of ours
	Fork              // both go on after a common beginning
	NoCommon          // not even the root is shared, or one list is empty
)

// String gives the relation's text in events.
func (r Relation) String() string {
	return [...]string{"equal", "behind", "ahead", "fork", "unrelated"}[r]
}

// Comparison is what Compare finds.
type Comparison struct {
	Relation Relation
	// Shared is the number of entries that both lists begin with.
	Shared int
	// Bound is the smallest first epoch among both lists' first unshared entries:
	// from this epoch on a number may stand for two histories. HasBound is false for equal lists.
	Bound    types.LeaderEpoch
	HasBound bool
}

// Compare compares from the front (R17). Entries are shared if all their fields agree.
func Compare(ours, theirs List) Comparison {
	n := 0
	for n < len(ours) && n < len(theirs) && ours[n] == theirs[n] {
		n++
	}
	c := Comparison{Shared: n}
	for _, rest := range []List{ours[n:], theirs[n:]} {
		if len(rest) > 0 && (!c.HasBound || rest[0].FirstEpoch < c.Bound) {
			c.Bound, c.HasBound = rest[0].FirstEpoch, true
		}
	}
	switch {
	case n == len(ours) && n == len(theirs):
		c.Relation = Equal
	case n == 0:
		c.Relation = NoCommon
	case n == len(ours):
		c.Relation = Behind
	case n == len(theirs):
		c.Relation = Ahead
	default:
		c.Relation = Fork
	}
	return c
}

// GivenUpFrom is the lowest first offset among the entries that the two lists
// don't share: offsets from there on may have been given up with the adoption
// of theirs (R28). ok is false if the lists are equal.
func GivenUpFrom(ours, theirs List) (from types.Offset, ok bool) {
	n := Compare(ours, theirs).Shared
	for _, rest := range []List{ours[n:], theirs[n:]} {
		for _, e := range rest {
			if !ok || e.FirstOffset < from {
				from, ok = e.FirstOffset, true
			}
		}
	}
	return from, ok
}

// Root is the first entry of a source that knows no timelines: the id follows
// from the cluster's id and the topic's, so that two mirrors of one source share it (R16).
func Root(clusterID string, topic types.TopicID) Entry {
	h := sha256.New()
	fmt.Fprintf(h, "tidemark timeline root\n%s\n%s\n", clusterID, topic)
	return Entry{ID: derivedPrefix + base64.RawURLEncoding.EncodeToString(h.Sum(nil)[:12])}
}

const derivedPrefix = "derived-"

// FreshRoot is the list of a topic that a client made, id being fresh and random.
func FreshRoot(id string) List { return List{{ID: id}} }

// Errors of Extend.
var (
	ErrEpochTooLow = errors.New("the promoted epoch is not above the last timeline's first epoch")
	ErrNoEpochLeft = errors.New("no leader epoch is left")
)

// PromotedEpoch is R23's epoch: above everything the cluster has seen, by a step
// that keeps it out of the reach of elections elsewhere. ErrNoEpochLeft if
// 31 bits don't hold it.
func PromotedEpoch(step int32, seen ...types.LeaderEpoch) (types.LeaderEpoch, error) {
	assert.That(step > 0, "I-81: promotion step %d", step)
	highest := types.NoLeaderEpoch
	for _, s := range seen {
		highest = max(highest, s)
	}
	e := int64(highest) + int64(step)
	if e > math.MaxInt32 {
		return 0, fmt.Errorf("promotion to epoch %d: %w", e, ErrNoEpochLeft)
	}
	return types.LeaderEpoch(e), nil
}

// Extend appends a promotion's entry to a copy of the list (R16): only a
// promotion does that.
func (l List) Extend(e Entry) (List, error) {
	if last, ok := l.Last(); ok && e.FirstEpoch <= last.FirstEpoch {
		return nil, fmt.Errorf("epoch %d after %d: %w", e.FirstEpoch, last.FirstEpoch, ErrEpochTooLow)
	}
	out := append(l[:len(l):len(l)], e)
	if err := out.Validate(); err != nil {
		return nil, err
	}
	return out, nil
}

// LastMirroredEpoch is the LMLE that clusters which speak KIP-1279 ask for: the
// last epoch of the history below the promoted one, -1 if there is none (R23).
func LastMirroredEpoch(h *epoch.History, promoted types.LeaderEpoch) types.LeaderEpoch {
	e, ok := h.Previous(promoted)
	if !ok {
		return types.NoLeaderEpoch
	}
	return e.Epoch
}
