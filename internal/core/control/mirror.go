package control

import (
	"fmt"
	"strings"

	"tidemark/internal/core/meta"
)

// CreateMirror writes a new mirror's record.
func CreateMirror(image *meta.Image, record meta.MirrorRecord, me Me) (meta.Plan, error) {
	if err := me.registered(image); err != nil {
		return meta.Plan{}, err
	}
	if err := validMirrorName(record.Name); err != nil {
		return meta.Plan{}, err
	}
	if _, ok := image.Mirror(record.Name); ok {
		return meta.Plan{}, fmt.Errorf("mirror %s: %w", record.Name, ErrMirrorExists)
	}
	if len(record.Bootstrap) == 0 {
		return meta.Plan{}, fmt.Errorf("mirror %s has no source address: %w", record.Name, ErrInvalidRequest)
	}
	key := image.Keys().Mirror(record.Name)
	return checked(meta.Plan{
		Why:  "create mirror " + record.Name,
		If:   []meta.Compare{me.compare(image), meta.Absent(key)},
		Then: []meta.Op{meta.Put(key, record.Encode())},
	}), nil
}

// mirrorNameBytesMax keeps names short enough for a label and a table.
const mirrorNameBytesMax = 100

func validMirrorName(name string) error {
	if name == "" || len(name) > mirrorNameBytesMax || strings.IndexFunc(name, func(r rune) bool { return !topicNameRune(r) }) >= 0 {
		return fmt.Errorf("mirror name %q: 1 to %d letters, digits, '.', '_' and '-': %w", name, mirrorNameBytesMax, ErrInvalidRequest)
	}
	return nil
}

// UpdateMirror overwrites a mirror's record, comparing the one in the image:
// what the operator wants of it (start, pause, resume, stop), its settings,
// the source cluster's id.
func UpdateMirror(image *meta.Image, record meta.MirrorRecord, me Me) (meta.Plan, error) {
	if err := me.registered(image); err != nil {
		return meta.Plan{}, err
	}
	old, ok := image.Mirror(record.Name)
	if !ok {
		return meta.Plan{}, fmt.Errorf("mirror %s: %w", record.Name, ErrUnknownMirror)
	}
	if old.Record.SourceClusterID != "" && record.SourceClusterID != old.Record.SourceClusterID {
		return meta.Plan{}, fmt.Errorf("mirror %s follows cluster %s, not %q: %w", record.Name, old.Record.SourceClusterID, record.SourceClusterID, ErrInvalidRequest)
	}
	key := image.Keys().Mirror(record.Name)
	return checked(meta.Plan{
		Why:  fmt.Sprintf("mirror %s: %s", record.Name, record.Want),
		If:   []meta.Compare{me.compare(image), meta.ModRevisionIs(key, old.ModRevision)},
		Then: []meta.Op{meta.Put(key, record.Encode())},
	}), nil
}

// DeleteMirror deletes a mirror's record. It is refused with ErrMirrorInUse
// while a partition still follows the mirror: only a promotion makes one writable.
func DeleteMirror(image *meta.Image, name string, me Me) (meta.Plan, error) {
	if err := me.registered(image); err != nil {
		return meta.Plan{}, err
	}
	old, ok := image.Mirror(name)
	if !ok {
		return meta.Plan{}, fmt.Errorf("mirror %s: %w", name, ErrUnknownMirror)
	}
	following := 0
	for p := range image.Partitions() {
		if p.Record != nil && p.Record.IsMirror() && p.Record.Mirror.Name == name {
			following++
		}
	}
	if following > 0 {
		return meta.Plan{}, fmt.Errorf("mirror %s: %w: %d; fail over first, or delete their topics", name, ErrMirrorInUse, following)
	}
	key := image.Keys().Mirror(name)
	return checked(meta.Plan{
		Why:  "delete mirror " + name,
		If:   []meta.Compare{me.compare(image), meta.ModRevisionIs(key, old.ModRevision)},
		Then: []meta.Op{meta.Delete(key)},
	}), nil
}
