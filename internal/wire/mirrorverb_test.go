package wire

import (
	"bytes"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// The bytes are those of docs/format/mirror-verb-api.md.
func TestMirrorVerbGoldens(t *testing.T) {
	f := func(m interface {
		AppendTo([]byte) []byte
		ReadFrom([]byte) error
	}, again interface{ ReadFrom([]byte) error }, want string) {
		t.Helper()
		if h := hex.EncodeToString(m.AppendTo(nil)); h != want {
			t.Errorf("%T is written as\n%s, want\n%s", m, h, want)
		}
		if err := again.ReadFrom(unhex(t, want)); err != nil {
			t.Errorf("%T: %v", m, err)
		}
		if diff := cmp.Diff(m, again, cmpopts.EquateEmpty()); diff != "" {
			t.Error(diff)
		}
	}
	f(&MirrorVerbRequest{Verb: "fence", Body: []byte("{}")}, &MirrorVerbRequest{}, "06"+"66656e6365"+"03"+"7b7d"+"00")
	f(&MirrorVerbResponse{ErrorCode: ErrInvalidRequest, Message: "no"}, &MirrorVerbResponse{}, "002a"+"03"+"6e6f"+"01"+"00")
	f(&MirrorVerbResponse{Body: []byte("[]")}, &MirrorVerbResponse{}, "0000"+"01"+"03"+"5b5d"+"00")
}

func TestMirrorVerbRefuses(t *testing.T) {
	for name, raw := range map[string]string{"nothing": "", "verb too long": "42" + strings.Repeat("61", 65) + "0100", "cut short": "0666", "left over": "016101" + "00" + "00"} {
		if err := new(MirrorVerbRequest).ReadFrom(unhex(t, raw)); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	long := &MirrorVerbResponse{Message: strings.Repeat("x", VerbMessageBytesMax+10)}
	if err := new(MirrorVerbResponse).ReadFrom(long.AppendTo(nil)); err != nil {
		t.Error(err)
	}
}

// FuzzMirrorVerb: both messages survive any bytes; what is read is written as it was, tags aside.
func FuzzMirrorVerb(f *testing.F) {
	f.Add((&MirrorVerbRequest{Verb: "fence", Body: []byte("{}")}).AppendTo(nil))
	f.Add((&MirrorVerbResponse{Message: "m", Body: []byte("[]")}).AppendTo(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		var in MirrorVerbRequest
		if in.ReadFrom(b) == nil {
			var again MirrorVerbRequest
			if err := again.ReadFrom(in.AppendTo(nil)); err != nil || again.Verb != in.Verb || !bytes.Equal(again.Body, in.Body) {
				t.Errorf("%+v became %+v: %v", in, again, err)
			}
		}
		var out MirrorVerbResponse
		if out.ReadFrom(b) == nil {
			var again MirrorVerbResponse
			if err := again.ReadFrom(out.AppendTo(nil)); err != nil || again.Message != out.Message || !bytes.Equal(again.Body, out.Body) {
				t.Errorf("%+v became %+v: %v", out, again, err)
			}
		}
	})
}
