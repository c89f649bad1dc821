package vault

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"

	"tidemark/internal/assert"
	"tidemark/internal/core/types"
	"tidemark/internal/log"
	"tidemark/internal/vfs"
)

// Keep takes the records of a cut before they go (R1 step 1) and returns when
// they are durable. The same removal again, whole or what a crash left of it,
// gives the id of the entry there is. A write or sync of the vault's that fails is
// final (ErrOffline); one of the log's own segment is log.ErrOffline. A full vault
// gives *ErrFull, unless R29 lets the records go: then the id is empty and the error nil.
func (v *Vault) Keep(r log.Removal) (id string, err error) {
	if v.opts.ReadOnly {
		return "", ErrReadOnly
	}
	if err := v.disk.failure(); err != nil {
		return "", err
	}
	s, err := survey(r)
	if err != nil {
		return "", fmt.Errorf("vault: read what %s is about to lose: %w", r.TopicPartition, err)
	}
	switch id, ok, err := v.known(&r, s); {
	case err != nil:
		return "", err
	case ok:
		return id, v.disk.failure()
	}
	if err := v.reserve(s.bytes); err != nil {
		return v.refuse(&r, s, err)
	}
	defer v.release(s.bytes)
	if err := v.breakLinks(&r); err != nil {
		return v.refuse(&r, s, v.fullDisk(s.bytes, err))
	}
	e := newEntry(&r, s)
	v.name(e)
	v.mu.Lock()
	v.placeLocked(e, firstOf(e, s))
	v.mu.Unlock()
	if err := v.write(&r, e); err != nil {
		if cleanup := v.opts.FS.RemoveAll(e.dir + vfs.TempSuffix); cleanup != nil {
			v.opts.Logger.Warn("remains of a removal that wasn't kept", "entry", e.ID, "error", cleanup)
		}
		return v.refuse(&r, s, v.fullDisk(s.bytes, err))
	}
	e.settled = true
	v.mu.Lock()
	v.putLocked(e)
	v.mu.Unlock()
	v.changed()
	v.opts.Logger.Info("removed records kept", "partition", r.TopicPartition.String(), "entry", e.ID, "cause", string(r.Cause), "orderedBy", string(r.Order),
		"from", int64(r.From), "to", int64(r.To), "records", e.Records, "bytes", e.Bytes)
	return e.ID, nil
}

// mayDrop is R29: with a full vault only a divergence within one timeline list
// and above the leader's high watermark may go unkept. Such records were never
// committed anywhere, unless the leader lost them itself: it was elected uncleanly, or was
// cut and has followed another history since. Then they lie below the own high watermark.
func mayDrop(r *log.Removal) bool {
	sameList := r.TimelinesAfter == nil || bytes.Equal(r.TimelinesBefore, r.TimelinesAfter)
	return r.Cause == log.CauseDivergence && sameList && r.LeaderHighWatermark >= 0 && r.From >= max(r.LeaderHighWatermark, r.HighWatermark)
}

// refuse answers a removal that can't be kept for want of room.
func (v *Vault) refuse(r *log.Removal, s *summary, err error) (string, error) {
	var full *ErrFull
	if !errors.As(err, &full) || !mayDrop(r) {
		return "", fmt.Errorf("vault: keep %d records of %s: %w", s.records, r.TopicPartition, err)
	}
	v.mu.Lock()
	v.dropped += s.records
	v.mu.Unlock()
	v.opts.Logger.Warn("uncommitted records dropped unkept: the vault is full", "partition", r.TopicPartition.String(),
		"from", int64(r.From), "to", int64(r.To), "records", s.records, "bytes", s.bytes, "error", err)
	return "", nil
}

// reserve takes room for bytes, purging expired entries first if need be.
func (v *Vault) reserve(n int64) error {
	if err := v.tryReserve(n); err == nil {
		return nil
	}
	if _, err := v.PurgeExpired(); err != nil {
		return err
	}
	return v.tryReserve(n)
}

func (v *Vault) tryReserve(n int64) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if used := v.usedLocked(); v.opts.MaxBytes >= 0 && used+n > v.opts.MaxBytes {
		return &ErrFull{Needed: n, Used: used, Limit: v.opts.MaxBytes}
	}
	v.reserved += n
	return nil
}

func (v *Vault) release(n int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.reserved -= n
}

// fullDisk makes a disk without room an *ErrFull: purging helps there too.
func (v *Vault) fullDisk(needed int64, err error) error {
	if !vfs.IsNoSpace(err) {
		return err
	}
	return &ErrFull{Needed: needed, Used: v.Usage().Bytes - needed, Limit: -1, Err: err}
}

// known finds the entry that holds all of a removal already, makes it durable, and has its
// age begin anew.
func (v *Vault) known(r *log.Removal, s *summary) (id string, ok bool, err error) {
	found := func(e *Entry) (string, bool, error) {
		if err := v.settle(e); err != nil {
			return e.ID, true, err
		}
		still, err := v.renew(e.ID, r.At)
		return e.ID, still || err != nil, v.fullDisk(s.bytes, err)
	}
	if e := v.adopt(r, s); e != nil {
		return found(e)
	}
	entries := v.of(r.TopicPartition)
	for i := range entries {
		e := &entries[i]
		if e.Damaged != "" || e.TopicID != r.TopicID || e.Cause != r.Cause || e.From > r.From || e.To < r.To {
			continue
		}
		holds, err := v.holds(e, r, s)
		if err != nil {
			v.opts.Logger.Warn("vault entry can't be compared", "entry", e.ID, "error", err)
			continue
		}
		if holds {
			return found(e)
		}
	}
	return "", false, nil
}

// renew counts an entry's age from the cut that relies on it now: what had come back, and
// goes once more, is kept as long as anything else that goes today. It reports whether
// the entry is still there; purged meanwhile, it is kept anew.
func (v *Vault) renew(id string, at types.Millis) (still bool, err error) {
	v.mu.Lock()
	kept, still := v.entries[id]
	v.mu.Unlock()
	if !still || at <= kept.At {
		return still, nil
	}
	next := *kept
	next.At, next.Replays = at, nil // replays aren't in the manifest
	if err := v.writeManifest(next.dir, &next); err != nil {
		return true, fmt.Errorf("vault: entry %s, which holds the removed records already: %w", id, err)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if kept, still = v.entries[id]; still {
		next = *kept
		next.At = at
		v.putLocked(&next)
	}
	return still, nil
}

func (v *Vault) writeManifest(dir string, e *Entry) error {
	data, err := json.MarshalIndent(e, "", "  ")
	if err != nil {
		return err
	}
	return vfs.WriteAtomic(v.opts.FS, path.Join(dir, manifestFile), append(data, '\n'))
}

// settle syncs an entry that was found, once per process, before a cut relies on
// it (R1 step 1): a process that was killed may have left its name, or the copy that
// took a link's place, in the page cache alone.
func (v *Vault) settle(e *Entry) error {
	if e.settled {
		return nil
	}
	if err := v.syncEntry(e); err != nil {
		return fmt.Errorf("vault: sync entry %s, which holds the removed records already: %w", e.ID, err)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if kept, ok := v.entries[e.ID]; ok {
		next := *kept
		next.settled = true
		v.putLocked(&next)
	}
	return nil
}

// syncEntry syncs an entry's files, and the folders up to the vault's own.
func (v *Vault) syncEntry(e *Entry) error {
	err := v.eachFile(e, func(_ *FileEntry, f vfs.File, _ int64) error { return f.Sync() })
	if err != nil {
		return err
	}
	manifest, err := v.opts.FS.Open(path.Join(e.dir, manifestFile))
	if err != nil {
		return err
	}
	if err := errors.Join(manifest.Sync(), manifest.Close()); err != nil {
		return err
	}
	for _, dir := range []string{e.dir, path.Dir(e.dir), v.opts.Dir} {
		if err := v.opts.FS.SyncDir(dir); err != nil {
			return err
		}
	}
	return nil
}

// adopt finds an entry of exactly this removal on the disk which memory doesn't
// know: its last sync had failed.
func (v *Vault) adopt(r *log.Removal, s *summary) *Entry {
	id := entryID(r, s)
	v.mu.Lock()
	_, known := v.entries[id]
	v.mu.Unlock()
	folder := r.TopicPartition.String()
	if known {
		return nil
	}
	if _, err := v.opts.FS.Stat(path.Join(v.opts.Dir, folder, id)); err != nil {
		return nil
	}
	e := v.readEntry(folder, id)
	if e.Damaged != "" {
		return nil
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.putLocked(e)
	return e
}

// holds reports whether an entry has every batch of a removal. Bytes that are no
// batches are compared as they are.
func (v *Vault) holds(e *Entry, r *log.Removal, s *summary) (bool, error) {
	if s.damaged > 0 {
		return v.hasBytes(e, r, s)
	}
	if len(s.batches) == 0 {
		return false, nil
	}
	left := s.batches
	err := v.eachFile(e, func(_ *FileEntry, f vfs.File, size int64) error {
		_, err := walk(f, 0, size, func(b fingerprint) {
			if len(left) > 0 && b == left[0] {
				left = left[1:]
			}
		})
		return err
	})
	return len(left) == 0, err
}

// hasBytes reports whether an entry is of the same removal, byte for byte.
func (v *Vault) hasBytes(e *Entry, r *log.Removal, s *summary) (same bool, err error) {
	if e.ID != entryID(r, s) || len(e.Files) != len(r.Ranges) {
		return false, nil
	}
	ranges, same := r.Ranges, true
	err = v.eachFile(e, func(_ *FileEntry, f vfs.File, size int64) error {
		g := &ranges[0]
		ranges = ranges[1:]
		var kept, going [4096]byte
		same = same && size == g.Len
		for at := int64(0); same && at < size; at += int64(len(kept)) {
			n := min(size-at, int64(len(kept)))
			if _, err := io.ReadFull(io.NewSectionReader(f, at, n), kept[:n]); err != nil {
				return err
			}
			if _, err := io.ReadFull(io.NewSectionReader(g.File, g.Pos+at, n), going[:n]); err != nil {
				return err
			}
			same = bytes.Equal(kept[:n], going[:n])
		}
		return nil
	})
	return same, err
}

// write makes the entry's folder under a temporary name, synced, and then gives
// it its name: after a crash it is there whole or it isn't there.
func (v *Vault) write(r *log.Removal, e *Entry) error {
	dir := e.dir
	temp := dir + vfs.TempSuffix
	fsys := v.opts.FS
	if err := fsys.RemoveAll(temp); err != nil {
		return err
	}
	if err := fsys.MkdirAll(temp); err != nil {
		return err
	}
	if err := fsys.SyncDir(v.opts.Dir); err != nil {
		return err
	}
	for i := range r.Ranges {
		file, err := v.writeRange(temp, &r.Ranges[i])
		if err != nil {
			return err
		}
		e.Files = append(e.Files, file)
	}
	var held int64
	for _, f := range e.Files {
		held += f.Bytes
	}
	assert.That(held == e.Bytes, "I-04: entry %s holds %d bytes of a removal of %d", e.ID, held, e.Bytes)
	if err := v.writeManifest(temp, e); err != nil {
		return err
	}
	if err := fsys.Rename(temp, dir); err != nil {
		return err
	}
	return fsys.SyncDir(path.Dir(dir))
}

// writeRange links or copies one range and syncs it.
func (v *Vault) writeRange(dir string, g *log.RemovedRange) (FileEntry, error) {
	file := FileEntry{Name: segmentName(g), From: g.From, To: g.To, Bytes: g.Len}
	name := path.Join(dir, file.Name)
	if g.Whole && g.Pos == 0 && v.linkable(g) {
		if err := v.opts.FS.Link(g.Path, name); err == nil {
			file.Linked = true
			return file, syncOfLog(g)
		}
		// A link that failed may be there all the same: writing to its name would
		// empty the log's own segment.
		if err := v.opts.FS.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return file, err
		}
	}
	return file, v.copyRange(name, g)
}

// syncOfLog syncs a segment of the log that the vault has linked. A failure is the log's.
func syncOfLog(g *log.RemovedRange) error {
	if err := g.File.Sync(); err != nil {
		return fmt.Errorf("%w: %w", log.ErrOffline, err)
	}
	return nil
}

// segmentName is Kafka's name of a segment that begins where the range does.
func segmentName(g *log.RemovedRange) string {
	base := g.BaseOffset
	if g.Pos > 0 {
		base = g.From
	}
	return fmt.Sprintf("%020d.log", int64(base))
}

// linkable reports whether the file holds the range and nothing behind it.
func (v *Vault) linkable(g *log.RemovedRange) bool {
	st, err := v.opts.FS.Stat(g.Path)
	return err == nil && st.Size == g.Len
}

func (v *Vault) copyRange(name string, g *log.RemovedRange) error {
	return vfs.CopySynced(v.opts.FS, name, g.File, g.Pos, g.Len)
}

// breakLinks gives entries that overlap a new removal files of their own, where
// the log still has the linked segment: the cut that linked it was not carried
// out, and the log may write to it again.
func (v *Vault) breakLinks(r *log.Removal) error {
	entries := v.of(r.TopicPartition)
	for i := range entries {
		e := &entries[i]
		if e.Damaged == "" && e.TopicID == r.TopicID && e.From < r.To && r.From < e.To {
			if err := v.ownFiles(e); err != nil {
				return err
			}
		}
	}
	return nil
}

// ownFiles replaces links that the log still shares by copies. Open does it for
// every entry, before the logs are opened: a crash between Keep and the removal
// leaves a segment in both places.
func (v *Vault) ownFiles(e *Entry) error {
	for i := range e.Files {
		f := &e.Files[i]
		if !f.Linked {
			continue
		}
		name := path.Join(e.dir, f.Name)
		st, err := v.opts.FS.Stat(name)
		if errors.Is(err, fs.ErrNotExist) || (err == nil && st.Links < 2) {
			continue
		}
		if err != nil {
			return err
		}
		if err := v.replaceByCopy(name, f.Bytes); err != nil {
			return fmt.Errorf("own copy of %s: %w", name, err)
		}
	}
	return nil
}

// replaceByCopy cuts a copy to the bytes that the entry counts: the log may have appended since.
func (v *Vault) replaceByCopy(name string, size int64) error {
	in, err := v.opts.FS.Open(name)
	if err != nil {
		return err
	}
	err = v.copyRange(name+vfs.TempSuffix, &log.RemovedRange{File: in, Len: size})
	if err := errors.Join(err, in.Close()); err != nil {
		return err
	}
	if err := v.opts.FS.Rename(name+vfs.TempSuffix, name); err != nil {
		return err
	}
	return v.opts.FS.SyncDir(path.Dir(name))
}

// newEntry fills in what is known before the files are written.
func newEntry(r *log.Removal, s *summary) *Entry {
	e := &Entry{
		Version: manifestVersion, ID: entryID(r, s), Topic: r.TopicPartition.Topic, Partition: r.TopicPartition.Partition, TopicID: r.TopicID,
		Cause: r.Cause, OrderedBy: r.Order, Note: r.Note, From: r.From, To: r.To,
		Records: s.records, Batches: int64(len(s.batches)), Bytes: s.bytes, DamagedBytes: s.damaged,
		MinTimestamp: s.minTimestamp, MaxTimestamp: s.maxTimestamp,
		HighWatermark: r.HighWatermark, LeaderHighWatermark: r.LeaderHighWatermark, BelowHighWatermark: s.belowHighWatermark,
		Epochs: s.epochs, EpochsBefore: []EpochStart{},
		TimelinesBefore: asJSON(r.TimelinesBefore), TimelinesAfter: asJSON(r.TimelinesAfter), At: r.At,
		Files: []FileEntry{},
	}
	for _, b := range r.EpochsBefore {
		e.EpochsBefore = append(e.EpochsBefore, EpochStart(b))
	}
	return e
}

// asJSON keeps a timeline checkpoint as the JSON it is, and anything else as text.
func asJSON(data []byte) json.RawMessage {
	switch {
	case data == nil:
		return nil
	case json.Valid(data):
		return data
	}
	text, err := json.Marshal(string(data))
	if err != nil {
		return nil
	}
	return text
}

// entryID names a removal by what it holds: the same removal has the same name.
func entryID(r *log.Removal, s *summary) string {
	return fmt.Sprintf("%d-%d-%s", r.From, r.To, s.digest(r))
}
