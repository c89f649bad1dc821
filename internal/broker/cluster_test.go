package broker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"testing"

	"tidemark/internal/batch"
	"tidemark/internal/broker/api"
	"tidemark/internal/config"
	"tidemark/internal/core/control"
	"tidemark/internal/core/meta"
	"tidemark/internal/core/timeline"
	"tidemark/internal/core/types"
	"tidemark/internal/metastore/mem"
	"tidemark/internal/metastore/storetest"
	"tidemark/internal/vfs"
	"tidemark/internal/wire"
)

// fleet is several nodes on one store in memory, whose clock the test moves.
type fleet struct {
	t     *testing.T
	store *mem.Store
	nodes map[types.BrokerID]*fleetNode
	set   []string
	// over, if not nil, puts something over the disks of nodes that start.
	over func(vfs.FS) vfs.FS
}

type fleetNode struct {
	*Broker
	fs    *vfs.Mem
	store *storetest.Severed
}

func newFleet(t *testing.T, n int, settings ...string) *fleet {
	f := &fleet{t: t, store: mem.New(), nodes: make(map[types.BrokerID]*fleetNode), set: settings}
	t.Cleanup(func() { _ = f.store.Close() })
	for i := range n {
		f.start(types.BrokerID(i + 1))
	}
	f.meet(n)
	return f
}

// start brings a node up, on the disk that it had before if it had one.
func (f *fleet) start(id types.BrokerID, settings ...string) *fleetNode {
	f.t.Helper()
	fs := vfs.NewMem()
	if old, ok := f.nodes[id]; ok {
		fs = old.fs
	}
	var all []config.Setting
	for _, s := range append(slices.Concat([]string{"listeners=PLAINTEXT://127.0.0.1:0", "log.dirs=/data", "num.shards=2", fmt.Sprint("node.id=", id)}, f.set), settings...) {
		one, err := config.ParseSet(s)
		if err != nil {
			f.t.Fatal(err)
		}
		all = append(all, one)
	}
	cfg, _, err := config.Resolve(all)
	if err != nil {
		f.t.Fatal(err)
	}
	n := &fleetNode{fs: fs, store: &storetest.Severed{Store: f.store}}
	disk := vfs.FS(fs)
	if f.over != nil {
		disk = f.over(fs)
	}
	if n.Broker, err = Open(testContext(f.t), cfg, Options{FS: disk, Store: n.store}); err != nil {
		f.t.Fatal(err)
	}
	f.nodes[id] = n
	f.t.Cleanup(func() { _ = n.Close(context.Background()) })
	return n
}

// meet waits until every node knows n brokers.
func (f *fleet) meet(n int) {
	f.t.Helper()
	for id, node := range f.nodes {
		eventually(f.t, fmt.Sprintf("node %d knows %d brokers", id, n), func() bool {
			known := 0
			for range node.Image().Brokers() {
				known++
			}
			return known == n
		})
	}
}

// kill cuts a node off from the metadata and ends its lease, as its death would in time.
func (f *fleet) kill(id types.BrokerID) {
	n := f.nodes[id]
	n.store.Cut(true)
	f.store.ExpireLease(n.lease.id())
}

// create makes a topic with given replicas and waits until every node knows it.
func (f *fleet) create(name string, assignment map[int32][]types.BrokerID, configs ...string) types.TopicID {
	f.t.Helper()
	r := api.CreateTopic{Name: name, Partitions: -1, ReplicationFactor: -1, Assignments: assignment, Configs: map[string]*string{}}
	for i := 0; i+1 < len(configs); i += 2 {
		r.Configs[configs[i]] = &configs[i+1]
	}
	made, err := f.any().Topics().Create(testContext(f.t), r)
	if err != nil {
		f.t.Fatal(err)
	}
	return made.ID
}

// any gives a node that isn't cut off.
func (f *fleet) any() *fleetNode {
	for id := types.BrokerID(1); ; id++ {
		if n, ok := f.nodes[id]; ok && !n.store.IsCut() {
			return n
		}
	}
}

// record waits until a partition's record is as a test wants it.
func (f *fleet) record(id types.TopicID, n int32, what string, ok func(*meta.PartitionRecord) bool) *meta.PartitionRecord {
	f.t.Helper()
	var r *meta.PartitionRecord
	defer func() {
		if f.t.Failed() {
			f.t.Logf("record: %+v", r)
		}
	}()
	eventually(f.t, what, func() bool {
		r, _ = f.any().Image().Partition(id, n)
		return r != nil && ok(r)
	})
	return r
}

func oneOf(all ...types.BrokerID) map[int32][]types.BrokerID {
	return map[int32][]types.BrokerID{0: all}
}

func ledBy(f *fleet, id types.BrokerID) func(*meta.PartitionRecord) bool {
	return func(r *meta.PartitionRecord) bool { return r.Leader == id && !control.NeedsLeader(f.any().Image(), r) }
}

// TestFailureOfABroker: the partitions that a lost broker led have leaders
// elsewhere, in a higher epoch, and no ISR names it; the lost broker serves
// nothing once its lease may be over (R10).
func TestFailureOfABroker(t *testing.T) {
	f := newFleet(t, 3, "broker.session.timeout.ms=1000")
	assignment := make(map[int32][]types.BrokerID)
	for n := range int32(12) {
		assignment[n] = []types.BrokerID{types.BrokerID(n%3 + 1), types.BrokerID((n+1)%3 + 1), types.BrokerID((n+2)%3 + 1)}
	}
	id := f.create("a", assignment)
	if c, ok := f.any().Image().Controller(); !ok || c.Record.Broker != 1 {
		t.Fatalf("controller %+v: the first node should be it", c)
	}
	// The controller itself goes: another takes the office first.
	f.kill(1)
	for n := range int32(12) {
		r := f.record(id, n, "a live leader and an ISR without the lost broker", func(r *meta.PartitionRecord) bool {
			return !control.NeedsLeader(f.any().Image(), r) && !r.InISR(1)
		})
		wantEpoch := types.LeaderEpoch(0)
		if n%3 == 0 {
			wantEpoch = 1
		}
		if r.LeaderEpoch != wantEpoch || len(r.ISR) != 2 {
			t.Errorf("partition %d: %+v, want leader epoch %d", n, r, wantEpoch)
		}
	}
	if c, ok := f.any().Image().Controller(); !ok || c.Record.Broker == 1 {
		t.Errorf("controller %+v", c)
	}
	p := mustPartition(t, f.nodes[1].Broker, "a", 0)
	eventually(t, "the lost broker fences itself", func() bool { return f.nodes[1].lease.over() })
	_, err := f.nodes[1].get(p.TopicID(), 0)
	wantCode(t, "the lost broker", err, wire.ErrNotLeaderOrFollower)
	// It comes back: a new registration that leads nothing.
	f.nodes[1].store.Cut(false)
	eventually(t, "broker 1 is registered again", func() bool { _, ok := f.nodes[2].Image().Broker(1); return ok })
}

// TestControlledShutdown: leaders move before the broker ends, and it comes back to them (R11's mark).
func TestControlledShutdown(t *testing.T) {
	f := newFleet(t, 2)
	id := f.create("a", oneOf(1, 2))
	lone := f.create("lone", oneOf(1))
	closing := make(chan error, 1)
	go func() { closing <- f.nodes[1].Close(context.Background()) }()
	eventually(t, "2 leads while 1 is still registered, or after", func() bool {
		r, _ := f.nodes[2].Image().Partition(id, 0)
		return r != nil && r.Leader == 2
	})
	if err := <-closing; err != nil {
		t.Fatal(err)
	}
	r, _ := f.nodes[2].Image().Partition(id, 0)
	if r.LeaderEpoch != 1 || !slices.Equal(r.ISRIDs(), []types.BrokerID{2}) {
		t.Errorf("%+v", r)
	}
	before, _ := f.nodes[2].Image().Partition(lone, 0)
	if before.Leader != 1 {
		t.Errorf("a lone replica's record: %+v", before)
	}
	f.start(1)
	f.record(lone, 0, "1 leads its lone replica again", func(r *meta.PartitionRecord) bool { return ledBy(f, 1)(r) && r.LeaderEpoch > before.LeaderEpoch })
}

// TestUncleanElectionTakesTheBest: of the live replicas outside the ISR the one
// with the longest history leads, not the first one (R11).
func TestUncleanElectionTakesTheBest(t *testing.T) {
	f := newFleet(t, 3)
	for _, b := range []types.BrokerID{2, 3} {
		// They follow nobody, not even once: who was seen to be caught up would join the ISR again.
		f.nodes[b].fetchers.Close()
	}
	id := f.create("a", oneOf(1, 2, 3), "unclean.leader.election.enable", "true")
	for _, b := range []types.BrokerID{2, 3} {
		eventually(t, "the replica is there", func() bool { _, ok := f.nodes[b].PartitionByName("a", 0); return ok })
		p := mustPartition(t, f.nodes[b].Broker, "a", 0)
		err := p.Do(testContext(t), func(o *Owned) error {
			r, _ := o.Record()
			if err := o.Log().SetTimelineCheckpoint(timeline.Checkpoint{List: r.Timelines, LeaderEpoch: r.LeaderEpoch}.Format()); err != nil {
				return err
			}
			for range b { // 3 gets more than 2
				raw := oneBatch(t, "x")
				batch.Stamp(raw, o.Log().View().LogEnd, 0)
				if _, err := o.Log().AppendAsFollower(raw, 0); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	leader := f.nodes[1]
	plan, err := control.UpdatePartition(leader.Image(), id, 0, func() meta.PartitionRecord {
		r, _ := leader.Image().Partition(id, 0)
		next := r.Clone()
		next.ISR = next.ISR[:1]
		return next
	}(), leader.me())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := leader.Commit(testContext(t), plan); err != nil {
		t.Fatal(err)
	}
	f.kill(1)
	r := f.record(id, 0, "somebody leads", func(r *meta.PartitionRecord) bool { return r.Leader != 1 })
	if r.Leader != 3 || !slices.Equal(r.ISRIDs(), []types.BrokerID{3}) {
		t.Errorf("%+v, want 3 to lead", r)
	}
}

// TestReassignment: a partition moves to another node; the one that it leaves
// drops its folder, also if it was away meanwhile.
func TestReassignment(t *testing.T) {
	f := newFleet(t, 3)
	for name, away := range map[string]bool{"here": false, "away": true} {
		id := f.create(name, oneOf(1))
		p := mustPartition(t, f.nodes[1].Broker, name, 0)
		mustAppend(t, p, "x")
		eventually(t, "the third node knows the topic", func() bool { _, ok := f.nodes[3].Image().Topic(id); return ok })
		errs := (&elections{f.nodes[3].Broker}).Reassign(testContext(t), []api.Reassignment{{Partition: meta.PartitionID{Topic: id}, Replicas: []types.BrokerID{2}}})
		if errs[0] != nil {
			t.Fatal(errs[0])
		}
		f.record(id, 0, "under way", func(r *meta.PartitionRecord) bool { return len(r.Replicas) == 2 || r.Leader == 2 })
		// The leader finds 2 in sync, if it hasn't already, and the controller ends the move.
		err := f.nodes[1].plan(testContext(t), func(i *meta.Image) ([]meta.Plan, error) {
			r, _ := i.Partition(id, 0)
			if r.InISR(2) || r.Leader != 1 {
				return nil, nil
			}
			next := r.Clone()
			epoch, _ := i.BrokerEpoch(2)
			next.ISR = append(next.ISR, meta.ISRMember{ID: 2, BrokerEpoch: epoch})
			plan, err := control.UpdatePartition(i, id, 0, next, f.nodes[1].me())
			return []meta.Plan{plan}, err
		})
		if err != nil {
			t.Fatal(err)
		}
		r := f.record(id, 0, "2 leads alone", func(r *meta.PartitionRecord) bool {
			return ledBy(f, 2)(r) && slices.Equal(r.Replicas, []types.BrokerID{2})
		})
		if len(r.Adding)+len(r.Removing) != 0 || !slices.Equal(r.ISRIDs(), []types.BrokerID{2}) {
			t.Errorf("%+v", r)
		}
		if away {
			// As if it had not been told: its folder is back at the next start.
			closeNode(t, f.nodes[1].Broker)
			if err := f.nodes[1].fs.MkdirAll("/data/" + name + "-0"); err != nil {
				t.Fatal(err)
			}
			f.start(1)
		}
		eventually(t, "the folder is gone", func() bool {
			_, err := f.nodes[1].fs.Stat("/data/" + name + "-0")
			return errors.Is(err, fs.ErrNotExist)
		})
		if _, held := f.nodes[1].PartitionByName(name, 0); held {
			t.Error("1 still holds the partition")
		}
	}
}
