package sim

import (
	"testing"

	"tidemark/internal/core/meta"
	"tidemark/internal/vfs"
)

// How far a folder has followed the metadata is what the furthest of its notes says: one
// that has entered a restored store knows of it before it deletes by it.
func TestAllNotesOfWhatWasFollowed(t *testing.T) {
	f := func(want meta.Revision, notes ...string) {
		t.Helper()
		o, err := SwarmCluster(1, "cluster-restores")
		if err != nil {
			t.Fatal(err)
		}
		m := newCluster(1, &o, &Mutation{}, nil).machine(1)
		if err := m.mem.MkdirAll(logDir); err != nil {
			t.Fatal(err)
		}
		for i, text := range notes {
			if err := vfs.WriteAtomic(m.mem, logDir+"/"+followedNotes[i], []byte(text)); err != nil {
				t.Fatal(err)
			}
		}
		if m.noteFollowed(); m.followedTo != want {
			t.Errorf("followed to %d, want %d", m.followedTo, want)
		}
	}
	seen, entered := "3\n\n40\n00\n40\n", "3\nrestore-1\n55\n00\n55\n"
	f(0)
	f(40, seen)
	f(55, seen, entered)
	f(55, "damaged", entered)
	f(55, entered, seen)
	f(70, "3\nrestore-1\n70\n00\n70\n", entered)
	f(55, "3\n\n70\n00\n70\n", entered) // the store went back in silence, and came back from a backup then
}
