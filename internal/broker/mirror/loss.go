package mirror

import (
	"fmt"
	"strings"
	"time"

	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
)

// Loss says what one partition lacks of its source if it is failed over now, or
// lacked when it was. It holds for what was seen of the source: what the source
// took after SeenAt can't be known here, and Ms bounds when that was.
type Loss struct {
	// SrcEnd and SrcEpoch are the source's end and leader epoch as last seen, at SeenAt; -1 where never.
	SrcEnd   types.Offset      `json:"srcEnd"`
	SrcEpoch types.LeaderEpoch `json:"srcEpoch"`
	SeenAt   types.Millis      `json:"seenAt"`
	// Records is at most how many records below SrcEnd are not here: offsets, of
	// which compaction and transaction markers take some. Which they were can't be known here.
	Records int64 `json:"records"`
	// Ms is how long before the failover, or before now, the oldest write that may
	// be missing was made: everything that the source had taken earlier is here.
	Ms int64 `json:"ms"`
	// Known is false where nothing was fetched since the mirror adopted the source's
	// history: then Records and Ms say nothing.
	Known bool `json:"known"`
	// MadeAgain: the source's topic was deleted and made again. What was written to the new
	// one isn't here and isn't counted; Known is false.
	MadeAgain bool `json:"madeAgain,omitempty"`
}

// LossSum is the loss of all partitions of a mirror.
type LossSum struct {
	Records int64 `json:"records"`
	Ms      int64 `json:"ms"` // of the worst partition
	// Behind and Unknown count the partitions that lack something, and those of which nothing is known.
	Behind  int `json:"behind"`
	Unknown int `json:"unknown"`
	// MadeAgain of those unknown are of topics that the source has made again.
	MadeAgain int `json:"madeAgain,omitempty"`
	// SeenAt is when the source was last seen, of the partition for which that is longest ago; -1: never.
	SeenAt types.Millis `json:"seenAt"`
	// Statement says it in words.
	Statement string `json:"statement"`
}

// lossNow is what a failover at this moment would lack: p has the partition's ends and lag.
func lossNow(p *PartitionStatus, copied bool, seenAt, now types.Millis) *Loss {
	l := &Loss{SrcEnd: p.SrcEnd, SrcEpoch: p.SrcEpoch, SeenAt: seenAt, Known: (copied || p.SrcEnd == 0) && p.SrcEnd >= 0 && p.End >= 0 && seenAt >= 0}
	if l.Known {
		l.Records = max(int64(p.SrcEnd-p.End), 0)
		l.Ms = max(int64(now-seenAt), 0)
		if l.Records > 0 {
			l.Ms = max(l.Ms, p.LagMs)
		}
	}
	return l
}

// lossOf is what a promotion lacked.
func lossOf(made *meta.PromotionRecord) *Loss {
	l := &Loss{
		SrcEnd: made.SourceEnd, SrcEpoch: made.SourceEpoch, SeenAt: made.SourceSeenAt,
		Known: (!made.NeverFetched || made.SourceEnd == 0) && made.SourceEnd >= 0 && made.SourceSeenAt >= 0,
	}
	if l.Known {
		l.Records = max(int64(made.SourceEnd-made.LogEnd), 0)
		l.Ms = max(int64(made.At-made.SourceSeenAt), int64(made.MissingMs), 0)
	}
	if made.SourceMadeAgain {
		return l.madeAgain()
	}
	return l
}

// madeAgain is the loss of a partition whose topic the source has made again: the
// source's end as last seen was another log's.
func (l *Loss) madeAgain() *Loss {
	return &Loss{SrcEnd: l.SrcEnd, SrcEpoch: l.SrcEpoch, SeenAt: l.SeenAt, MadeAgain: true}
}

// sumLoss adds up what the partitions say; nil if none says anything.
func sumLoss(list []PartitionStatus) *LossSum {
	sum := &LossSum{SeenAt: types.NoTimestamp}
	said := 0
	for _, p := range list {
		l := p.Loss
		if l == nil {
			continue
		}
		said++
		if !l.Known {
			sum.Unknown++
			if l.MadeAgain {
				sum.MadeAgain++
			}
			continue
		}
		if l.Records > 0 {
			sum.Behind++
		}
		sum.Records += l.Records
		sum.Ms = max(sum.Ms, l.Ms)
		if sum.SeenAt < 0 || l.SeenAt < sum.SeenAt {
			sum.SeenAt = l.SeenAt
		}
	}
	if said == 0 {
		return nil
	}
	sum.Statement = sum.words(said)
	return sum
}

// words says the loss in one or two sentences.
func (s *LossSum) words(partitions int) string {
	var out []string
	never := s.Unknown - s.MadeAgain
	switch {
	case never == partitions:
		return "What the source had is not known: nothing was fetched from it since the mirror started."
	case s.Unknown == partitions:
	case s.Records == 0:
		out = append(out, fmt.Sprintf("Of what the source was seen to have, nothing is missing; what it took in the last %s (since %s) can't be counted from here.", spanText(s.Ms), utc(s.SeenAt)))
	default:
		out = append(out, fmt.Sprintf("Of what the source was seen to have, at most %d records in %d of %d partitions are missing (transaction markers are counted, too), the oldest written %s before; what it took since %s can't be counted from here.",
			s.Records, s.Behind, partitions, spanText(s.Ms), utc(s.SeenAt)))
	}
	if never > 0 {
		out = append(out, fmt.Sprintf("Of %d partitions nothing is known: nothing was fetched of them since the mirror started.", never))
	}
	if s.MadeAgain > 0 {
		out = append(out, fmt.Sprintf("Of %d partitions the source has deleted the topic and made it again: what was written to the new one is not here, and not counted.", s.MadeAgain))
	}
	return strings.Join(out, " ")
}

// spanText says milliseconds as people do.
func spanText(ms int64) string {
	d := time.Duration(ms) * time.Millisecond
	switch {
	case d < 10*time.Second:
		return fmt.Sprintf("%d ms", ms)
	case d < time.Hour:
		return d.Round(time.Second).String()
	}
	return d.Round(time.Minute).String()
}

// lossLine says one partition's loss after its failover; empty if there is nothing to say.
func lossLine(name types.TopicPartition, end types.Offset, l *Loss) string {
	switch {
	case l == nil:
		return ""
	case l.MadeAgain:
		return fmt.Sprintf("%s: the source has deleted the topic and made it again; what was written to the new one is not here", name)
	case !l.Known:
		return fmt.Sprintf("%s: never fetched since the adoption; what the source had is not known", name)
	case l.Records > 0:
		return fmt.Sprintf("%s: taken up to offset %d; the source had records up to %d (epoch %d) at %s: at most %d records are missing, the oldest written %s before the failover",
			name, end-1, l.SrcEnd-1, l.SrcEpoch, utc(l.SeenAt), l.Records, spanText(l.Ms))
	}
	return ""
}
