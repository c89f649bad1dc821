package replay

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"

	"tidemark/internal/batch"
	"tidemark/internal/core/types"
	"tidemark/internal/vault"
)

// entry makes a stream of batches: "d<producer>" is a transactional record of a producer, "c" and "a" end its transaction, "p" is plain.
func entry(t *testing.T, script ...string) *Request {
	t.Helper()
	var stream []byte
	for i, step := range script {
		producer := types.ProducerID(-1)
		if len(step) > 1 {
			producer = types.ProducerID(step[1] - '0')
		}
		var raw []byte
		switch step[0] {
		case 'c', 'a':
			kind := batch.Abort
			if step[0] == 'c' {
				kind = batch.Commit
			}
			raw = batch.NewMarker(kind, producer, 0, 0, 1)
		default:
			var o batch.BuilderOptions
			if step[0] == 'd' {
				o.Producer, o.Transactional = &batch.Producer{ID: producer}, true
			}
			b := batch.NewBuilder(o)
			b.Append(1, nil, []byte(step))
			var err error
			if raw, err = b.Build(); err != nil {
				t.Fatal(err)
			}
		}
		batch.Stamp(raw, types.Offset(i), 3)
		stream = append(stream, raw...)
	}
	return &Request{
		Entry: vault.Entry{ID: "e", To: types.Offset(len(script)), TimelinesBefore: "0\n5\n2\na 0 0\nb 3 1\n"},
		Open:  func(context.Context) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(stream)), nil },
	}
}

func TestTransactions(t *testing.T) {
	r := entry(t, "d1", "d2", "p", "c1", "d1", "a2", "d3", "a1", "d3")
	fates, err := transactions(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	want := map[types.Offset]fate{0: committed, 1: aborted, 4: aborted, 6: undecided, 8: undecided}
	for o, f := range want {
		if fates[o] != f {
			t.Errorf("offset %d: fate %d, want %d", o, fates[o], f)
		}
	}
	if len(fates) != len(want) {
		t.Errorf("%v", fates)
	}
	count := func(open bool) (out Result) {
		err := walk(t.Context(), r, func(h *batch.Header, _ []byte) error {
			if !out.leftOut(h, fates[h.BaseOffset], open) {
				out.Replayed++
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	if got := count(false); got != (Result{Replayed: 2, Control: 3, Aborted: 2, Open: 2}) {
		t.Errorf("%+v", got)
	}
	if got := count(true); got.Replayed != 4 || got.Open != 0 || got.Aborted != 2 {
		t.Errorf("with open ones: %+v", got)
	}
}

func TestTimelineOfAnEpoch(t *testing.T) {
	n, err := lineage(&entry(t).Entry)
	if err != nil {
		t.Fatal(err)
	}
	for epoch, want := range map[types.LeaderEpoch]string{0: "a", 2: "a", 3: "b", 9: "b"} {
		if got := n.nameOf(epoch); got != want {
			t.Errorf("epoch %d: %q, want %q", epoch, got, want)
		}
	}
	if _, err := lineage(&vault.Entry{TimelinesBefore: "nonsense"}); err == nil {
		t.Error("a list that can't be read is no error")
	}
}

func TestDamagedStreamIsRefused(t *testing.T) {
	r := entry(t, "p", "p")
	body, _ := r.Open(t.Context())
	data, _ := io.ReadAll(body)
	for name, broken := range map[string][]byte{"short": data[:len(data)-1], "flipped": append(bytes.Clone(data[:len(data)-1]), data[len(data)-1]^1)} {
		r.Open = func(context.Context) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(broken)), nil }
		if err := walk(t.Context(), r, func(*batch.Header, []byte) error { return nil }); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestRefusedByAMirror: a replay into a mirrored topic said POLICY_VIOLATION and no way out.
func TestRefusedByAMirror(t *testing.T) {
	err := refused("orders", 3, kerr.PolicyViolation)
	if !errors.Is(err, kerr.PolicyViolation) || !strings.Contains(err.Error(), "--topic NAME --create") || !strings.Contains(err.Error(), "mirror failover NAME --topic orders") {
		t.Error(err)
	}
	if err := refused("orders", 3, kerr.MessageTooLarge); strings.Contains(err.Error(), "mirror") || !strings.Contains(err.Error(), "orders-3") {
		t.Error(err)
	}
}
