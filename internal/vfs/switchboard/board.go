//go:build linux

package switchboard

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

// Word is a place on the board.
type Word int

// Switches are set by the test, hits are counted by the node.
const (
	DiskFull     Word = iota // not 0: files can't grow, and the room left is 0
	SyncFails                // not 0: every sync reports EIO, and what it should have made durable is not
	WriteFails               // not 0: every write reports EIO
	SyncDelayMs              // how long a sync takes longer, in milliseconds
	ClockShiftMs             // by how much the wall clock is wrong, in milliseconds, either way
	RefusedHits              // operations refused for lack of room
	SyncHits                 // syncs that failed
	WriteHits                // writes that failed
	words
)

const (
	boardFile  = "board"
	ledgerFile = "ledger"
)

// Board is one node's switches, mapped into memory by the node and the test.
type Board struct {
	// Root is the folder below which the test finds what the node has at "/": not
	// empty for a node with mounts of its own.
	Root  string
	dir   string
	bytes []byte
}

// Create makes the folder of a board with everything switched off.
func Create(dir string) (*Board, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, boardFile), make([]byte, 8*words), 0o644); err != nil {
		return nil, err
	}
	return Open(dir)
}

// Open maps the board of a folder that Create made.
func Open(dir string) (*Board, error) {
	f, err := os.OpenFile(filepath.Join(dir, boardFile), os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if st.Size() != 8*int64(words) {
		return nil, fmt.Errorf("%s: %d bytes are no board of this build", f.Name(), st.Size())
	}
	b, err := syscall.Mmap(int(f.Fd()), 0, int(st.Size()), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", f.Name(), err)
	}
	return &Board{dir: dir, bytes: b}, nil
}

// Close ends the mapping; the board may not be used any more.
func (b *Board) Close() error {
	if b.bytes == nil {
		return errors.New("switchboard: closed twice")
	}
	m := b.bytes
	b.bytes = nil
	return syscall.Munmap(m)
}

func (b *Board) word(w Word) *atomic.Int64 {
	return (*atomic.Int64)(unsafe.Pointer(&b.bytes[8*w])) // a mapping begins on a page, so words are aligned
}

// Set sets a switch.
func (b *Board) Set(w Word, v int64) { b.word(w).Store(v) }

// Get reads a switch or a count.
func (b *Board) Get(w Word) int64 { return b.word(w).Load() }

// Reset switches everything off; counts stay.
func (b *Board) Reset() {
	for w := range RefusedHits {
		b.Set(w, 0)
	}
}

func (b *Board) hit(w Word) { b.word(w).Add(1) }

// Now is the wall clock, wrong by ClockShiftMs.
func (b *Board) Now() time.Time {
	return time.Now().Add(time.Duration(b.Get(ClockShiftMs)) * time.Millisecond)
}
