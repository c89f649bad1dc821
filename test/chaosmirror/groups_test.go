//go:build chaos && linux

package chaosmirror_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"tidemark/internal/console"
	"tidemark/internal/core/types"
	"tidemark/internal/history"
	"tidemark/test/chaos/harm"
)

// readers is the group that moves with the failovers: its members on A and B (and
// Kafka) together must be given every record. On C, which goes its own way for a
// while, others read.
const readers, chainReaders = "readers", "chain"

// commitEvery is the pace of the offsets that a generation commits without members.
const commitEvery = 300 * time.Millisecond

// ownGroup is the group that one generation alone commits for, at log ends: on its
// cluster nothing but the cut of a failback takes it back.
func (g *generation) ownGroup() string { return "own." + g.name }

// readGroups has a generation's groups read and commit until it is stopped.
func (g *generation) readGroups(stop context.Context) {
	group := readers
	if g.c == g.w.c {
		group = chainReaders
	}
	g.reading.Go(func() { g.readAs(stop, group) })
	g.reading.Go(func() { g.commitEnds(stop) })
}

// readAs is a member of a group: it writes down what it is given, then commits.
func (g *generation) readAs(stop context.Context, group string) {
	b := g.w.book
	cl, err := kgo.NewClient(g.c.options(
		kgo.ConsumerGroup(group), kgo.ConsumeTopics(topics()...), kgo.BlockRebalanceOnPoll(), kgo.DisableAutoCommit(), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.SessionTimeout(6*time.Second), kgo.HeartbeatInterval(500*time.Millisecond), kgo.FetchMaxWait(500*time.Millisecond), kgo.KeepControlRecords())...)
	if err != nil {
		g.w.t.Error(err)
		return
	}
	defer cl.CloseAllowingRebalance()
	for stop.Err() == nil {
		fetches := cl.PollRecords(stop, 500)
		next := map[string]map[int32]kgo.EpochOffset{}
		fetches.EachRecord(func(r *kgo.Record) {
			if !r.Attrs.IsControl() { // markers are only passed
				b.given(group, idOf(r.Value))
			}
			if next[r.Topic] == nil {
				next[r.Topic] = map[int32]kgo.EpochOffset{}
			}
			next[r.Topic][r.Partition] = kgo.EpochOffset{Epoch: r.LeaderEpoch, Offset: r.Offset + 1}
		})
		for topic, ps := range next {
			for p, o := range ps {
				g.committing(group, types.TopicPartition{Topic: topic, Partition: p}, types.Offset(o.Offset))
			}
		}
		if len(next) > 0 {
			ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
			cl.CommitOffsetsSync(ctx, next, nil) // one that fails is made good by the next
			cancel()
		}
		cl.AllowRebalance()
	}
}

func (g *generation) committing(group string, tp types.TopicPartition, at types.Offset) {
	b := g.w.book
	b.mu.Lock()
	defer b.mu.Unlock()
	b.judge.Committing(history.GroupCommit{Cluster: g.c.name, Group: group, Partition: tp, Lineage: g.lineages[tp], Offset: at})
}

// commitEnds commits log ends for the generation's own group.
func (g *generation) commitEnds(stop context.Context) {
	for harm.Pause(stop, commitEvery); stop.Err() == nil; harm.Pause(stop, commitEvery) {
		ctx, cancel := context.WithTimeout(context.Background(), callTimeout) // not cut short: an offset may not arrive after the failback
		if ends, err := g.c.adm.ListEndOffsets(ctx, topics()...); err == nil && ends.Error() == nil {
			own := kadm.Offsets{}
			for _, tp := range slices.SortedFunc(maps.Keys(g.timelines), byName) {
				if o, ok := ends.Lookup(tp.Topic, tp.Partition); ok {
					g.committing(g.ownGroup(), tp, types.Offset(o.Offset))
					own.Add(kadm.Offset{Topic: tp.Topic, Partition: tp.Partition, At: o.Offset, LeaderEpoch: o.LeaderEpoch})
				}
			}
			if _, err := g.c.adm.CommitOffsets(ctx, g.ownGroup(), own); err == nil {
				g.w.saw("offsets of log ends committed", 1)
			}
		}
		cancel()
	}
}

// stopReading ends a generation's groups.
func (g *generation) stopReading() {
	if g == nil {
		return
	}
	g.haltReading()
	g.reading.Wait()
}

func (b *book) given(group, value string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.judge.Given(group, value)
}

// groupNames are the groups of the run so far.
func (w *world) groupNames() []string {
	list := []string{readers, chainReaders}
	for _, name := range w.names {
		list = append(list, "own."+name)
	}
	return list
}

// offsetsOf asks a cluster for what all groups have committed.
func (w *world) offsetsOf(ctx context.Context, c *cluster) (map[string]map[types.TopicPartition]types.Offset, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	out := map[string]map[types.TopicPartition]types.Offset{}
	for name, r := range c.adm.FetchManyOffsets(ctx, w.groupNames()...) {
		if err := errors.Join(r.Err, r.Fetched.Error()); err != nil {
			return nil, fmt.Errorf("%s, group %s: %w", c.name, name, err)
		}
		out[name] = map[types.TopicPartition]types.Offset{}
		for _, tp := range partitions() {
			if o, ok := r.Fetched.Lookup(tp.Topic, tp.Partition); ok && o.At >= 0 {
				out[name][tp] = types.Offset(o.At)
			}
		}
	}
	return out, nil
}

// observeGroups has the judge look at all groups of a cluster none of whose
// partitions has a cut due.
func (w *world) observeGroups(c *cluster, final bool) {
	var views []history.GroupView
	eventually(w.t, healLimit, c.name+" shows its groups' offsets", func() error {
		views = nil
		r, err := c.look(w.t.Context())
		if err != nil {
			return err
		}
		offsets, err := w.offsetsOf(w.t.Context(), c)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(w.t.Context(), callTimeout)
		defer cancel()
		ends, err := c.adm.ListEndOffsets(ctx, topics()...)
		if err = errors.Join(err, ends.Error()); err != nil {
			return err
		}
		for group, at := range offsets {
			for tp, o := range at {
				end, ok := ends.Lookup(tp.Topic, tp.Partition)
				if rec := r.partitions[tp]; rec != nil && ok {
					views = append(views, history.GroupView{Cluster: c.name, Group: group, Partition: tp, Lineage: lineage(rec), Offset: o, End: types.Offset(end.Offset), Final: final && group == readers})
				}
			}
		}
		return nil
	})
	w.saw("group offsets looked at", len(views))
	w.book.mu.Lock()
	var found []history.Finding
	for _, v := range views {
		found = append(found, w.book.judge.ObserveGroup(v)...)
	}
	w.book.mu.Unlock()
	w.report(found)
}

// fall is an offset that a failback has to take back, and how often processes of
// its cluster had been started before.
type fall struct {
	history.GroupFall
	c      *cluster
	starts int
}

// falling lists what stands above the forks of partitions that are about to fail back.
func (w *world) falling(ctx context.Context, c *cluster, forks map[types.TopicPartition]types.Offset) ([]fall, error) {
	offsets, err := w.offsetsOf(ctx, c)
	if err != nil {
		return nil, err
	}
	var list []fall
	for _, group := range slices.Sorted(maps.Keys(offsets)) {
		for tp, fork := range forks {
			if at, ok := offsets[group][tp]; ok && at > fork {
				list = append(list, fall{history.GroupFall{Cluster: c.name, Group: group, Partition: tp, At: at, Fork: fork}, c, c.starts()})
			}
		}
	}
	return list, nil
}

// starts counts how often the cluster's processes were started.
func (c *cluster) starts() (n int) {
	for _, b := range c.nodes {
		n += b.Starts()
	}
	return n
}

// hearFalls asks for the events of the cuts that were due, once everything mirrors.
// Where no process ended meanwhile each must have been told.
func (w *world) hearFalls() {
	for _, c := range w.clusters() {
		for _, b := range c.nodes {
			var told console.Events
			eventually(w.t, healLimit, fmt.Sprintf("node %d tells of groups", b.ID), func() (err error) {
				ctx, cancel := context.WithTimeout(w.t.Context(), callTimeout)
				defer cancel()
				told, err = c.api(b).Events(ctx, console.EventFilter{Kinds: []string{"GROUP_CUT"}})
				return err
			})
			w.book.mu.Lock()
			for _, e := range told.Events {
				w.book.judge.Told(history.GroupTold{Cluster: c.name, Group: e.Group, Partition: types.TopicPartition{Topic: e.Topic, Partition: e.Partition}, From: e.To, To: e.From})
			}
			w.book.mu.Unlock()
		}
	}
	w.book.mu.Lock()
	for _, f := range w.falls {
		f.Excused = f.c.starts() != f.starts
		w.book.judge.MustFall(f.GroupFall)
	}
	w.book.mu.Unlock()
	w.saw("group offsets that failbacks had to take back", len(w.falls))
	w.falls = nil
}

// groupsEndAlike waits until the readers are at the end on every cluster.
func (w *world) groupsEndAlike() {
	eventually(w.t, healLimit, "the readers' group is at the end on all clusters", func() error {
		for _, c := range w.clusters() {
			if err := w.atTheEnd(c); err != nil {
				return err
			}
		}
		return nil
	})
	w.log("the readers' group is at the end on all clusters")
}

// atTheEnd says what the readers' group lacks on a cluster.
func (w *world) atTheEnd(c *cluster) error {
	ctx, cancel := context.WithTimeout(w.t.Context(), callTimeout)
	defer cancel()
	ends, err := c.adm.ListEndOffsets(ctx, topics()...)
	if err = errors.Join(err, ends.Error()); err != nil {
		return err
	}
	fetched, err := c.adm.FetchOffsets(ctx, readers)
	if err = errors.Join(err, fetched.Error()); err != nil {
		return err
	}
	for _, tp := range partitions() {
		end, _ := ends.Lookup(tp.Topic, tp.Partition)
		if at, ok := fetched.Lookup(tp.Topic, tp.Partition); !ok || at.At != end.Offset {
			return fmt.Errorf("%s: group %s is at %d of %s, which ends at %d", c.name, readers, at.At, tp, end.Offset)
		}
	}
	return nil
}
