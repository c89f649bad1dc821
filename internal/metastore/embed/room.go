package embed

import (
	"fmt"
	"math"

	"golang.org/x/sys/unix"
)

// roomBytes is what an etcd needs to begin: its log's present file and the next, which
// it allocates, and as much for its database.
const roomBytes = 3 * walSegmentBytes

// freeBytes is the room left on the disk of dir; a very large number if that can't be told.
func freeBytes(dir string) int64 {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return math.MaxInt64
	}
	return int64(st.Bavail) * int64(st.Bsize)
}

// openFault says why a metadata folder can't be opened, and the way out. On a
// full disk that is room, never another folder: the metadata in this one is fine.
func openFault(dir string, free int64, err error) error {
	if free < roomBytes {
		return fmt.Errorf("metadata folder %s can't be opened: its disk has %d MiB left and the metadata store needs %d MiB to begin: make room and start again (%w)",
			dir, free>>20, roomBytes>>20, err)
	}
	return fmt.Errorf("metadata folder %s can't be opened: %w; if the folder is damaged, this member can't go on. %s", dir, err, waysOut)
}

// waysOut of a damaged folder, the one that keeps the most first. None touches a record in the log dirs.
const waysOut = "One of several: take it out (tidemark cluster remove), move the folder away and start with --join. " +
	"A lone one: restore it from a backup (tidemark cluster restore FILE); without one, from its own database (tidemark cluster restore --from-database), " +
	"which follows the log by a moment; if that can't be read either, from the partitions in the log dirs (tidemark cluster restore --from-folders), " +
	"which keeps all records and forgets settings, ACLs and users. Each of them leaves the log dirs' records where they are, and keeps the damaged folder aside"
