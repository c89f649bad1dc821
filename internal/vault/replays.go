package vault

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"

	"tidemark/internal/core/types"
	"tidemark/internal/vfs"
)

// replaysFile lists, beside the manifest, where an entry was replayed to.
const replaysFile = "replays.json"

// Replay says that an entry's records were written into a topic again.
type Replay struct {
	Topic     string        `json:"topic"`
	TopicID   types.TopicID `json:"topicId,omitzero"`
	Partition int32         `json:"partition"`
	Records   int64         `json:"records"` // written, then or in earlier tries
	At        types.Millis  `json:"at"`
}

// NoteReplay writes down a replay that is complete. A later one into the same
// partition replaces it.
func (v *Vault) NoteReplay(id string, r Replay) error {
	if v.opts.ReadOnly {
		return ErrReadOnly
	}
	v.noting.Lock()
	defer v.noting.Unlock()
	e, err := v.Show(id)
	if err != nil {
		return err
	}
	if e.Damaged != "" {
		return fmt.Errorf("%s: %s", id, e.Damaged)
	}
	list := slices.DeleteFunc(slices.Clone(e.Replays), func(o Replay) bool {
		return o.Topic == r.Topic && o.TopicID == r.TopicID && o.Partition == r.Partition
	})
	list = append(list, r)
	data, err := json.MarshalIndent(list, "", "  ")
	if err != nil {
		return err
	}
	if err := vfs.WriteAtomic(v.opts.FS, path.Join(e.dir, replaysFile), append(data, '\n')); err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if kept, ok := v.entries[id]; ok {
		next := *kept
		next.Replays = list
		v.putLocked(&next)
	}
	return nil
}

// readReplays reads the notes; what can't be read is told and counts as none.
func (v *Vault) readReplays(e *Entry) {
	data, err := vfs.ReadFile(v.opts.FS, path.Join(e.dir, replaysFile), manifestLimit)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err == nil {
		err = json.Unmarshal(data, &e.Replays)
	}
	if err != nil {
		e.Replays = nil
		v.opts.Logger.Warn("notes of replays can't be read", "entry", e.ID, "error", err)
	}
}
