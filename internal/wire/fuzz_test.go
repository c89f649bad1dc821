package wire

import (
	"encoding/binary"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// FuzzRequest feeds whole frames: header, then the body of whatever API they
// name. Nothing may panic, and what decodes must encode again.
func FuzzRequest(f *testing.F) {
	for _, a := range append(APIs(), OwnAPIs()...) {
		for v := a.Min; v <= a.Max; v++ {
			req := NewRequest(a.Key)
			req.SetVersion(v)
			f.Add(kmsg.NewRequestFormatter(kmsg.FormatterClientID("kc")).AppendRequest(nil, req, 7)[4:])
		}
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		req, err := ParseRequest(frame)
		if err != nil {
			return
		}
		msg, err := req.Decode()
		if err != nil {
			return
		}
		msg.AppendTo(nil)
	})
}

// FuzzBody fuzzes the bodies of one version after another, so that the fuzzer
// needn't find the header first.
func FuzzBody(f *testing.F) {
	for _, a := range append(APIs(), OwnAPIs()...) {
		for v := a.Min; v <= a.Max; v++ {
			req := NewRequest(a.Key)
			req.SetVersion(v)
			f.Add(int16(a.Key), v, req.AppendTo(nil))
		}
	}
	f.Fuzz(func(t *testing.T, key, version int16, body []byte) {
		a, ok := LookupAPI(Key(key))
		if !ok || !a.HasVersion(version) {
			return
		}
		req := &Request{Key: a.Key, Version: version, Body: body}
		if msg, err := req.Decode(); err == nil {
			msg.AppendTo(nil)
		}
	})
}

// FuzzPrefix: whatever the first bytes say, a frame that passes lies within the limits.
func FuzzPrefix(f *testing.F) {
	f.Add([]byte{0, 0, 0, 8, 0, 18, 0, 0, 0, 0, 0, 0})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < PrefixSize {
			return
		}
		lim := Limits{Frame: 1 << 20, Control: 1 << 10}
		p, err := ParsePrefix(b, lim)
		if err != nil {
			return
		}
		if p.Size < minFrame || p.Size > lim.Frame || p.Key != KeyProduce && p.Size > lim.Control {
			t.Errorf("%+v passed", p)
		}
		if got := binary.BigEndian.Uint32(b); got != uint32(p.Size) {
			t.Errorf("size %d read as %d", got, p.Size)
		}
	})
}
