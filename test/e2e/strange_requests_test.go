package e2e

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/batch"
	"tidemark/internal/broker"
	"tidemark/internal/core/types"
	"tidemark/internal/wire"
	"tidemark/test/e2e/harness"
)

// strangeRequests is how many requests the test below sends; TIDEMARK_STRANGE_REQUESTS asks for more, TIDEMARK_STRANGE_SEED for others.
const strangeRequests = 3000

// strangeAnswerWait is how long the test waits for an answer: some requests are meant to hang.
const strangeAnswerWait = 20 * time.Millisecond

// TestStrangeRequests sends a node requests of all APIs and versions with senseless
// fields, among them broken frames: it answers or closes the connection, doesn't
// panic, keeps its memory, and serves others as if nothing had been.
func TestStrangeRequests(t *testing.T) {
	count, seed := strangeRequests, uint64(1)
	_, _ = fmt.Sscan(os.Getenv("TIDEMARK_STRANGE_REQUESTS"), &count) // unset: the default stays
	_, _ = fmt.Sscan(os.Getenv("TIDEMARK_STRANGE_SEED"), &seed)
	watch := &panicWatch{Handler: harness.Logger(t).Handler()}
	b := harness.StartBroker(t, harness.WithOptions(broker.Options{Logger: slog.New(watch)}), harness.WithSetting("mirror.kip1279.enable", "true"),
		harness.WithSetting("socket.request.max.bytes", "33554432"), harness.WithSetting("queued.max.request.bytes", "67108864"))
	for _, topic := range strangeNames[:2] {
		b.CreateTopic(t, topic, 2, nil)
		b.Produce(t, topic, 0, "a", "b")
	}
	b.CreateTopic(t, "watched", 1, nil)
	b.Produce(t, "watched", 0, "a", "b")
	s := &stranger{rng: rand.New(rand.NewPCG(seed, 0)), addr: b.Addr}
	t.Cleanup(s.hangUp)
	before := heapInUse()
	for i := range count {
		if err := s.send(s.frame()); err != nil {
			t.Fatalf("request %d of seed %d: %v", i, seed, err)
		}
		if p := watch.seen.Load(); p != nil {
			t.Fatalf("request %d of seed %d: %s", i, seed, *p)
		}
	}
	s.hangUp()
	b.CreateTopic(t, "alive", 1, nil)
	b.Produce(t, "alive", 0, "c")
	if got := b.Consume(t, "watched", 0, 0, 2); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("a topic that nobody named holds %q", got)
	}
	if after := heapInUse(); after > before+256<<20 {
		t.Errorf("the heap grew from %d to %d bytes", before, after)
	}
}

// panicWatch keeps what a node says of a handler's panic, which costs the connection alone.
type panicWatch struct {
	slog.Handler
	seen atomic.Pointer[string]
}

func (w *panicWatch) Handle(ctx context.Context, r slog.Record) error {
	if strings.Contains(r.Message, "panicked") {
		text := r.Message
		r.Attrs(func(a slog.Attr) bool { text += "\n" + a.String(); return true })
		w.seen.CompareAndSwap(nil, &text)
	}
	return w.Handler.Handle(ctx, r)
}

func heapInUse() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapInuse
}

// strangeNames are what requests name: topics that exist first.
var strangeNames = []string{"t", "u", "__consumer_offsets", "__transaction_state", "__vault.t", "", "no such", "../../etc/passwd", "a/b", "\x00", "é\xff", "consumer", "range", "retention.ms", "segment.bytes", "1"}

// stranger makes senseless requests and sends them.
type stranger struct {
	rng  *rand.Rand
	addr string
	conn net.Conn
}

func (s *stranger) hangUp() {
	if s.conn != nil {
		_ = s.conn.Close()
		s.conn = nil
	}
}

// frame makes a request with its size in front; one in four is broken somewhere.
func (s *stranger) frame() []byte {
	apis := append(wire.APIs(), wire.OwnAPIs()...)
	api := apis[s.rng.IntN(len(apis))]
	req := wire.NewRequest(api.Key)
	if req == nil {
		req = kmsg.RequestForKey(int16(wire.KeyMetadata))
	}
	s.fill(reflect.ValueOf(req).Elem(), 0)
	req.SetVersion(api.Min + int16(s.rng.IntN(int(api.Max-api.Min)+1)))
	s.tame(req)
	frame := kmsg.NewRequestFormatter(kmsg.FormatterClientID(s.name())).AppendRequest(nil, req, s.rng.Int32())
	if s.rng.IntN(4) > 0 {
		return frame
	}
	for range 1 + s.rng.IntN(4) {
		switch at := 4 + s.rng.IntN(len(frame)-4); s.rng.IntN(4) {
		case 0:
			frame[at] ^= 1 << s.rng.IntN(8)
		case 1:
			frame[at] = byte(s.rng.IntN(256))
		case 2:
			frame = frame[:max(at, 13)]
		case 3:
			frame = slices.Insert(frame, at, byte(0xff), 0xff, 0xff, byte(s.rng.IntN(256)))
		}
	}
	binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
	if s.rng.IntN(20) == 0 {
		binary.BigEndian.PutUint32(frame, s.rng.Uint32())
	}
	return frame
}

// tame keeps a request from asking for what a node would do for a long time, and rightly.
func (s *stranger) tame(req kmsg.Request) {
	switch r := req.(type) {
	case *kmsg.CreateTopicsRequest:
		for i := range r.Topics {
			r.Topics[i].NumPartitions = min(r.Topics[i].NumPartitions, 3)
			if s.rng.IntN(2) == 0 {
				r.Topics[i].NumPartitions, r.Topics[i].ReplicationFactor, r.Topics[i].ReplicaAssignment = 1, 1, nil
			}
		}
	case *kmsg.CreatePartitionsRequest:
		for i := range r.Topics {
			r.Topics[i].Count = min(r.Topics[i].Count, 5)
		}
	case *kmsg.FetchRequest:
		r.MaxWaitMillis = min(r.MaxWaitMillis, 5)
	}
}

func (s *stranger) name() string { return strangeNames[s.rng.IntN(len(strangeNames))] }

// fill sets every field of a message to something.
func (s *stranger) fill(v reflect.Value, depth int) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() && f.Name != "Version" && f.Name != "UnknownTags" {
				s.fill(v.Field(i), depth+1)
			}
		}
	case reflect.Pointer:
		if s.rng.IntN(4) > 0 {
			v.Set(reflect.New(v.Type().Elem()))
			s.fill(v.Elem(), depth)
		}
	case reflect.Slice:
		s.fillSlice(v, depth)
	case reflect.Array:
		if s.rng.IntN(2) == 0 {
			for i := range v.Len() {
				v.Index(i).SetUint(uint64(s.rng.IntN(256)))
			}
		}
	case reflect.String:
		v.SetString(s.name())
	case reflect.Bool:
		v.SetBool(s.rng.IntN(2) == 0)
	case reflect.Float32, reflect.Float64:
		v.SetFloat([]float64{0, -1, math.Inf(1), math.NaN(), 1e300}[s.rng.IntN(5)])
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		edge := int64(1)<<(v.Type().Bits()-1) - 1
		v.SetInt([]int64{0, 0, 0, 0, 1, 1, -1, -1, 2, int64(s.rng.IntN(100)), edge, -edge - 1, edge - int64(s.rng.IntN(100)), -2}[s.rng.IntN(14)])
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(s.rng.IntN(256)))
	default:
		panic(fmt.Sprintf("a message has a field of kind %s", v.Kind()))
	}
}

func (s *stranger) fillSlice(v reflect.Value, depth int) {
	if v.Type().Elem().Kind() == reflect.Uint8 {
		v.SetBytes(s.bytes())
		return
	}
	n := s.rng.IntN(4)
	if depth > 5 {
		n = min(n, 1)
	}
	if n == 0 && s.rng.IntN(2) == 0 {
		return // null
	}
	v.Set(reflect.MakeSlice(v.Type(), n, n))
	for i := range n {
		s.fill(v.Index(i), depth+1)
	}
}

// bytes gives records, broken or not, or noise.
func (s *stranger) bytes() []byte {
	if s.rng.IntN(4) == 0 {
		b := make([]byte, s.rng.IntN(80))
		for i := range b {
			b[i] = byte(s.rng.IntN(256))
		}
		return b
	}
	codecs := []batch.Codec{batch.None, batch.Gzip, batch.Snappy, batch.LZ4, batch.Zstd}
	opts := batch.BuilderOptions{Codec: codecs[s.rng.IntN(len(codecs))]}
	if s.rng.IntN(3) == 0 {
		opts.Producer = &batch.Producer{ID: types.ProducerID(s.rng.IntN(3)), Epoch: int16(s.rng.IntN(2)), BaseSequence: int32(s.rng.IntN(3))}
		opts.Transactional = s.rng.IntN(2) == 0
	}
	builder := batch.NewBuilder(opts)
	for i := range 1 + s.rng.IntN(5) {
		builder.Append(1_700_000_000_000, []byte{byte(i)}, make([]byte, s.rng.IntN(1000)))
	}
	raw, err := builder.Build()
	if err != nil {
		panic(err)
	}
	if s.rng.IntN(3) == 0 {
		raw[s.rng.IntN(len(raw))] ^= 1 << s.rng.IntN(8)
	}
	return raw
}

// send sends a frame and waits a moment for an answer; a connection that was closed, or that waits for the rest of a frame, is made anew.
func (s *stranger) send(frame []byte) error {
	if s.conn == nil {
		var d net.Dialer
		ctx, cancel := context.WithTimeout(context.Background(), harness.Patience)
		defer cancel()
		c, err := d.DialContext(ctx, "tcp", s.addr)
		if err != nil {
			return err
		}
		s.conn = c
	}
	if _, err := s.conn.Write(frame); err != nil {
		s.hangUp()
		return nil
	}
	if err := s.conn.SetReadDeadline(time.Now().Add(strangeAnswerWait)); err != nil {
		return err
	}
	var size [4]byte
	_, err := io.ReadFull(s.conn, size[:])
	n := binary.BigEndian.Uint32(size[:])
	if err != nil || n > 100<<20 {
		s.hangUp()
		if err == nil {
			return fmt.Errorf("an answer of %d bytes", n)
		}
		return nil
	}
	if _, err := io.CopyN(io.Discard, s.conn, int64(n)); err != nil {
		s.hangUp()
		if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
			return fmt.Errorf("an answer of %d bytes breaks off: %w", n, err)
		}
	}
	return nil
}
