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
	from := cpu()
	drainBytes(b, c, int64(b.N)*(size+68))
	b.ReportMetric(float64(cpu()-from)/float64(b.N), "cpu-ns/op")
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
	from := cpu()
	drainBytes(b, c, int64(b.N)*(size+68))
	b.ReportMetric(float64(cpu()-from)/float64(b.N), "cpu-ns/op")
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

// cpu is the processor time that this process has used: unlike the clock it says
// the same on a busy machine.
func cpu() int64 {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
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

// BenchmarkSmallPieces finds the piece size from which sendfile wins over
// copying: answers of ten pieces, as of a consumer of many quiet partitions.
func BenchmarkSmallPieces(b *testing.B) {
	disk := testFile(b, pattern(8<<20))
	for _, size := range []int64{1 << 10, 8 << 10, 32 << 10, 64 << 10, 128 << 10} {
		for name, way := range map[string]func(tcp *net.TCPConn) writer{
			"sendfile": func(tcp *net.TCPConn) writer {
				w, _ := newSendfileWriter(tcp, time.Minute)
				w.(*sendfileWriter).copyBelow = 0
				return w
			},
			"copy": func(tcp *net.TCPConn) writer { return &copyWriter{nc: tcp, stall: time.Minute} },
		} {
			b.Run(fmt.Sprintf("%dB/%s", size, name), func(b *testing.B) {
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
				var pieces []wire.Piece
				for i := range int64(10) {
					pieces = append(pieces, wire.Piece{Mem: make([]byte, 40)}, wire.Piece{File: disk, Off: i * 700_000, Len: size})
				}
				resp := wire.NewResponse(pieces...)
				w := way(peer.(*net.TCPConn))
				b.SetBytes(resp.Size())
				b.ResetTimer()
				done := make(chan error, 1)
				go func() {
					for range b.N {
						if err := w.write(resp); err != nil {
							done <- err
							return
						}
					}
					done <- nil
				}()
				from := cpu()
				drainBytes(b, c, int64(b.N)*resp.Size())
				b.ReportMetric(float64(cpu()-from)/float64(b.N), "cpu-ns/op")
				if err := <-done; err != nil {
					b.Fatal(err)
				}
			})
		}
	}
}
