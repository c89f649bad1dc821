package net

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/await"
	"tidemark/internal/wire"
)

// handlerFunc makes a Handler of a function.
type handlerFunc func(ctx context.Context, req *wire.Request) (*wire.Response, error)

func (f handlerFunc) Handle(ctx context.Context, req *wire.Request) (*wire.Response, error) {
	return f(ctx, req)
}

// echo answers every request with an empty heartbeat-like message.
func echo(_ context.Context, req *wire.Request) (*wire.Response, error) {
	return wire.Encode(req, kmsg.NewPtrHeartbeatResponse()), nil
}

// start runs a server on a free port and stops it at the test's end.
func start(t testing.TB, o Options, l Listener) (*Server, string) {
	t.Helper()
	l.Address = "127.0.0.1:0"
	s := NewServer(o)
	addr, err := s.Listen(l)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			t.Errorf("shutdown: %v", err)
		}
	})
	return s, addr.String()
}

func dial(t testing.TB, addr string) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	return c.(*net.TCPConn)
}

// frame makes a request frame: header without tags, and body.
func frame(key wire.Key, version int16, correlation int32, body []byte) []byte {
	b := make([]byte, 4, 32+len(body))
	b = binary.BigEndian.AppendUint16(b, uint16(key))
	b = binary.BigEndian.AppendUint16(b, uint16(version))
	b = binary.BigEndian.AppendUint32(b, uint32(correlation))
	b = append(b, 0xff, 0xff) // client id: null
	b = append(b, body...)
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	return b
}

func heartbeat(correlation int32) []byte {
	return frame(wire.KeyHeartbeat, 0, correlation, []byte{0, 0, 0, 0, 0, 0, 0, 0})
}

func send(t testing.TB, c net.Conn, b []byte) {
	t.Helper()
	if _, err := c.Write(b); err != nil {
		t.Fatal(err)
	}
}

// receive reads one answer: its correlation id and the rest.
func receive(c io.Reader) (int32, []byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return 0, nil, err
	}
	b := make([]byte, binary.BigEndian.Uint32(head[:]))
	if _, err := io.ReadFull(c, b); err != nil {
		return 0, nil, err
	}
	return int32(binary.BigEndian.Uint32(b)), b[4:], nil
}

func wantAnswer(t testing.TB, c io.Reader, correlation int32) []byte {
	t.Helper()
	got, body, err := receive(c)
	if err != nil {
		t.Fatalf("answer %d: %v", correlation, err)
	}
	if got != correlation {
		t.Fatalf("answer to %d, want the one to %d", got, correlation)
	}
	return body
}

func wantClosed(t testing.TB, c io.Reader) {
	t.Helper()
	var b [1]byte
	if n, err := c.Read(b[:]); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("connection still open: read %d bytes, error %v", n, err)
	}
}

// I-61: answers come in the order of requests, however slow the first is.
func TestAnswersKeepTheOrderOfRequests(t *testing.T) {
	first := make(chan struct{})
	_, addr := start(t, Options{Handler: handlerFunc(func(ctx context.Context, req *wire.Request) (*wire.Response, error) {
		if req.CorrelationID == 0 {
			<-first
		}
		return echo(ctx, req)
	})}, Listener{})
	c := dial(t, addr)
	for i := range int32(20) {
		send(t, c, heartbeat(i))
	}
	close(first)
	for i := range int32(20) {
		wantAnswer(t, c, i)
	}
}

func TestReadsAheadNoMoreThanThePipeline(t *testing.T) {
	release := make(chan struct{})
	s, addr := start(t, Options{Pipeline: 2, Handler: handlerFunc(func(ctx context.Context, req *wire.Request) (*wire.Response, error) {
		<-release
		return echo(ctx, req)
	})}, Listener{})
	c := dial(t, addr)
	for i := range int32(50) {
		send(t, c, heartbeat(i))
	}
	// One is handled, two are queued, and the reader holds one more.
	await.True(t, "four requests received", func() bool { return s.Stats().Requests.Load() == 4 })
	close(release)
	for i := range int32(50) {
		wantAnswer(t, c, i)
	}
}

func TestBadFramesCloseTheConnection(t *testing.T) {
	size := func(n int32, rest ...byte) []byte {
		return append(binary.BigEndian.AppendUint32(nil, uint32(n)), rest...)
	}
	filler := make([]byte, 8)
	for name, b := range map[string][]byte{
		"negative size":           size(-1, filler...),
		"largest size":            size(1<<31-1, filler...),
		"above the limit":         size(100<<20+1, filler...),
		"control above its limit": size(17<<20, 0, 3, 0, 0, 0, 0, 0, 0),
		"smaller than a header":   size(7, filler...),
		"zero":                    size(0, filler...),
		"unknown key":             frame(999, 0, 1, nil),
		"negative key":            frame(-1, 0, 1, nil),
		"unknown version":         frame(wire.KeyHeartbeat, 99, 1, nil),
		"negative version":        frame(wire.KeyHeartbeat, -1, 1, nil),
		"Produce 2":               frame(wire.KeyProduce, 2, 1, nil),
		"client id too long":      size(12, 0, 12, 0, 0, 0, 0, 0, 1, 0x7f, 0xff, 0, 0),
		"HTTP":                    []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
		"TLS hello":               append([]byte{0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3}, filler...),
	} {
		t.Run(name, func(t *testing.T) {
			s, addr := start(t, Options{Handler: handlerFunc(echo)}, Listener{})
			c := dial(t, addr)
			send(t, c, b)
			wantClosed(t, c)
			await.True(t, "the fault to be counted", func() bool { return s.Stats().Faulty.Load() == 1 })
			if got := s.Stats().BytesIn.Load(); got != 0 {
				t.Errorf("%d bytes counted as received", got)
			}
		})
	}
}

func TestApiVersionsOfAnUnknownVersionReachesTheHandler(t *testing.T) {
	_, addr := start(t, Options{Handler: handlerFunc(echo)}, Listener{})
	c := dial(t, addr)
	send(t, c, frame(wire.KeyApiVersions, 99, 7, []byte("unreadable")))
	wantAnswer(t, c, 7)
}

func TestNoAnswerAndHandlerErrors(t *testing.T) {
	_, addr := start(t, Options{Handler: handlerFunc(func(ctx context.Context, req *wire.Request) (*wire.Response, error) {
		switch req.CorrelationID {
		case 1:
			return nil, nil
		case 3:
			return nil, errors.New("acks=0 failed")
		case 5:
			panic("bug")
		}
		return echo(ctx, req)
	})}, Listener{})
	c := dial(t, addr)
	send(t, c, heartbeat(1))
	send(t, c, heartbeat(2))
	wantAnswer(t, c, 2)
	send(t, c, heartbeat(3))
	wantClosed(t, c)

	c = dial(t, addr)
	send(t, c, heartbeat(5))
	wantClosed(t, c)

	c = dial(t, addr)
	send(t, c, heartbeat(6))
	wantAnswer(t, c, 6) // the server lives
}

// An answer that ends the connection comes whole. The client is at no fault.
func TestAnAnswerMayEndTheConnection(t *testing.T) {
	s, addr := start(t, Options{Handler: handlerFunc(func(ctx context.Context, req *wire.Request) (*wire.Response, error) {
		r, err := echo(ctx, req)
		if req.CorrelationID == 2 {
			r.EndConnection()
		}
		return r, err
	})}, Listener{})
	c := dial(t, addr)
	for i := range int32(2) {
		send(t, c, heartbeat(1+i))
		wantAnswer(t, c, 1+i)
	}
	wantClosed(t, c)
	if n := s.Stats().Faulty.Load(); n > 0 {
		t.Errorf("%d faulty connections", n)
	}
}

func TestPanicsAreCounted(t *testing.T) {
	s, addr := start(t, Options{Handler: handlerFunc(func(context.Context, *wire.Request) (*wire.Response, error) {
		panic("bug")
	})}, Listener{})
	c := dial(t, addr)
	send(t, c, heartbeat(1))
	wantClosed(t, c)
	if got := s.Stats().Panics.Load(); got != 1 {
		t.Errorf("%d panics counted, want 1", got)
	}
}

// I-60: what was refused leaves no trace in the counts.
func TestConnectionLimits(t *testing.T) {
	s, addr := start(t, Options{Handler: handlerFunc(echo), MaxConns: 5, MaxConnsPerIP: 2}, Listener{})
	a, b := dial(t, addr), dial(t, addr)
	send(t, a, heartbeat(1))
	wantAnswer(t, a, 1)
	send(t, b, heartbeat(1))
	wantAnswer(t, b, 1)
	wantClosed(t, dial(t, addr))
	if got := s.Stats().Refused.Load(); got != 1 {
		t.Errorf("%d refused, want 1", got)
	}
	_ = a.Close()
	await.True(t, "the closed connection to be counted out", func() bool { return s.Stats().Open.Load() == 1 })
	c := dial(t, addr)
	send(t, c, heartbeat(2))
	wantAnswer(t, c, 2)
}

func TestIdleConnectionsAreClosedAndBusyOnesAreNot(t *testing.T) {
	release := make(chan struct{})
	s, addr := start(t, Options{IdleTimeout: time.Second, Handler: handlerFunc(func(ctx context.Context, req *wire.Request) (*wire.Response, error) {
		<-release
		return echo(ctx, req)
	})}, Listener{})
	idle, busy := dial(t, addr), dial(t, addr)
	send(t, busy, heartbeat(1))
	wantClosed(t, idle)
	await.True(t, "the idle one alone to be counted out", func() bool { return s.Stats().Idle.Load() == 1 && s.Stats().Open.Load() == 1 })
	close(release)
	wantAnswer(t, busy, 1)
	wantClosed(t, busy)
}

func TestStalledFramesAreCutOff(t *testing.T) {
	s, addr := start(t, Options{StallTimeout: 50 * time.Millisecond, Handler: handlerFunc(echo)}, Listener{})
	for name, part := range map[string][]byte{"in the size": {0, 0}, "in the body": heartbeat(1)[:15]} {
		t.Run(name, func(t *testing.T) {
			before := s.Stats().Stalled.Load()
			c := dial(t, addr)
			send(t, c, part)
			wantClosed(t, c)
			await.True(t, "the stall to be counted", func() bool { return s.Stats().Stalled.Load() == before+1 })
		})
	}
}

// A large frame in small parts arrives whole; the budget makes others wait for it.
func TestMemoryBudget(t *testing.T) {
	release := make(chan struct{})
	s, addr := start(t, Options{MemoryBytes: 1 << 20, Handler: handlerFunc(func(ctx context.Context, req *wire.Request) (*wire.Response, error) {
		if req.Key == wire.KeyProduce {
			<-release
		}
		return echo(ctx, req)
	})}, Listener{})
	big, small := dial(t, addr), dial(t, addr)
	b := frame(wire.KeyProduce, 3, 1, make([]byte, 2<<20)) // more than the whole budget
	send(t, big, b[:100])
	send(t, big, b[100:1<<20])
	send(t, big, b[1<<20:])
	await.True(t, "the large request to be received", func() bool { return s.Stats().Requests.Load() == 1 })
	send(t, small, heartbeat(2))
	await.True(t, "the small request to wait", func() bool { return s.Stats().MemoryWaits.Load() == 1 })
	close(release)
	wantAnswer(t, big, 1)
	wantAnswer(t, small, 2)
}

func TestShutdownAnswersWhatItReceived(t *testing.T) {
	entered, release := make(chan struct{}), make(chan struct{})
	s := NewServer(Options{Handler: handlerFunc(func(ctx context.Context, req *wire.Request) (*wire.Response, error) {
		close(entered)
		<-release
		return echo(ctx, req)
	})})
	addr, err := s.Listen(Listener{Address: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	c, silent := dial(t, addr.String()), dial(t, addr.String())
	send(t, c, heartbeat(1))
	<-entered
	done := make(chan error, 1)
	go func() { done <- s.Shutdown(context.Background()) }()
	wantClosed(t, silent)
	close(release)
	wantAnswer(t, c, 1)
	wantClosed(t, c)
	if err := <-done; err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	if _, err := s.Listen(Listener{Address: "127.0.0.1:0"}); !errors.Is(err, ErrServerClosed) {
		t.Errorf("Listen after Shutdown: %v", err)
	}
}

func TestShutdownCutsOffWhatTakesTooLong(t *testing.T) {
	entered := make(chan struct{})
	s := NewServer(Options{Handler: handlerFunc(func(ctx context.Context, req *wire.Request) (*wire.Response, error) {
		close(entered)
		<-ctx.Done()
		return nil, ctx.Err()
	})})
	addr, err := s.Listen(Listener{Address: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	c := dial(t, addr.String())
	send(t, c, heartbeat(1))
	<-entered
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if err := s.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Shutdown: %v, want the deadline", err)
	}
	wantClosed(t, c)
}

// A client that goes ends what waits for it.
func TestContextEndsWithTheConnection(t *testing.T) {
	entered, ended := make(chan struct{}), make(chan struct{})
	_, addr := start(t, Options{Handler: handlerFunc(func(ctx context.Context, req *wire.Request) (*wire.Response, error) {
		close(entered)
		<-ctx.Done()
		close(ended)
		return nil, ctx.Err()
	})}, Listener{})
	c := dial(t, addr)
	send(t, c, heartbeat(1))
	<-entered
	_ = c.Close()
	<-ended
}

func TestBusyPortIsNamed(t *testing.T) {
	_, addr := start(t, Options{Handler: handlerFunc(echo)}, Listener{})
	s := NewServer(Options{Handler: handlerFunc(echo)})
	_, err := s.Listen(Listener{Name: "PLAINTEXT", Address: addr})
	if err == nil {
		t.Fatal("two listeners on one port")
	}
	if want := fmt.Sprintf("listener PLAINTEXT: %s", addr); len(err.Error()) < len(want) || err.Error()[:len(want)] != want {
		t.Errorf("error %q doesn't begin with %q", err, want)
	}
	if err := s.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
}
