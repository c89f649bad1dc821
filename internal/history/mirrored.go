package history

import (
	"crypto/sha256"
	"fmt"

	"tidemark/internal/batch"
	"tidemark/internal/core/types"
)

// Timeline is one entry of a partition's lineage, as its cluster tells it.
type Timeline struct {
	ID          string
	FirstEpoch  types.LeaderEpoch // of its records
	FirstOffset types.Offset      // where the log ended that was promoted
}

// Lineage lists the timelines that a log went through, the oldest first.
type Lineage []Timeline

// of is the index of the timeline that records of an epoch are on; -1 if there is none.
func (l Lineage) of(e types.LeaderEpoch) int {
	at := -1
	for i, t := range l {
		if t.FirstEpoch <= e {
			at = i
		}
	}
	return at
}

// index finds a timeline by its id; -1 if the lineage lacks it.
func (l Lineage) index(id string) int {
	for i, t := range l {
		if t.ID == id {
			return i
		}
	}
	return -1
}

// keeps reports whether a record that was written on a timeline at an offset is
// still part of a log with this lineage: no later timeline began at or below it.
func (l Lineage) keeps(id string, at types.Offset) bool {
	i := l.index(id)
	if i < 0 {
		return false
	}
	for _, later := range l[i+1:] {
		if later.FirstOffset <= at {
			return false
		}
	}
	return true
}

// ForkAt is the offset below which two lineages may share records: the lowest
// start of their timelines from the first one that they don't share. Without such a
// timeline they share everything, and shared is true.
func (l Lineage) ForkAt(o Lineage) (at types.Offset, shared bool) {
	n := 0
	for n < len(l) && n < len(o) && l[n].ID == o[n].ID {
		n++
	}
	at, shared = types.NoOffset, true
	for _, rest := range []Lineage{l[n:], o[n:]} {
		if len(rest) > 0 && (shared || rest[0].FirstOffset < at) {
			at, shared = rest[0].FirstOffset, false
		}
	}
	return at, shared
}

// Batch is one batch of a log or a vault: where it lies, what its bytes are, what its records say.
type Batch struct {
	Base, Last types.Offset
	Epoch      types.LeaderEpoch
	Hash       [sha256.Size]byte
	Records    []Record // none of a control batch
	// Producer wrote it, in a transaction if it is Transactional; Marker is what a
	// control batch says of the producer's transaction.
	Producer      types.ProducerID
	Transactional bool
	Marker        *batch.MarkerKind
}

// Record is one record of a batch. Value is what identifies it in the whole run.
type Record struct {
	Offset types.Offset
	Value  string
}

// NewBatch reads a raw batch. name makes of a record's value what identifies it.
func NewBatch(raw []byte, scratch *batch.Scratch, name func(value []byte) string) (Batch, error) {
	h, err := batch.ParseHeader(raw)
	if err != nil {
		return Batch{}, err
	}
	b := Batch{Base: h.BaseOffset, Last: h.LastOffset(), Epoch: h.PartitionLeaderEpoch, Hash: sha256.Sum256(raw), Producer: h.ProducerID, Transactional: h.IsTransactional()}
	if err := batch.VerifyCRC(raw); err != nil {
		return b, err
	}
	if h.IsControl() {
		marker, err := batch.ParseMarker(raw)
		b.Marker = &marker.Kind
		return b, err
	}
	it := batch.Records(raw, scratch)
	for it.Next() {
		b.Records = append(b.Records, Record{it.Record.Offset, name(it.Record.Value)})
	}
	if err := it.Err(); err != nil {
		return b, fmt.Errorf("batch at offset %d: %w", b.Base, err)
	}
	return b, nil
}

// Write is one record that a client wrote to one of several clusters.
type Write struct {
	Cluster   string
	Timeline  string // the partition's newest when the client began
	Partition types.TopicPartition
	Value     string
	Outcome   Outcome      // Acked or Unknown
	Offset    types.Offset // with Acked
	At        int64        // when it was acknowledged, by the recorder's counter
	AckedAt   types.Millis // the same, by the clock that vaults' entries go by
}

// View is what the leader of a partition showed to a reader: every batch from an offset on, up to End.
type View struct {
	Cluster   string
	Partition types.TopicPartition
	Lineage   Lineage
	From, End types.Offset
	Batches   []Batch
	Began     int64        // before the reading, by the recorder's counter
	At        types.Millis // after the reading, by the clock that vaults' entries go by
	// Final: after all faults, from the start of the log.
	Final bool
}

// Cut is what one cluster's leader must have given to its vault when it followed
// another lineage: the records of its log that the other one doesn't keep, as they were read before.
type Cut struct {
	Cluster   string
	Partition types.TopicPartition
	Batches   []Batch
	// Split is where the other lineage says that the two part, if they part below it: what
	// lies above goes first, for itself (R19), the rest once the logs are compared (R20). NoOffset: they part there.
	Split types.Offset
}

// Kept is one entry of a node's vault.
type Kept struct {
	Cluster, Node string
	Partition     types.TopicPartition
	Entry         string
	At            types.Millis // when it was cut
	From, To      types.Offset
	// Before and After are the lineages before the cut and the one that made it;
	// After is nil for a cut within one lineage.
	Before, After Lineage
	Batches       []Batch
}

// The rules of clusters that mirror each other, beside those of one cluster.
const (
	LostBehindFork Rule = "lost from a timeline"            // acknowledged on a timeline that the log still has, and not in the log
	Unkept         Rule = "cut and not kept"                // it was in the log and is not, and too few vaults have it
	ForkedBytes    Rule = "one place, two records"          // one offset of one timeline has other bytes elsewhere
	Spliced        Rule = "record of another timeline"      // a record stands under the name of a timeline that it wasn't written on
	Beyond         Rule = "record beyond its timeline"      // a record stands above where its timeline ended
	Hole           Rule = "hole"                            // the next batch doesn't begin where the one before it ended
	NeedlessCut    Rule = "cut without need"                // a vault has what readers saw on a lineage that keeps it
	CutDiffers     Rule = "cut is not what was kept"        // no node's vault has exactly what its cluster had to cut
	VaultDisorder  Rule = "vault out of order"              // an entry's batches don't lie one above the other within its bounds
	NotConverged   Rule = "clusters differ in the end"      // lineages or log ends
	Phantom        Rule = "record that nobody wrote"        // in a log or a vault
	Moved          Rule = "record not where it was acked"   // another offset than the acknowledgement said
	EpochFalls     Rule = "leader epoch falls along a log"  // from one batch to the next
	ViewUnread     Rule = "cluster not read in the end"     // no final view
	LineageForgets Rule = "lineage without its own history" // a batch's epoch is below all of its timelines
)
