package net

import (
	"context"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tidemark/internal/wire"
)

// BenchmarkWrite sends chunks of a file with a header before each, through the
// server and through a bare sendfile loop in the same run: the second is the
// bound that the first is measured by.
func BenchmarkWrite(b *testing.B) {
	disk := testFile(b, pattern(8<<20))
	for _, size := range []int64{16 << 10, 128 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("server/%dKiB", size>>10), func(b *testing.B) { benchServer(b, disk, size) })
		b.Run(fmt.Sprintf("copy/%dKiB", size>>10), func(b *testing.B) { benchServer(b, noFd{disk}, size) })
		b.Run(fmt.Sprintf("bare/%dKiB", size>>10), func(b *testing.B) { benchBare(b, disk, size) })
	}
}

type noFd struct{ diskFile }

func (noFd) Fd() (uintptr, bool) { return 0, false }

// benchServer keeps the pipeline full, as a consumer with many fetches does.
func benchServer(b *testing.B, f wire.File, size int64) {
	head := make([]byte, 68)
	_, addr := start(b, Options{Handler: handlerFunc(func(_ context.Context, req *wire.Request) (*wire.Response, error) {
		off := int64(req.CorrelationID) * size % (8 << 20)
		return wire.NewResponse(wire.Piece{Mem: head}, wire.Piece{File: f, Off: off, Len: size}), nil
	})}, Listener{})
	c := dial(b, addr)
	if err := c.SetDeadline(time.Time{}); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(size)
	b.ReportAllocs()
	b.ResetTimer()
	done := make(chan error, 1)
	go func() {
		for i := range b.N {
			if _, err := c.Write(heartbeat(int32(i))); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	drainBytes(b, c, int64(b.N)*(size+68))
	if err := <-done; err != nil {
		b.Fatal(err)
	}
}

func benchBare(b *testing.B, f diskFile, size int64) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	c := dial(b, ln.Addr().String())
	if err := c.SetDeadline(time.Time{}); err != nil {
		b.Fatal(err)
	}
	peer, err := ln.Accept()
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = peer.Close() }()
	raw, err := peer.(*net.TCPConn).SyscallConn()
	if err != nil {
		b.Fatal(err)
	}
	in, _ := f.Fd()
	head := make([]byte, 68)
	b.SetBytes(size)
	b.ResetTimer()
	done := make(chan error, 1)
	go func() {
		for i := range int64(b.N) {
			if err := bareSend(raw, int(in), head, i*size%(8<<20), size); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	drainBytes(b, c, int64(b.N)*(size+68))
	if err := <-done; err != nil {
		b.Fatal(err)
	}
}

func bareSend(raw interface {
	Write(func(uintptr) bool) error
}, in int, head []byte, off, size int64) error {
	var failed error
	err := raw.Write(func(fd uintptr) bool {
		for len(head) > 0 {
			n, err := unix.SendmsgN(int(fd), head, nil, nil, unix.MSG_MORE)
			if err == unix.EAGAIN {
				return false
			}
			if failed = err; err != nil {
				return true
			}
			head = head[n:]
		}
		for size > 0 {
			n, err := unix.Sendfile(int(fd), in, &off, int(size))
			if err == unix.EAGAIN {
				return false
			}
			if failed = err; err != nil {
				return true
			}
			size -= int64(n)
		}
		return true
	})
	if err != nil {
		return err
	}
	return failed
}

func drainBytes(b *testing.B, c io.Reader, n int64) {
	buf := make([]byte, 1<<20)
	for n > 0 {
		k, err := c.Read(buf)
		n -= int64(k)
		if err != nil {
			b.Fatal(err)
		}
	}
}
