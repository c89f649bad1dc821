package embed

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"tidemark/internal/metastore"
)

// Salvaged is what the database of a member holds, read without its log.
type Salvaged struct {
	// KVs are in order of their keys, as of Revision.
	KVs      []metastore.KV
	Revision metastore.Revision
	// Applied is the last entry of the log that the database holds, written at At or before.
	Applied uint64
	At      time.Time
}

// ErrNoDatabase is matched when a folder's database is absent or can't be read whole.
var ErrNoDatabase = errors.New("no database that can be read")

// Salvage reads the database of a stopped node's member, whose log is cut,
// damaged or lost. The database follows the log by a moment: what the log held
// beyond Applied was acknowledged and is not here. Nothing is changed.
func Salvage(dir string) (s Salvaged, err error) {
	path := filepath.Join(dir, etcdFolder, "member", "snap", "db")
	if !exists(path) {
		return s, fmt.Errorf("metadata folder %s: %w: there is no %s", dir, ErrNoDatabase, path)
	}
	lock, err := acquire(dir)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, lock.release()) }()
	if s, err = readDatabase(path); err != nil {
		return s, fmt.Errorf("metadata folder %s: %w: %s: %w", dir, ErrNoDatabase, path, err)
	}
	return s, nil
}

// readDatabase walks every page of etcd's keys. Pages have no checksums: each
// value must name the revision it lies under, and a page that is none is an error
// here, not the end of the process. Of the database's two heads one is enough: it shows one commit less at most.
func readDatabase(path string) (s Salvaged, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("it is damaged: %v", p)
		}
	}()
	info, err := os.Stat(path)
	if err != nil {
		return s, err
	}
	if s.Applied, err = appliedIndex(path); err != nil {
		return s, err
	}
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true, Timeout: time.Second})
	if err != nil {
		return s, err
	}
	defer db.Close()
	s.At = info.ModTime()
	err = db.View(func(tx *bbolt.Tx) error {
		if tx.Size() > info.Size() {
			return fmt.Errorf("it is cut: %d bytes of %d are there", info.Size(), tx.Size())
		}
		keys := tx.Bucket([]byte("key"))
		if keys == nil {
			return errors.New("it holds no keys")
		}
		return s.gather(keys)
	})
	return s, err
}

// gather takes the last version of each key that isn't deleted.
func (s *Salvaged) gather(versions *bbolt.Bucket) error {
	last := make(map[string]metastore.KV)
	err := versions.ForEach(func(version, value []byte) error {
		// etcd's form: revision, "_", number within the revision's transaction, and "t" for a deletion.
		deleted := len(version) == 18 && version[17] == 't'
		if len(version) != 17 && !deleted || version[8] != '_' {
			return fmt.Errorf("it is damaged: %x is no revision", version)
		}
		revision := metastore.Revision(binary.BigEndian.Uint64(version))
		var kv mvccpb.KeyValue
		if err := proto.Unmarshal(value, &kv); err != nil {
			return fmt.Errorf("it is damaged at revision %d: %w", revision, err)
		}
		if !deleted && metastore.Revision(kv.ModRevision) != revision || revision < s.Revision {
			return fmt.Errorf("it is damaged: the value of revision %d says %d, after %d", revision, kv.ModRevision, s.Revision)
		}
		s.Revision = revision
		if deleted {
			delete(last, string(kv.Key))
			return nil
		}
		last[string(kv.Key)] = metastore.KV{Key: string(kv.Key), Value: kv.Value, CreateRevision: metastore.Revision(kv.CreateRevision),
			ModRevision: revision, Lease: metastore.LeaseID(kv.Lease)}
		return nil
	})
	if err != nil {
		return err
	}
	s.KVs = slices.SortedFunc(maps.Values(last), func(a, b metastore.KV) int { return strings.Compare(a.Key, b.Key) })
	return nil
}

// WasLone reports whether a folder's member was the only one, with no other node ever
// taken in; so is a folder without any member.
func WasLone(dir string) (bool, error) {
	p, err := readPlace(dir)
	return err == nil && p == nil, err
}
