package vault

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"syscall"
	"testing"

	"tidemark/internal/batch"
	"tidemark/internal/core/epoch"
	"tidemark/internal/core/types"
	"tidemark/internal/log"
	"tidemark/internal/vfs"
	"tidemark/internal/vfs/faultfs"
)

const (
	dir    = "/logs/vault"
	logDir = "/logs/t-0"
	start  = types.Millis(1_700_000_000_000)
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// segments writes three segment files of four batches of three records each: the
// log of a partition with offsets 0 to 36 and an epoch a segment.
func segments(t testing.TB, fsys vfs.FS) [][]byte { return segmentsSynced(t, fsys, 3) }

// segmentsSynced leaves the segments from the n-th on unsynced, as on a running
// node whose log waits for its next flush.
func segmentsSynced(t testing.TB, fsys vfs.FS, n int) [][]byte {
	t.Helper()
	must(t, fsys.MkdirAll(logDir))
	var out [][]byte
	offset := types.Offset(0)
	for s := range 3 {
		var data []byte
		for range 4 {
			b := batch.NewBuilder(batch.BuilderOptions{BaseOffset: offset, LeaderEpoch: types.LeaderEpoch(2 * s), Codec: batch.Codec(s)})
			for range 3 {
				b.Append(start+types.Millis(offset), fmt.Appendf(nil, "k%d", offset), fmt.Appendf(nil, "value of %d", offset), batch.RecordHeader{Key: "h", Value: []byte{0xff}})
				offset++
			}
			raw, err := b.Build()
			must(t, err)
			data = append(data, raw...)
		}
		f, err := fsys.Create(segmentPath(12 * s))
		must(t, err)
		_, err = f.WriteAt(data, 0)
		must(t, err)
		if s < n {
			must(t, f.Sync())
		}
		must(t, f.Close())
		out = append(out, data)
	}
	for _, d := range []string{"/", "/logs", logDir} {
		must(t, fsys.SyncDir(d))
	}
	return out
}

func segmentPath(base int) string { return fmt.Sprintf("%s/%020d.log", logDir, base) }

// removal is a cut at offset 18: half of the second segment and all of the third.
func removal(t testing.TB, fsys vfs.FS, data [][]byte) log.Removal {
	t.Helper()
	half := int64(len(data[1]) / 2)
	r := log.Removal{
		TopicPartition: types.TopicPartition{Topic: "t", Partition: 0}, TopicID: types.TopicID{1}, Cause: log.CauseDivergence, Order: log.OrderedByLeader, Note: "n",
		From: 18, To: 36, HighWatermark: 20, LeaderHighWatermark: -1, At: start + 1000,
		EpochsBefore: []epoch.Entry{{Epoch: 0, Start: 0}, {Epoch: 2, Start: 12}, {Epoch: 4, Start: 24}}, TimelinesBefore: []byte(`[["a",0,0]]`),
	}
	r.Ranges = []log.RemovedRange{
		{Path: segmentPath(12), File: open(t, fsys, segmentPath(12)), BaseOffset: 12, From: 18, To: 24, Pos: half, Len: int64(len(data[1])) - half},
		{Path: segmentPath(24), File: open(t, fsys, segmentPath(24)), BaseOffset: 24, From: 24, To: 36, Len: int64(len(data[2])), Whole: true},
	}
	return r
}

func open(t testing.TB, fsys vfs.FS, name string) vfs.File {
	t.Helper()
	f, err := fsys.Open(name)
	must(t, err)
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func options(fsys vfs.FS) Options {
	return Options{FS: fsys, Dir: dir, MaxBytes: -1, MaxAge: -1, Now: func() types.Millis { return start + 1000 }}
}

func openVault(t testing.TB, o Options) *Vault {
	t.Helper()
	must(t, o.FS.MkdirAll("/logs"))
	v, err := Open(o)
	must(t, err)
	return v
}

// removed is what the removal's bytes are.
func removed(data [][]byte) []byte {
	return append(slices.Clone(data[1][len(data[1])/2:]), data[2]...)
}

func exportBytes(t testing.TB, v *Vault, id string) []byte {
	t.Helper()
	var out bytes.Buffer
	must(t, v.Export(id, Segments, &out))
	return out.Bytes()
}

func only(t testing.TB, v *Vault) Entry {
	t.Helper()
	all, err := v.List()
	if err != nil || len(all) != 1 {
		t.Fatalf("%d entries, %v", len(all), err)
	}
	return all[0]
}

func TestKeepsBytesAndTellsWhy(t *testing.T) {
	m := vfs.NewMem()
	data := segmentsSynced(t, m, 1)
	v := openVault(t, options(m))
	r := removal(t, m, data)
	id, err := v.Keep(r)
	must(t, err)
	if got := exportBytes(t, v, id); !bytes.Equal(got, removed(data)) {
		t.Fatalf("%d bytes, expected %d", len(got), len(removed(data)))
	}
	// What the cut does next must not reach the vault.
	f, err := m.OpenReadWrite(segmentPath(12))
	must(t, err)
	must(t, f.Truncate(int64(len(data[1])/2)))
	must(t, m.Remove(segmentPath(24)))
	must(t, m.SyncDir(logDir))
	again := openVault(t, options(m.CrashClone(vfs.CrashConfig{})))
	if got := exportBytes(t, again, id); !bytes.Equal(got, removed(data)) {
		t.Fatal("after a power loss the vault has other bytes")
	}
	e := only(t, again)
	want := Entry{
		Version: 1, ID: id, Topic: "t", TopicID: types.TopicID{1}, Cause: log.CauseDivergence, OrderedBy: log.OrderedByLeader, Note: "n", From: 18, To: 36, Records: 18, Batches: 6,
		Bytes: int64(len(removed(data))), MinTimestamp: start + 18, MaxTimestamp: start + 35, HighWatermark: 20, LeaderHighWatermark: -1, BelowHighWatermark: 2,
		Epochs: []EpochStart{{2, 18}, {4, 24}}, EpochsBefore: []EpochStart{{0, 0}, {2, 12}, {4, 24}}, At: start + 1000,
		Files: []FileEntry{{Name: "00000000000000000018.log", From: 18, To: 24, Bytes: r.Ranges[0].Len}, {Name: "00000000000000000024.log", From: 24, To: 36, Bytes: r.Ranges[1].Len, Linked: true}},
		View:  &EntryView{First: 18},
	}
	e.TimelinesBefore, e.dir = nil, ""
	if a, b := asText(t, e), asText(t, want); a != b {
		t.Fatalf("\ngot  %s\nwant %s", a, b)
	}
}

// TestOldManifestsSayNoOrder: an entry from before orderedBy was noted reads as
// unknown, and as whole, also where the same removal is found again.
func TestOldManifestsSayNoOrder(t *testing.T) {
	m := vfs.NewMem()
	data := segments(t, m)
	v := openVault(t, options(m))
	id, err := v.Keep(removal(t, m, data))
	must(t, err)
	name := path.Join(dir, "t-0", id, manifestFile)
	manifest, err := vfs.ReadFile(m, name, manifestLimit)
	must(t, err)
	old := bytes.Replace(manifest, []byte("  \"orderedBy\": \"LEADER\",\n"), nil, 1)
	if len(old) == len(manifest) {
		t.Fatalf("the manifest doesn't say who ordered the cut: %s", manifest)
	}
	must(t, vfs.WriteAtomic(m, name, old))
	v = openVault(t, options(m))
	again, err := v.Keep(removal(t, m, data))
	if e := only(t, v); err != nil || again != id || e.Damaged != "" || e.OrderedBy != "" || e.Cause != log.CauseDivergence {
		t.Fatalf("%q, %v, %+v", again, err, e)
	}
}

func asText(t testing.TB, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	must(t, err)
	return string(b)
}

// TestSameRemovalIsOneEntry: R1 is repeated after a crash at any point, with all
// of the records or with what is left of them.
func TestSameRemovalIsOneEntry(t *testing.T) {
	m := vfs.NewMem()
	data := segments(t, m)
	v := openVault(t, options(m))
	id, err := v.Keep(removal(t, m, data))
	must(t, err)
	f := func(name string, change func(*log.Removal), same bool) {
		t.Helper()
		r := removal(t, m, data)
		change(&r)
		got, err := v.Keep(r)
		if err != nil || (got == id) != same {
			t.Fatalf("%s: %q after %q, %v", name, got, id, err)
		}
	}
	f("again", func(r *log.Removal) { r.At += 5000 }, true)
	f("segments gone already", func(r *log.Removal) { r.To, r.Ranges = 24, r.Ranges[:1] }, true)
	f("tail cut already", func(r *log.Removal) { r.From, r.Ranges = 24, r.Ranges[1:] }, true)
	only(t, v)
	v = openVault(t, options(m))
	f("after a restart", func(*log.Removal) {}, true)
	f("another cause", func(r *log.Removal) { r.Cause = log.CauseRestart }, false)
	f("another topic of the name", func(r *log.Removal) { r.TopicID[0] = 9 }, false)
	f("other bytes at the offsets", func(r *log.Removal) {
		raw := slices.Clone(data[2])
		batch.Stamp(raw, 24, 77)
		other, err := m.Create("/logs/other")
		must(t, err)
		_, err = other.WriteAt(raw, 0)
		must(t, err)
		r.From, r.Ranges = 24, r.Ranges[1:]
		r.Ranges[0].File, r.Ranges[0].Path = other, "/logs/other"
	}, false)
}

// TestCrashAnywhere loses power before each operation of a Keep, with everything
// unsynced lost or kept by chance: afterwards there is no entry or a whole one,
// and the same removal again ends with exactly one.
func TestCrashAnywhere(t *testing.T) {
	crashes := 0
	for seed := range uint64(6) {
		cfg := vfs.CrashConfig{Seed: seed, KeepBlock: float64(seed) / 5, KeepEntry: float64(seed) / 5}
		for at := 0; ; at++ {
			m := vfs.NewMem()
			data := segments(t, m)
			must(t, m.MkdirAll(dir))
			must(t, m.SyncDir("/logs"))
			c := &crasher{FS: m, mem: m, left: at, cfg: cfg}
			v := openVault(t, options(c))
			_, err := v.Keep(removal(t, c, data))
			must(t, err)
			if c.disk == nil {
				break
			}
			crashes++
			after := openVault(t, options(c.disk))
			entries, err := after.List()
			must(t, err)
			if len(entries) > 1 || (len(entries) == 1 && (entries[0].Damaged != "" || !bytes.Equal(exportBytes(t, after, entries[0].ID), removed(data)))) {
				t.Fatalf("seed %d, operation %d: %+v\n%s", seed, at, entries, c.disk.Dump())
			}
			id, err := after.Keep(removal(t, c.disk, data))
			must(t, err)
			if e := only(t, after); e.ID != id || !bytes.Equal(exportBytes(t, after, id), removed(data)) {
				t.Fatalf("seed %d, operation %d: the repeated removal is not whole", seed, at)
			}
			if strings.Contains(c.disk.Dump(), vfs.TempSuffix) {
				t.Fatalf("seed %d, operation %d: left-overs\n%s", seed, at, c.disk.Dump())
			}
		}
	}
	if crashes < 60 {
		t.Fatal("only", crashes, "crashes tried")
	}
}

// TestEveryFailure lets each operation of a Keep fail once: an error leaves no
// entry that lists as whole and isn't, and the next try succeeds; that of the next
// process where a write or sync of the vault's failed.
func TestEveryFailure(t *testing.T) {
	sweepKeep(t, faultfs.Rule{Kinds: faultfs.Any &^ (faultfs.Close | faultfs.List)})
}

// TestEveryLateFailure: the operation was carried out all the same.
func TestEveryLateFailure(t *testing.T) {
	sweepKeep(t, faultfs.Rule{Kinds: faultfs.Mutating, Late: true})
}

// TestEveryFailedSyncIsFinal: the log is told of its own segment's, the vault takes
// nothing more after one of its own.
func TestEveryFailedSyncIsFinal(t *testing.T) {
	faultfs.Sweep(faultfs.Rule{Kinds: faultfs.Sync | faultfs.SyncDir | faultfs.Write}, func(rule faultfs.Rule) bool {
		m := vfs.NewMem()
		data := segments(t, m)
		f := faultfs.New(m)
		var cause error
		o := options(f)
		o.OnOffline = func(err error) { cause = err }
		v := openVault(t, o)
		i := f.Inject(rule)
		_, err := v.Keep(removal(t, f, data))
		fired := i.Fired() > 0
		if fired && (err == nil || !errors.Is(err, log.ErrOffline) && !errors.Is(cause, ErrOffline)) {
			t.Errorf("operation %d failed: %v, offline because of %v", rule.Skip, err, cause)
		}
		return fired
	})
}

func sweepKeep(t *testing.T, rule faultfs.Rule) {
	t.Helper()
	runs := faultfs.Sweep(rule, func(rule faultfs.Rule) bool {
		m := vfs.NewMem()
		data := segments(t, m)
		f := faultfs.New(m)
		o, offline := options(f), 0
		o.OnOffline = func(error) { offline++ }
		v := openVault(t, o)
		r := removal(t, f, data)
		i := f.Inject(rule)
		id, err := v.Keep(r)
		fired := i.Fired() > 0
		i.Remove()
		entries, lerr := v.List()
		must(t, lerr)
		if err == nil && (len(entries) != 1 || entries[0].ID != id) || err != nil && len(entries) != 0 {
			t.Fatalf("%v, %d entries", err, len(entries))
		}
		if id, err = v.Keep(removal(t, f, data)); offline > 1 || (err != nil) != (offline == 1) || err != nil && !errors.Is(err, ErrOffline) {
			t.Fatalf("second try: %v, offline %d times", err, offline)
		}
		if offline > 0 {
			v = openVault(t, options(f))
			if id, err = v.Keep(removal(t, f, data)); err != nil {
				t.Fatal("the next process:", err)
			}
		}
		only(t, v)
		if !bytes.Equal(exportBytes(t, v, id), removed(data)) {
			t.Fatal("other bytes after a failure")
		}
		only(t, openVault(t, options(m)))
		only(t, openVault(t, options(m.CrashClone(vfs.CrashConfig{}))))
		return fired
	})
	if runs < 14 {
		t.Fatal("only", runs, "operations failed")
	}
}

func TestFull(t *testing.T) {
	m := vfs.NewMem()
	data := segments(t, m)
	size := int64(len(removed(data)))
	f := func(name string, change func(*log.Removal), dropped bool) {
		t.Helper()
		o := options(m)
		o.MaxBytes = size - 1
		v := openVault(t, o)
		r := removal(t, m, data)
		r.HighWatermark = r.From
		change(&r)
		id, err := v.Keep(r)
		var full *ErrFull
		if id != "" || (err == nil) != dropped || (err != nil && (!errors.As(err, &full) || full.Needed != size || full.Limit != size-1 || full.Used != 0)) {
			t.Fatalf("%s: %q %v", name, id, err)
		}
		if want := map[bool]int64{true: 18}[dropped]; v.Usage().DroppedRecords != want {
			t.Fatalf("%s: %+v", name, v.Usage())
		}
	}
	f("leader's mark unknown", func(r *log.Removal) { r.LeaderHighWatermark = -1 }, false)
	f("above both marks", func(r *log.Removal) { r.LeaderHighWatermark = 18 }, true)
	f("below the own mark: the leader has lost what was committed", func(r *log.Removal) { r.LeaderHighWatermark, r.HighWatermark = 18, 19 }, false)
	f("below the leader's mark", func(r *log.Removal) { r.LeaderHighWatermark = 19 }, false)
	f("timeline cut", func(r *log.Removal) {
		r.LeaderHighWatermark, r.Cause, r.TimelinesAfter = 5, log.CauseTimeline, []byte("[]")
	}, false)
	f("divergence that changes the list", func(r *log.Removal) { r.LeaderHighWatermark, r.TimelinesAfter = 5, []byte("[]") }, false)
	f("restart", func(r *log.Removal) { r.LeaderHighWatermark, r.Cause = 5, log.CauseRestart }, false)
	f("log start", func(r *log.Removal) { r.LeaderHighWatermark, r.Cause = 5, log.CauseLogStart }, false)

	o := options(m)
	o.MaxBytes = size
	v := openVault(t, o)
	_, err := v.Keep(removal(t, m, data))
	must(t, err)
	if u := v.Usage(); u.Bytes != size || u.Entries != 1 {
		t.Fatalf("%+v", u)
	}
	r := removal(t, m, data)
	r.Cause = log.CauseRestart
	var full *ErrFull
	if _, err = v.Keep(r); !errors.As(err, &full) || full.Used != size || !strings.Contains(err.Error(), fmt.Sprintf("purge %d bytes", size)) {
		t.Fatal(err)
	}
	if u := v.Usage(); u.Bytes != size {
		t.Fatalf("a refused removal holds room: %+v", u)
	}
}

// TestFullDisk is told like a full vault, leaves nothing behind, and ends when there is room.
func TestFullDisk(t *testing.T) {
	m := vfs.NewMem()
	data := segments(t, m)
	f := faultfs.New(m)
	v := openVault(t, options(f))
	f.SetSpace(100)
	var full *ErrFull
	if _, err := v.Keep(removal(t, f, data)); !errors.As(err, &full) || !errors.Is(err, syscall.ENOSPC) || full.Limit != -1 {
		t.Fatal(err)
	}
	if names, _ := m.List(path.Join(dir, "t-0")); len(names) != 0 {
		t.Fatal(names)
	}
	f.SetSpace(-1)
	_, err := v.Keep(removal(t, f, data))
	must(t, err)
}

// TestExpiredEntriesMakeRoom: age first, and nothing younger goes.
func TestExpiredEntriesMakeRoom(t *testing.T) {
	m := vfs.NewMem()
	data := segments(t, m)
	now := start + 1000
	o := options(m)
	o.MaxBytes, o.MaxAge, o.Now = int64(len(removed(data))), 500, func() types.Millis { return now }
	v := openVault(t, o)
	first, err := v.Keep(removal(t, m, data))
	must(t, err)
	r := removal(t, m, data)
	r.Cause, r.At = log.CauseRestart, now+501
	now += 500
	if _, err := v.Keep(r); err == nil {
		t.Fatal("an entry within its age went")
	}
	now++
	second, err := v.Keep(r)
	must(t, err)
	if e := only(t, v); e.ID != second || first == second {
		t.Fatal(e.ID, first, second)
	}
	gone, err := v.PurgeExpired()
	if err != nil || len(gone) != 0 {
		t.Fatal(gone, err)
	}
	now += 501
	if gone, err = v.PurgeExpired(); err != nil || len(gone) != 1 || gone[0].ID != second {
		t.Fatal(gone, err)
	}
}

func TestPurge(t *testing.T) {
	m := vfs.NewMem()
	data := segments(t, m)
	v := openVault(t, options(m))
	id, err := v.Keep(removal(t, m, data))
	must(t, err)
	if err := v.Purge("none"); !errors.Is(err, ErrNoEntry) {
		t.Fatal(err)
	}
	must(t, v.Purge(id))
	if all, _ := v.List(); len(all) != 0 {
		t.Fatal(all)
	}
	if _, err := v.Show(id); !errors.Is(err, ErrNoEntry) {
		t.Fatal(err)
	}
	after := openVault(t, options(m.CrashClone(vfs.CrashConfig{})))
	if all, _ := after.List(); len(all) != 0 {
		t.Fatal("a purge came back")
	}
}

// TestLinksTheLogStillHas: the node dies between Keep and the removal, and the
// cut is never repeated. What the log then writes to the segment stays out of the vault.
func TestLinksTheLogStillHas(t *testing.T) {
	m := vfs.NewMem()
	data := segments(t, m)
	v := openVault(t, options(m))
	id, err := v.Keep(removal(t, m, data))
	must(t, err)
	disk := m.CrashClone(vfs.CrashConfig{})
	v = openVault(t, options(disk))
	f, err := disk.OpenReadWrite(segmentPath(24))
	must(t, err)
	must(t, f.Truncate(10))
	_, err = f.WriteAt([]byte("another history"), 10)
	must(t, err)
	if !bytes.Equal(exportBytes(t, v, id), removed(data)) {
		t.Fatal("the log wrote into the vault")
	}
}

// TestOverlappingRemovalsInOneLife: a removal that was kept but not carried out
// is followed by another one of the same records.
func TestOverlappingRemovalsInOneLife(t *testing.T) {
	m := vfs.NewMem()
	data := segments(t, m)
	v := openVault(t, options(m))
	first, err := v.Keep(removal(t, m, data))
	must(t, err)
	r := removal(t, m, data)
	r.Cause = log.CauseTimeline
	r.Ranges[1].Whole = false // this time the segment is truncated in place
	second, err := v.Keep(r)
	if err != nil || second == first {
		t.Fatal(second, err)
	}
	f, err := m.OpenReadWrite(segmentPath(24))
	must(t, err)
	must(t, f.Truncate(0))
	for _, id := range []string{first, second} {
		if !bytes.Equal(exportBytes(t, v, id), removed(data)) {
			t.Fatal("the log reached into the vault")
		}
	}
}

func TestDamagedAndReadOnly(t *testing.T) {
	m := vfs.NewMem()
	data := segments(t, m)
	v := openVault(t, options(m))
	id, err := v.Keep(removal(t, m, data))
	must(t, err)
	for name, content := range map[string]string{"empty": "", "text": "hello", "version": `{"v":9}`, "place": `{"v":1,"id":"place","topic":"u","partition":0}`} {
		must(t, m.MkdirAll(path.Join(dir, "t-0", name)))
		must(t, vfs.WriteAtomic(m, path.Join(dir, "t-0", name, manifestFile), []byte(content)))
	}
	must(t, m.MkdirAll(path.Join(dir, "t-0", "half"+vfs.TempSuffix)))
	o := options(m)
	o.ReadOnly = true
	ro := openVault(t, o)
	all, err := ro.List()
	must(t, err)
	damaged := 0
	for _, e := range all {
		if e.Damaged != "" {
			damaged++
			if err := ro.Export(e.ID, Segments, &bytes.Buffer{}); err == nil {
				t.Fatal("exported a damaged entry")
			}
		}
	}
	if len(all) != 5 || damaged != 4 {
		t.Fatalf("%+v", all)
	}
	if !bytes.Equal(exportBytes(t, ro, id), removed(data)) {
		t.Fatal("the whole entry can't be read beside damaged ones")
	}
	if _, err := ro.Keep(removal(t, m, data)); !errors.Is(err, ErrReadOnly) {
		t.Fatal(err)
	}
	if err := ro.Purge(id); !errors.Is(err, ErrReadOnly) {
		t.Fatal(err)
	}
	if names, _ := m.List(path.Join(dir, "t-0")); !slices.Contains(names, "half.tmp") {
		t.Fatal("a reading vault cleaned up")
	}
	must(t, openVault(t, options(m)).Purge("t-0/text"))
}

func TestExportRecords(t *testing.T) {
	m := vfs.NewMem()
	data := segments(t, m)
	v := openVault(t, options(m))
	id, err := v.Keep(removal(t, m, data))
	must(t, err)
	var out bytes.Buffer
	must(t, v.Export(id, JSONLines, &out))
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 18 {
		t.Fatal(len(lines))
	}
	const want = `{"offset":18,"epoch":2,"timestamp":1700000000018,"key":"k18","value":"value of 18","headers":[{"key":"h","value":null,"valueBase64":"/w=="}]}`
	if lines[0] != want {
		t.Fatalf("\ngot  %s\nwant %s", lines[0], want)
	}
	if err := v.Export(id, "xml", &out); err == nil {
		t.Fatal("unknown format")
	}
	n := 0
	must(t, v.Batches(id, func(h *batch.Header, raw []byte) error { n++; return batch.VerifyCRC(raw) }))
	if n != 6 {
		t.Fatal(n)
	}
}

// TestKeepsWhatIsNoBatch: a damaged tail goes into the vault byte for byte.
func TestKeepsWhatIsNoBatch(t *testing.T) {
	m := vfs.NewMem()
	data := segments(t, m)
	f, err := m.OpenReadWrite(segmentPath(24))
	must(t, err)
	_, err = f.WriteAt(bytes.Repeat([]byte("x"), 500), int64(len(data[2])))
	must(t, err)
	data[2] = append(data[2], bytes.Repeat([]byte("x"), 500)...)
	v := openVault(t, options(m))
	id, err := v.Keep(removal(t, m, data))
	must(t, err)
	if e := only(t, v); e.DamagedBytes != 500 || e.Batches != 6 {
		t.Fatalf("%+v", e)
	}
	if !bytes.Equal(exportBytes(t, v, id), removed(data)) {
		t.Fatal("bytes lost")
	}
	if err := v.Export(id, JSONLines, &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), "00000000000000000024.log") {
		t.Fatal(err)
	}
	for _, v := range []*Vault{v, openVault(t, options(m))} { // the same cut, repeated
		again, err := v.Keep(removal(t, m, data))
		if err != nil || again != id {
			t.Fatalf("%q after %q: %v", again, id, err)
		}
		only(t, v)
	}
	_, err = f.WriteAt([]byte("y"), int64(len(data[2])-1))
	must(t, err)
	data[2][len(data[2])-1] = 'y'
	v = openVault(t, options(m))
	again, err := v.Keep(removal(t, m, data))
	if err != nil || again == id {
		t.Fatalf("entry %q counts for other bytes: %v", again, err)
	}
	if !bytes.Equal(exportBytes(t, v, again), removed(data)) {
		t.Error("other bytes than were cut")
	}
}

// TestAgeBeginsWithTheLastCut: records that came back, as after an abandon, and go once more
// are the entry that there is. It was purged by the age of the first cut.
func TestAgeBeginsWithTheLastCut(t *testing.T) {
	m := vfs.NewMem()
	data := segments(t, m)
	now := start + 1000
	o := options(m)
	o.MaxAge, o.Now = 500, func() types.Millis { return now }
	v := openVault(t, o)
	first := removal(t, m, data)
	id, err := v.Keep(first)
	must(t, err)
	must(t, v.NoteReplay(id, Replay{Topic: "r"}))
	again := removal(t, m, data)
	now = start + 1600
	again.At = now
	if same, err := v.Keep(again); err != nil || same != id {
		t.Fatalf("%q, %v, want %q", same, err, id)
	}
	for range 2 {
		if gone, err := v.PurgeExpired(); err != nil || len(gone) > 0 {
			t.Fatalf("purged %v, %v", gone, err)
		}
		if e := only(t, v); e.At != now || len(e.Replays) != 1 || !bytes.Equal(exportBytes(t, v, id), removed(data)) {
			t.Errorf("%+v", e)
		}
		v = openVault(t, o)
	}
	if _, err := v.Keep(first); err != nil || only(t, v).At != now {
		t.Errorf("an earlier time takes it back: %+v, %v", only(t, v), err)
	}
	must(t, v.Purge(id))
	if still, err := v.renew(id, now+1); still || err != nil {
		t.Errorf("a purged entry is relied on: %t, %v", still, err)
	}
}

// TestADamagedEntryStopsNoCut: the same removal has the same name. With the entry of that name
// damaged, the partition's cut could not be made until somebody had purged it.
func TestADamagedEntryStopsNoCut(t *testing.T) {
	m := vfs.NewMem()
	data := segments(t, m)
	id, err := openVault(t, options(m)).Keep(removal(t, m, data))
	must(t, err)
	f, err := m.Create(path.Join(dir, "t-0", id, manifestFile))
	must(t, err)
	must(t, f.Close())
	v := openVault(t, options(m))
	var other string
	for range 2 { // the second time it is found
		if other, err = v.Keep(removal(t, m, data)); err != nil || other == id {
			t.Fatalf("%q, %v", other, err)
		}
		if !bytes.Equal(exportBytes(t, v, other), removed(data)) {
			t.Error("other bytes than were cut")
		}
	}
	v = openVault(t, options(m))
	if all, err := v.List(); err != nil || len(all) != 2 {
		t.Errorf("%+v, %v", all, err)
	}
	if e, err := v.Show(other); err != nil || e.Damaged != "" {
		t.Errorf("%+v, %v", e, err)
	}
}
