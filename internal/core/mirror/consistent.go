package mirror

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"

	"tidemark/internal/assert"
	"tidemark/internal/core/types"
)

// TxnEnd is a transaction's marker in one partition (docs/adr/0011).
type TxnEnd struct {
	Producer types.ProducerID `json:"pid"`
	// Epoch is the marker's producer epoch; DataEpoch that of the data which it
	// ends, UnknownEpoch if the data lies below where the facts begin.
	Epoch     int16 `json:"epoch"`
	DataEpoch int16 `json:"dataEpoch"`
	// First is the first offset of the data, -1 if it lies below where the facts begin.
	First  types.Offset `json:"first"`
	At     types.Offset `json:"at"`
	Commit bool         `json:"commit,omitempty"`
	// KnownBy is when the marker was certainly committed at the source, Never if
	// that is not known; FirstAbsent when the first data certainly was not, -1 likewise.
	KnownBy     types.Millis `json:"knownBy"`
	FirstAbsent types.Millis `json:"firstAbsent"`
}

// TxnOpen is a transaction without a marker.
type TxnOpen struct {
	Producer    types.ProducerID `json:"pid"`
	Epoch       int16            `json:"epoch"`
	First       types.Offset     `json:"first"`
	FirstKnown  types.Millis     `json:"firstKnown"`
	FirstAbsent types.Millis     `json:"firstAbsent"`
}

// UnknownEpoch stands for a producer epoch that the facts don't tell.
const UnknownEpoch int16 = -1

// TxnFacts are what a mirrored partition's leader knows of its transactions.
type TxnFacts struct {
	types.TopicPartition
	Start types.Offset `json:"start"`
	End   types.Offset `json:"end"`
	// CompleteAt is the latest time at which the source certainly had nothing
	// committed beyond End, -1 if none is known.
	CompleteAt types.Millis `json:"completeAt"`
	// Below From nothing is listed; all of it was committed at the source by FromKnown.
	From      types.Offset `json:"from"`
	FromKnown types.Millis `json:"fromKnown"`
	// Ends are the markers from From on, by offset.
	Ends []TxnEnd  `json:"ends,omitempty"`
	Open []TxnOpen `json:"open,omitempty"`
	// Cleaned is how far this log's own compaction has reached.
	Cleaned types.Offset `json:"cleaned,omitempty"`
	// Older are, of producers that may have ended transactions below From, the
	// highest epoch that such a one can have.
	Older map[types.ProducerID]int16 `json:"older,omitempty"`
}

// UnknownTransactions refuses a consistent cut that what is known doesn't allow to find.
const UnknownTransactions Reason = "TRANSACTIONS_UNKNOWN"

// CutOutOfReach refuses a promotion at a consistent cut that the leader's log doesn't reach.
const CutOutOfReach Reason = "CUT_OUT_OF_REACH"

// CutBelowCompaction refuses a consistent cut that leaves keys without a value which they had at it.
const CutBelowCompaction Reason = "CUT_BELOW_COMPACTION"

// NotInCut refuses the promotion of what a consistent failover's cut doesn't speak of.
const NotInCut Reason = "NOT_IN_CUT"

// BelowCompaction refuses a cut of a log below what its own compaction has reached: a
// record that lay below the cut may have gone because of a newer one above it, which the cut
// takes (docs/adr/0027). Nil if that can't be, or if nothing is cut.
func BelowCompaction(cut, end, cleaned types.Offset) *Refusal {
	if cut >= end || cut >= cleaned {
		return nil
	}
	return &Refusal{CutBelowCompaction, fmt.Sprintf(
		"this log was compacted up to offset %d, above the consistent cut at %d: keys written between them would be left without the values that they had at the cut", cleaned, cut)}
}

// ConsistentCuts gives for each partition the offset up to which it may be kept
// so that no transaction is half committed: the highest such cut that is
// certain. A transaction is kept if all of its COMMIT markers are, and given up
// if none is: what is left of it is then open, and aborted by the promotion (R23).
//
// Three things are asked of a marker that stays. Every other partition was seen
// complete after it, so that whatever part its transaction has there is here as
// well. No partition holds a part of the same transaction whose own marker isn't kept. And
// where it can't be told whether two parts are of one transaction, because the
// producer uses one epoch for many (before KIP-890), they are taken for one.
//
// Each cut is at a marker, and cutting takes other markers along, so it goes on until nothing changes.
// The result doesn't depend on the order: cuts only fall, and the highest consistent one is unique.
func ConsistentCuts(parts []TxnFacts) ([]types.Offset, *Refusal) {
	return consistentCuts(parts, cutRules{})
}

// cutRules names what a test switches off to see that its checks find it.
type cutRules struct {
	noHorizon   bool // an unseen part counts as none
	noFollow    bool // a part that is given up takes no other along
	oneEpochOne bool // parts of one epoch are taken apart by their order alone
	looseTimes  bool // two times of one millisecond are in order
}

func consistentCuts(parts []TxnFacts, rules cutRules) ([]types.Offset, *Refusal) {
	c := cutter{rules: rules, parts: parts, cuts: make([]types.Offset, len(parts)), ends: map[types.ProducerID][]endAt{}, older: map[types.ProducerID][]int{}}
	for i := range parts {
		c.cuts[i] = parts[i].End
		for j := range parts[i].Ends {
			e := &parts[i].Ends[j]
			c.ends[e.Producer] = append(c.ends[e.Producer], endAt{part: i, end: e})
		}
		for id := range parts[i].Older {
			c.older[id] = append(c.older[id], i)
		}
	}
	if len(parts) < 2 {
		return c.cuts, nil // a transaction has one part at most
	}
	if !rules.noHorizon {
		if r := c.horizon(); r != nil {
			return nil, r
		}
	}
	for i := range parts {
		for _, o := range parts[i].Open {
			c.giveUp(part{at: i, producer: o.Producer, epoch: o.Epoch, absent: o.FirstAbsent, open: &o})
		}
	}
	for len(c.work) > 0 {
		p := c.work[len(c.work)-1]
		c.work = c.work[:len(c.work)-1]
		if r := c.follow(p); r != nil {
			return nil, r
		}
	}
	return c.cuts, nil
}

// cutter looks for the highest consistent cut.
type cutter struct {
	rules cutRules
	parts []TxnFacts
	cuts  []types.Offset
	ends  map[types.ProducerID][]endAt
	older map[types.ProducerID][]int // places in parts
	work  []part                     // given up, and not followed yet
}

type endAt struct {
	part int
	end  *TxnEnd
}

// part is what one partition holds of a transaction that is given up.
type part struct {
	at       int
	producer types.ProducerID
	epoch    int16        // the least that its data can have
	absent   types.Millis // when its first record certainly was not committed
	open     *TxnOpen
}

// lower cuts a partition at a marker; the parts whose markers go are given up.
func (c *cutter) lower(i int, at types.Offset) {
	if at >= c.cuts[i] {
		return
	}
	old := c.cuts[i]
	// Invariant I-340: a consistent cut lies within its partition's log and only falls.
	assert.That(at >= c.parts[i].From && old <= c.parts[i].End, "I-340: %s is cut at %d, between %d and %d", c.parts[i].TopicPartition, at, c.parts[i].From, old)
	c.cuts[i] = at
	ends := c.parts[i].Ends
	n, _ := slices.BinarySearchFunc(ends, at, func(e TxnEnd, o types.Offset) int { return int(max(min(e.At-o, 1), -1)) })
	for ; n < len(ends) && ends[n].At < old; n++ {
		e := &ends[n]
		if !e.Commit {
			continue // aborted here means aborted everywhere, with a marker or by the promotion
		}
		least := e.DataEpoch
		if least == UnknownEpoch {
			least = e.Epoch - 1 // KIP-890: the marker's epoch is its data's, or one more
		}
		c.giveUp(part{at: i, producer: e.Producer, epoch: least, absent: e.FirstAbsent})
	}
}

func (c *cutter) giveUp(p part) { c.work = append(c.work, p) }

// horizon cuts each partition before the first marker after which not every
// other partition was seen complete.
func (c *cutter) horizon() *Refusal {
	for i := range c.parts {
		by, holder := Never, 0
		for j := range c.parts {
			if j != i && c.parts[j].CompleteAt < by {
				by, holder = c.parts[j].CompleteAt, j
			}
		}
		p := &c.parts[i]
		at := slices.IndexFunc(p.Ends, func(e TxnEnd) bool { return e.Commit && !c.before(e.KnownBy, by) })
		switch {
		case by < 0 && at >= 0, len(p.Older) > 0 && !c.before(p.FromKnown, by):
			// Nothing is known of the other partition, or nothing old enough: not
			// every transaction ever committed is given up for that.
			return &Refusal{UnknownTransactions, fmt.Sprintf(
				"whether the transactions in %s were whole isn't known, because %s was %s: leave its topic out, or fail over without --consistent",
				p.TopicPartition, c.parts[holder].TopicPartition, sinceWhen(c.parts[holder].CompleteAt))}
		case at >= 0:
			c.lower(i, p.Ends[at].At)
		}
	}
	return nil
}

// before reports whether what was known by the one time had happened at the
// other. Within one millisecond the order isn't known.
func (c *cutter) before(known, at types.Millis) bool {
	return known < at || c.rules.looseTimes && known == at
}

func sinceWhen(at types.Millis) string {
	if at < 0 {
		return "not seen complete by this node yet"
	}
	return fmt.Sprintf("last seen complete at %d ms", at)
}

// follow gives up the other parts of a part's transaction.
func (c *cutter) follow(p part) *Refusal {
	if c.rules.noFollow {
		return nil
	}
	for _, e := range c.ends[p.producer] {
		if e.part == p.at || !e.end.Commit || e.end.At >= c.cuts[e.part] || c.isEarlier(e, p) {
			continue
		}
		c.lower(e.part, e.end.At)
	}
	for _, i := range c.older[p.producer] {
		q := &c.parts[i]
		switch {
		case i == p.at, c.rules.oneEpochOne, q.Older[p.producer] < p.epoch, c.before(q.FromKnown, p.absent), c.sameOpen(i, p):
			continue
		}
		return &Refusal{UnknownTransactions, fmt.Sprintf(
			"producer %d (epoch %d) has a transaction in %s that may have ended in %s below offset %d, and its epoch doesn't tell: the source's transactions need transaction.version=2 for that; leave these topics out, or fail over without --consistent",
			p.producer, p.epoch, c.parts[p.at].TopicPartition, q.TopicPartition, q.From)}
	}
	return nil
}

// isEarlier reports whether a marker certainly ended an earlier transaction of
// its producer than the part belongs to.
func (c *cutter) isEarlier(e endAt, p part) bool {
	most := e.end.DataEpoch
	if most == UnknownEpoch {
		most = e.end.Epoch
	}
	if c.rules.oneEpochOne && most <= p.epoch && e.end.Epoch == most {
		return true
	}
	return most < p.epoch || c.before(e.end.KnownBy, p.absent) || c.sameOpen(e.part, p)
}

// sameOpen reports whether partition i has the open part's transaction open as
// well: then every marker of the producer there is an earlier one's.
func (c *cutter) sameOpen(i int, p part) bool {
	if p.open == nil {
		return false
	}
	return slices.ContainsFunc(c.parts[i].Open, func(o TxnOpen) bool {
		return o.Producer == p.producer && c.before(o.FirstKnown, c.parts[p.at].CompleteAt) && c.before(p.open.FirstKnown, c.parts[i].CompleteAt)
	})
}

// Shift turns times of another node's clock into this one's: it is ahead of
// ours by at least least and at most most (both may be negative), so that what was known counts as known later, and what was absent as absent earlier.
func (f *TxnFacts) Shift(least, most types.Millis) {
	known := func(t types.Millis) types.Millis {
		if t == Never {
			return t
		}
		return t - least
	}
	absent := func(t types.Millis) types.Millis {
		if t < 0 {
			return t
		}
		return max(t-most, -1)
	}
	f.CompleteAt, f.FromKnown = absent(f.CompleteAt), known(f.FromKnown)
	for i := range f.Ends {
		f.Ends[i].KnownBy, f.Ends[i].FirstAbsent = known(f.Ends[i].KnownBy), absent(f.Ends[i].FirstAbsent)
	}
	for i := range f.Open {
		f.Open[i].FirstKnown, f.Open[i].FirstAbsent = known(f.Open[i].FirstKnown), absent(f.Open[i].FirstAbsent)
	}
}

// CutsID names a consistent cut and the facts that it stands on: 12 hexadecimal digits.
func CutsID(parts []TxnFacts, cuts []types.Offset) string {
	h := sha256.New()
	for i := range parts {
		fmt.Fprintln(h, parts[i].TopicPartition, parts[i].End, cuts[i])
		if r := BelowCompaction(cuts[i], parts[i].End, parts[i].Cleaned); r != nil {
			fmt.Fprintln(h, r.Reason) // a plan that didn't say so is another
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:6])
}
