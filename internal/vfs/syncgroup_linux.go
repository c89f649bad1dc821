package vfs

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// syncDirtyMax is how many unwritten bytes the system may hold for a syncfs to
// be cheaper than the fsyncs that it replaces.
const syncDirtyMax = 256 << 20

// syncGroups holds one group for each file system, by device number.
var syncGroups sync.Map // uint64 → *syncGroup

// groupOf finds the group of an open file's file system; nil if it has none.
func groupOf(f *os.File) *syncGroup {
	var st syscall.Stat_t
	if err := syscall.Fstat(int(f.Fd()), &st); err != nil {
		return nil
	}
	if g, ok := syncGroups.Load(st.Dev); ok {
		return g.(*syncGroup)
	}
	g, _ := syncGroups.LoadOrStore(st.Dev, newSyncGroup(filepath.Dir(f.Name())))
	return g.(*syncGroup)
}

// newSyncGroup makes the group of the file system that dir is on. It keeps dir
// open: a syncfs reports each fault of the file system once to each open file.
func newSyncGroup(dir string) *syncGroup {
	root, err := os.Open(dir)
	if err != nil || !reportsSyncFaults() {
		return &syncGroup{all: func() bool { return false }}
	}
	var faulty atomic.Bool // from the first fault on, every file answers for itself
	return &syncGroup{all: func() bool {
		if faulty.Load() || dirtyBytes() > syncDirtyMax {
			return false
		}
		if err := unix.Syncfs(int(root.Fd())); err != nil {
			faulty.Store(true)
		}
		return !faulty.Load()
	}}
}

// reportsSyncFaults says whether syncfs tells of failed writes: since Linux 5.8.
func reportsSyncFaults() bool {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return false
	}
	release := u.Release[:]
	if i := bytes.IndexByte(release, 0); i >= 0 {
		release = release[:i]
	}
	return releaseAtLeast(string(release), 5, 8)
}

// releaseAtLeast compares a kernel release such as 6.1.0-13-amd64.
func releaseAtLeast(release string, major, minor int) bool {
	var have [2]int
	for i := range have {
		end := 0
		for end < len(release) && release[end] >= '0' && release[end] <= '9' {
			end++
		}
		n, err := strconv.Atoi(release[:end])
		if err != nil {
			return false
		}
		have[i] = n
		if release = release[end:]; len(release) > 0 {
			release = release[1:]
		}
	}
	return have[0] > major || (have[0] == major && have[1] >= minor)
}

// dirtyBytes is what the system has not written yet; much if it doesn't say.
func dirtyBytes() int64 {
	info, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 1 << 62
	}
	for line := range bytes.Lines(info) {
		if rest, ok := bytes.CutPrefix(line, []byte("Dirty:")); ok {
			fields := bytes.Fields(rest)
			if len(fields) == 0 {
				break
			}
			if kib, err := strconv.ParseInt(string(fields[0]), 10, 64); err == nil {
				return kib << 10
			}
		}
	}
	return 1 << 62
}
