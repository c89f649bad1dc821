// Package vault keeps what cuts remove from a log: nothing is thrown away
// unseen (DESIGN §7, R1 step 1).
//
// Each cut leaves one entry, a folder <topic>-<partition>/<id>/ with the raw
// bytes as segment files (hard links where a whole segment goes, copies
// elsewhere) and manifest.json, which says what was cut, why, when and what the
// histories were. An entry is synced before Keep returns, new or found again; a crash leaves it whole
// or not at all, and the same removal repeated gives the same entry.
//
// The vault is bounded by bytes and age. It never drops an entry to make room for
// another: a full vault refuses (ErrFull), except where R29 lets a removal go
// unkept. It doesn't decide about cuts and never writes to a log.
//
// Tested on the file system with a crash model, with every operation failing in
// turn, and against the bytes that went in. docs/format/vault.md describes the files.
package vault

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path"
	"slices"
	"strings"
	"sync"

	"tidemark/internal/core/types"
	"tidemark/internal/log"
	"tidemark/internal/vfs"
)

// Options say where the vault is and how much it may hold.
type Options struct {
	FS  vfs.FS
	Dir string // created if absent; on the logs' file system whole segments are linked
	// MaxBytes bounds the bytes kept, manifests aside; below 0: no bound. A
	// linked segment counts in full: it holds its room once the log lets go.
	MaxBytes int64
	// MaxAge is after how long an entry may be purged, in ms; below 0: never.
	MaxAge types.Millis
	Now    func() types.Millis
	Logger *slog.Logger
	// ReadOnly opens a vault that a running node owns: nothing is changed.
	ReadOnly bool
	// OnOffline is called once, with the cause, when an open vault goes offline, on
	// the goroutine whose operation failed. May be nil.
	OnOffline func(error)
}

var (
	// ErrNoEntry says that there is no entry of this id.
	ErrNoEntry = errors.New("no such vault entry")
	// ErrReadOnly refuses changes to a vault opened for reading.
	ErrReadOnly = errors.New("vault is open for reading only")
	// ErrOffline refuses removals after a write or sync in the vault has failed: that
	// is final until the next Open (DESIGN §3).
	ErrOffline = errors.New("vault is offline after an I/O error")
)

// ErrFull refuses a removal that has no room. The cut waits: FAILED(VAULT_FULL) (R29).
type ErrFull struct {
	Needed int64 // bytes of the removal
	Used   int64 // bytes kept now
	Limit  int64 // MaxBytes; -1 if the disk is what is full
	Err    error // the disk's error, nil if the bound is
}

// Error says how much would have to go.
func (e *ErrFull) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("vault is full: no room on the disk for %d bytes beside %d kept: %v", e.Needed, e.Used, e.Err)
	}
	return fmt.Sprintf("vault is full: %d bytes needed, %d of %d used; purge %d bytes or raise vault.max.bytes", e.Needed, e.Used, e.Limit, e.Needed+e.Used-e.Limit)
}

// Unwrap gives the disk's error.
func (e *ErrFull) Unwrap() error { return e.Err }

// Vault is an open vault. All methods may be called from any goroutine; removals
// of one partition come one at a time, from its owner.
type Vault struct {
	opts   Options
	disk   *disk      // opts.FS
	noting sync.Mutex // one note of a replay at a time

	mu       sync.Mutex // guards the following; never held across I/O
	entries  map[string]*Entry
	folders  map[string]map[string]*Entry // the same by partition's folder: a cut looks at its own alone
	kept     int64                        // bytes of all entries
	reserved int64                        // bytes of removals being kept
	dropped  int64                        // records that R29 let go unkept
	// viewEnds are, by partition's folder, the ends of views whose last entry was purged.
	viewEnds    map[string]types.Offset
	watchers    map[int]func()
	nextWatcher int
}

var _ log.Keeper = (*Vault)(nil)

// Open opens or makes a vault, reads its manifests and clears what a crash left
// of an interrupted Keep or Purge.
func Open(o Options) (*Vault, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	d := newDisk(o.FS)
	o.FS = d
	v := &Vault{opts: o, disk: d, entries: map[string]*Entry{}, folders: map[string]map[string]*Entry{}, viewEnds: map[string]types.Offset{}, watchers: map[int]func(){}}
	if !o.ReadOnly {
		if err := o.FS.MkdirAll(o.Dir); err != nil {
			return nil, err
		}
		if err := o.FS.SyncDir(path.Dir(o.Dir)); err != nil {
			return nil, err
		}
	}
	folders, err := o.FS.List(o.Dir)
	if err != nil {
		return nil, err
	}
	for _, folder := range folders {
		if err := v.load(folder); err != nil {
			return nil, fmt.Errorf("vault %s: %w", folder, err)
		}
	}
	d.onFault.Store(&o.OnOffline)
	return v, d.failure()
}

// load reads the entries of one partition's folder.
func (v *Vault) load(folder string) error {
	dir := path.Join(v.opts.Dir, folder)
	st, err := v.opts.FS.Stat(dir)
	if err != nil || !st.IsDir {
		return err
	}
	names, err := v.opts.FS.List(dir)
	if err != nil {
		return err
	}
	if err := v.loadViewEnd(folder); err != nil {
		return err
	}
	for _, name := range names {
		switch {
		case name == viewEndFile:
		case !strings.HasSuffix(name, vfs.TempSuffix):
			if err := v.loadEntry(folder, name); err != nil {
				return err
			}
		case !v.opts.ReadOnly:
			if err := v.opts.FS.RemoveAll(path.Join(dir, name)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (v *Vault) loadEntry(folder, name string) error {
	e := v.readEntry(folder, name)
	v.mu.Lock()
	v.putLocked(e)
	v.mu.Unlock()
	if v.opts.ReadOnly || e.Damaged != "" {
		return nil
	}
	names, err := v.opts.FS.List(e.dir)
	if err != nil {
		return err
	}
	for _, n := range names {
		if strings.HasSuffix(n, vfs.TempSuffix) {
			if err := v.opts.FS.Remove(path.Join(e.dir, n)); err != nil {
				return err
			}
		}
	}
	return v.ownFiles(e)
}

// List gives all entries, oldest first.
func (v *Vault) List() ([]Entry, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return oldestFirst(v.entries), nil
}

// of gives a partition's entries, oldest first.
func (v *Vault) of(tp types.TopicPartition) []Entry {
	v.mu.Lock()
	defer v.mu.Unlock()
	return oldestFirst(v.folders[tp.String()])
}

func oldestFirst(entries map[string]*Entry) []Entry {
	out := make([]Entry, 0, len(entries))
	for _, e := range entries {
		out = append(out, *e)
	}
	slices.SortFunc(out, func(a, b Entry) int { return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.ID, b.ID)) })
	return out
}

// putLocked takes an entry in, or its newer form.
func (v *Vault) putLocked(e *Entry) {
	v.dropLocked(e.ID)
	folder := path.Base(path.Dir(e.dir))
	if v.folders[folder] == nil {
		v.folders[folder] = map[string]*Entry{}
	}
	v.entries[e.ID], v.folders[folder][e.ID] = e, e
	v.kept += e.Bytes
}

func (v *Vault) dropLocked(id string) {
	e, ok := v.entries[id]
	if !ok {
		return
	}
	folder := path.Base(path.Dir(e.dir))
	delete(v.entries, id)
	if delete(v.folders[folder], id); len(v.folders[folder]) == 0 {
		delete(v.folders, folder)
	}
	v.kept -= e.Bytes
}

// Show gives one entry.
func (v *Vault) Show(id string) (Entry, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	e, ok := v.entries[id]
	if !ok {
		return Entry{}, fmt.Errorf("%q: %w", id, ErrNoEntry)
	}
	return *e, nil
}

// Usage tells how full the vault is.
type Usage struct {
	Entries        int   `json:"entries"`
	Bytes          int64 `json:"bytes"`          // kept, removals under way included
	MaxBytes       int64 `json:"maxBytes"`       // below 0: no bound
	DroppedRecords int64 `json:"droppedRecords"` // since the start, by R29
}

// Usage tells how full the vault is.
func (v *Vault) Usage() Usage {
	v.mu.Lock()
	defer v.mu.Unlock()
	return Usage{Entries: len(v.entries), Bytes: v.usedLocked(), MaxBytes: v.opts.MaxBytes, DroppedRecords: v.dropped}
}

// usedLocked is the bytes kept or being kept.
func (v *Vault) usedLocked() int64 { return v.kept + v.reserved }

// Purge removes an entry for good.
func (v *Vault) Purge(id string) error {
	if v.opts.ReadOnly {
		return ErrReadOnly
	}
	e, err := v.Show(id)
	if err != nil {
		return err
	}
	if err := v.keepViewEnd(&e); err != nil {
		return err
	}
	dir := e.dir
	// The name goes first, in one step: a crash leaves no half entry that lists as whole.
	if err := v.opts.FS.Rename(dir, dir+vfs.TempSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	v.mu.Lock()
	v.dropLocked(id)
	v.mu.Unlock()
	v.changed()
	if err := v.opts.FS.RemoveAll(dir + vfs.TempSuffix); err != nil {
		return err
	}
	return v.opts.FS.SyncDir(path.Dir(dir))
}

// PurgeExpired removes the entries older than MaxAge and tells which.
func (v *Vault) PurgeExpired() ([]Entry, error) {
	if v.opts.MaxAge < 0 {
		return nil, nil
	}
	entries, err := v.List()
	if err != nil {
		return nil, err
	}
	var gone []Entry
	before := v.opts.Now() - v.opts.MaxAge
	for _, e := range entries {
		if e.Damaged != "" || e.At >= before {
			continue
		}
		if err := v.Purge(e.ID); err != nil {
			return gone, err
		}
		gone = append(gone, e)
	}
	return gone, nil
}
