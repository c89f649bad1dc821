package vault

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"tidemark/internal/batch"
	"tidemark/internal/core/types"
	"tidemark/internal/vfs"
)

// The view of a partition's entries is one log: the entries one behind the
// other in the order in which they were kept, at offsets of its own that stay as they
// are whatever is purged. Clients read it as topic __vault.<topic>.

// EntryView is an entry's place in its partition's view.
type EntryView struct {
	// Base is the view's offset of the record that was at First.
	Base  types.Offset `json:"base"`
	First types.Offset `json:"first"`
}

// viewEndFile, in a partition's folder, is the view's end once its last entry was purged.
const viewEndFile = "view-end"

// viewEnd is where the entry ends in the view.
func (e *Entry) viewEnd() types.Offset {
	if e.View == nil {
		return 0
	}
	return e.View.Base + max(e.To-e.View.First, 0)
}

// firstOf is the base offset of the first batch of a removal, its end if there is none.
func firstOf(e *Entry, s *summary) types.Offset {
	if s.first < 0 {
		return e.To
	}
	return s.first
}

// placeLocked gives an entry the next place in its partition's view.
func (v *Vault) placeLocked(e *Entry, first types.Offset) {
	folder := folderOf(e.Topic, e.Partition)
	e.View = &EntryView{Base: v.viewEndLocked(folder), First: first}
}

// viewEndLocked is where the view of a folder ends.
func (v *Vault) viewEndLocked(folder string) types.Offset {
	end := v.viewEnds[folder]
	for _, o := range v.folders[folder] {
		if o.Damaged == "" {
			end = max(end, o.viewEnd())
		}
	}
	return end
}

// keepViewEnd notes, before an entry is purged, that its offsets of the view are used up.
func (v *Vault) keepViewEnd(e *Entry) error {
	folder := folderOf(e.Topic, e.Partition)
	v.mu.Lock()
	end := max(v.viewEnds[folder], e.viewEnd())
	known := v.viewEnds[folder] == end
	v.mu.Unlock()
	if known || e.Damaged != "" {
		return nil
	}
	if err := vfs.WriteAtomic(v.opts.FS, path.Join(v.opts.Dir, folder, viewEndFile), fmt.Appendf(nil, "%d\n", end)); err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.viewEnds[folder] = max(v.viewEnds[folder], end)
	return nil
}

// loadViewEnd reads the note.
func (v *Vault) loadViewEnd(folder string) error {
	data, err := vfs.ReadFile(v.opts.FS, path.Join(v.opts.Dir, folder, viewEndFile), 64)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	end, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
	if err != nil {
		return fmt.Errorf("%s: %w", viewEndFile, err)
	}
	v.viewEnds[folder] = types.Offset(end)
	return nil
}

// Viewed reports whether the vault has, or had, entries of the topic.
func (v *Vault) Viewed(topic string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, e := range v.entries {
		if e.Topic == topic && e.Damaged == "" {
			return true
		}
	}
	return false
}

// ViewRange is where a partition's view begins and ends.
func (v *Vault) ViewRange(topic string, partition int32) (start, end types.Offset) {
	v.mu.Lock()
	defer v.mu.Unlock()
	folder := folderOf(topic, partition)
	end = v.viewEndLocked(folder)
	start = end
	for _, e := range v.folders[folder] {
		if e.View != nil {
			start = min(start, e.View.Base)
		}
	}
	return start, end
}

// viewOf lists a partition's entries that reach beyond an offset of the view.
func (v *Vault) viewOf(topic string, partition int32, from types.Offset) []Entry {
	v.mu.Lock()
	defer v.mu.Unlock()
	var out []Entry
	for _, e := range v.folders[folderOf(topic, partition)] {
		if e.Damaged == "" && e.View != nil && e.viewEnd() > from {
			out = append(out, *e)
		}
	}
	slices.SortFunc(out, func(a, b Entry) int { return cmp.Compare(a.View.Base, b.View.Base) })
	return out
}

// ReadView gives whole batches of a partition's view from an offset on, up to max
// bytes; with minOne the first one whatever its size. They are as they were, but at the view's offsets.
func (v *Vault) ReadView(topic string, partition int32, from types.Offset, limit int, minOne bool) ([]byte, error) {
	var out []byte
	full := errors.New("full")
	for _, e := range v.viewOf(topic, partition, from) {
		err := v.eachViewBatch(&e, from, func(h *batch.Header, base types.Offset, read func([]byte) error) error {
			size := h.Size()
			if len(out)+size > limit && (len(out) > 0 || !minOne) {
				return full
			}
			at := len(out)
			out = slices.Grow(out, size)[:at+size]
			if err := read(out[at:]); err != nil {
				out = out[:at]
				return err
			}
			batch.Stamp(out[at:], base, h.PartitionLeaderEpoch)
			return nil
		})
		if errors.Is(err, full) {
			break
		}
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// eachViewBatch visits the batches of an entry that end beyond an offset of the view.
// Bytes that are no batches end an entry's part.
func (v *Vault) eachViewBatch(e *Entry, from types.Offset, visit func(h *batch.Header, base types.Offset, read func([]byte) error) error) error {
	shift := e.View.Base - e.View.First
	return v.eachFile(e, func(file *FileEntry, f vfs.File, size int64) error {
		if file.To+shift <= from {
			return nil // a whole segment below
		}
		for pos := int64(0); size-pos >= batch.HeaderSize; {
			var head [batch.HeaderSize]byte
			if _, err := io.ReadFull(io.NewSectionReader(f, pos, batch.HeaderSize), head[:]); err != nil {
				return err
			}
			h, err := batch.ParseHeader(head[:])
			if err != nil || int64(h.Size()) > size-pos {
				return nil
			}
			at := pos
			pos += int64(h.Size())
			if h.NextOffset()+shift <= from || h.BaseOffset < e.View.First {
				continue
			}
			err = visit(&h, h.BaseOffset+shift, func(raw []byte) error {
				_, err := io.ReadFull(io.NewSectionReader(f, at, int64(len(raw))), raw)
				return err
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// ViewAt finds the first batch of a partition's view whose records reach a time; false if there is none.
func (v *Vault) ViewAt(topic string, partition int32, at types.Millis) (offset types.Offset, ts types.Millis, epoch types.LeaderEpoch, ok bool, err error) {
	found := errors.New("found")
	for _, e := range v.viewOf(topic, partition, -1) {
		if e.MaxTimestamp < at {
			continue
		}
		err := v.eachViewBatch(&e, -1, func(h *batch.Header, base types.Offset, _ func([]byte) error) error {
			if h.MaxTimestamp < at || h.IsControl() {
				return nil
			}
			offset, ts, epoch, ok = base, h.MaxTimestamp, h.PartitionLeaderEpoch, true
			return found
		})
		if err != nil && !errors.Is(err, found) {
			return 0, 0, 0, false, err
		}
		if ok {
			return offset, ts, epoch, true, nil
		}
	}
	return 0, 0, 0, false, nil
}

// OnChange has f called after an entry came or went, until cancel. f must not block.
func (v *Vault) OnChange(f func()) (cancel func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.nextWatcher++
	id := v.nextWatcher
	v.watchers[id] = f
	return func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		delete(v.watchers, id)
	}
}

// changed tells whoever watches.
func (v *Vault) changed() {
	v.mu.Lock()
	list := make([]func(), 0, len(v.watchers))
	for _, f := range v.watchers {
		list = append(list, f)
	}
	v.mu.Unlock()
	for _, f := range list {
		f()
	}
}
