package coordinator

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"tidemark/internal/await"
	"tidemark/internal/batch"
	"tidemark/internal/core/errcode"
	"tidemark/internal/core/group"
	"tidemark/internal/core/types"
	"tidemark/internal/wire"
)

func joinEvent(g, id string) group.Join {
	return group.Join{
		Group: g, MemberID: id, ClientID: "client", ClientHost: "/127.0.0.1", SessionTimeout: 60000, RebalanceTimeout: 60000,
		ProtocolType: "consumer", Protocols: []group.Protocol{{Name: "range", Metadata: []byte{0, 0, 0, 0, 0, 0}}},
	}
}

// member joins a group of its own and syncs.
func member(t *testing.T, ctx context.Context, c *Coordinator, g string) group.JoinResponse {
	t.Helper()
	j := c.Join(ctx, joinEvent(g, ""))
	if j.Code != errcode.None || j.Leader != j.MemberID {
		t.Fatalf("join: %+v", j)
	}
	s := c.Sync(ctx, group.Sync{
		Group: g, MemberID: j.MemberID, Generation: j.Generation,
		Assignments: []group.Assignment{{MemberID: j.MemberID, Data: []byte("all")}},
	})
	if s.Code != errcode.None || string(s.Assignment) != "all" {
		t.Fatalf("sync: %+v", s)
	}
	return j
}

func commit(g, memberID string, generation int32, offset types.Offset) group.Commit {
	return group.Commit{Group: g, MemberID: memberID, Generation: generation, Offsets: []group.CommitOffset{
		{Topic: "data", Partition: 0, Offset: offset, LeaderEpoch: 3, Metadata: "md", Retention: -1},
	}}
}

func mustCommit(t *testing.T, ctx context.Context, c *Coordinator, ev group.Commit) {
	t.Helper()
	r := c.Commit(ctx, ev)
	if r.Code != errcode.None || r.Partitions[0] != errcode.None {
		t.Fatalf("commit: %+v", r)
	}
}

func committed(t *testing.T, ctx context.Context, c *Coordinator, g string) types.Offset {
	t.Helper()
	all, code := c.Offset(ctx, g, []types.TopicPartition{{Topic: "data", Partition: 0}})
	if code != errcode.None {
		t.Fatalf("offset: %v", code)
	}
	return all[0].Offset
}

// Groups and offsets outlive the coordinator, as they are in the log.
func TestGroupsSurviveRestart(t *testing.T) {
	n, ctx := newFakeNode(4), testContext(t)
	c := n.start(t)
	n.lead(t, c)
	j := member(t, ctx, c, "g")
	if !strings.HasPrefix(j.MemberID, "client-") || len(j.MemberID) != len("client-")+36 {
		t.Errorf("member id %q, want the client's id and a UUID", j.MemberID)
	}
	mustCommit(t, ctx, c, commit("g", j.MemberID, 1, 5))
	mustCommit(t, ctx, c, commit("simple", "", -1, 6))
	mustCommit(t, ctx, c, commit("gone", "", -1, 7))
	if code := c.DeleteGroup(ctx, "gone"); code != errcode.None {
		t.Fatalf("delete: %v", code)
	}
	c.Close()
	if code := c.Heartbeat(ctx, group.Heartbeat{Group: "g", MemberID: j.MemberID, Generation: 1}); code != errcode.NotCoordinator {
		t.Errorf("a closed coordinator answers %v", code)
	}

	c = n.start(t)
	n.lead(t, c)
	if code := c.Heartbeat(ctx, group.Heartbeat{Group: "g", MemberID: j.MemberID, Generation: 1}); code != errcode.None {
		t.Errorf("heartbeat after the restart: %v", code)
	}
	all, code := c.Offsets(ctx, "g")
	if code != errcode.None || len(all) != 1 || all[0].Offset != 5 || all[0].LeaderEpoch != 3 || all[0].Metadata != "md" {
		t.Errorf("offsets after the restart: %+v, %v", all, code)
	}
	d, _ := c.Describe(ctx, "g")
	if d.State != group.Stable || len(d.Members) != 1 || string(d.Members[0].Assignment) != "all" || d.Members[0].ClientHost != "/127.0.0.1" {
		t.Errorf("group after the restart: %+v", d)
	}
	list, code := c.List(ctx, nil, nil)
	if code != errcode.None || len(list) != 2 {
		t.Errorf("list after the restart: %+v, %v", list, code)
	}
	if n := c.Count(ctx); len(n) != 2 || n[group.Kind{Type: group.TypeClassic, State: group.Stable}] != 1 || n[group.Kind{Type: group.TypeClassic, State: group.Empty}] != 1 {
		t.Errorf("counted after the restart: %+v", n)
	}
	if o := committed(t, ctx, c, "gone"); o != types.NoOffset {
		t.Errorf("a deleted group has offset %d", o)
	}
}

// Kafka's answers while a partition loads, and that a load waits for the high watermark.
func TestLoadInProgress(t *testing.T) {
	n, ctx := newFakeNode(1), testContext(t)
	c := n.start(t)
	n.setTopics(true)
	p := n.parts[0]
	p.lag = true
	first := batch.NewBuilder(batch.BuilderOptions{LeaderEpoch: -1})
	k, v := encodeRecord(group.OffsetRecord{Group: "g", TopicPartition: types.TopicPartition{Topic: "data"}, Value: &group.Committed{Offset: 8}})
	first.Append(1, k, v)
	raw, _ := first.Build()
	p.seed(raw)
	n.setRefuse(wire.ErrNotLeaderOrFollower)

	if r := c.Join(ctx, joinEvent("g", "")); r.Code != errcode.NotCoordinator {
		t.Errorf("join before the election: %v", r.Code)
	}
	c.Elected(0, 1)
	loading := func() {
		t.Helper()
		if r := c.Join(ctx, joinEvent("g", "")); r.Code != errcode.CoordinatorLoadInProgress {
			t.Errorf("join while loading: %v", r.Code)
		}
		if _, code := c.Offsets(ctx, "g"); code != errcode.CoordinatorLoadInProgress {
			t.Errorf("offsets while loading: %v", code)
		}
		if _, code := c.List(ctx, nil, nil); code != errcode.CoordinatorLoadInProgress {
			t.Errorf("list while loading: %v", code)
		}
		// A member's heartbeat succeeds: it must not leave because of a restart.
		if code := c.Heartbeat(ctx, group.Heartbeat{Group: "g", MemberID: "m", Generation: 1}); code != errcode.None {
			t.Errorf("heartbeat while loading: %v", code)
		}
	}
	loading()
	n.setRefuse(nil)
	await.True(t, "the load has reached the high watermark", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.watch) > 0
	})
	loading()
	p.catchUp()
	waitFor(t, c.Of(0).Ready())
	if o := committed(t, ctx, c, "g"); o != 8 {
		t.Errorf("loaded offset %d, want 8", o)
	}
}

// What a real Kafka may have left in the partition: transactions, control
// batches, records of other kinds, unreadable ones.
func TestLoadForeignBatches(t *testing.T) {
	n, ctx := newFakeNode(1), testContext(t)
	offset := func(g string, o types.Offset) (k, v []byte) {
		return encodeRecord(group.OffsetRecord{Group: g, TopicPartition: types.TopicPartition{Topic: "data"}, Value: &group.Committed{Offset: o}})
	}
	build := func(opts batch.BuilderOptions, kvs ...[]byte) []byte {
		opts.LeaderEpoch = -1
		b := batch.NewBuilder(opts)
		for i := 0; i < len(kvs); i += 2 {
			b.Append(1, kvs[i], kvs[i+1])
		}
		raw, err := b.Build()
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	txn := func(pid types.ProducerID) batch.BuilderOptions {
		return batch.BuilderOptions{Producer: &batch.Producer{ID: pid}, Transactional: true}
	}
	k1, v1 := offset("committed", 1)
	k2, v2 := offset("aborted", 2)
	k3, v3 := offset("open", 3)
	k4, v4 := offset("plain", 4)
	n.parts[0].seed(
		build(txn(1), k1, v1), build(txn(2), k2, v2), build(txn(3), k3, v3),
		batch.NewMarker(batch.Commit, 1, 0, 0, 1), batch.NewMarker(batch.Abort, 2, 0, 0, 1),
		build(batch.BuilderOptions{Codec: batch.Zstd}, []byte{0, 5, 0, 1, 'g'}, []byte("kip-848"), []byte("?"), []byte("?"), k4, v4),
	)
	c := n.start(t)
	n.lead(t, c)
	f := func(g string, want types.Offset) {
		t.Helper()
		if got := committed(t, ctx, c, g); got != want {
			t.Errorf("group %s at %d, want %d", g, got, want)
		}
	}
	f("committed", 1)
	f("aborted", -1)
	f("open", -1)
	f("plain", 4)
}

// A slow acknowledgement holds up its own answer and no other's.
func TestSlowAppend(t *testing.T) {
	n, ctx := newFakeNode(1), testContext(t)
	c := n.start(t)
	n.lead(t, c)
	j := member(t, ctx, c, "g")
	release, entered := make(chan struct{}), make(chan struct{}, 10)
	n.parts[0].setOnAppend(func(ctx context.Context, _ []byte) error {
		entered <- struct{}{}
		select {
		case <-release:
		case <-ctx.Done():
			return ctx.Err()
		}
		return nil
	})
	done := make(chan group.CommitResponse, 1)
	go func() { done <- c.Commit(ctx, commit("g", j.MemberID, 1, 5)) }()
	waitFor(t, entered)
	if code := c.Heartbeat(ctx, group.Heartbeat{Group: "g", MemberID: j.MemberID, Generation: 1}); code != errcode.None {
		t.Errorf("heartbeat: %v", code)
	}
	if o := committed(t, ctx, c, "g"); o != types.NoOffset {
		t.Errorf("offset %d is told before it is durable", o)
	}
	select {
	case r := <-done:
		t.Errorf("answered before the append was acknowledged: %+v", r)
	default:
	}
	// What comes meanwhile is written together.
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() { mustCommit(t, ctx, c, commit(fmt.Sprintf("other-%d", i), "", -1, 1)) })
	}
	await.True(t, "all commits wait", func() bool {
		pending := 0
		c.Of(0).look(ctx, func(t *group.Table) { pending = t.Pending() })
		return pending == 21
	})
	before := n.parts[0].appends
	close(release)
	if r := waitFor(t, done); r.Partitions[0] != errcode.None {
		t.Errorf("commit: %+v", r)
	}
	wg.Wait()
	n.parts[0].mu.Lock()
	defer n.parts[0].mu.Unlock()
	if got := n.parts[0].appends - before; got > 4 {
		t.Errorf("21 commits took %d appends", got)
	}
}

func TestAppendRefused(t *testing.T) {
	n, ctx := newFakeNode(1), testContext(t)
	c := n.start(t)
	n.lead(t, c)
	mustCommit(t, ctx, c, commit("g", "", -1, 1))
	f := func(refusal error, want errcode.Code) {
		t.Helper()
		n.parts[0].setOnAppend(func(context.Context, []byte) error { return refusal })
		r := c.Commit(ctx, commit("g", "", -1, 9))
		if r.Partitions[0] != want {
			t.Errorf("%v gave %+v, want %v", refusal, r, want)
		}
		if o := committed(t, ctx, c, "g"); o != 1 {
			t.Errorf("%v: offset %d", refusal, o)
		}
	}
	f(wire.ErrNotLeaderOrFollower, errcode.NotCoordinator)
	f(wire.ErrFencedLeaderEpoch, errcode.NotCoordinator)
	f(wire.ErrKafkaStorageError, errcode.NotCoordinator)
	f(wire.ErrNotEnoughReplicas, errcode.CoordinatorNotAvailable)
	f(wire.ErrRequestTimedOut, errcode.CoordinatorNotAvailable)
	f(wire.ErrMessageTooLarge, errcode.InvalidCommitOffsetSize)
	f(fmt.Errorf("disk"), errcode.CoordinatorNotAvailable)
}

// Resigning and closing answer what waits.
func TestResignAnswersParked(t *testing.T) {
	n, ctx := newFakeNode(1), testContext(t)
	c := n.start(t)
	n.lead(t, c)
	member(t, ctx, c, "g")
	parked := make(chan group.JoinResponse, 1)
	go func() { parked <- c.Join(ctx, joinEvent("g", "")) }()
	await.True(t, "the join is parked", func() bool {
		d, _ := c.Describe(ctx, "g")
		return len(d.Members) == 2
	})
	c.Resigned(0)
	if r := waitFor(t, parked); r.Code != errcode.NotCoordinator {
		t.Errorf("a parked join was answered with %+v", r)
	}
	if r := c.Join(ctx, joinEvent("g", "")); r.Code != errcode.NotCoordinator {
		t.Errorf("join after the resignation: %+v", r)
	}
	// Elected again, in a later epoch: the group is there as it was last written.
	n.parts[0].mu.Lock()
	n.parts[0].epoch = 2
	n.parts[0].mu.Unlock()
	c.Elected(0, 2)
	waitFor(t, c.Of(0).Ready())
	if d, _ := c.Describe(ctx, "g"); d.State != group.Stable || len(d.Members) != 1 {
		t.Errorf("group after the second election: %+v", d)
	}
}

// A node whose registration may be over says nothing of its groups: another one
// may lead them, and have acknowledged more (R10).
func TestLapsedAnswersNothing(t *testing.T) {
	n, ctx := newFakeNode(1), testContext(t)
	c := n.start(t)
	n.lead(t, c)
	j := member(t, ctx, c, "g")
	mustCommit(t, ctx, c, commit("g", j.MemberID, 1, 5))
	n.setRefuse(wire.ErrNotLeaderOrFollower)
	if _, code := c.Offsets(ctx, "g"); code != errcode.NotCoordinator {
		t.Errorf("offsets of a node that may not lead any more: %v", code)
	}
	if code := c.Heartbeat(ctx, group.Heartbeat{Group: "g", MemberID: j.MemberID, Generation: 1}); code != errcode.NotCoordinator {
		t.Errorf("a heartbeat to a node that may not lead any more: %v", code)
	}
	n.setRefuse(nil)
	if o := committed(t, ctx, c, "g"); o != 5 {
		t.Errorf("offset %d once the node leads again", o)
	}
}

// A requester that goes away leaves its member to its session, and the loop alone.
func TestRequesterGoesAway(t *testing.T) {
	n, ctx := newFakeNode(1), testContext(t)
	c := n.start(t)
	n.lead(t, c)
	member(t, ctx, c, "g")
	gone, cancel := context.WithCancel(ctx)
	parked := make(chan group.JoinResponse, 1)
	go func() { parked <- c.Join(gone, joinEvent("g", "")) }()
	await.True(t, "the join is parked", func() bool {
		d, _ := c.Describe(ctx, "g")
		return len(d.Members) == 2
	})
	cancel()
	waitFor(t, parked)
	if _, code := c.Offsets(ctx, "g"); code != errcode.None {
		t.Errorf("the loop answers %v", code)
	}
}

// A broken invariant costs the loop a new load, not the broker, and no
// requester hangs.
func TestLoopRecovers(t *testing.T) {
	n, ctx := newFakeNode(1), testContext(t)
	c := n.start(t)
	n.lead(t, c)
	j := member(t, ctx, c, "g")
	mustCommit(t, ctx, c, commit("g", j.MemberID, 1, 5))
	parked := make(chan group.JoinResponse, 1)
	go func() { parked <- c.Join(ctx, joinEvent("g", "")) }()
	await.True(t, "the join is parked", func() bool {
		d, _ := c.Describe(ctx, "g")
		return len(d.Members) == 2
	})
	c.Of(0).post(ctx, group.Appended{Token: 99}) // I-70
	if r := waitFor(t, parked); r.Code != errcode.CoordinatorNotAvailable {
		t.Errorf("the parked join was answered with %+v", r)
	}
	if o := committed(t, ctx, c, "g"); o != 5 {
		t.Errorf("offset %d after the new load", o)
	}
	if code := c.Heartbeat(ctx, group.Heartbeat{Group: "g", MemberID: j.MemberID, Generation: 1}); code != errcode.None {
		t.Errorf("heartbeat after the new load: %v", code)
	}
}

// Sessions end by the loop's own timer.
func TestSessionEnds(t *testing.T) {
	n, ctx := newFakeNode(1), testContext(t)
	c := n.start(t)
	n.lead(t, c)
	ev := joinEvent("g", "")
	ev.SessionTimeout = 20
	c.Join(ctx, ev)
	await.True(t, "the silent member is out", func() bool {
		d, _ := c.Describe(ctx, "g")
		return d.State == group.Empty
	})
}

// The offsets topic is made once, with Kafka's configs.
func TestFindCoordinatorMakesTopic(t *testing.T) {
	n, ctx := newFakeNode(8), testContext(t)
	c := n.start(t)
	var wg sync.WaitGroup
	for i := range 10 {
		wg.Go(func() {
			id, err := c.FindCoordinator(ctx, fmt.Sprintf("g%d", i))
			if err != nil || id != 7 {
				t.Errorf("find: %d, %v", id, err)
			}
		})
	}
	wg.Wait()
	if len(n.created) != 1 {
		t.Fatalf("the topic was created %d times", len(n.created))
	}
	made := n.created[0]
	if made.Name != OffsetsTopic || made.Partitions != 8 || made.ReplicationFactor != 1 {
		t.Errorf("created %+v", made)
	}
	f := func(name, want string) {
		t.Helper()
		if v := made.Configs[name]; v == nil || *v != want {
			t.Errorf("config %s is %v, want %s", name, v, want)
		}
	}
	f("cleanup.policy", "compact")
	f("compression.type", "producer")
	f("segment.bytes", "104857600")
}

func TestTopicsDeleted(t *testing.T) {
	n, ctx := newFakeNode(2), testContext(t)
	c := n.start(t)
	n.lead(t, c)
	mustCommit(t, ctx, c, commit("g", "", -1, 5))
	mustCommit(t, ctx, c, commit("h", "", -1, 5))
	c.TopicsDeleted(ctx, []DeletedTopic{{Name: "data", ID: dataTopicID}})
	for _, g := range []string{"g", "h"} {
		await.True(t, "the offsets are gone", func() bool { return committed(t, ctx, c, g) == types.NoOffset })
	}
}

// Many members in many groups at once, with restarts of the coordinator: to be run with -race.
func TestManyGroups(t *testing.T) {
	n, ctx := newFakeNode(3), testContext(t)
	c := n.start(t)
	n.lead(t, c)
	var wg sync.WaitGroup
	for i := range 30 {
		wg.Go(func() {
			g := fmt.Sprintf("g%d", i)
			j := member(t, ctx, c, g)
			for o := range types.Offset(20) {
				mustCommit(t, ctx, c, commit(g, j.MemberID, 1, o))
			}
			if r := c.Leave(ctx, group.Leave{Group: g, Members: []group.LeavingMember{{MemberID: j.MemberID}}}); r.Code != errcode.None || r.Members[0] != errcode.None {
				t.Errorf("leave: %+v", r)
			}
		})
	}
	wg.Wait()
	list, _ := c.List(ctx, []string{"empty"}, []string{"classic"})
	if len(list) != 30 {
		t.Errorf("%d empty groups", len(list))
	}
	for i := range 30 {
		if o := committed(t, ctx, c, fmt.Sprintf("g%d", i)); o != 19 {
			t.Errorf("group %d at %d", i, o)
		}
	}
}

// Before a shutdown the joins and syncs that wait are answered, so that it
// doesn't take as long as a rebalance; commits go on.
func TestDrain(t *testing.T) {
	n, ctx := newFakeNode(1), testContext(t)
	c := n.start(t)
	n.lead(t, c)
	j := member(t, ctx, c, "g")
	parked := make(chan group.JoinResponse, 1)
	go func() { parked <- c.Join(ctx, joinEvent("g", "")) }()
	await.True(t, "the join is parked", func() bool {
		d, _ := c.Describe(ctx, "g")
		return len(d.Members) == 2
	})
	c.Drain()
	if r := waitFor(t, parked); r.Code != errcode.NotCoordinator {
		t.Errorf("the parked join was answered with %+v", r)
	}
	if r := c.Join(ctx, joinEvent("g", "")); r.Code != errcode.NotCoordinator {
		t.Errorf("a late join was answered with %+v", r)
	}
	if r := c.Sync(ctx, group.Sync{Group: "g", MemberID: j.MemberID, Generation: 1}); r.Code != errcode.NotCoordinator {
		t.Errorf("a late sync was answered with %+v", r)
	}
	mustCommit(t, ctx, c, commit("g", j.MemberID, 1, 5))
}
