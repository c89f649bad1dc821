package embed

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	lockFile = "LOCK" // held with flock while a process uses the folder; holds its process id
	nameFile = "NAME" // the member's name, written once
)

// ErrInUse is matched when another process holds the folder.
var ErrInUse = errors.New("in use by another process")

// ErrOtherNode is matched when the folder is another node's.
var ErrOtherNode = errors.New("belongs to another node")

// openFolder makes the folder if need be, keeps others out, and checks whose it is.
func openFolder(dir, name string) (*folderLock, error) {
	if name == "" {
		return nil, errors.New("the embedded metadata store needs a name")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, folderError(dir, err)
	}
	lock, err := acquire(dir)
	if err != nil {
		return nil, err
	}
	if err := claim(dir, name); err != nil {
		return nil, errors.Join(err, lock.release())
	}
	return lock, nil
}

// folderError says in words why a folder can't be used.
func folderError(dir string, err error) error {
	switch {
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("metadata folder %s can't be used: %w; give it to user id %d, or start as its owner", dir, err, os.Getuid())
	case errors.Is(err, unix.ENOTDIR) || errors.Is(err, fs.ErrExist):
		return fmt.Errorf("metadata folder %s can't be used: something in its path is not a folder: %w", dir, err)
	}
	return fmt.Errorf("metadata folder %s can't be used: %w", dir, err)
}

// folderLock keeps other processes out of a folder.
type folderLock struct{ file *os.File }

func acquire(dir string) (*folderLock, error) {
	f, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, folderError(dir, err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		defer f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			pid, _ := io.ReadAll(io.LimitReader(f, 32))
			return nil, fmt.Errorf("metadata folder %s is %w (process id %s); stop it, or choose another folder",
				dir, ErrInUse, strings.TrimSpace(string(pid)))
		}
		return nil, folderError(dir, err)
	}
	err = f.Truncate(0)
	if err == nil {
		_, err = f.WriteAt(fmt.Appendf(nil, "%d\n", os.Getpid()), 0)
	}
	if err != nil {
		return nil, errors.Join(folderError(dir, err), f.Close())
	}
	return &folderLock{file: f}, nil
}

// release lets other processes in. The file stays: removing it would let two of them hold a lock each.
func (l *folderLock) release() error { return l.file.Close() }

// claim writes the member's name into a new folder, or compares it.
func claim(dir, name string) error {
	path := filepath.Join(dir, nameFile)
	have, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return writeName(dir, name)
	}
	if err != nil {
		return folderError(dir, err)
	}
	if got := strings.TrimSpace(string(have)); got != name {
		return fmt.Errorf("metadata folder %s %w: it was made by %q, this is %q; choose another folder or the node id it was made with",
			dir, ErrOtherNode, got, name)
	}
	return nil
}

func writeName(dir, name string) error { return writeFile(dir, nameFile, []byte(name+"\n")) }

// writeFile replaces a file of the folder: temp file, sync, rename, sync of the folder.
func writeFile(dir, name string, data []byte) error {
	tmp := filepath.Join(dir, name+".tmp")
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return folderError(dir, err)
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return folderError(dir, err)
	}
	if err := os.Rename(tmp, filepath.Join(dir, name)); err != nil {
		return folderError(dir, err)
	}
	if err := syncFolder(dir); err != nil {
		return folderError(dir, err)
	}
	return nil
}

func syncFolder(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
