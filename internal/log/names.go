package log

import (
	"fmt"
	"path"
	"strconv"
	"strings"
	"sync/atomic"

	"tidemark/internal/core/types"
	"tidemark/internal/vfs"
)

// Suffixes of the files in a partition's folder; all are Kafka's.
const (
	logSuffix      = ".log"
	indexSuffix    = ".index"
	timeSuffix     = ".timeindex"
	txnSuffix      = ".txnindex"
	snapshotSuffix = ".snapshot"

	deletedSuffix = ".deleted" // renamed away, may be removed
	cleanedSuffix = ".cleaned" // being written by compaction
	swapSuffix    = ".swap"    // complete, about to replace what it was made from
)

// Names of single files in a partition's folder.
const (
	// TimelineFile is this product's own file beside Kafka's (R19).
	TimelineFile = "timeline-checkpoint"
	// PartitionMetadataFile holds the topic's id, as Kafka's does.
	PartitionMetadataFile = "partition.metadata"
)

// segmentSuffixes are the files of one segment, the data last: without its
// .log the others are strays that an open removes.
var segmentSuffixes = [...]string{indexSuffix, timeSuffix, txnSuffix, logSuffix}

// FileName is the name of a segment's or snapshot's file: the offset in 20 digits and the suffix.
func FileName(base types.Offset, suffix string) string {
	return fmt.Sprintf("%020d%s", int64(base), suffix)
}

// parseFileName splits names that FileName makes; suffix begins at the first dot.
func parseFileName(name string) (base types.Offset, suffix string, ok bool) {
	digits, _, found := strings.Cut(name, ".")
	if !found || len(digits) != 20 {
		return 0, "", false
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < 0 {
		return 0, "", false
	}
	return types.Offset(n), name[len(digits):], true
}

// lazyFile is a file that is opened for reading when first asked for and then
// stays open. Opening takes no lock: of two openers one closes its handle again.
type lazyFile struct{ p atomic.Pointer[vfs.File] }

func (z *lazyFile) get(s *segment, suffix string) (vfs.File, error) {
	if f := z.p.Load(); f != nil {
		return *f, nil
	}
	f, err := s.fs.Open(s.path(suffix))
	if err != nil {
		return nil, err
	}
	if !z.p.CompareAndSwap(nil, &f) {
		_ = f.Close() // a read handle that was never used
		return *z.p.Load(), nil
	}
	return f, nil
}

// set gives an already open file.
func (z *lazyFile) set(f vfs.File) { z.p.Store(&f) }

// drop closes the file if it is open; a later get opens it anew.
func (z *lazyFile) drop() error {
	f := z.p.Swap(nil)
	if f == nil {
		return nil
	}
	return (*f).Close()
}

func join(dir, name string) string { return path.Join(dir, name) }
