package e2e

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sys/unix"

	"tidemark/internal/batch"
	"tidemark/test/e2e/harness"
)

// BenchmarkFetchPath reads a partition over one connection with pipelined
// fetches of 16 KiB, 128 KiB and 1 MiB, and sends the same ranges of the same
// segment file through a bare sendfile loop in the same run: the second is what
// the first is measured by (aim: 0.8 of it).
func BenchmarkFetchPath(b *testing.B) {
	const batchSize = 16 << 10
	node := harness.StartBroker(b)
	node.CreateTopic(b, "t", 1, nil)
	cl := rawClient(b, node)
	raw := builtBatch(b, batch.BuilderOptions{}, string(make([]byte, batchSize-80)))
	const batches = 1024
	for range batches {
		if p := produceRaw(b, cl, "t", 0, 1, raw); p.ErrorCode != 0 {
			b.Fatal(p.ErrorCode)
		}
	}
	segment := filepath.Join(node.Dir, "t-0", "00000000000000000000.log")
	for _, per := range []int64{1, 8, 64} {
		size := per * int64(len(raw))
		b.Run(fmt.Sprintf("broker/%dKiB", per*16), func(b *testing.B) {
			benchFetch(b, node.Addr, per, batches, size)
		})
		b.Run(fmt.Sprintf("bare/%dKiB", per*16), func(b *testing.B) { benchSendfile(b, segment, size, batches*int64(len(raw))) })
	}
}

func benchFetch(b *testing.B, addr string, per, batches, size int64) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	format := kmsg.NewRequestFormatter(kmsg.FormatterClientID("bench"))
	frame := func(i int64) []byte {
		req := fetchRaw("t", 0, i*per%batches, 0, 0)
		req.Topics[0].Partitions[0].PartitionMaxBytes = int32(size)
		req.SetVersion(12)
		return format.AppendRequest(nil, req, int32(i))
	}
	b.SetBytes(size)
	b.ResetTimer()
	sent := make(chan error, 1)
	go func() {
		for i := range int64(b.N) {
			if _, err := c.Write(frame(i)); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	buf := make([]byte, 2<<20)
	for range b.N {
		if _, err := io.ReadFull(c, buf[:4]); err != nil {
			b.Fatal(err)
		}
		n := int64(binary.BigEndian.Uint32(buf))
		if n < size {
			b.Fatalf("an answer of %d bytes, want %d of records", n, size)
		}
		if _, err := io.ReadFull(c, buf[:n]); err != nil {
			b.Fatal(err)
		}
	}
	if err := <-sent; err != nil {
		b.Fatal(err)
	}
}

func benchSendfile(b *testing.B, segment string, size, total int64) {
	f, err := os.Open(segment)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	peer, err := ln.Accept()
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = peer.Close() }()
	out, err := peer.(*net.TCPConn).SyscallConn()
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(size)
	b.ResetTimer()
	sent := make(chan error, 1)
	go func() {
		for i := range int64(b.N) {
			off, left := i*size%total, size
			var failed error
			err := out.Write(func(fd uintptr) bool {
				for left > 0 {
					n, err := unix.Sendfile(int(fd), int(f.Fd()), &off, int(left))
					if err == unix.EAGAIN {
						return false
					}
					if failed = err; err != nil || n == 0 {
						return true
					}
					left -= int64(n)
				}
				return true
			})
			if err != nil || failed != nil || left > 0 {
				sent <- fmt.Errorf("sendfile: %v, %v, %d bytes left", err, failed, left)
				return
			}
		}
		sent <- nil
	}()
	buf := make([]byte, 2<<20)
	for range b.N {
		if _, err := io.ReadFull(c, buf[:size]); err != nil {
			b.Fatal(err)
		}
	}
	if err := <-sent; err != nil {
		b.Fatal(err)
	}
}
