package mirror

import (
	"testing"
	"time"

	"tidemark/internal/core/meta"
)

// TestAPartComesBeforeItsMirror: a broker that is asked for its part of a verb may see
// the mirror a moment later than who asks.
func TestAPartComesBeforeItsMirror(t *testing.T) {
	n := newPaperNode(t, 1)
	m := &Mirrors{o: Options{Node: n}, ctx: t.Context()}
	time.AfterFunc(20*time.Millisecond, func() {
		n.put(t, meta.KeysOf(paperCluster).Mirror("m"), meta.MirrorRecord{Name: "m", Want: meta.WantCreated, Bootstrap: []string{"h:1"}}.Encode())
	})
	image, e := m.awaitMirror(t.Context(), "m")
	if e == nil || e.Record.Name != "m" {
		t.Fatalf("%+v of revision %d", e, image.Revision())
	}
}
