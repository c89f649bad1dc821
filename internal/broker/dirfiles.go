package broker

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"

	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/internal/log"
	"tidemark/internal/vfs"
)

// seenRevisionFile holds the revision of the metadata that this log dir's logs
// were last known to follow. A folder without a topic is deleted only if the
// store is not older than that: after a restore from a backup the topics made
// since are missing from the store, not deleted.
const seenRevisionFile = "metadata-revision-checkpoint"

// writeSeen notes the revision of the metadata that the dir follows.
func (d *logDir) writeSeen(rev meta.Revision) error {
	if rev <= d.seen {
		return nil
	}
	if err := vfs.WriteAtomic(d.fs, filepath.Join(d.path, seenRevisionFile), fmt.Appendf(nil, "0\n%d\n", rev)); err != nil {
		return err
	}
	d.seen = rev
	return nil
}

// readSeen reads the note. One that can't be read counts as "newer than anything": nothing is deleted by it.
func (d *logDir) readSeen() error {
	data, err := vfs.ReadFile(d.fs, filepath.Join(d.path, seenRevisionFile), 64)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	text, ok := strings.CutPrefix(string(data), "0\n")
	n, err := strconv.ParseInt(strings.TrimSuffix(text, "\n"), 10, 64)
	if !ok || err != nil {
		n = 1<<63 - 1
	}
	d.seen = meta.Revision(n)
	return nil
}

// finish leaves the dir as the next start should find it: checkpoints, and the
// mark of a clean shutdown if every log was closed cleanly.
func (d *logDir) finish(clean bool, epoch types.BrokerEpoch, rev meta.Revision) error {
	if err := d.writeSeen(rev); err != nil {
		return err
	}
	if err := d.checkpoints.Write(); err != nil {
		return err
	}
	if !clean {
		return nil
	}
	return log.WriteCleanShutdown(d.fs, d.path, epoch)
}
