package net

import (
	"fmt"
	"io"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"tidemark/internal/wire"
)

// sendfileWriter writes straight from file to socket. It gives sendfile an
// explicit offset: net.TCPConn.ReadFrom would use, and move, the file's one
// shared position. Memory pieces that more follows go with MSG_MORE, so that a
// header doesn't cost a packet of its own.
type sendfileWriter struct {
	tcp   *net.TCPConn
	raw   syscall.RawConn
	stall time.Duration
	slow  copyWriter // for files without a descriptor, and for small pieces
	// copyBelow is the mean size of file pieces, in bytes, below which copying is quicker.
	copyBelow int64

	// The step that RawConn.Write runs; kept here so that a write allocates nothing.
	mem    []byte
	flags  int
	in     int
	off    int64
	left   int64
	err    error
	send   func(fd uintptr) bool
	splice func(fd uintptr) bool
}

// sendfileMax is how much one step moves: the stall time is per step.
const sendfileMax = 4 << 20

// copyBelowBytes comes from BenchmarkSmallPieces (processor time, loopback): a
// file piece costs sendfile two system calls and packets of its own, copying
// one call and none. Copying wins up to 64 KiB there; half of that leaves room
// for network cards, where sendfile saves the sender more.
const copyBelowBytes = 32 << 10

func newSendfileWriter(tcp *net.TCPConn, stall time.Duration) (writer, bool) {
	raw, err := tcp.SyscallConn()
	if err != nil {
		return nil, false
	}
	w := &sendfileWriter{tcp: tcp, raw: raw, stall: stall, slow: copyWriter{nc: tcp, stall: stall}, copyBelow: copyBelowBytes}
	w.send, w.splice = w.sendStep, w.fileStep
	return w, true
}

func (w *sendfileWriter) write(r *wire.Response) error {
	pieces := r.Pieces()
	var files, bytes int64
	for _, p := range pieces {
		if p.File != nil {
			if _, ok := p.File.Fd(); !ok {
				return w.slow.write(r)
			}
			files++
			bytes += p.Len
		}
	}
	if bytes < files*w.copyBelow {
		return w.slow.write(r)
	}
	for i, p := range pieces {
		more := i < len(pieces)-1
		if p.File == nil {
			if err := w.writeMem(p.Mem, more); err != nil {
				return err
			}
			continue
		}
		if err := w.writeFile(p); err != nil {
			return err
		}
	}
	return nil
}

func (w *sendfileWriter) writeMem(b []byte, more bool) error {
	w.mem, w.flags = b, unix.MSG_NOSIGNAL
	if more {
		w.flags |= unix.MSG_MORE
	}
	for len(w.mem) > 0 {
		if err := w.step(w.send); err != nil {
			return err
		}
	}
	return nil
}

func (w *sendfileWriter) writeFile(p wire.Piece) error {
	fd, _ := p.File.Fd()
	w.in, w.off, w.left = int(fd), p.Off, p.Len
	for w.left > 0 {
		if err := w.step(w.splice); err != nil {
			return fmt.Errorf("send records at %d: %w", w.off, err)
		}
	}
	return nil
}

// step runs f until the socket took something, within the stall time.
func (w *sendfileWriter) step(f func(uintptr) bool) error {
	if err := w.tcp.SetWriteDeadline(time.Now().Add(w.stall)); err != nil {
		return err
	}
	w.err = nil
	if err := w.raw.Write(f); err != nil {
		return err
	}
	return w.err
}

// sendStep sends part of mem. False asks RawConn to wait for room in the socket's buffer.
func (w *sendfileWriter) sendStep(fd uintptr) bool {
	for {
		n, err := unix.SendmsgN(int(fd), w.mem, nil, nil, w.flags)
		switch err {
		case nil:
			w.mem = w.mem[n:]
			return true
		case unix.EINTR:
			continue
		case unix.EAGAIN:
			return false
		}
		w.err = err
		return true
	}
}

// fileStep sends part of the file.
func (w *sendfileWriter) fileStep(fd uintptr) bool {
	for {
		n, err := unix.Sendfile(int(fd), w.in, &w.off, int(min(w.left, sendfileMax)))
		switch {
		case n > 0: // sendfile has moved w.off
			w.left -= int64(n)
			return true
		case err == unix.EINTR:
			continue
		case err == unix.EAGAIN:
			return false
		case err == nil:
			// The file ends before the piece: the frame can't be completed.
			err = io.ErrUnexpectedEOF
		}
		w.err = err
		return true
	}
}
