package source

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// controlBytesMax bounds an answer that is no fetch, in bytes.
	controlBytesMax = 64 << 20
	// pipelineMax bounds the unanswered requests of one connection.
	pipelineMax = 16
	// readBytes is the buffer of a connection: a small answer costs one read.
	readBytes = 8 << 10
	// outKeptMax is the largest request whose memory the next one uses again, in bytes.
	outKeptMax = 64 << 10
)

// conn is one connection to a broker. Requests are pipelined; answers come in
// request order and are matched by correlation id. Answers are taken by a reader
// goroutine, or in a lane of fetches by the callers themselves (turn.go).
type conn struct {
	address   string
	nc        net.Conn
	in        *bufio.Reader // of whoever reads
	cfg       *Config
	formatter *kmsg.RequestFormatter
	versions  versionTable
	slots     chan struct{} // bounds the pipeline

	ctx    context.Context // done when the connection has failed or is closed
	cancel context.CancelFunc
	reader sync.WaitGroup
	turn   chan struct{} // of a lane: whoever has put a token in reads; nil where the reader goroutine does

	mu sync.Mutex
	// guards the following
	calls     []*call // sent, unanswered, oldest first
	out       []byte  // the last request, for its memory
	nextID    int32
	err       error     // why the connection is no longer usable
	retired   bool      // closes when the last call is answered
	lastUsed  time.Time // by a request or an answer
	expiresAt time.Time // by the log-in's lifetime (KIP-368), zero if it has none
}

// call is one request on its way.
type call struct {
	id         int32
	key        int16
	version    int16
	tagged     bool // the answer's header has a tag section
	bytesMax   int
	budget     *Budget
	done       chan struct{}
	answer     *frame
	headerSize int
	err        error
	abandoned  bool // guarded by conn.mu
}

// op names the call in errors.
func (k *call) op() string { return fmt.Sprintf("%s v%d", apiOf(k.key).name, k.version) }

func (k *call) isAnswered() bool {
	select {
	case <-k.done:
		return true
	default:
		return false
	}
}

// ask sends a request at the best common version and decodes its answer.
func (c *conn) ask(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	version, err := c.versions.choose(c.address, req.Key())
	if err != nil {
		return nil, err
	}
	req.SetVersion(version)
	return c.askAt(ctx, req, c.cfg.RequestTimeout)
}

// askAt is ask for a request whose version is set.
func (c *conn) askAt(ctx context.Context, req kmsg.Request, timeout time.Duration) (kmsg.Response, error) {
	resp, _, err := c.roundTrip(ctx, req, timeout, controlBytesMax, nil)
	return resp, err
}

// roundTrip sends req, waits for the answer and decodes it. Byte fields of the
// response point into the frame. With a budget the frame's memory is pooled and
// the caller releases it; without one it is left to the garbage collector.
func (c *conn) roundTrip(ctx context.Context, req kmsg.Request, timeout time.Duration, bytesMax int, budget *Budget) (kmsg.Response, *frame, error) {
	until := time.Now().Add(timeout)
	k := &call{key: req.Key(), version: req.GetVersion(), tagged: req.IsFlexible() && req.Key() != 18, bytesMax: bytesMax, budget: budget, done: make(chan struct{})}
	if err := c.takeSlot(ctx, k, until); err != nil {
		return nil, nil, err
	}
	defer func() { <-c.slots }()
	if err := c.send(k, req, timeout); err != nil {
		return nil, nil, err
	}
	if err := c.await(ctx, k, until); err != nil {
		return nil, nil, err
	}
	if k.err != nil {
		return nil, nil, k.err
	}
	resp := req.ResponseKind()
	resp.SetVersion(req.GetVersion())
	if err := resp.ReadFrom(k.answer.bytes[k.headerSize:]); err != nil {
		k.answer.release()
		c.fail(protocolError(c.address, k.op(), "the answer can't be decoded: %v", err))
		return nil, nil, c.failure()
	}
	return resp, k.answer, nil
}

// takeSlot waits for room in the pipeline.
func (c *conn) takeSlot(ctx context.Context, k *call, until time.Time) error {
	select {
	case c.slots <- struct{}{}:
		return nil
	default:
	}
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	select {
	case c.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ioError(c.address, k.op(), ctx.Err())
	case <-c.ctx.Done():
		return c.failure()
	}
}

// version and name implement line.
func (c *conn) version(key int16) (int16, error) { return c.versions.choose(c.address, key) }

func (c *conn) name() string { return c.address }

// send queues the call and writes the request; both under one lock so that the
// order of calls is the order on the wire.
func (c *conn) send(k *call, req kmsg.Request, timeout time.Duration) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	c.nextID++
	k.id = c.nextID
	c.lastUsed = time.Now()
	c.calls = append(c.calls, k)
	c.out = c.formatter.AppendRequest(c.out[:0], req, k.id)
	_ = c.nc.SetWriteDeadline(c.lastUsed.Add(timeout))
	_, err := c.nc.Write(c.out)
	if cap(c.out) > outKeptMax {
		c.out = nil
	}
	if err != nil {
		c.failLocked(ioError(c.address, k.op(), err))
		return c.err
	}
	return nil
}

// abandon gives up a call. A late answer would hold up those behind it, so that
// a time-out closes the connection; a cancelled call's answer is read and dropped.
func (c *conn) abandon(k *call, why error) {
	if errors.Is(why, context.DeadlineExceeded) {
		c.fail(ioError(c.address, k.op(), why))
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if k.isAnswered() {
		if k.answer != nil {
			k.answer.release()
		}
		return
	}
	k.abandoned = true
	c.endRetiredLocked()
}

// read is the reader goroutine: it takes answers until the connection fails.
func (c *conn) read() {
	defer c.reader.Done()
	for {
		k, size, err := c.readHead()
		if err == nil {
			err = c.readBody(c.ctx, k, size)
		}
		if err != nil {
			c.fail(err)
			return
		}
	}
}

// readHead waits for the head of the next answer, which stays in the buffer, and gives
// the call that it is for and the size of what follows.
func (c *conn) readHead() (*call, int, error) {
	head, err := c.in.Peek(8)
	if err != nil {
		if len(head) > 0 && errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, 0, ioError(c.address, c.oldestOp(), err)
	}
	size := int32(binary.BigEndian.Uint32(head[:4]))
	id := int32(binary.BigEndian.Uint32(head[4:]))
	k := c.oldest()
	switch {
	case head[0] == 0x15 && head[1] == 0x03:
		return nil, 0, &Error{Kind: ErrTLS, Broker: c.address, Sentence: "the broker speaks TLS on this port; set security.protocol to SSL or SASL_SSL"}
	case k == nil:
		return nil, 0, protocolError(c.address, "", "an answer (%d bytes, correlation id %d) that nothing asked for", size, id)
	case size < 4 || int(size) > k.bytesMax:
		return nil, 0, protocolError(c.address, k.op(), "an answer of %d bytes; 4 to %d are possible", size, k.bytesMax)
	case id != k.id:
		return nil, 0, protocolError(c.address, k.op(), "correlation id %d, expected %d", id, k.id)
	}
	return k, int(size) - 4, nil
}

// readBody takes an answer whose head was read, and hands it to its call. The end of
// ctx ends the wait for room in the budget.
func (c *conn) readBody(ctx context.Context, k *call, size int) error {
	f, err := newFrame(ctx, size, k.budget)
	if err != nil {
		return ioError(c.address, k.op(), err)
	}
	_, err = c.in.Discard(8)
	if err == nil {
		_, err = io.ReadFull(c.in, f.bytes)
	}
	if err != nil {
		f.release()
		return ioError(c.address, k.op(), err)
	}
	if k.tagged {
		if k.headerSize, err = tagSectionSize(f.bytes); err != nil {
			f.release()
			return protocolError(c.address, k.op(), "the answer's header can't be decoded: %v", err)
		}
	}
	c.deliver(k, f)
	return nil
}

// deliver hands the answer to the oldest call.
func (c *conn) deliver(k *call, f *frame) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil { // fail has already answered every call
		f.release()
		return
	}
	c.calls = slices.Delete(c.calls, 0, 1)
	c.lastUsed = time.Now()
	if k.abandoned {
		f.release()
	} else {
		k.answer = f
	}
	close(k.done)
	c.endRetiredLocked()
}

// endRetiredLocked closes a retired connection once nobody waits for an answer. In a
// lane those of abandoned calls are read by nobody.
func (c *conn) endRetiredLocked() {
	if !c.retired {
		return
	}
	for _, k := range c.calls {
		if c.turn == nil || !k.abandoned {
			return
		}
	}
	c.failLocked(&Error{Kind: ErrUnreachable, Broker: c.address, Sentence: "the connection was replaced"})
}

func (c *conn) oldest() *call {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.calls) == 0 {
		return nil
	}
	return c.calls[0]
}

func (c *conn) oldestOp() string {
	if k := c.oldest(); k != nil {
		return k.op()
	}
	return ""
}

// fail makes the connection unusable and answers every call with err; the first error stays.
func (c *conn) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failLocked(err)
}

func (c *conn) failLocked(err error) {
	if c.err != nil {
		return
	}
	c.err = err
	for _, k := range c.calls {
		k.err = err
		close(k.done)
	}
	c.calls = nil
	c.cancel()
	_ = c.nc.Close()
}

func (c *conn) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// usable reports whether new requests may go over the connection.
func (c *conn) usable(now time.Time) bool {
	c.mu.Lock()
	fit := c.err == nil && !c.retired && now.Sub(c.lastUsed) < c.cfg.MaxIdle && (c.expiresAt.IsZero() || now.Before(c.expiresAt))
	unread := c.turn != nil && now.Sub(c.lastUsed) > lookAfter
	c.mu.Unlock()
	return fit && (!unread || c.isStillOpen())
}

// retire closes the connection once its last call is answered.
func (c *conn) retire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.retired = true
	c.endRetiredLocked()
}

// close ends the connection and waits for its reader.
func (c *conn) close() {
	c.fail(&Error{Kind: ErrClosed, Broker: c.address, Sentence: "closed"})
	c.reader.Wait()
}

// tagSectionSize gives the size of the tagged fields at the head of b (KIP-482).
func tagSectionSize(b []byte) (int, error) {
	at := 0
	count, n := binary.Uvarint(b)
	if n <= 0 {
		return 0, io.ErrUnexpectedEOF
	}
	at += n
	for range count {
		if _, n = binary.Uvarint(b[at:]); n <= 0 {
			return 0, io.ErrUnexpectedEOF
		}
		at += n
		size, n := binary.Uvarint(b[at:])
		if n <= 0 || size > uint64(len(b)-at-n) {
			return 0, io.ErrUnexpectedEOF
		}
		at += n + int(size)
	}
	return at, nil
}
