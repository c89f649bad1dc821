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

// enteredFile holds the same of metadata that came from a backup, from a start on it
// until seenRevisionFile tells of it, which waits for the strays. It never allows a
// deletion: it only refuses a store that was put back meanwhile.
const enteredFile = "metadata-restore-checkpoint"

// seenMark is how far a log dir has followed the metadata.
type seenMark struct {
	// restore is the id of the restore that the metadata came from, empty: from none.
	restore  string
	revision meta.Revision
	// offices are those in force at the revision, by which another history with the
	// same revisions is known.
	offices offices
	// digest stands for the partition records at the revision (meta.Image.Digest); known if it was noted.
	digest pastDigest
	// unreadable: the note can't be read. Nothing is deleted by it.
	unreadable bool
}

// pastDigest is a digest of an image, or none.
type pastDigest struct {
	known bool
	of    uint64
}

// markOf is where an image stands.
func markOf(image *meta.Image) seenMark {
	m := seenMark{revision: image.Revision(), offices: officesOf(image), digest: pastDigest{true, image.Digest()}}
	if c, ok := image.Cluster(); ok {
		m.restore = c.Record.RestoreID()
	}
	return m
}

// follows reports whether now is the metadata that the dir followed, or what came
// of it: what isn't there any more was deleted.
func (m seenMark) follows(now seenMark) bool {
	_, other := m.stranger(now.offices)
	return !m.unreadable && m.restore == now.restore && m.revision <= now.revision && !other
}

// writeSeen notes where the metadata is that the dir follows. After a restore it
// does so once what the metadata doesn't know has been set aside.
func (d *logDir) writeSeen(now seenMark) error {
	if now.restore == d.seen.restore && now.revision <= d.seen.revision || now.restore != d.seen.restore && !d.swept.Load() {
		return nil
	}
	if d.entered.restore != "" && d.entered.restore != now.restore {
		// It couldn't be replaced, on a full disk; beside the new note it would look like a later restore.
		if err := d.fs.Remove(filepath.Join(d.path, enteredFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := d.fs.SyncDir(d.path); err != nil {
			return err
		}
		d.entered = seenMark{}
	}
	return d.writeMark(seenRevisionFile, now, &d.seen)
}

// writeEntered notes metadata from a backup that the dir is about to follow, and doesn't yet say so in its first note.
func (d *logDir) writeEntered(now seenMark) error {
	if now.restore == "" || now.restore == d.seen.restore {
		return nil
	}
	return d.writeMark(enteredFile, now, &d.entered)
}

func (d *logDir) writeMark(file string, now seenMark, to *seenMark) error {
	now.offices = now.offices.newest()
	text := fmt.Appendf(nil, "3\n%s\n%d\n%016x\n%s", now.restore, now.revision, now.digest.of, now.offices.lines())
	if err := vfs.WriteAtomic(d.fs, filepath.Join(d.path, file), text); err != nil {
		return err
	}
	*to = now
	return nil
}

// readSeen reads the notes. One that can't be read is told as such: nothing is deleted by it.
func (d *logDir) readSeen() (err error) {
	if d.seen, err = d.readMark(seenRevisionFile); err == nil {
		d.entered, err = d.readMark(enteredFile)
	}
	return err
}

func (d *logDir) readMark(file string) (seenMark, error) {
	data, err := vfs.ReadFile(d.fs, filepath.Join(d.path, file), 512)
	if errors.Is(err, fs.ErrNotExist) {
		return seenMark{}, nil
	}
	if err != nil {
		return seenMark{}, err
	}
	return parseSeen(string(data)), nil
}

// hasLeft reports metadata of now that is from before the restore that the dir has entered.
func (d *logDir) hasLeft(now seenMark) bool {
	return d.entered.restore != "" && d.entered.restore != d.seen.restore && now.restore == d.seen.restore && !d.seen.unreadable
}

// followed is the note by which the metadata of now is judged.
func (d *logDir) followed(now seenMark) seenMark {
	if now.restore != "" && d.entered.restore == now.restore && (d.seen.restore != now.restore || d.seen.unreadable) {
		return d.entered
	}
	return d.seen
}

func parseSeen(text string) seenMark {
	lines := strings.Split(text, "\n")
	end := len(lines) - 1 // an empty one
	var m seenMark
	var revision string
	noted, ok := offices{}, true
	switch {
	case end >= 5 && lines[0] == "3":
		m.restore, revision = lines[1], lines[2]
		sum, err := strconv.ParseUint(lines[3], 16, 64)
		m.digest = pastDigest{true, sum}
		noted, ok = parseOffices(lines[4:end])
		ok = ok && err == nil
	case end >= 4 && lines[0] == "2":
		m.restore, revision = lines[1], lines[2]
		noted, ok = parseOffices(lines[3:end])
	case end == 3 && lines[0] == "1":
		m.restore, revision = lines[1], lines[2]
	case end == 2 && lines[0] == "0":
		revision = lines[1]
	default:
		return seenMark{unreadable: true}
	}
	n, err := strconv.ParseInt(revision, 10, 64)
	if err != nil || n < 0 || lines[end] != "" || !ok {
		return seenMark{unreadable: true}
	}
	m.revision, m.offices = meta.Revision(n), noted
	if lines[0] < "2" { // an earlier program's, which noted no offices
		m.offices.above = m.revision
	}
	return m
}

// finish leaves the dir as the next start should find it: checkpoints, and the
// mark of a clean shutdown if every log was closed cleanly.
func (d *logDir) finish(clean bool, epoch types.BrokerEpoch, now seenMark) error {
	if err := d.writeSeen(now); err != nil {
		return err
	}
	if err := d.checkpoints.Write(); err != nil {
		return err
	}
	if !clean {
		return nil
	}
	if err := d.checkpoints.NoteSizes(epoch); err != nil {
		return err
	}
	return log.WriteCleanShutdown(d.fs, d.path, epoch)
}
