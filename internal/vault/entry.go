package vault

import (
	"encoding/json"
	"fmt"
	"path"

	"tidemark/internal/core/types"
	"tidemark/internal/log"
	"tidemark/internal/vfs"
)

// manifestFile describes an entry, manifestVersion is its format.
const (
	manifestFile    = "manifest.json"
	manifestVersion = 1
	manifestLimit   = 16 << 20 // bytes: more is damage
)

// Entry is one kept removal, as in its manifest.json.
//
// Invariant I-04: the files of an entry hold every byte of the removal; an entry
// that lists is whole, and synced before a cut relies on it.
type Entry struct {
	Version   int           `json:"v"`
	ID        string        `json:"id"`
	Topic     string        `json:"topic"`
	Partition int32         `json:"partition"`
	TopicID   types.TopicID `json:"topicId"`
	Cause     log.Cause     `json:"cause"`
	// OrderedBy is empty in entries written before it was noted.
	OrderedBy log.Order `json:"orderedBy,omitempty"`
	Note      string    `json:"note,omitempty"`

	From    types.Offset `json:"from"` // first offset that went
	To      types.Offset `json:"to"`   // end, exclusive
	Records int64        `json:"records"`
	Batches int64        `json:"batches"`
	Bytes   int64        `json:"bytes"`
	// MinTimestamp and MaxTimestamp bound the batches' times, -1 without one.
	MinTimestamp types.Millis `json:"minTimestamp"`
	MaxTimestamp types.Millis `json:"maxTimestamp"`

	// HighWatermark is the log's before the cut; records below it were committed
	// as far as this replica knew.
	HighWatermark       types.Offset `json:"highWatermark"`
	LeaderHighWatermark types.Offset `json:"leaderHighWatermark"` // -1 if unknown
	BelowHighWatermark  int64        `json:"recordsBelowHighWatermark"`
	Epochs              []EpochStart `json:"epochs"`       // of the removed batches
	EpochsBefore        []EpochStart `json:"epochsBefore"` // the whole history before the cut
	TimelinesBefore     any          `json:"timelinesBefore,omitempty"`
	TimelinesAfter      any          `json:"timelinesAfter,omitempty"`
	At                  types.Millis `json:"at"` // when it was cut
	Files               []FileEntry  `json:"files"`
	DamagedBytes        int64        `json:"damagedBytes,omitempty"` // bytes that were no whole batch, kept as they were

	// View is the entry's place in __vault.<topic>.
	View *EntryView `json:"view,omitempty"`
	// Replays are where the records were written again; they aren't in the manifest.
	Replays []Replay `json:"replays,omitempty"`
	// Damaged says what is wrong with an entry that can't be read; it isn't in the manifest.
	Damaged string `json:"damaged,omitempty"`

	dir     string // its folder
	settled bool   // this process has synced it
}

// EpochStart is a leader epoch and the first offset it has.
type EpochStart struct {
	Epoch types.LeaderEpoch `json:"epoch"`
	Start types.Offset      `json:"start"`
}

// FileEntry is one file of raw batches.
type FileEntry struct {
	Name   string       `json:"name"` // 20 digits and .log, as Kafka names segments
	From   types.Offset `json:"from"`
	To     types.Offset `json:"to"`
	Bytes  int64        `json:"bytes"`
	Linked bool         `json:"linked"` // a hard link of the segment, not a copy
}

// folderOf is the folder of a partition's entries.
func folderOf(topic string, partition int32) string {
	return types.TopicPartition{Topic: topic, Partition: partition}.String()
}

// name gives an entry its folder. A damaged one of the same removal keeps its name: what of it
// can be read is an operator's to look at, and no cut may wait for that.
func (v *Vault) name(e *Entry) {
	id := e.ID
	for n := 2; ; n++ {
		e.dir = path.Join(v.opts.Dir, folderOf(e.Topic, e.Partition), e.ID)
		if _, err := v.opts.FS.Stat(e.dir); err != nil {
			return
		}
		e.ID = fmt.Sprintf("%s-%d", id, n)
	}
}

// readEntry reads a manifest; what can't be read is told as damaged, not hidden.
func (v *Vault) readEntry(folder, id string) *Entry {
	name := path.Join(v.opts.Dir, folder, id, manifestFile)
	damaged := func(err error) *Entry {
		v.opts.Logger.Warn("vault entry can't be read", "entry", path.Dir(name), "error", err)
		return &Entry{ID: path.Join(folder, id), Topic: folder, Partition: -1, Damaged: err.Error(), dir: path.Dir(name)}
	}
	data, err := vfs.ReadFile(v.opts.FS, name, manifestLimit)
	if err != nil {
		return damaged(err)
	}
	var e Entry
	if err := json.Unmarshal(data, &e); err != nil {
		return damaged(fmt.Errorf("%s: %w", name, err))
	}
	if e.Version != manifestVersion || e.ID != id || folderOf(e.Topic, e.Partition) != folder {
		return damaged(fmt.Errorf("%s: version %d of entry %q in %s", name, e.Version, e.ID, folderOf(e.Topic, e.Partition)))
	}
	e.Damaged, e.Replays, e.dir = "", nil, path.Dir(name)
	v.readReplays(&e)
	return &e
}
