package source

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tidemark/internal/config"
	"tidemark/internal/core/types"
)

// liar is a broker made by hand: answers are built from the request and may be anything.
type liar struct {
	t  testing.TB
	ln net.Listener
	// answer gives the whole frame after the length, or nil to close the connection.
	answer func(key, version int16, correlation []byte) []byte
}

func newLiar(t testing.TB, answer func(l *liar, key, version int16, correlation []byte) []byte) *liar {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &liar{t: t, ln: ln}
	l.answer = func(k, v int16, c []byte) []byte { return answer(l, k, v, c) }
	done := make(chan struct{})
	go l.serve(done)
	t.Cleanup(func() { ln.Close(); <-done })
	return l
}

func (l *liar) serve(done chan struct{}) {
	defer close(done)
	for {
		nc, err := l.ln.Accept()
		if err != nil {
			return
		}
		go l.talk(nc)
	}
}

func (l *liar) talk(nc net.Conn) {
	defer nc.Close()
	for {
		var head [4]byte
		if _, err := io.ReadFull(nc, head[:]); err != nil {
			return
		}
		req := make([]byte, binary.BigEndian.Uint32(head[:]))
		if _, err := io.ReadFull(nc, req); err != nil {
			return
		}
		key, version := int16(binary.BigEndian.Uint16(req)), int16(binary.BigEndian.Uint16(req[2:]))
		out := l.answer(key, version, req[4:8])
		if out == nil {
			return
		}
		if len(out) >= 4 && string(out[:4]) != string(req[4:8]) && string(out[:3]) == "RAW" {
			_, _ = nc.Write(out[3:])
			continue
		}
		binary.BigEndian.PutUint32(head[:], uint32(len(out)))
		_, _ = nc.Write(append(head[:], out...))
	}
}

// honest answers as a broker of one topic without records would; flexible headers included.
func (l *liar) honest(key, version int16, correlation []byte) []byte {
	out := append([]byte(nil), correlation...)
	host, port, _ := net.SplitHostPort(l.ln.Addr().String())
	n, _ := strconv.Atoi(port)
	var resp kmsg.Response
	switch key {
	case 18:
		r := kmsg.NewPtrApiVersionsResponse()
		for _, a := range apis {
			k := kmsg.NewApiVersionsResponseApiKey()
			k.ApiKey, k.MinVersion, k.MaxVersion = a.key, 0, a.max
			r.ApiKeys = append(r.ApiKeys, k)
		}
		resp = r
	case 3:
		r := kmsg.NewPtrMetadataResponse()
		id := "liar"
		r.ClusterID = &id
		b := kmsg.NewMetadataResponseBroker()
		b.Host, b.Port = host, int32(n)
		r.Brokers = append(r.Brokers, b)
		resp = r
	case 1:
		r := kmsg.NewPtrFetchResponse()
		resp = r
	}
	resp.SetVersion(version)
	if resp.IsFlexible() && key != 18 {
		out = append(out, 0)
	}
	return resp.AppendTo(out)
}

func TestLyingSource(t *testing.T) {
	for _, tc := range []struct {
		name string
		lie  func(l *liar, key, version int16, correlation []byte) []byte
		kind error
		want string
	}{
		{"huge length", func(*liar, int16, int16, []byte) []byte { return []byte("RAW\x7f\xff\xff\xff\x00\x00\x00\x01") }, ErrProtocol, "are possible"},
		{"negative length", func(*liar, int16, int16, []byte) []byte { return []byte("RAW\xff\xff\xff\xff\x00\x00\x00\x01") }, ErrProtocol, "are possible"},
		{"length too small for an id", func(*liar, int16, int16, []byte) []byte { return []byte("RAW\x00\x00\x00\x02\x00\x00\x00\x01") }, ErrProtocol, "are possible"},
		{"wrong correlation id", func(l *liar, k, v int16, _ []byte) []byte { return l.honest(k, v, []byte{9, 9, 9, 9}) }, ErrProtocol, "correlation id"},
		{"cut short", func(l *liar, k, v int16, c []byte) []byte { return l.honest(k, v, c)[:9] }, ErrProtocol, "can't be decoded"},
		{"huge count", func(l *liar, k, v int16, c []byte) []byte {
			if k != 3 {
				return l.honest(k, v, c)
			}
			return append(append([]byte(nil), c...), 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x07)
		}, ErrProtocol, "can't be decoded"},
		{"http", func(*liar, int16, int16, []byte) []byte { return []byte("RAWHTTP/1.1 400 Bad Request\r\n\r\n") }, ErrProtocol, "are possible"},
		{"closed after versions", func(l *liar, k, v int16, c []byte) []byte {
			if k == 18 {
				return l.honest(k, v, c)
			}
			return nil
		}, ErrAuth, "may want SASL"},
		{"broker without address", func(l *liar, k, v int16, c []byte) []byte {
			if k != 3 {
				return l.honest(k, v, c)
			}
			r := kmsg.NewPtrMetadataResponse()
			r.SetVersion(v)
			r.Brokers = append(r.Brokers, kmsg.NewMetadataResponseBroker())
			return r.AppendTo(append(append([]byte(nil), c...), 0))
		}, ErrProtocol, "has address"},
		{"partitions out of range", func(l *liar, k, v int16, c []byte) []byte {
			if k != 3 {
				return l.honest(k, v, c)
			}
			r := kmsg.NewPtrMetadataResponse()
			r.SetVersion(v)
			topic := kmsg.NewMetadataResponseTopic()
			name := "t"
			topic.Topic = &name
			p := kmsg.NewMetadataResponseTopicPartition()
			p.Partition = 1 << 30
			topic.Partitions = append(topic.Partitions, p)
			r.Topics = append(r.Topics, topic)
			return r.AppendTo(append(append([]byte(nil), c...), 0))
		}, ErrProtocol, "numbered 1073741824"},
		{"tag section beyond the end", func(l *liar, k, v int16, c []byte) []byte {
			if k != 3 {
				return l.honest(k, v, c)
			}
			return append(append([]byte(nil), c...), 1, 0, 0xff, 0xff, 0x03)
		}, ErrProtocol, "header can't be decoded"},
		{"a TLS alert", func(*liar, int16, int16, []byte) []byte { return []byte("RAW\x15\x03\x03\x00\x02\x02\x28\x00") }, ErrTLS, "security.protocol to SSL"},
		{"never answers", func(l *liar, k, v int16, c []byte) []byte { return []byte("RAW\x00\x00") }, ErrTimeout, "no answer in time"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := newLiar(t, tc.lie)
			c := openTo(t, []string{l.ln.Addr().String()}, map[string]string{"socket.connection.setup.timeout.ms": "300"}, Options{})
			_, err := c.Metadata(t.Context(), nil)
			checkKind(t, err, tc.kind, tc.want)
		})
	}
}

func TestLyingFetch(t *testing.T) {
	topicID := types.TopicID{1}
	for _, tc := range []struct {
		name    string
		change  func(r *kmsg.FetchResponse)
		kind    error // of the whole answer
		partErr string
	}{
		{"honest", func(*kmsg.FetchResponse) {}, nil, ""},
		{"topic not asked for", func(r *kmsg.FetchResponse) { r.Topics[0].TopicID[0] = 7 }, ErrProtocol, ""},
		{"partition not asked for", func(r *kmsg.FetchResponse) { r.Topics[0].Partitions[0].Partition = 5 }, ErrProtocol, ""},
		{"negative partition", func(r *kmsg.FetchResponse) { r.Topics[0].Partitions[0].Partition = -5 }, ErrProtocol, ""},
		{"twice", func(r *kmsg.FetchResponse) { r.Topics = append(r.Topics, r.Topics[0]) }, ErrProtocol, ""},
		{"negative high watermark", func(r *kmsg.FetchResponse) { r.Topics[0].Partitions[0].HighWatermark = -9 }, nil, "high watermark -9"},
		{"log start above the high watermark", func(r *kmsg.FetchResponse) { r.Topics[0].Partitions[0].LogStartOffset = 99 }, nil, "log start 99"},
		{"diverges at a negative offset", func(r *kmsg.FetchResponse) { r.Topics[0].Partitions[0].DivergingEpoch.Epoch = 3 }, nil, "diverges at epoch 3"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := newLiar(t, func(l *liar, k, v int16, c []byte) []byte {
				if k != 1 {
					return l.honest(k, v, c)
				}
				r := kmsg.NewPtrFetchResponse()
				r.SetVersion(v)
				topic := kmsg.NewFetchResponseTopic()
				topic.TopicID = topicID
				p := kmsg.NewFetchResponseTopicPartition()
				p.HighWatermark, p.LogStartOffset = 10, 2
				topic.Partitions = append(topic.Partitions, p)
				r.Topics = append(r.Topics, topic)
				tc.change(r)
				return r.AppendTo(append(append([]byte(nil), c...), 0))
			})
			c := openTo(t, []string{l.ln.Addr().String()}, nil, Options{})
			if _, err := c.Metadata(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			s := c.NewSession(0, SessionOptions{})
			s.Set(FetchPartition{TopicPartition: types.TopicPartition{Topic: "t"}, TopicID: topicID, MaxBytes: 1000})
			a, err := s.Fetch(t.Context(), limits)
			checkKind(t, err, tc.kind, "")
			if err != nil {
				return
			}
			defer a.Release()
			if got := a.Partitions[0].Err; (got == nil) != (tc.partErr == "") || (got != nil && !strings.Contains(got.Error(), tc.partErr)) {
				t.Errorf("partition: got %v, want %q", got, tc.partErr)
			}
			if got := a.Partitions[0].Err; got != nil && !errors.Is(got, ErrProtocol) {
				t.Errorf("got %v, want ErrProtocol", got)
			}
		})
	}
}

// FuzzFetchAnswer feeds arbitrary bytes to what reads a fetch answer: it may refuse, never panic.
func FuzzFetchAnswer(f *testing.F) {
	for _, version := range []int16{10, 12, 13, 18} {
		r := kmsg.NewPtrFetchResponse()
		r.SetVersion(version)
		topic := kmsg.NewFetchResponseTopic()
		topic.Topic, topic.TopicID = "t", types.TopicID{1}
		p := kmsg.NewFetchResponseTopicPartition()
		p.RecordBatches = []byte("some bytes")
		topic.Partitions = append(topic.Partitions, p)
		r.Topics = append(r.Topics, topic)
		f.Add(version, r.AppendTo(nil))
	}
	f.Fuzz(func(t *testing.T, version int16, data []byte) {
		if version < 10 || version > 18 {
			return
		}
		if n, err := tagSectionSize(data); err == nil && n > len(data) {
			t.Fatalf("tag section of %d bytes in %d", n, len(data))
		}
		resp := kmsg.NewPtrFetchResponse()
		resp.SetVersion(version)
		if resp.ReadFrom(data) != nil {
			return
		}
		s := (&Client{}).NewSession(0, SessionOptions{})
		s.Set(FetchPartition{TopicPartition: types.TopicPartition{Topic: "t"}, TopicID: types.TopicID{1}})
		a, err := s.answer("broker", resp, nil)
		if err != nil {
			return
		}
		for _, p := range a.Partitions {
			if p.Err == nil && p.Code == 0 && p.Diverging == nil && p.HighWatermark < 0 {
				t.Fatalf("taken: %+v", p)
			}
		}
	})
}

// FuzzProperties reads arbitrary properties: it may refuse, never panic.
func FuzzProperties(f *testing.F) {
	f.Add("sasl.jaas.config=M required username=\"a\\\"b\";\nbootstrap.servers=a:1\\\n,b:2")
	f.Add("a\\u00e9:b\n# c\n\\")
	f.Fuzz(func(t *testing.T, text string) {
		props, err := config.ParseProperties("fuzz", text)
		if err != nil {
			return
		}
		for _, p := range props {
			_, _ = parseJAAS(p.Value)
		}
		_, _ = NewConfig(nil, byKey(props))
	})
}
