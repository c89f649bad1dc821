package sim

import (
	"bytes"
	"errors"
	"fmt"

	"tidemark/internal/batch"
	"tidemark/internal/core/types"
	"tidemark/internal/log"
)

// shadow is what the checkers know of one of the standby's logs, read from its
// files and compared with everything the source ever wrote.
type shadow struct {
	batches    []shadowBatch
	start, end types.Offset
	known      bool // something was ever read
	// synced is the recovery point when the process ended: below it everything survives.
	synced types.Offset
	// lostPower: what was not synced may be gone; nobody has looked since.
	lostPower bool
	// served and servedEpoch: up to where clients could read, and the highest
	// leader epoch in which they could.
	served      types.Offset
	servedEpoch types.LeaderEpoch
	// own are batches that clients wrote to the standby, by base offset, as acknowledged.
	own map[types.Offset][]byte
	// promotedEpoch is the lowest epoch of a promotion that was computed, -1 before.
	promotedEpoch types.LeaderEpoch
	circle        circle
}

// circle counts cuts that come again: in one process, in one leader epoch of the
// source, at the offset of the last one or below. A leader's log only grows.
type circle struct {
	life, n int
	epoch   types.LeaderEpoch
	at      types.Offset
}

// circlesMost is how often a cut may come again. The copier stops at the third;
// each later one would come after a backoff.
const circlesMost = 6

// cut takes note of a cut and reports how often it has come.
func (c *circle) cut(life int, epoch types.LeaderEpoch, at types.Offset) int {
	if life != c.life || epoch != c.epoch || at > c.at {
		*c = circle{life: life, epoch: epoch}
	}
	c.at = at
	c.n++
	return c.n
}

// shadowBatch is one batch of the log.
type shadowBatch struct {
	base, next types.Offset
	epoch      types.LeaderEpoch
	raw        []byte
	node       *batchNode // nil: not the source's
	// oldEnd is the log end before the batch was appended, -1 if nobody saw it.
	oldEnd types.Offset
}

// String is base-next@epoch.
func (b shadowBatch) String() string { return fmt.Sprintf("%d-%d@%d", b.base, b.next-1, b.epoch) }

// readFrom reads the batches of a log that hold offsets at or above from.
func readFrom(l *log.Log, from types.Offset) ([]shadowBatch, error) {
	var out []shadowBatch
	for {
		v := l.View()
		from = max(from, v.LogStart)
		if from >= v.LogEnd {
			return out, nil
		}
		chunk, err := l.Read(from, log.ReadLimit{To: v.LogEnd, MaxBytes: 1 << 20, MinOne: true})
		if err != nil {
			return out, err
		}
		raw, err := chunk.ReadInto(nil)
		chunk.Release()
		if err != nil || len(raw) == 0 {
			return out, err
		}
		for it := batch.Iterate(raw); it.Next(); {
			if err := batch.VerifyCRC(it.Raw); err != nil {
				return out, err
			}
			h := &it.Header
			if n := len(out); n > 0 && h.BaseOffset < out[n-1].next {
				return out, errors.New("the log's batches overlap")
			}
			out = append(out, shadowBatch{base: h.BaseOffset, next: h.NextOffset(), epoch: h.PartitionLeaderEpoch, raw: bytes.Clone(it.Raw), oldEnd: -1})
			from = h.NextOffset()
		}
	}
}

// index is the place of the first batch with base at or above o.
func (s *shadow) index(o types.Offset) int {
	lo, hi := 0, len(s.batches)
	for lo < hi {
		if mid := (lo + hi) / 2; s.batches[mid].base < o {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// has reports whether the log holds exactly this batch.
func (s *shadow) has(b *shadowBatch) bool {
	i := s.index(b.base)
	return i < len(s.batches) && s.batches[i].base == b.base && bytes.Equal(s.batches[i].raw, b.raw)
}
