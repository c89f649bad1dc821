package broker

import (
	"reflect"
	"testing"

	"tidemark/internal/core/meta"
	"tidemark/internal/vfs"
)

// TestStrangersInOffice: an office that the dir must have seen tells two histories
// apart, and nothing that may have happened in one history does.
func TestStrangersInOffice(t *testing.T) {
	a, b, c := office{3, 1}, office{7, 2}, office{11, 3}
	seen := seenMark{revision: 10, offices: offices{list: []office{a, b}}}
	for _, e := range []struct {
		name string
		seen seenMark
		now  offices
		want bool
	}{
		{"nothing changed", seen, offices{list: []office{a, b}}, false},
		{"all have ended", seen, offices{}, false},
		{"one came later", seen, offices{list: []office{b, c}}, false},
		{"one that should be known", seen, offices{list: []office{a, {8, 4}}}, true},
		{"another in its place", seen, offices{list: []office{a, {7, 9}}}, true},
		{"taken at the very revision", seen, offices{list: []office{{10, 4}}}, true},
		{"nobody was in office", seenMark{revision: 10}, offices{list: []office{{8, 4}}}, true},
		{"older than what was noted", seenMark{revision: 10, offices: offices{above: 5, list: []office{b}}}, offices{list: []office{a, b}}, false},
		{"some can't be read now", seen, offices{above: 20}, false},
		{"a note of an earlier program", parseSeen("0\n10\n"), offices{list: []office{{8, 4}}}, false},
		{"one of it after a restore", parseSeen("1\nr\n10\n"), offices{list: []office{{8, 4}}}, false},
		{"one that noted no digest", parseSeen("2\nr\n10\n0\n3 00000001\n"), offices{list: []office{a, {8, 4}}}, true},
	} {
		if o, got := e.seen.stranger(e.now); got != e.want {
			t.Errorf("%s: %v, %+v", e.name, got, o)
		}
	}
}

func TestNoteOfWhatWasFollowed(t *testing.T) {
	many := seenMark{revision: 90, digest: pastDigest{true, 1<<63 + 5}}
	for i := range 2 * notedOffices {
		many.offices.list = append(many.offices.list, office{meta.Revision(10 + i), uint32(i) << 24})
	}
	for _, now := range []seenMark{{revision: 4711, digest: pastDigest{known: true}}, {restore: "r-1", revision: 12, offices: offices{above: 12}, digest: pastDigest{true, 12}}, many} {
		d := &logDir{fs: vfs.NewMem(), path: "/data"}
		d.swept.Store(true)
		if err := d.fs.MkdirAll(d.path); err != nil {
			t.Fatal(err)
		}
		if err := d.writeSeen(now); err != nil {
			t.Fatal(err)
		}
		wrote := d.seen
		if err := d.readSeen(); err != nil || !reflect.DeepEqual(d.seen, wrote) {
			t.Errorf("wrote %+v, read %+v, %v", wrote, d.seen, err)
		}
		if len(wrote.offices.list) > notedOffices || !d.seen.follows(now) {
			t.Errorf("%+v isn't followed by %+v", d.seen, now)
		}
	}
	for _, text := range []string{"", "2\n\n7\n", "2\n\n7\n-1\n", "2\n\n7\n0\n5\n", "2\n\n7\n0\n5 xyz\n", "2\n\n7\n0", "3\n\n7\n0\n", "3\n\n7\nxyz\n0\n", "4\n\n7\n0\n0\n", "0\n7", "0\nx\n"} {
		if m := parseSeen(text); !m.unreadable {
			t.Errorf("%q was read as %+v", text, m)
		}
	}
}
