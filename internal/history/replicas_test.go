package history

import (
	"fmt"
	"path"
	"testing"

	"tidemark/internal/batch"
	"tidemark/internal/core/types"
	"tidemark/internal/log"
	"tidemark/internal/vfs"
)

// writeReplica lays batches of one record each into a folder, perSegment to a file.
func writeReplica(t *testing.T, perSegment int, values ...string) Replica {
	t.Helper()
	fsys := vfs.NewMem()
	l, _, err := log.Open(log.Options{FS: fsys, Dir: "orders-0", TopicPartition: p0, TopicID: types.TopicID{1}, Config: log.DefaultConfig(), Now: func() types.Millis { return 1000 }})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := l.AssignEpoch(3); err != nil {
		t.Fatal(err)
	}
	for i, v := range values {
		if i > 0 && i%perSegment == 0 {
			if err := l.Roll(); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := l.AppendAsLeader(build(t, v), 3, log.LeaderAppend{}); err != nil {
			t.Fatal(err)
		}
	}
	return Replica{Name: fmt.Sprintf("of %d", perSegment), FS: fsys, Dir: "orders-0"}
}

func build(t *testing.T, value string) []byte {
	t.Helper()
	b := batch.NewBuilder(batch.BuilderOptions{})
	b.Append(1000, nil, []byte(value))
	raw, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func TestCompareReplicas(t *testing.T) {
	f := func(name string, hw types.Offset, want []Rule, replicas ...Replica) {
		t.Helper()
		found, err := CompareReplicas(p0, hw, replicas...)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			return
		}
		var got []Rule
		for _, g := range found {
			got = append(got, g.Rule)
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: %v, want %v", name, found, want)
		}
	}
	whole := writeReplica(t, 9, "a", "b", "c", "d")
	f("the same", 4, nil, whole, writeReplica(t, 9, "a", "b", "c", "d"))
	f("the same in other segments", 4, nil, whole, writeReplica(t, 2, "a", "b", "c", "d"))
	f("other bytes", 4, []Rule{ReplicaDiffers}, whole, writeReplica(t, 9, "a", "x", "c", "d"))
	f("other bytes in a third", 4, []Rule{ReplicaDiffers}, whole, whole, writeReplica(t, 2, "a", "b", "c", "x"))
	f("other bytes above the high watermark", 3, nil, whole, writeReplica(t, 9, "a", "b", "c", "x"))
	f("short", 4, []Rule{ReplicaShort}, whole, writeReplica(t, 9, "a", "b", "c"))
	f("the first is short", 4, []Rule{ReplicaShort}, writeReplica(t, 9, "a", "b", "c"), whole)
	f("short above the high watermark", 3, nil, whole, writeReplica(t, 9, "a", "b", "c"))

	deleted := func(from types.Offset, r Replica) Replica {
		r.Start = from
		return r
	}
	noHead := writeReplica(t, 2, "a", "b", "c", "d") // what retention may have deleted of one
	if err := noHead.FS.Remove(path.Join(noHead.Dir, log.FileName(0, ".log"))); err != nil {
		t.Fatal(err)
	}
	f("deleted below the log start", 4, nil, deleted(2, whole), deleted(2, noHead))
	f("more is gone than was deleted", 4, []Rule{ReplicaShort, ReplicaDiffers}, deleted(1, whole), deleted(1, noHead))
	f("one has deleted more than the other", 4, nil, deleted(0, whole), deleted(2, noHead))
	f("the first has deleted more", 4, nil, deleted(2, noHead), deleted(1, whole))
	other := writeReplica(t, 2, "a", "b", "x", "d")
	f("and differs above", 4, []Rule{ReplicaDiffers}, deleted(2, noHead), deleted(0, other))

	torn := writeReplica(t, 9, "a", "b", "c", "d")
	damage(t, torn, 70)
	f("a flipped byte", 4, []Rule{ReplicaDamaged, ReplicaDiffers}, whole, torn)

	if _, err := CompareReplicas(p0, 1, Replica{Name: "none", FS: vfs.NewMem(), Dir: "orders-0"}); err == nil {
		t.Error("a folder that isn't there compares")
	}
}

// damage flips one byte of a replica's first segment.
func damage(t *testing.T, r Replica, at int64) {
	t.Helper()
	f, err := r.FS.OpenReadWrite(path.Join(r.Dir, log.FileName(0, ".log")))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, 1)
	if _, err := f.ReadAt(b, at); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 0xff
	if _, err := f.WriteAt(b, at); err != nil {
		t.Fatal(err)
	}
}
