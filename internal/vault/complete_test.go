package vault

import (
	"bytes"
	"fmt"
	"testing"

	"tidemark/internal/batch"
	"tidemark/internal/core/types"
	"tidemark/internal/log"
	"tidemark/internal/vfs"
)

// openLog opens the partition's real log with the vault as its keeper.
func openLog(t testing.TB, fsys vfs.FS, v *Vault) *log.Log {
	t.Helper()
	c := log.DefaultConfig()
	c.SegmentBytes, c.RetentionMs = 600, -1
	l, _, err := log.Open(log.Options{FS: fsys, Dir: logDir, TopicPartition: types.TopicPartition{Topic: "t"}, TopicID: types.TopicID{1}, Config: c,
		Now: func() types.Millis { return start }, Keeper: v})
	must(t, err)
	t.Cleanup(l.CloseUnclean)
	return l
}

// fill appends twelve batches of three records in epochs 1, 2 and 3 over several segments.
func fill(t testing.TB, fsys vfs.FS, l *log.Log) {
	t.Helper()
	for i := range 12 {
		b := batch.NewBuilder(batch.BuilderOptions{BaseOffset: types.Offset(3 * i), LeaderEpoch: types.LeaderEpoch(1 + i/4)})
		for r := range 3 {
			b.Append(start, nil, fmt.Appendf(nil, "record %d of batch %d %s", r, i, bytes.Repeat([]byte("."), 20)))
		}
		raw, err := b.Build()
		must(t, err)
		a, err := l.AppendAsFollower(raw, 9)
		must(t, err)
		must(t, a.StoppedBy)
	}
	must(t, l.Flush())
	if _, err := fsys.Stat(segmentPath(segmentStart)); err != nil {
		t.Fatal("no segment begins where the test cuts:", err)
	}
}

// held collects the batches of a log by offset; every one is checked.
func held(t testing.TB, l *log.Log) map[types.Offset]string {
	t.Helper()
	out := map[types.Offset]string{}
	view := l.View()
	for at := view.LogStart; at < view.LogEnd; {
		c, err := l.Read(at, log.ReadLimit{To: view.LogEnd, MaxBytes: 1, MinOne: true})
		must(t, err)
		raw, err := c.ReadInto(nil)
		must(t, err)
		c.Release()
		h, err := batch.ParseHeader(raw)
		must(t, err)
		must(t, batch.VerifyCRC(raw))
		out[h.BaseOffset] = string(raw)
		at = h.NextOffset()
	}
	return out
}

// segmentStart is where the third segment of fill begins; fill checks it.
const segmentStart = 12

// TestVaultComplete is the invariant of that name: the node loses power before
// each changing operation of a cut in turn. Log and vault together then have
// every record, and so they have after the cut was repeated; the repeated cut
// makes no second entry of the same records.
func TestVaultComplete(t *testing.T) {
	cuts := map[string]func(*log.Log) error{
		"cut inside a segment": func(l *log.Log) error {
			_, err := l.Cut(15, log.CutReason{Cause: log.CauseDivergence, LeaderHighWatermark: -1})
			return err
		},
		"cut at a segment": func(l *log.Log) error {
			_, err := l.Cut(segmentStart, log.CutReason{Cause: log.CauseTimeline, Timelines: []byte("[]"), LeaderHighWatermark: -1})
			return err
		},
		"restart": func(l *log.Log) error {
			_, err := l.Restart(500, log.CutReason{Cause: log.CauseRestart, LeaderHighWatermark: -1})
			return err
		},
	}
	for name, cut := range cuts {
		t.Run(name, func(t *testing.T) {
			crashes := 0
			for seed := range uint64(3) {
				cfg := vfs.CrashConfig{Seed: seed, KeepBlock: float64(seed) / 2, KeepEntry: float64(seed) / 2}
				for at := 0; crashDuringCut(t, at, cfg, cut); at++ {
					crashes++
				}
			}
			if crashes < 30 {
				t.Fatal("only", crashes, "crashes tried")
			}
		})
	}
}

func crashDuringCut(t *testing.T, at int, cfg vfs.CrashConfig, cut func(*log.Log) error) (crashed bool) {
	m := vfs.NewMem()
	must(t, m.MkdirAll("/logs"))
	must(t, m.SyncDir("/"))
	c := &crasher{FS: m, mem: m, left: -1, cfg: cfg}
	v := openVault(t, options(c))
	l := openLog(t, c, v)
	must(t, m.SyncDir("/logs"))
	fill(t, c, l)
	all := held(t, l)
	c.left = at
	must(t, cut(l))
	disk := c.disk
	if disk == nil {
		disk = m.CrashClone(cfg) // done, and lost power right after
	}
	v = openVault(t, options(disk))
	l = openLog(t, disk, v)
	where := fmt.Sprintf("seed %d, operation %d", cfg.Seed, at)
	checkComplete(t, where, all, l, v)
	must(t, cut(l))
	checkComplete(t, where+", repeated", all, l, v)
	if entries, err := v.List(); err != nil || len(entries) != 1 {
		t.Fatalf("%s: %d entries, %v\n%+v", where, len(entries), err, entries)
	}
	return c.disk != nil
}

// checkComplete asks that log and vault together hold every batch.
func checkComplete(t *testing.T, where string, all map[types.Offset]string, l *log.Log, v *Vault) {
	t.Helper()
	have := held(t, l)
	entries, err := v.List()
	must(t, err)
	for _, e := range entries {
		if e.Damaged != "" {
			t.Fatalf("%s: %s", where, e.Damaged)
		}
		must(t, v.Batches(e.ID, func(h *batch.Header, raw []byte) error {
			have[h.BaseOffset] = string(raw)
			return nil
		}))
	}
	for offset, raw := range all {
		if have[offset] != raw {
			t.Fatalf("%s: the batch at %d is in neither log nor vault", where, offset)
		}
	}
}
