// Package backup takes the metadata of a cluster out of a store, as one file
// that says what it is and whether it is whole, and puts it back.
//
// It owns the file's form (docs/format/metadata-backup.md), and what putting
// older metadata back means. A backup knows nothing of what happened since: who
// was in sync then may lack records now, leader epochs have gone on, producer ids
// were handed out. So a restore (Mark) takes leaders, ISR and ELR out of every
// partition and marks it: nobody leads before all of its replicas have told what
// they hold, and then above every epoch that any of them knows (R19, control.Settle).
// Producer ids begin a new range (R30), mirrors come back paused, and the cluster's
// record gets a fresh restore id, by which every node's folder notices.
// Registrations, the controller's office and reports are never part of a backup:
// they end with their leases.
//
// Tests: round trips, a table of damaged files, and restores on stores in
// memory and embedded ones.
package backup

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"strings"
	"unicode/utf8"

	"tidemark/internal/core/meta"
	"tidemark/internal/core/types"
	"tidemark/internal/metastore"
)

const (
	// format is the first thing in a backup, so that a person and a program know what it is.
	format = "tidemark metadata backup"
	// version is the version of the form that this program writes and reads.
	version = 1
	// lineBytesMax bounds one line: a value is at most 1.5 MiB in any of our stores, and a byte takes at most six in JSON.
	lineBytesMax = 16 << 20
)

// Header is the first line of a backup.
type Header struct {
	Format    string        `json:"format"`
	V         int           `json:"v"`
	ClusterID string        `json:"clusterId"`
	Revision  meta.Revision `json:"revision"`
	TakenAt   types.Millis  `json:"takenAt"`
	// Software is the program that took it, for people.
	Software string `json:"software,omitempty"`
	// Levels are the cluster's feature levels: a program must support them to read the rest.
	Levels map[string]int16 `json:"levels"`
	Keys   int              `json:"keys"`
}

// Backup is the metadata of one cluster at one revision.
type Backup struct {
	Header
	// KVs are in order of their keys, below the cluster's root, without a lease.
	KVs []meta.KV
}

// entry is one key's line. Key is relative to the cluster's root.
type entry struct {
	Key   string        `json:"key"`
	Mod   meta.Revision `json:"mod"`
	Value *string       `json:"value,omitempty"`
	// Bytes holds a value that isn't UTF-8.
	Bytes []byte `json:"bytes,omitempty"`
}

// trailer is the last line: the digest of every byte before it.
type trailer struct {
	SHA256 string `json:"sha256"`
}

// ErrDamaged is matched by the error of a file that isn't a whole backup.
var ErrDamaged = errors.New("not a whole backup of tidemark's metadata")

// Take reads a cluster's metadata from a store, all of it at one revision (R9).
func Take(ctx context.Context, store metastore.Store, clusterID string) (*Backup, error) {
	kvs, revision, err := store.Range(ctx, meta.KeysOf(clusterID).Root())
	if err != nil {
		return nil, err
	}
	return Of(clusterID, kvs, revision)
}

// Of makes a backup of keys that were read at one revision, all below the cluster's root.
func Of(clusterID string, kvs []meta.KV, revision meta.Revision) (*Backup, error) {
	image, _ := meta.Load(clusterID, kvs, revision)
	if _, ok := image.Cluster(); !ok {
		return nil, fmt.Errorf("the metadata store knows nothing of cluster %s", clusterID)
	}
	levels, _ := image.FinalizedFeatures()
	b := &Backup{Header: Header{Format: format, V: version, ClusterID: clusterID, Revision: revision, Levels: levels}}
	for _, kv := range kvs {
		if !passing(image.Keys(), kv) {
			b.KVs = append(b.KVs, kv)
		}
	}
	b.Keys = len(b.KVs)
	return b, nil
}

// passing reports whether a key ends with a lease, and says nothing to anybody later.
func passing(keys meta.Keys, kv meta.KV) bool {
	key, err := keys.Parse(kv.Key)
	if err != nil {
		return kv.Lease != 0
	}
	return kv.Lease != 0 || key.Kind == meta.KeyBroker || key.Kind == meta.KeyController || key.Kind == meta.KeyReport
}

// Write writes the file.
func (b *Backup) Write(w io.Writer) error {
	digest := sha256.New()
	out := bufio.NewWriterSize(io.MultiWriter(w, digest), 1<<16)
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(b.Header); err != nil {
		return err
	}
	root := meta.KeysOf(b.ClusterID).Root()
	for _, kv := range b.KVs {
		e := entry{Key: strings.TrimPrefix(kv.Key, root), Mod: kv.ModRevision}
		if utf8.Valid(kv.Value) {
			text := string(kv.Value)
			e.Value = &text
		} else {
			e.Bytes = kv.Value
		}
		if err := enc.Encode(e); err != nil {
			return err
		}
	}
	if err := out.Flush(); err != nil {
		return err
	}
	return json.NewEncoder(w).Encode(trailer{SHA256: hex.EncodeToString(digest.Sum(nil))})
}

// Read reads a whole file and checks it: the error matches ErrDamaged and says
// what is wrong. Nothing of a file that isn't whole is given.
func Read(r io.Reader) (*Backup, error) {
	lines := &lines{in: bufio.NewScanner(r), digest: sha256.New()}
	lines.in.Buffer(make([]byte, 1<<16), lineBytesMax)
	b := &Backup{}
	if err := lines.next(&b.Header, true); err != nil {
		return nil, err
	}
	switch {
	case b.Format != format:
		return nil, fmt.Errorf("%w: its first line doesn't say %q", ErrDamaged, format)
	case b.V != version:
		return nil, fmt.Errorf("the backup has version %d and this tidemark reads %d; use the version that wrote it (%s)", b.V, version, b.Software)
	case !meta.ValidClusterID(b.ClusterID) || b.Keys < 1:
		return nil, fmt.Errorf("%w: its header names cluster %q and %d keys", ErrDamaged, b.ClusterID, b.Keys)
	}
	root := meta.KeysOf(b.ClusterID).Root()
	for range b.Keys {
		var e entry
		if err := lines.next(&e, true); err != nil {
			return nil, err
		}
		value := e.Bytes
		if e.Value != nil {
			value = []byte(*e.Value)
		}
		if e.Key == "" || len(b.KVs) > 0 && root+e.Key <= b.KVs[len(b.KVs)-1].Key {
			return nil, fmt.Errorf("%w: line %d: key %q is out of order", ErrDamaged, lines.line, e.Key)
		}
		b.KVs = append(b.KVs, meta.KV{Key: root + e.Key, Value: value, CreateRevision: e.Mod, ModRevision: e.Mod})
	}
	want := hex.EncodeToString(lines.digest.Sum(nil))
	var end trailer
	if err := lines.next(&end, false); err != nil {
		return nil, err
	}
	if end.SHA256 != want {
		return nil, fmt.Errorf("%w: its digest is %s and its last line says %s: it was changed", ErrDamaged, want, end.SHA256)
	}
	if lines.in.Scan() {
		return nil, fmt.Errorf("%w: something follows the last line", ErrDamaged)
	}
	return b, nil
}

// lines reads JSON lines and digests them.
type lines struct {
	in     *bufio.Scanner
	digest hash.Hash
	line   int
}

func (l *lines) next(into any, digested bool) error {
	l.line++
	if !l.in.Scan() {
		if err := l.in.Err(); err != nil {
			return fmt.Errorf("%w: line %d: %w", ErrDamaged, l.line, err)
		}
		return fmt.Errorf("%w: it ends before line %d", ErrDamaged, l.line)
	}
	if digested {
		l.digest.Write(l.in.Bytes())
		l.digest.Write([]byte("\n"))
	}
	dec := json.NewDecoder(bytes.NewReader(l.in.Bytes()))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return fmt.Errorf("%w: line %d: %w", ErrDamaged, l.line, err)
	}
	return nil
}
