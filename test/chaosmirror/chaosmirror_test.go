//go:build chaos && linux

package chaosmirror_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"tidemark/internal/batch"
	"tidemark/internal/compare"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/timeline"
	"tidemark/internal/core/types"
	"tidemark/internal/history"
	"tidemark/internal/vault"
	"tidemark/internal/vfs"
	"tidemark/test/chaos/nodes"
)

// TestChaosMirror is one run; the package comment says what it does.
func TestChaosMirror(t *testing.T) {
	c := choose(t)
	repeat := fmt.Sprintf("T=%v SEED=%d", c.runFor, c.seed)
	t.Logf("seed %d, rounds for %v: %s repeats rounds and faults", c.seed, c.runFor, repeat)
	dir := workFolder(t)
	w := startWorld(t, dir, c)
	t.Cleanup(func() { w.lastReport(dir, repeat) })
	w.whole("before any fault", w.clusters()...)
	until, cancel := context.WithCancel(t.Context())
	defer cancel()
	var harming sync.WaitGroup
	harming.Go(func() { w.n.run(until) })
	if w.k != nil {
		w.leaveKafka()
	}
	end := time.AfterFunc(c.runFor, cancel)
	defer end.Stop()
	p, s := w.a, w.b
	for n := 1; until.Err() == nil && !t.Failed(); n++ {
		w.changeSides(n, p, s)
		p, s = s, p
	}
	cancel()
	harming.Wait()
	if t.Failed() {
		return
	}
	w.finish(p)
	w.judge()
}

// workFolder is kept if the test fails.
func workFolder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "tidemark-chaosmirror-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if !t.Failed() {
			if err := os.RemoveAll(dir); err != nil {
				t.Error(err)
			}
		}
	})
	return dir
}

// finish heals everything, stops the writers and waits until all clusters hold the same.
func (w *world) finish(primary *cluster) {
	t := w.t
	w.n.heal()
	w.whole("after the last fault", w.clusters()...)
	before := w.book.ackedOn(primary.name)
	eventually(t, healLimit, primary.name+" takes writes after the last fault", func() error {
		if now := w.book.ackedOn(primary.name); now < before+50 {
			return fmt.Errorf("%d of 50 were acknowledged", now-before)
		}
		return nil
	})
	w.writers[primary].stop(healLimit)
	w.log("the writers have stopped")
	w.noTxnOpen(primary) // while its readers run: the markers are theirs to pass
	eventually(t, healLimit, "the readers reach the end", func() error { return w.atTheEnd(primary) })
	w.writers[primary].stopReading()
	w.writers[primary] = nil
	eventually(t, healLimit, "all clusters end alike", func() error {
		var first records
		for _, c := range w.clusters() {
			r, err := c.look(t.Context())
			if err != nil {
				return err
			}
			for _, tp := range partitions() {
				rec := r.partitions[tp]
				switch {
				case rec.Writable != (c == primary), c != primary && rec.Mirror.State != meta.MirrorMirroring:
					return fmt.Errorf("%s: %s is %s", c.name, tp, mirrorText(rec))
				case first.partitions != nil && !slices.Equal(lineage(rec), lineage(first.partitions[tp])):
					return fmt.Errorf("%s: %s has timelines %v, A has %v", c.name, tp, rec.Timelines, first.partitions[tp].Timelines)
				}
			}
			if first.partitions == nil {
				first = r
			}
		}
		return w.sameEnds()
	})
	w.log("all clusters end alike")
	w.groupsEndAlike()
	w.hearFalls()
}

// sameEnds says where a cluster's log ends elsewhere than A's.
func (w *world) sameEnds() error {
	ctx, cancel := context.WithTimeout(w.t.Context(), callTimeout)
	defer cancel()
	want := map[types.TopicPartition]int64{}
	for _, c := range w.clusters() {
		listed, err := c.adm.ListEndOffsets(ctx, topics()...)
		if err != nil {
			return err
		}
		for _, tp := range partitions() {
			o, ok := listed.Lookup(tp.Topic, tp.Partition)
			if !ok || o.Err != nil {
				return fmt.Errorf("%s: the end of %s: %v", c.name, tp, o.Err)
			}
			if end, known := want[tp]; known && end != o.Offset {
				return fmt.Errorf("%s: %s ends at %d, on A at %d", c.name, tp, o.Offset, end)
			}
			want[tp] = o.Offset
		}
	}
	return nil
}

// judge reads everything, ends the nodes in order, and checks histories, folders and vaults.
func (w *world) judge() {
	t := w.t
	w.observeAll(true, w.clusters()...)
	for _, c := range w.clusters() {
		w.observeGroups(c, true)
		w.observeCommitted(c, true)
	}
	for _, other := range []*cluster{w.b, w.c} {
		ctx, cancel := context.WithTimeout(t.Context(), healLimit)
		results, err := compare.Partitions(ctx, w.a.side, other.side, topics(), compare.Options{})
		cancel()
		if err != nil {
			t.Error(err)
		}
		for _, r := range results {
			if r.Difference != "" {
				t.Errorf("A and %s differ in %s: %s", other.name, r.TopicPartition, r.Difference)
			}
			w.saw("bytes compared between two clusters", int(r.Bytes))
		}
	}
	w.whole("in the end", w.clusters()...)
	var ending sync.WaitGroup
	for _, c := range w.clusters() {
		ending.Go(func() {
			for _, b := range c.nodes {
				b.End(syscall.SIGTERM)
			}
		})
	}
	ending.Wait()
	for _, tp := range partitions() {
		var replicas []history.Replica
		for _, c := range w.clusters() {
			for _, b := range c.nodes {
				replicas = append(replicas, history.Replica{Name: fmt.Sprintf("node %d of %s", b.ID, c.name), FS: vfs.OS(), Dir: filepath.Join(b.Dir, tp.String())})
			}
		}
		differ, err := history.CompareReplicas(tp, w.book.seenEnd("A", tp), replicas...)
		if err != nil {
			t.Error(err)
		}
		w.report(differ)
	}
	for _, c := range w.clusters() {
		for _, b := range c.nodes {
			w.readVault(c, b)
		}
	}
	w.report(w.book.judge.Check())
}

// readVault tells the judge what a stopped node's vault holds.
func (w *world) readVault(c *cluster, b *nodes.Node) {
	v, err := vault.Open(vault.Options{FS: vfs.OS(), Dir: filepath.Join(b.Dir, "vault"), MaxBytes: -1, MaxAge: -1, ReadOnly: true, Now: func() types.Millis { return types.Millis(time.Now().UnixMilli()) }})
	if err != nil {
		w.t.Errorf("vault of node %d: %v", b.ID, err)
		return
	}
	entries, err := v.List()
	if err != nil {
		w.t.Error(err)
	}
	var scratch batch.Scratch
	for _, e := range entries {
		if e.Damaged != "" || e.DamagedBytes > 0 {
			w.t.Errorf("node %d: entry %s is damaged: %s, %d bytes", b.ID, e.ID, e.Damaged, e.DamagedBytes)
		}
		if partitionsOf[e.Topic] == 0 {
			continue
		}
		k := history.Kept{Cluster: c.name, Node: fmt.Sprintf("node %d", b.ID), Partition: types.TopicPartition{Topic: e.Topic, Partition: e.Partition}, Entry: e.ID, At: e.At, From: e.From, To: e.To,
			Before: w.lineageOf(e.TimelinesBefore), After: w.lineageOf(e.TimelinesAfter)}
		if err := v.Batches(e.ID, func(_ *batch.Header, raw []byte) error {
			one, err := history.NewBatch(raw, &scratch, idOf)
			k.Batches = append(k.Batches, one)
			return err
		}); err != nil {
			w.t.Errorf("node %d: entry %s: %v", b.ID, e.ID, err)
		}
		w.saw(fmt.Sprintf("vault entries of cause %s", e.Cause), 1)
		w.saw("records in vaults", int(e.Records))
		w.book.judge.Keep(k)
	}
}

// lineageOf reads a list as a manifest has it: the text of a timeline checkpoint.
func (w *world) lineageOf(list any) history.Lineage {
	if list == nil {
		return nil
	}
	text, ok := list.(string)
	if !ok {
		w.t.Errorf("a manifest's timelines are %v, no text", list)
		return nil
	}
	cp, err := timeline.ParseCheckpoint([]byte(text))
	if err != nil {
		w.t.Error(err)
	}
	return lineage(&meta.PartitionRecord{Timelines: cp.List})
}

// lastReport says what was injected and what was seen, and of a failure where to look.
func (w *world) lastReport(dir, repeat string) {
	t := w.t
	for _, c := range w.clusters() {
		for _, b := range c.nodes {
			for msg, n := range b.Complaints() {
				if strings.HasPrefix(msg, "PANIC") {
					t.Errorf("node %d: %d × %s", b.ID, n, msg)
				} else {
					w.saw(fmt.Sprintf("× %s wrote: %s", c.name, msg), n)
				}
			}
			if t.Failed() {
				b.End(syscall.SIGQUIT) // its log then says what each goroutine was doing
			}
		}
		c.mu.Lock()
		if c.operated > 0 {
			w.saw("unclean elections by the operator of "+c.name, c.operated)
		}
		c.mu.Unlock()
	}
	t.Logf("%s%s", w.n.table(), w.book.clients())
	if t.Failed() {
		if len(w.found) > 0 {
			t.Logf("FIRST VIOLATION: %s", w.found[0])
		}
		t.Logf("folders and logs are kept in %s; make chaos-mirror %s repeats rounds and faults", dir, repeat)
	}
}
