package log

import (
	"errors"
	"fmt"
	"testing"

	"tidemark/internal/batch"
	"tidemark/internal/core/epoch"
	"tidemark/internal/core/types"
	"tidemark/internal/vfs"
)

const testDir = "d/topic-0"

var testPartition = types.TopicPartition{Topic: "topic", Partition: 0}

// smallConfig makes segments and index intervals small, so that few records
// pass through all paths.
func smallConfig() Config {
	c := DefaultConfig()
	c.SegmentBytes, c.IndexIntervalBytes, c.RetentionMs, c.TimestampAfterMaxMs = 1000, 150, -1, 0
	return c
}

func memFS(t testing.TB) *vfs.Mem {
	t.Helper()
	m := vfs.NewMem()
	if err := m.MkdirAll("d"); err != nil {
		t.Fatal(err)
	}
	if err := m.SyncDir("/"); err != nil {
		t.Fatal(err)
	}
	return m
}

func options(fsys vfs.FS) Options {
	return Options{FS: fsys, Dir: testDir, TopicPartition: testPartition, Config: smallConfig(), Now: func() types.Millis { return 1_000_000 }}
}

func mustOpen(t testing.TB, o Options) (*Log, Recovery) {
	t.Helper()
	l, r, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.CloseUnclean)
	return l, r
}

// spec describes a batch to make.
type spec struct {
	base  types.Offset
	n     int // records
	epoch types.LeaderEpoch
	ts    types.Millis
	size  int // bytes of each value
	key   string
	pid   types.ProducerID // 0: none
	pe    int16
	seq   int32
	txn   bool
}

func (s spec) build(t testing.TB) []byte {
	t.Helper()
	o := batch.BuilderOptions{BaseOffset: s.base, LeaderEpoch: s.epoch, Transactional: s.txn}
	if s.pid != 0 {
		o.Producer = &batch.Producer{ID: s.pid, Epoch: s.pe, BaseSequence: s.seq}
	}
	b := batch.NewBuilder(o)
	for i := range max(s.n, 1) {
		key := []byte(nil)
		if s.key != "" {
			key = []byte(s.key)
		}
		value := append([]byte(fmt.Sprintf("%d/%d/%d ", s.epoch, s.base, i)), make([]byte, s.size)...)
		b.Append(s.ts+types.Millis(i), key, value)
	}
	raw, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// lead appends a client's batch as leader in the history's last epoch.
func lead(t testing.TB, l *Log, s spec) Appended {
	t.Helper()
	a, err := tryLead(t, l, s)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func tryLead(t testing.TB, l *Log, s spec) (Appended, error) {
	t.Helper()
	s.base = 0
	last, ok := l.View().History.Latest()
	if !ok {
		if err := l.AssignEpoch(s.epoch); err != nil {
			return Appended{}, err
		}
		last, _ = l.View().History.Latest()
	}
	return l.AppendAsLeader(s.build(t), last.Epoch, LeaderAppend{})
}

// follow appends one copied batch.
func follow(t testing.TB, l *Log, specs ...spec) Appended {
	t.Helper()
	var raw []byte
	for _, s := range specs {
		raw = append(raw, s.build(t)...)
	}
	a, err := l.AppendAsFollower(raw, 1<<31-1)
	if err != nil {
		t.Fatal(err)
	}
	if a.StoppedBy != nil {
		t.Fatal(a.StoppedBy)
	}
	return a
}

// contents reads the whole log through Read, in small pieces.
func contents(t testing.TB, l *Log, maxBytes int) []byte {
	t.Helper()
	var out []byte
	v := l.View()
	for at := v.LogStart; at < v.LogEnd; {
		c, err := l.Read(at, ReadLimit{To: v.LogEnd, MaxBytes: maxBytes, MinOne: true})
		if err != nil {
			t.Fatalf("read %d of %+v: %v", at, v, err)
		}
		b, err := c.ReadInto(nil)
		if err != nil {
			t.Fatal(err)
		}
		c.Release()
		if len(b) == 0 {
			return out // a gap up to the end
		}
		for it := batch.Iterate(b); it.Next(); {
			if err := batch.VerifyCRC(it.Raw); err != nil {
				t.Fatalf("batch at %d: %v", it.Header.BaseOffset, err)
			}
			at = it.Header.NextOffset()
		}
		out = append(out, b...)
	}
	return out
}

func pairsOf(entries []epoch.Entry) [][2]int64 {
	out := [][2]int64{}
	for _, e := range entries {
		out = append(out, [2]int64{int64(e.Epoch), int64(e.Start)})
	}
	return out
}

// put writes and syncs a file, its folder included.
func put(t testing.TB, fsys vfs.FS, name string, data []byte) {
	t.Helper()
	f, err := fsys.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(data, 0); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Sync(), f.Close(), fsys.SyncDir(testDir)); err != nil {
		t.Fatal(err)
	}
}

func get(t testing.TB, fsys vfs.FS, name string) []byte {
	t.Helper()
	b, err := vfs.ReadFile(fsys, name, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
