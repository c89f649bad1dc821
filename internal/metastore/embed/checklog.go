package embed

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.uber.org/zap"
)

// errLogCut: a member's log ends before what its database has applied.
var errLogCut = errors.New("its log lost its end")

// errLogGap: the files of the log don't follow each other from its snapshot on.
var errLogGap = errors.New("its log lacks a file")

// errLogEmptied: a file of the log lacks what every one begins with.
var errLogEmptied = errors.New("a file of its log holds nothing")

// checkFiles looks for files of a log that were emptied, or are all zeros: etcd begins
// each with records of its own before it gives the file its name, and trips over their absence.
func checkFiles(walDir string) error {
	files, err := filepath.Glob(filepath.Join(walDir, "*.wal"))
	if err != nil {
		return err
	}
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		var first [8]byte // the length of the first record
		_, err = io.ReadFull(f, first[:])
		if err = errors.Join(err, f.Close()); err != nil || first == [8]byte{} {
			return fmt.Errorf("%w: %s", errLogEmptied, name)
		}
	}
	return nil
}

// checkLog compares the end of a member's log with what its database has applied.
// etcd syncs the log first, so that a shorter one has lost entries: to a disk that
// lied, or to somebody who cut or deleted a file. A lone member that went on would
// give the lost indexes to new writes, and its database would skip these as done
// already: acknowledged, and never there.
func checkLog(dir string) error {
	walDir, database := filepath.Join(dir, "member", "wal"), filepath.Join(dir, "member", "snap", "db")
	if err := checkFiles(walDir); err != nil {
		return err
	}
	if !exists(database) {
		return nil
	}
	applied, err := appliedIndex(database)
	if err != nil || applied == 0 {
		return err
	}
	if files, err := filepath.Glob(filepath.Join(walDir, "*.wal")); err != nil || len(files) == 0 {
		// etcd would begin a new log at entry 1 beside the old database.
		return errors.Join(err, fmt.Errorf("%w: %s holds none, and its database %s has applied entry %d", errLogCut, walDir, database, applied))
	}
	last, err := lastIndex(walDir)
	if errors.Is(err, errLogGap) {
		return fmt.Errorf("%s: %w", walDir, err) // etcd would fail on it as well, and leave the database open
	}
	if err != nil {
		return nil // etcd reads it next, and says what is wrong
	}
	if last < applied {
		return fmt.Errorf("%w: it ends at entry %d and its database %s has applied entry %d", errLogCut, last, database, applied)
	}
	return nil
}

// appliedIndex reads etcd's consistent index, 0 if there is none yet.
func appliedIndex(database string) (uint64, error) {
	db, err := bbolt.Open(database, 0o600, &bbolt.Options{ReadOnly: true, Timeout: time.Second})
	if err != nil {
		return 0, fmt.Errorf("its database %s: %w", database, err)
	}
	defer db.Close()
	var index uint64
	err = db.View(func(tx *bbolt.Tx) error {
		if b := tx.Bucket([]byte("meta")); b != nil {
			if v := b.Get([]byte("consistent_index")); len(v) == 8 {
				index = binary.BigEndian.Uint64(v)
			}
		}
		return nil
	})
	return index, err
}

// lastIndex is the index of the last entry of a log, or of the snapshot that it begins with.
func lastIndex(walDir string) (last uint64, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%v", p)
		}
	}()
	quiet := zap.NewNop()
	snapshots, err := wal.ValidSnapshotEntries(quiet, walDir)
	if err != nil {
		return 0, err
	}
	from := &walpb.Snapshot{}
	if len(snapshots) > 0 {
		from = snapshots[len(snapshots)-1]
	}
	w, err := wal.OpenForRead(quiet, walDir, from)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", errLogGap, err)
	}
	defer w.Close()
	_, _, entries, err := w.ReadAll()
	if err != nil {
		return 0, err
	}
	last = from.GetIndex()
	if n := len(entries); n > 0 {
		last = entries[n-1].GetIndex()
	}
	return last, nil
}
