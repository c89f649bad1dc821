package consumer

import (
	"slices"
	"testing"

	"tidemark/internal/core/errcode"
)

// settled is a group of two members in epoch 3: m1 has a-0 and a-1, m2 has a-2 and a-3.
func settled(t *testing.T) *bench {
	b := newBench(t, map[string]int32{"a": 4})
	b.beat(join("m1", "a"))
	b.beat(join("m2", "a"))
	b.beat(at("m1", 2).owning(parts("a", 0, 1)...))
	if a, code := b.beat(at("m2", 3)); code != 0 || !slices.Equal(a.Assignment, parts("a", 2, 3)) {
		t.Fatalf("m2 has %v, code %d\n%s", a.Assignment, code, show(b.g))
	}
	return b
}

// A member that is to give something up stays in its epoch until it has; who waits for it gets it then.
func TestRevocation(t *testing.T) {
	b := newBench(t, map[string]int32{"a": 4})
	f := func(h Heartbeat, epoch int32, told bool, want ...int32) {
		t.Helper()
		a, code := b.beat(h)
		if code != 0 || a.Epoch != epoch || a.HasAssignment != told || told && !slices.Equal(a.Assignment, parts("a", want...)) {
			t.Errorf("answer %+v, code %d; want epoch %d, %v %v\n%s", a, code, epoch, told, want, show(b.g))
		}
	}
	f(join("m1", "a"), 2, true, 0, 1, 2, 3)
	f(at("m1", 2), 2, false)
	f(join("m2", "a"), 3, true) // it has nothing yet: m1 has all
	f(at("m2", 3), 3, false)
	f(at("m1", 2), 2, true, 0, 1) // told to let go of two
	if b.g.members["m1"].State != UnrevokedPartitions || b.g.State() != GroupReconciling {
		t.Errorf("state %v of the member, %v of the group", b.g.members["m1"].State, b.g.State())
	}
	f(at("m1", 2).owning(parts("a", 0, 1, 2)...), 2, false) // not yet
	f(at("m2", 3), 3, false)
	f(at("m1", 2).owning(parts("a", 0, 1)...), 3, false) // it knows already
	f(at("m2", 3), 3, true, 2, 3)
	if b.g.State() != GroupStable {
		t.Errorf("the group is %v", b.g.State())
	}
}

// Kafka's codes for members that aren't who or where they say they are.
func TestRefusals(t *testing.T) {
	f := func(want errcode.Code, h Heartbeat) {
		t.Helper()
		b := settled(t)
		b.beat(join("s", "a").static("i"))
		before := show(b.g)
		if _, code := b.beat(h); code != want {
			t.Errorf("%+v: code %d, want %d", h, code, want)
		}
		if after := show(b.g); want != 0 && before != after {
			t.Errorf("a refused heartbeat has changed the group from\n%s\nto\n%s", before, after)
		}
	}
	f(0, at("m1", 3))
	f(0, at("m1", 2).owning(parts("a", 0)...)) // it missed the answer that told of epoch 3
	f(errcode.FencedMemberEpoch, at("m1", 2))
	f(errcode.FencedMemberEpoch, at("m1", 2).owning(parts("a", 2)...))
	f(errcode.FencedMemberEpoch, at("m1", 8))
	f(errcode.UnknownMemberID, at("m9", 3))
	f(errcode.UnknownMemberID, at("m9", LeaveEpoch))
	f(0, join("m1", "a")) // a member that begins anew under its id
	f(0, at("m1", LeaveEpoch))
	f(errcode.UnreleasedInstanceID, join("s2", "a").static("i"))
	f(errcode.InvalidRegularExpression, join("s2").static("j").regex("("))
	f(errcode.FencedInstanceID, at("s2", 4).static("i"))
	f(errcode.FencedInstanceID, at("s2", LeaveEpoch).static("i"))
	f(errcode.UnknownMemberID, at("s", 4).static("j"))
	f(errcode.UnknownMemberID, at("s", LeaveEpoch).static("j"))
	f(0, join("s", "a").static("i"))
	f(errcode.UnsupportedAssignor, join("m9", "a").assignor("sticky"))
	f(0, join("m9", "a").assignor("range"))
	f(errcode.InvalidRegularExpression, join("m9").regex("("))
	f(errcode.InvalidRegularExpression, join("m9").regex("a)(b"))
	f(errcode.InvalidRegularExpression, join("m9").regex(`(?=a)b`)) // Java's, not RE2's
	f(0, join("m9").regex("a.*"))

	bad := func(change func(h *Heartbeat)) {
		t.Helper()
		h := join("m9", "a")
		change(&h)
		f(errcode.InvalidRequest, h)
	}
	blank := " "
	bad(func(h *Heartbeat) { h.MemberID = "" })
	bad(func(h *Heartbeat) { h.InstanceID = &blank })
	bad(func(h *Heartbeat) { h.RackID = &blank })
	bad(func(h *Heartbeat) { h.RebalanceTimeout = -1 })
	bad(func(h *Heartbeat) { h.HasOwned = false })
	bad(func(h *Heartbeat) { h.Owned = parts("a", 1) })
	bad(func(h *Heartbeat) { h.HasTopics = false })
	bad(func(h *Heartbeat) { h.Epoch = -3 })
	bad(func(h *Heartbeat) { h.Epoch = StaticLeaveEpoch })
}

// group.consumer.max.size keeps members out, but not those who are in, or come in another's stead.
func TestMaxSize(t *testing.T) {
	b := newBench(t, map[string]int32{"a": 4})
	b.cfg.MaxSize = 2
	f := func(want errcode.Code, h Heartbeat) {
		t.Helper()
		if _, code := b.beat(h); code != want {
			t.Errorf("%+v: code %d, want %d", h, code, want)
		}
	}
	f(0, join("m1", "a"))
	f(0, join("s", "a").static("i"))
	f(errcode.GroupMaxSizeReached, join("m3", "a"))
	f(0, join("m1", "a"))
	f(0, at("s", StaticLeaveEpoch).static("i"))
	f(0, join("s2", "a").static("i"))
	f(0, at("m1", LeaveEpoch))
	f(0, join("m3", "a"))
}

// A static member's place and partitions wait for it; nobody else's change.
func TestStaticMember(t *testing.T) {
	b := newBench(t, map[string]int32{"a": 4})
	b.beat(join("s", "a").static("i"))
	b.beat(join("m", "a"))
	b.beat(at("s", 2).static("i").owning(parts("a", 0, 1)...))
	b.beat(at("m", 3))
	epoch := b.g.Epoch()
	if a, code := b.beat(at("s", StaticLeaveEpoch).static("i")); code != 0 || a.Epoch != StaticLeaveEpoch {
		t.Fatalf("%+v, %d", a, code)
	}
	if a, _ := b.beat(at("m", 3)); a.HasAssignment {
		t.Errorf("the other is given %v meanwhile", a.Assignment)
	}
	a, code := b.beat(join("t", "a").static("i"))
	if code != 0 || a.Epoch != epoch || !slices.Equal(a.Assignment, parts("a", 0, 1)) || b.g.Epoch() != epoch {
		t.Errorf("%+v, %d\n%s", a, code, show(b.g))
	}
	if _, code := b.beat(at("s", 3).static("i")); code != errcode.FencedInstanceID {
		t.Errorf("the first one is told %d", code)
	}
	// One that stays away is out after its session.
	b.beat(at("t", StaticLeaveEpoch).static("i"))
	b.now += 9_000
	b.beat(at("m", 3))
	b.now += 2_000
	if out := b.g.Expire(b.env()); len(out) != 1 || out[0].MemberID != "t" {
		t.Errorf("out: %v", out)
	}
	b.keep()
	if a, _ := b.beat(at("m", 3)); !slices.Equal(a.Assignment, parts("a", 0, 1, 2, 3)) {
		t.Errorf("the other has %v", a.Assignment)
	}
}

// Who is silent is out, and who doesn't let go in time.
func TestTimeouts(t *testing.T) {
	b := settled(t)
	b.now += 9_999
	b.beat(at("m2", 3))
	b.now++
	if out := b.g.Expire(b.env()); len(out) != 1 || out[0].MemberID != "m1" {
		t.Errorf("out: %v", out)
	}
	b.keep()
	if _, code := b.beat(at("m1", 3)); code != errcode.UnknownMemberID {
		t.Errorf("who is out is told %d", code)
	}

	b = newBench(t, map[string]int32{"a": 4})
	b.beat(join("m1", "a"))
	b.beat(join("m2", "a"))
	b.beat(at("m1", 2)) // told to let go
	b.now += 4_999
	b.beat(at("m1", 2).owning(parts("a", 0, 1, 2, 3)...))
	if out := b.g.Expire(b.env()); len(out) != 0 {
		t.Errorf("out: %v", out)
	}
	b.now++
	if at, due := b.g.Deadline(); !due || at > b.now {
		t.Errorf("nothing is due at %d: %d %v", b.now, at, due)
	}
	if out := b.g.Expire(b.env()); len(out) != 1 || out[0].MemberID != "m1" {
		t.Errorf("out: %v\n%s", out, show(b.g))
	}
}

// Topics that come, grow and go raise the group's epoch with the next heartbeat.
func TestTopicsChange(t *testing.T) {
	b := newBench(t, map[string]int32{"a": 1})
	b.beat(join("m", "a").regex("x.*"))
	f := func(epoch int32, want []Partition, change func()) {
		t.Helper()
		change()
		b.topics.version++
		m := b.g.members["m"]
		a, code := b.beat(at("m", m.Epoch).owning(m.Assigned.Sorted()...))
		if m.Epoch != epoch && len(m.Assigned) > len(want) { // it has to let go first
			a, code = b.beat(at("m", a.Epoch).owning(want...))
		}
		if got := b.g.members["m"].Assigned.Sorted(); code != 0 || a.Epoch != epoch || !slices.Equal(got, want) {
			t.Errorf("epoch %d, %v; want %d, %v", a.Epoch, got, epoch, want)
		}
	}
	topic := func(name string, n int32) func() {
		return func() { b.topics.byName[name] = Topic{Name: name, ID: topicID(name), Partitions: n} }
	}
	f(2, parts("a", 0), func() {})
	f(2, parts("a", 0), topic("other", 1))
	f(3, parts("a", 0, 1), topic("a", 2))
	f(4, slices.Concat(parts("a", 0, 1), parts("x1", 0)), topic("x1", 1))
	f(5, parts("x1", 0), func() { delete(b.topics.byName, "a") })
}

// Commits are taken from who has a partition, in the epoch in which it was given it or later.
func TestCommits(t *testing.T) {
	b := settled(t)
	f := func(want errcode.Code, member string, epoch int32, ps ...Partition) {
		t.Helper()
		code := errcode.Code(0)
		if r := b.g.CheckCommit(member, epoch, ps); r != nil {
			code = r.Code
		}
		if code != want {
			t.Errorf("%s in epoch %d for %v: %d, want %d", member, epoch, ps, code, want)
		}
	}
	f(0, "m1", 3, parts("a", 0)...)
	f(0, "m1", 2, parts("a", 0)...) // it had it in epoch 2
	f(errcode.StaleMemberEpoch, "m1", 2, parts("a", 2)...)
	f(errcode.StaleMemberEpoch, "m1", 2, parts("a", 0, 2)...)
	f(errcode.StaleMemberEpoch, "m2", 2, parts("a", 2)...) // it was given it in epoch 3
	f(errcode.StaleMemberEpoch, "m1", 4, parts("a", 0)...)
	f(errcode.UnknownMemberID, "m3", 3)
	g := func(want errcode.Code, member string, epoch int32) {
		t.Helper()
		code := errcode.Code(0)
		if r := b.g.CheckFetch(member, epoch); r != nil {
			code = r.Code
		}
		if code != want {
			t.Errorf("fetch of %s in epoch %d: %d, want %d", member, epoch, code, want)
		}
	}
	g(0, "m1", 3)
	g(errcode.StaleMemberEpoch, "m1", 2)
	g(errcode.StaleMemberEpoch, "m1", 4)
	g(errcode.UnknownMemberID, "m3", 3)
}

// What a failed write changed is taken back; the next one says again what was.
func TestDrop(t *testing.T) {
	b := settled(t)
	before := show(b.g)
	if _, refused := b.g.Heartbeat(b.env(), at("m1", LeaveEpoch)); refused != nil {
		t.Fatal(refused)
	}
	during := show(b.g)
	kept := ""
	b.g.AsKept(func() { kept = show(b.g) })
	if kept != before || show(b.g) != during {
		t.Errorf("as kept\n%s\nwas\n%s", kept, before)
	}
	b.log = append(b.log, b.g.Changes()...) // the log has them, though nobody knows
	b.g.Drop()
	if after := show(b.g); after != before {
		t.Errorf("after a failed write\n%s\nwas\n%s", after, before)
	}
	b.keep()
	if loaded := show(b.reload()); loaded != before {
		t.Errorf("loaded\n%s\nwas\n%s", loaded, before)
	}
}

// The tombstones take all of a group out of the log.
func TestTombstones(t *testing.T) {
	b := settled(t)
	b.beat(join("m3", "a").regex("b.*"))
	if _, refused := b.g.Heartbeat(b.env(), join("m4", "a")); refused != nil {
		t.Fatal(refused)
	}
	b.log = append(b.log, b.g.Changes()...) // a write that has failed, and is there
	b.g.Drop()
	b.log = append(b.log, b.g.Tombstones()...)
	g := NewGroup("g", &b.cfg)
	for _, r := range b.log {
		g.Replay(r)
	}
	if g.Exists() || len(g.targets)+len(g.regexes)+len(g.owners)+len(g.static) > 0 {
		t.Errorf("left: %s", show(g))
	}
}

// A log in which a partition is two members', or a member has no profile, is no reason to stop.
func TestStrangeLog(t *testing.T) {
	cfg := testConfig
	g := NewGroup("g", &cfg)
	has := func(epoch int32) *Position {
		return &Position{Epoch: epoch, State: Stable, Assigned: Partitions{parts("a", 0)[0]: epoch}}
	}
	for _, r := range []Record{
		EpochRecord{Epoch: 5}, TargetEpochRecord{Epoch: 5},
		ProfileRecord{Member: "m1", Value: &Profile{}}, ProfileRecord{Member: "m2", Value: &Profile{}},
		PositionRecord{Member: "m1", Value: has(4)}, PositionRecord{Member: "m2", Value: has(5)},
		PositionRecord{Member: "m3", Value: has(5)}, TargetRecord{Member: "m4", Partitions: parts("a", 0)},
		PositionRecord{Member: "m2", Value: has(7)},
	} {
		g.Replay(r)
	}
	g.Loaded(1)
	if g.targetEpoch != 7 || g.epoch <= g.targetEpoch || len(g.members) != 2 || len(g.members["m1"].Assigned) != 0 || len(g.members["m2"].Assigned) != 1 || len(g.targets) != 0 {
		t.Error(show(g))
	}
}

// Heartbeats that are answered together share one target.
func TestTogether(t *testing.T) {
	b := newBench(t, map[string]int32{"a": 4})
	var filed []Filed
	for _, h := range []Heartbeat{join("m1", "a"), join("m2", "a"), join("s", "a").static("i"), at("m2", LeaveEpoch)} {
		f, refused := b.g.File(b.env(), h)
		if refused != nil {
			t.Fatal(refused)
		}
		filed = append(filed, f)
	}
	f := func(i int, want errcode.Code, epoch int32, n int) {
		t.Helper()
		a, refused := b.g.Answer(b.env(), filed[i])
		code := errcode.Code(0)
		if refused != nil {
			code = refused.Code
		}
		if code != want || a.Epoch != epoch || len(a.Assignment) != n {
			t.Errorf("%d: %d, %+v", i, code, a)
		}
	}
	f(0, 0, 5, 2)
	f(1, errcode.UnknownMemberID, 0, 0)
	f(2, 0, 5, 2)
	f(3, 0, LeaveEpoch, 0)
	targets := 0
	for _, r := range b.g.Changes() {
		if _, ok := r.(TargetEpochRecord); ok {
			targets++
		}
	}
	if targets != 1 {
		t.Errorf("%d targets", targets)
	}
}

// Topics that came with a write that has failed are looked at again.
func TestDropLooksAtTopicsAgain(t *testing.T) {
	b := newBench(t, map[string]int32{"a": 1})
	b.beat(join("m", "a").regex("x.*"))
	b.topics.byName["x"] = Topic{Name: "x", ID: topicID("x"), Partitions: 1}
	b.topics.version++
	if _, refused := b.g.Heartbeat(b.env(), at("m", 2)); refused != nil || !b.g.HasChanged() {
		t.Fatalf("%v, changes %v", refused, b.g.Changes())
	}
	b.g.Drop()
	if a, code := b.beat(at("m", 2)); code != 0 || !slices.Equal(a.Assignment, slices.Concat(parts("a", 0), parts("x", 0))) {
		t.Errorf("%+v, %d", a, code)
	}
}
