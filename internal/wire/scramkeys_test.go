package wire

import (
	"bytes"
	"encoding/hex"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The bytes are those of docs/format/scram-keys-api.md.
func TestScramKeysGoldens(t *testing.T) {
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
		if diff := cmp.Diff(m, again); diff != "" {
			t.Error(diff)
		}
	}
	f(&ScramKeysRequest{AfterUser: "al", AfterMechanism: "M"}, &ScramKeysRequest{}, "03"+"616c"+"02"+"4d"+"00")
	f(&ScramKeysResponse{ErrorCode: ErrClusterAuthorizationFailed, Message: "no"}, &ScramKeysResponse{}, "001f"+"03"+"6e6f"+"01"+"00"+"00")
	f(&ScramKeysResponse{Credentials: []ScramCredential{{User: "al", Mechanism: "M", Salt: []byte{1}, StoredKey: []byte{2}, ServerKey: []byte{3}, Iterations: 4096}}, More: true},
		&ScramKeysResponse{}, "0000"+"01"+"02"+"03"+"616c"+"02"+"4d"+"0201"+"0202"+"0203"+"00001000"+"00"+"01"+"00")
}

// FuzzScramKeys: both messages survive any bytes; what is read is written as it was, tags aside.
func FuzzScramKeys(f *testing.F) {
	f.Add((&ScramKeysRequest{AfterUser: "al"}).AppendTo(nil))
	f.Add((&ScramKeysResponse{Credentials: []ScramCredential{{User: "al", Salt: []byte{1}}}}).AppendTo(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		var in, inAgain ScramKeysRequest
		if in.ReadFrom(b) == nil {
			if err := inAgain.ReadFrom(in.AppendTo(nil)); err != nil || in != inAgain {
				t.Errorf("%+v became %+v: %v", in, inAgain, err)
			}
		}
		var out, again ScramKeysResponse
		if out.ReadFrom(b) == nil {
			if err := again.ReadFrom(out.AppendTo(nil)); err != nil || !bytes.Equal(out.AppendTo(nil), again.AppendTo(nil)) {
				t.Errorf("%+v became %+v: %v", out, again, err)
			}
		}
	})
}
