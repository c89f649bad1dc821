package vault

import (
	"maps"
	"path"
	"testing"

	"tidemark/internal/core/types"
	"tidemark/internal/log"
	"tidemark/internal/vfs"
)

// TestAForksSegmentsInTheVault: a cut gives the vault segments that a fork holds, too.
// Log, fork and vault then keep their own bytes, whatever the others do, also after the
// vault was opened again.
func TestAForksSegmentsInTheVault(t *testing.T) {
	m := vfs.NewMem()
	must(t, m.MkdirAll("/logs"))
	v := openVault(t, options(m))
	l := openLog(t, m, v)
	fill(t, m, l)
	must(t, l.Roll())
	all := held(t, l)
	dir := path.Join(path.Dir(logDir), "fork-0")
	j, err := l.StartFork(l.View().LogEnd)
	must(t, err)
	f := log.Fork{Dir: dir, TopicID: types.TopicID{2}}
	must(t, l.EndFork(j, j.Make(f)))
	j.Release()
	openFork := func(v *Vault) *log.Log {
		c := log.DefaultConfig()
		c.SegmentBytes, c.RetentionMs = 600, -1
		o := log.Options{FS: m, Dir: dir, TopicPartition: types.TopicPartition{Topic: "fork"}, TopicID: f.TopicID, Config: c, Keeper: v}
		o.RecoveryPoint = j.Marks(f).RecoveryPoint
		fork, _, err := log.Open(o)
		must(t, err)
		t.Cleanup(fork.CloseUnclean)
		return fork
	}
	same := func(what string, got map[types.Offset]string) {
		t.Helper()
		if !maps.Equal(got, all) {
			t.Fatalf("%s: %d of %d batches are as they were", what, len(got), len(all))
		}
	}
	reason := log.CutReason{Cause: log.CauseDivergence, LeaderHighWatermark: -1}
	_, err = l.Cut(15, reason)
	must(t, err)
	checkComplete(t, "the log is cut", all, l, v)
	fork := openFork(v)
	same("the fork after the log's cut", held(t, fork))

	v = openVault(t, options(m)) // takes files of its own for those that somebody shares
	entries, err := v.List()
	must(t, err)
	for _, e := range entries {
		for _, file := range e.Files {
			if st, err := m.Stat(path.Join(e.dir, file.Name)); err != nil || st.Links != 1 {
				t.Errorf("%s has %d names (%v)", file.Name, st.Links, err)
			}
		}
	}
	same("the fork after the vault was opened", held(t, fork))
	fork.CloseUnclean()
	fork = openFork(v)
	_, err = fork.Cut(15, reason)
	must(t, err)
	checkComplete(t, "the fork is cut", all, fork, v)
	checkComplete(t, "the log, after the fork's cut", all, l, v)
}
