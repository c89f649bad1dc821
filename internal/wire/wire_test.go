package wire

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// The table and kmsg agree on flexible versions, and kmsg knows every version we list.
func TestTableAgreesWithKmsg(t *testing.T) {
	for _, a := range APIs() {
		req := kmsg.RequestForKey(int16(a.Key))
		if req == nil {
			t.Errorf("%s: kmsg doesn't know key %d", a.Name, a.Key)
			continue
		}
		if req.MaxVersion() < a.Max {
			t.Errorf("%s: max %d is above kmsg's %d", a.Name, a.Max, req.MaxVersion())
		}
		for v := a.Min; v <= a.Max; v++ {
			req.SetVersion(v)
			if req.IsFlexible() != a.IsFlexible(v) {
				t.Errorf("%s %d: flexible is %v, kmsg says %v", a.Name, v, a.IsFlexible(v), req.IsFlexible())
			}
		}
	}
	if _, ok := LookupAPI(999); ok {
		t.Error("key 999 is known")
	}
	if got := Key(999).String(); got != "api 999" {
		t.Errorf("Key(999) = %q", got)
	}
}

func TestParseRequest(t *testing.T) {
	f := func(frame string, want Request, body string) {
		t.Helper()
		got, err := ParseRequest(unhex(t, frame))
		if err != nil {
			t.Errorf("%s: %v", frame, err)
			return
		}
		if h := hex.EncodeToString(got.Body); h != body {
			t.Errorf("%s: body %s, want %s", frame, h, body)
		}
		got.Body = nil
		if diff := cmp.Diff(&want, got); diff != "" {
			t.Error(diff)
		}
	}
	// Header v1: ApiVersions 0, null client id.
	f("001200000000002affff", Request{Key: KeyApiVersions, CorrelationID: 42}, "")
	// Header v1: Metadata 1 with client id "kc" and an empty list.
	f("00030001000000010002"+"6b63"+"00000000", Request{Key: KeyMetadata, Version: 1, CorrelationID: 1, ClientID: "kc"}, "00000000")
	// Header v2: the client id stays a plain string, then an empty tag section.
	f("00120003000000050002"+"6b63"+"00"+"026b026300", Request{Key: KeyApiVersions, Version: 3, CorrelationID: 5, ClientID: "kc"}, "026b026300")
	// Header v2 with two tags that nobody knows.
	f("0003000c00000005ffff"+"02"+"0001aa"+"0702bbcc"+"0101", Request{Key: KeyMetadata, Version: 12, CorrelationID: 5}, "0101")
	// SaslHandshake never has header v2.
	f("0011000100000005ffff"+"0005504c41494e", Request{Key: KeySaslHandshake, Version: 1, CorrelationID: 5}, "0005504c41494e")
}

func TestParseRequestFailure(t *testing.T) {
	f := func(name, frame string, want error) {
		t.Helper()
		got, err := ParseRequest(unhex(t, frame))
		if !errors.Is(err, want) {
			t.Errorf("%s: error %v, want %v", name, err, want)
		}
		if len(frame) >= 16 && (got == nil || got.CorrelationID != 5) {
			t.Errorf("%s: no correlation id for the answer", name)
		}
	}
	f("empty", "", ErrMalformed)
	f("seven bytes", "00120000000000", ErrMalformed)
	f("no client id", "0012000000000005", ErrMalformed)
	f("client id of -2", "0012000000000005fffe", ErrMalformed)
	f("client id cut short", "0012000000000005000361", ErrMalformed)
	f("no tags in header v2", "0012000300000005ffff", ErrMalformed)
	f("tag cut short", "0012000300000005ffff0100", ErrMalformed)
	f("tag longer than the frame", "0012000300000005ffff010005aa", ErrMalformed)
	f("more tags than bytes", "0012000300000005ffffff01", ErrMalformed)
	f("endless tag count", "0012000300000005ffffffffffffffffffffffffff", ErrMalformed)
	f("unknown key", "03e7000000000005ffff", ErrUnknownAPI)
	f("controller's key", "0004000000000005ffff", ErrUnknownAPI)
	f("unknown version", "0003006300000005ffff", ErrUnknownVersion)
	f("negative version", "0003ffff00000005ffff", ErrUnknownVersion)
	f("Produce 2 (KAFKA-18659)", "0000000200000005ffff", ErrUnknownVersion)
	f("ApiVersions 99", "0012006300000005", ErrUnknownVersion)
}

func TestParsePrefix(t *testing.T) {
	lim := Limits{Frame: 1000, Control: 100}
	f := func(size int32, key Key, ok bool) {
		t.Helper()
		b := binary.BigEndian.AppendUint32(nil, uint32(size))
		b = binary.BigEndian.AppendUint16(b, uint16(key))
		b = append(b, 0, 0, 0, 0, 0, 0)
		p, err := ParsePrefix(b, lim)
		if (err == nil) != ok || !ok && !errors.Is(err, ErrFrameSize) {
			t.Errorf("size %d of %s: error %v, want ok=%v", size, key, err, ok)
		}
		if ok && (p.Size != size || p.Key != key) {
			t.Errorf("size %d of %s: read as %+v", size, key, p)
		}
	}
	f(8, KeyMetadata, true)
	f(7, KeyMetadata, false)
	f(100, KeyMetadata, true)
	f(101, KeyMetadata, false)
	f(1000, KeyProduce, true)
	f(1001, KeyProduce, false)
	f(101, 999, false)
	f(-1, KeyProduce, false)
	f(-1<<31, KeyProduce, false)
	f(1<<31-1, KeyProduce, false)
}

// Answers have header v1 from the flexible version on, but ApiVersions' has v0 always.
func TestAnswerHeaders(t *testing.T) {
	f := func(key Key, version int16, msg kmsg.Response, want string) {
		t.Helper()
		r := Encode(&Request{Key: key, Version: version, CorrelationID: 0x0102}, msg)
		if got := hex.EncodeToString(flat(r)); got != want {
			t.Errorf("%s %d: %s, want %s", key, version, got, want)
		}
	}
	f(KeyHeartbeat, 0, kmsg.NewPtrHeartbeatResponse(), "00000006"+"00000102"+"0000")
	f(KeyHeartbeat, 4, kmsg.NewPtrHeartbeatResponse(), "0000000c"+"00000102"+"00"+"00000000"+"0000"+"00")
	f(KeyApiVersions, 0, kmsg.NewPtrApiVersionsResponse(), "0000000a"+"00000102"+"0000"+"00000000")
	f(KeyApiVersions, 3, kmsg.NewPtrApiVersionsResponse(), "0000000c"+"00000102"+"0000"+"01"+"00000000"+"00")
}

// Every request of every version survives a round trip through header and body.
func TestRequestsRoundTrip(t *testing.T) {
	for _, a := range APIs() {
		for v := a.Min; v <= a.Max; v++ {
			t.Run(fmt.Sprintf("%s/%d", a.Name, v), func(t *testing.T) {
				want := kmsg.RequestForKey(int16(a.Key))
				want.SetVersion(v)
				frame := kmsg.NewRequestFormatter(kmsg.FormatterClientID("kc")).AppendRequest(nil, want, 7)
				req, err := ParseRequest(frame[4:])
				if err != nil {
					t.Fatal(err)
				}
				if req.CorrelationID != 7 || req.ClientID != "kc" {
					t.Errorf("header read as %+v", req)
				}
				got, err := req.Decode()
				if err != nil {
					t.Fatal(err)
				}
				if again := got.AppendTo(nil); string(again) != string(want.AppendTo(nil)) {
					t.Errorf("body %x became %x", want.AppendTo(nil), again)
				}
			})
		}
	}
}

func TestCodeOf(t *testing.T) {
	f := func(err error, code ErrCode, message string) {
		t.Helper()
		if got := CodeOf(err); got != code {
			t.Errorf("CodeOf(%v) = %v, want %v", err, got, code)
		}
		got := ""
		if m := MessageOf(err); m != nil {
			got = *m
		}
		if got != message {
			t.Errorf("MessageOf(%v) = %q, want %q", err, got, message)
		}
	}
	f(nil, None, "")
	f(ErrNotLeaderOrFollower, ErrNotLeaderOrFollower, "")
	f(fmt.Errorf("shard 3: %w", ErrNotLeaderOrFollower), ErrNotLeaderOrFollower, "")
	f(Errorf(ErrInvalidConfig, "no such config %q", "x"), ErrInvalidConfig, `no such config "x"`)
	f(fmt.Errorf("alter: %w", Errorf(ErrInvalidConfig, "bad")), ErrInvalidConfig, "bad")
	f(context.DeadlineExceeded, ErrRequestTimedOut, "")
	f(fmt.Errorf("append: %w", context.Canceled), ErrRequestTimedOut, "")
	f(errors.New("/var/secret is gone"), ErrUnknownServerError, "")
	if !errors.Is(Errorf(ErrInvalidConfig, "x"), ErrInvalidConfig) {
		t.Error("an Error isn't its code")
	}
	if got := ErrNotLeaderOrFollower.String(); got != "NOT_LEADER_OR_FOLLOWER" {
		t.Errorf("name %q", got)
	}
	if got := ErrCode(999).String(); got != "error 999" {
		t.Errorf("name %q", got)
	}
}
