//go:build linux

package links

import (
	"fmt"
	"os/exec"

	"golang.org/x/sys/unix"
)

// Disks are networks at whose places a folder can be a disk of its own, of a size
// that changes while it is used. Namespaces is one, Proxies isn't.
type Disks interface {
	// Mount puts an empty file system in memory over a folder, as the processes see
	// it that are started at the node's place from now on. seen is where the test
	// finds it. It ends with the network.
	Mount(node int, dir string, bytes int64) (seen string, err error)
	// Resize changes how many bytes fit. Whoever writes more gets the kernel's ENOSPC.
	Resize(node int, dir string, bytes int64) error
	// Usage says how many bytes are used, and how many more fit.
	Usage(seen string) (used, free int64, err error)
}

var _ Disks = (*namespaces)(nil)

// at runs f on the thread of a node's place.
func (n *namespaces) at(node int, f func() error) error {
	done := make(chan error, 1)
	n.members[node].do <- func() { done <- f() }
	return <-done
}

// Start forks on the namespace's own thread, which the process inherits it from.
func (n *namespaces) Start(node int, cmd *exec.Cmd) error { return n.at(node, cmd.Start) }

// Mount gives the thread of the place its own view of the file system at first: no
// mount is made in the one that the test runs in.
func (n *namespaces) Mount(node int, dir string, bytes int64) (seen string, err error) {
	m := n.members[node]
	err = n.at(node, func() error {
		if !m.mounts {
			if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
				return fmt.Errorf("a mount namespace: %w", err)
			}
			if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
				return fmt.Errorf("keep mounts to it: %w", err)
			}
			m.mounts = true
		}
		seen = fmt.Sprintf("/proc/self/task/%d/root%s", unix.Gettid(), dir)
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, sized(bytes)); err != nil {
			return fmt.Errorf("mount on %s: %w", dir, err)
		}
		return nil
	})
	return seen, err
}

func (n *namespaces) Resize(node int, dir string, bytes int64) error {
	return n.at(node, func() error {
		if err := unix.Mount("", dir, "", unix.MS_REMOUNT, sized(bytes)); err != nil {
			return fmt.Errorf("give %s %d bytes: %w", dir, bytes, err)
		}
		return nil
	})
}

func sized(bytes int64) string { return fmt.Sprintf("size=%d,mode=0755", bytes) }

func (n *namespaces) Usage(seen string) (used, free int64, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(seen, &st); err != nil {
		return 0, 0, fmt.Errorf("room of %s: %w", seen, err)
	}
	return int64(st.Blocks-st.Bfree) * st.Bsize, int64(st.Bavail) * st.Bsize, nil
}
