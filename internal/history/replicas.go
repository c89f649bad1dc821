package history

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"tidemark/internal/batch"
	"tidemark/internal/core/types"
	"tidemark/internal/log"
	"tidemark/internal/vfs"
)

// Replica is a partition's folder on one broker.
type Replica struct {
	Name string // of the broker, in findings
	FS   vfs.FS
	Dir  string
	// Start is the replica's own log start: what lies below was deleted, and may be there
	// or not. Each replica deletes by retention for itself, so they may differ.
	Start types.Offset
}

// copied is one batch of a replica.
type copied struct {
	h    batch.Header
	hash [sha256.Size]byte
}

// contents is what one replica holds below the high watermark.
type contents struct {
	batches []copied
	end     types.Offset
}

// CompareReplicas demands that all replicas of a partition hold the same
// batches below the high watermark, byte for byte and so with the same leader
// epochs, from the highest of their log starts on; that each holds everything from
// its own log start on, and agrees with itself. Segments may begin elsewhere on
// each, and logs may go on above. The first difference of
// each replica from the first replica is reported. The error is for folders
// that can't be read.
func CompareReplicas(tp types.TopicPartition, highWatermark types.Offset, replicas ...Replica) ([]Finding, error) {
	var found []Finding
	report := func(rule Rule, at types.Offset, format string, args ...any) {
		found = append(found, Finding{Rule: rule, Partition: tp, Offset: at, Text: fmt.Sprintf(format, args...)})
	}
	var first contents
	var from types.Offset
	for _, r := range replicas {
		from = max(from, r.Start)
	}
	for i, r := range replicas {
		got, damage, err := read(r, highWatermark)
		if err != nil {
			return found, err
		}
		for _, d := range damage {
			report(ReplicaDamaged, got.end, "%s: %v", r.Name, d)
		}
		if got.end < highWatermark {
			report(ReplicaShort, got.end, "%s ends at %d, the high watermark is %d", r.Name, got.end, highWatermark)
		}
		if len(got.batches) > 0 && got.batches[0].h.BaseOffset > r.Start {
			report(ReplicaShort, r.Start, "%s holds nothing from its log start %d to %d", r.Name, r.Start, got.batches[0].h.BaseOffset)
		}
		got.batches = slices.DeleteFunc(got.batches, func(b copied) bool { return b.h.NextOffset() <= from })
		if i == 0 {
			first = got
			continue
		}
		if n := firstDifference(first.batches, got.batches); n >= 0 {
			a, b := first.batches[n], got.batches[n]
			report(ReplicaDiffers, a.h.BaseOffset, "%s has %s, %s has %s", replicas[0].Name, describe(a), r.Name, describe(b))
		}
	}
	return found, nil
}

// firstDifference is the index of the first batch that both have and that differs, or -1.
func firstDifference(a, b []copied) int {
	for i := range min(len(a), len(b)) {
		if a[i].hash != b[i].hash {
			return i
		}
	}
	return -1
}

func describe(b copied) string {
	return fmt.Sprintf("offsets %d to %d of epoch %d from producer %d epoch %d sequence %d (%x)",
		b.h.BaseOffset, b.h.LastOffset(), b.h.PartitionLeaderEpoch, b.h.ProducerID, b.h.ProducerEpoch, b.h.BaseSequence, b.hash[:4])
}

// read gives a replica's batches from its start to the limit and what is damaged in its folder.
func read(r Replica, limit types.Offset) (contents, []error, error) {
	var c contents
	names, err := r.FS.List(r.Dir)
	if err != nil {
		return c, nil, err
	}
	var damage []error
	for _, name := range names { // sorted: names are offsets of 20 digits
		if !strings.HasSuffix(name, ".log") {
			continue
		}
		if err := c.segment(r, path.Join(r.Dir, name), limit, &damage); err != nil {
			return c, damage, err
		}
	}
	report, err := log.VerifyDir(r.FS, r.Dir)
	if err != nil {
		return c, damage, err
	}
	return c, append(damage, report.Problems...), nil
}

func (c *contents) segment(r Replica, name string, limit types.Offset, damage *[]error) error {
	f, err := r.FS.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	// VerifyDir reports bytes that are no batch; here they only end the segment.
	var corrupt *log.CorruptError
	err = log.DumpSegment(r.FS, name, log.DumpOptions{}, func(b *log.DumpedBatch) error {
		if b.Header.BaseOffset >= limit || b.Header.NextOffset() <= r.Start {
			return nil
		}
		raw := make([]byte, b.Header.Size())
		if _, err := f.ReadAt(raw, int64(b.Pos)); err != nil {
			return err
		}
		c.batches = append(c.batches, copied{b.Header, sha256.Sum256(raw)})
		c.end = b.Header.NextOffset()
		return nil
	})
	if errors.As(err, &corrupt) {
		return nil
	}
	return err
}
